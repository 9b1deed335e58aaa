"""A gain inside the model's error of a difference is grey, in every chart and table that shows one."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from reports import why
from reports.compare import throughput
from reports.guidelines import Finding
from reports.lead import architecture_of, lead, sentences
from reports.sections import guideline_table
from reports.trust import errors_at, format_error, share_error, within_error
from reports.why_section import ablation_block, alignment_block, format_block, quadrant_block
from spaces.formats import KV_FORMATS, RECIPES


@pytest.fixture(scope="module")
def found(small_run):
    return lead(small_run)


def grey(text: str) -> list[str]:
    """What is written in grey."""
    return re.findall(r'class="[^"]*noise[^"]*"[^>]*>([^<]*)<', text)


def with_errors(found, error):
    return replace(found, chosen_errors=tuple(error for _ in found.chosen_errors))


def test_gain_by_alignment(small_run, found):
    gains = {128: np.log1p([0.04, 0.20, 0.30]), 256: np.log1p([0.05, 0.21, 0.50])}
    text = alignment_block(small_run, with_errors(found, 0.1), gains)
    assert grey(text) == ["+4.0 %", "+5.0 %"] and "15 % at most." in text
    assert "at most, within model error" in alignment_block(small_run, with_errors(found, 0.2), gains)


def test_gain_per_axis(small_run, found):
    assert not grey(ablation_block(small_run, with_errors(found, 0.0)))
    every = ablation_block(small_run, with_errors(found, 9.0))
    assert len(grey(every)) >= 2 * sum(np.isfinite(c.gain).sum() for c in found.why.changes)  # bars and numbers


def test_axes_of_the_short_version(small_run, found):
    said = [str(p) for p in sentences(small_run, with_errors(found, 0.0))]
    assert "within model error" not in said[1] and " is solved" not in said[1]
    assert "The FFN width follows from the parameter budget" in said[1]
    unsure = str(sentences(small_run, with_errors(found, 9.0))[1])
    assert unsure.count("within model error") == said[1].count(" %)")


def test_gain_per_format(small_run):
    gains = [
        why.FormatGain("bf16", 0.0, 0.0, 0.0, (0.0, 0.0)),
        why.FormatGain("fp8", 0.5, 0.04, 0.004, (0.05, 0.05)),
    ]
    assert grey(format_block(gains, "bf16", small_run)) == ["baseline", "baseline", "+4.0 %"]


def test_gain_by_context_and_service(small_run):
    corner = why.Quadrant(1024, True, 100.0, (("FFN", 1.0),), "weight reads", 0.05)
    ahead, far = replace(corner, value=103.0), replace(corner, value=120.0)
    assert grey(quadrant_block(small_run, [corner, corner], [ahead, far])) == ["+3.0 %"]


def test_effect_of_a_guideline():
    findings = [Finding("G1", True, "square", "3 % less", 0.03), Finding("G6", False, "uneven", "idles 3 %", 0.03)]
    text = guideline_table(findings, None, "m", 0.05)
    assert "3 % less; within model error" in text  # counted, not predicted: idle layers have no error
    assert "idles 3 %; within" not in text


def test_gains_of_a_comparison_have_their_error(small_run):
    rows = throughput([small_run], ["a"])
    known = errors_at(small_run, rows[0]["target"])
    assert rows[0]["error"] == pytest.approx(known[(rows[0]["design"], rows[0]["recipe"], rows[0]["kv_format"])])


def test_errors_of_formats_come_from_the_kernels_that_differ(small_run, found):
    gpu = small_run.objective.cells[0].gpu
    parts = {"attention_linear": 0.3, "attention_core": 0.3, "ffn": 0.4}
    assert format_error(parts, parts, gpu, "bf16", moe=False) == 0
    fp8 = format_error(parts, parts, gpu, "fp8", moe=False)
    assert 0 < fp8 < 0.3
    assert format_error({**parts, "ffn": 0.0}, {**parts, "ffn": 0.0}, gpu, "fp8", moe=False) < fp8
    design = architecture_of(found.chosen)
    gains = {g.recipe: g for g in why.by_format(small_run.objective, design, KV_FORMATS.index("bf16"))}
    assert all(0 < error < 0.5 for error in gains["fp8"].errors) and not within_error(
        gains["fp8"].at_batch_1, gains["fp8"].errors[0]
    )
    corners = why.quadrants(small_run.objective, design, RECIPES.index("fp8"), KV_FORMATS.index("bf16"))
    assert all(0 < q.error < 0.5 for q in corners)
    shares = dict.fromkeys(("communication", "head", "overhead"), 0.0) | parts
    assert share_error(shares, gpu, "fp8", "bf16", False, False) > 0
