"""What the page explains: shares add up, variants keep their parameters, errors of differences, guidelines."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cost_model import kernels, load_accelerator
from reports import why
from reports.ablation import ablation
from reports.guidelines import TITLES, guidelines
from reports.lead import architecture_of, explain, lead
from reports.mixing import variant
from reports.roofline import roofline
from reports.trust import difference_error, within_error
from spaces import load_architecture
from spaces.formats import KV_FORMATS, RECIPES
from spaces.parameters import parameters


@pytest.fixture(scope="module")
def found(small_run):
    return lead(small_run)


def test_shares_of_the_axes_multiply_to_the_gain_in_the_table(small_run, found):
    for row in small_run.designs.head(3).to_dict("records"):
        result = explain(small_run, row)
        shares = np.sum([change.gain for change in result.changes], axis=0)
        assert shares == pytest.approx(result.total, nan_ok=True)
        table = [row[f"gain_at_{t:g}"] for t in small_run.targets]
        assert np.expm1(result.total) == pytest.approx(table, rel=1e-6, nan_ok=True)
        assert sum(change.loss for change in result.changes) == pytest.approx(row["shape_loss_difference"], abs=1e-9)


def test_the_reference_has_nothing_to_explain(small_run):
    result = ablation(small_run.objective, small_run.objective.space.reference, "fp8", "bf16", ("ffn",), 256)
    assert result.changes == () and result.total == pytest.approx(np.zeros(3))


def test_a_single_changed_axis_carries_the_whole_gain(small_run):
    reference = small_run.objective.space.reference
    design = variant(reference.as_dict(), {"kv_heads": 4}, "ffn", 256)
    assert design is not None
    result = ablation(small_run.objective, design, "fp8", "bf16", ("ffn",), 256)
    assert [change.fields for change in result.changes] == [("kv_heads",)]
    assert result.changes[0].gain == pytest.approx(result.total)
    assert (result.changes[0].before, result.changes[0].after) == ((8,), (4,))


@pytest.mark.parametrize("changes", [{"hidden": 3584}, {"layers": 40}, {"heads": 48}, {"layers": 24, "hidden": 4736}])
def test_a_variant_keeps_the_parameters(changes):
    base = load_architecture("llama-3.1-8b")
    other = variant(base.as_dict(), changes, "ffn", 128)
    assert other is not None
    ratio = parameters(other).non_embedding_total / parameters(base).non_embedding_total
    assert float(ratio) == pytest.approx(1, abs=0.02)


def test_fields_that_contradict_each_other_make_no_variant():
    base = load_architecture("llama-3.1-8b").as_dict()
    assert variant(base, {"kv_heads": 7}, "ffn", 128) is None
    assert variant(base, {"layers": 400}, "ffn", 128) is None


def one_point(**shares: float) -> pd.DataFrame:
    names = ("attention_linear", "attention_core", "ffn", "communication", "head", "overhead")
    parts = {f"{name}_s": 2e-3 * shares.get(name, 0.0) for name in names}
    fields = {"gpu": "h200-sxm", "recipe": "fp8", "kv_format": "bf16", "experts": 0, "kv_lora_rank": 0}
    return pd.DataFrame([{"tpot_s": 2e-3, **parts, **fields}])


def test_error_of_a_difference_is_what_pairs_of_shapes_showed():
    gpu = load_accelerator("h200-sxm")
    gpus = {"h200-sxm": gpu}
    linear = kernels.difference_error(gpu, "fp8")
    assert difference_error(one_point(ffn=1.0), gpus)[0] == pytest.approx(linear)
    # two components of half the time each, equally uncertain and independent: 1 / sqrt(2)
    assert difference_error(one_point(ffn=0.5, attention_linear=0.5), gpus)[0] == pytest.approx(linear / 2**0.5)
    low, high, _ = kernels.error_band(gpu, "attention_decode", "bf16")
    core = difference_error(one_point(attention_core=1.0), gpus)[0]
    assert core == pytest.approx((high / low) ** (0.5 * 2**0.5) - 1)  # measured on this GPU: no widening to take out


def test_within_error_is_symmetric_in_ratio():
    assert within_error(0.1, 0.2) and within_error(1 / 1.2 - 1, 0.2000001) and not within_error(-0.2, 0.2)
    assert not within_error(None, 0.2) and not within_error(0.1, None)


def test_every_guideline_is_measured(small_run, found):
    findings = guidelines(small_run.objective, architecture_of(found.chosen), "fp8", "bf16", "ffn", 256)
    assert [f.guideline for f in findings] == list(TITLES)
    by_name = {f.guideline: f for f in findings}
    assert by_name["G5"].followed is None and by_name["G4"].worth > 0.2
    assert by_name["G2"].followed and by_name["G2"].worth >= 0


def test_uneven_stages_idle(small_run):
    reference = small_run.objective.space.reference
    odd = variant(reference.as_dict(), {"layers": 33}, "ffn", 256)
    assert odd is not None
    finding = guidelines(small_run.objective, odd, "fp8", "bf16", "ffn", 256)[5]
    assert finding.followed is False and finding.worth == pytest.approx(36 / 33 - 1)


def test_formats_alignment_tolerance_and_quadrants(small_run, found):
    objective, design = small_run.objective, architecture_of(found.chosen)
    codes = RECIPES.index("fp8"), KV_FORMATS.index("bf16")
    formats = {g.recipe: g for g in why.by_format(objective, design, codes[1])}
    assert formats["bf16"].at_batch_1 == 0 and formats["fp8"].at_most_throughput > 0.2
    assert not [name for name in formats if name.endswith("-experts")]
    tolerance = why.by_tolerance(small_run, "fp8", "bf16")
    for low, high in zip(list(tolerance.values())[:-1], list(tolerance.values())[1:], strict=True):
        assert np.all((high >= low - 1e-9) | np.isnan(low))
    assert set(why.by_alignment(objective, design, *codes, "ffn")) <= set(why.ALIGNMENTS)
    corners = why.quadrants(objective, design, *codes)
    long = next(q for q in corners if q.context == why.LONG_CONTEXT and not q.latency)
    assert long.parts[0][0] == "attention core"  # the guide: long context, throughput: most time in attention
    assert all(sum(share for _, share in q.parts) == pytest.approx(1) for q in corners)


def test_operations_lie_under_the_roof(small_run):
    gpu = small_run.objective.cells[0].gpu
    points = small_run.points[small_run.points["kind"] == "own"].head(200)
    for intensity, rate in roofline(points, gpu, 1280.0, "balanced").values():
        there = np.isfinite(rate)
        roof = np.minimum(intensity * gpu.memory_bytes_per_s, max(gpu.format_flops))
        assert np.all(rate[there] <= 1.3 * roof[there])  # small operands are read from the last-level cache
