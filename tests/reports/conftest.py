"""One small real run for every test of the reports, with names that try to break out of the page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reports.page import write_report
from studies.run import run
from studies.study import build_study

HOSTILE = "</script><script>alert(1)</script> & \"chat\" <b>'x'"
STUDY = {
    "name": "small",
    "reference": "llama-3.1-8b",
    "budget": {"tolerance": 0.02, "solve": "ffn"},
    "space": {
        "hidden": {"min": 3072, "max": 5120, "step": 512},
        "layers": {"min": 24, "max": 40, "step": 4},
        "kv_heads": [4, 8],
        "align": 256,
        "recipe": ["bf16", "fp8"],
        "inner": ["recipe"],
    },
    "target": [{"gpu": "h200-sxm", "engine": "trtllm", "gpus": [1, 2, 4]}],
    "workload": [{"name": HOSTILE, "isl": 1024, "osl": 512}],
    "serving": {"max_ttft_s": 0.25, "pp": [1]},
    "search": {"interactivity_targets": [40, 100, 200], "trials": 60, "seed": 1},
}


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("reports") / "run"
    return run(build_study(STUDY, "tests"), out=out, progress=False, command="ridgeline run small")


@pytest.fixture(scope="session")
def report(small_run) -> Path:
    return write_report(small_run)


@pytest.fixture
def hostile() -> str:
    return HOSTILE


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium; skips with what is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (the test extra)")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs a Chromium on the PATH (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def open_page(browser):
    """Opens a file offline and keeps everything it complains about; waits until its plot is drawn."""

    def opened(path: Path, ready: str = "html[data-ready]"):
        page = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True).new_page()
        page.complaints = []
        page.on("console", lambda m: page.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("dialog", lambda dialog: page.complaints.append(f"dialog: {dialog.message}") or dialog.dismiss())
        local = ("file:", "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(local) else page.complaints.append(r.url))
        page.goto(path.resolve().as_uri())
        page.wait_for_selector(ready, state="attached")
        return page

    return opened


@pytest.fixture(scope="module")
def opened(open_page, report):
    return open_page(report)
