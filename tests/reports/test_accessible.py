"""No accessibility finding (axe-core, WCAG 2.2 A and AA) in any page; colours that colour-blind eyes tell apart."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import reports
from reports.advice import advise
from reports.advice_page import advice_page
from reports.compare_page import write_comparison
from reports.overlay import overlay_points
from reports.page import page

SCRIPTS = Path(reports.__file__).parent


@pytest.fixture(scope="module")
def axe() -> str:
    package = pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python (the test extra)")
    return (Path(package.__path__[0]) / "axe.min.js").read_text(encoding="utf-8")


def findings(opened, axe: str, within: str = "html") -> list[str]:
    """Violations of every impact, with everything folded out; a plot is one image with a name to those who hear it."""
    opened.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    opened.evaluate(axe)
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    where = {"include": [within], "exclude": ["#chart > *"]}
    result = opened.evaluate(
        "([where, tags]) => axe.run(where, {runOnly: tags, resultTypes: ['violations']})", [where, tags]
    )
    assert len(result["passes"]) > 5
    return [f"{v['impact']} {v['id']}: {v['nodes'][0]['html'][:200]}" for v in result["violations"]]


def test_the_report(open_page, small_run, axe, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page(small_run, overlay_points(small_run, ["qwen3-8b"])), encoding="utf-8")
    opened = open_page(path)
    assert findings(opened, axe) == []
    opened.locator("#designs-table tbody tr .pick").nth(1).click()
    assert findings(opened, axe, "#panel") == []


def test_a_comparison(open_page, small_run, axe, tmp_path):
    assert findings(open_page(write_comparison([small_run, small_run], tmp_path)), axe) == []


def test_advice(open_page, axe, tmp_path):
    path = tmp_path / "advice.html"
    path.write_text(advice_page(advise("llama-3.1-8b", "h200-sxm")), encoding="utf-8")
    assert findings(open_page(path, ready="main"), axe) == []


def colours(name: str, script: str) -> list[str]:
    text = (SCRIPTS / script).read_text(encoding="utf-8")
    found = re.search(rf"const {name} = [\[{{](.*?)[\]}}];", text, flags=re.S)
    assert found is not None
    return re.findall(r"#[0-9A-Fa-f]{6}", found[1])


# linear RGB as seen without red, or green, sensitive cones (Machado, Oliveira and Fernandes 2009, severity 1)
BLIND = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, eyes: str) -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as some eyes see it."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(BLIND[eyes] @ linear, 0, 1)
    f = np.cbrt(np.maximum(TO_XYZ @ seen / np.array([0.9505, 1.0, 1.089]), 1e-6))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eyes", list(BLIND))
def test_colours_that_stand_together_differ_for_every_eye(eyes):
    together = [
        colours("BOUND_COLOURS", "page_bounds.js"),
        colours("MEMORY_COLOURS", "page_bounds.js"),
        ["#0072B2", "#D55E00", "#1a2230", "#8d97a6"],  # selected design, best found, reference, the others
    ]
    for palette in together:
        assert len(palette) == 4
        for a, b in combinations(palette, 2):
            assert np.linalg.norm(lab(a, eyes) - lab(b, eyes)) > 12, (a, b)
