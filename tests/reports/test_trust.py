"""How far to trust a run: serving errors of the committed benchmark on this GPU and engine, or what is nearest."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from cost_model.accelerator import available, load_accelerator
from cost_model.engine import load_engine
from reports.accuracy import serving_accuracy
from reports.trust_section import engine_note, kernel_block, serving_block


def cell(**wanted):
    return next(c for c in serving_accuracy()["cell"] if all(c[key] == value for key, value in wanted.items()))


def test_errors_of_this_gpu_and_engine_are_shown():
    text = serving_block("h200-sxm", "trtllm", {"dense"})
    own = cell(gpu="h200-sxm", engine="trtllm", model_class="dense", mode="aggregated")
    assert f"{own['rank_correlation']:.3f}" in text and "dense, aggregated" in text
    assert "extrapolated" not in text and "moe, aggregated" not in text
    assert "all measured deployments" in text


@pytest.mark.parametrize(
    ("gpu", "engine", "classes", "said", "shown"),
    [
        ("h200-sxm", "sglang", {"dense"}, "No dense deployment was measured on h200-sxm with sglang", "mla-moe, agg"),
        ("b200-sxm", "trtllm", {"dense", "mla-moe"}, None, "mla-moe, aggregated"),
        ("rtx-pro-6000", "trtllm", {"moe"}, "No moe deployment was measured on rtx-pro-6000", "moe, aggregated, b200"),
        ("jetson-thor", "ideal", {"dense"}, "No dense deployment was measured on jetson-thor", "all measured"),
    ],
)
def test_what_was_not_measured_is_called_extrapolated(gpu, engine, classes, said, shown):
    text = serving_block(gpu, engine, classes)
    assert shown in text
    assert (said in text and "extrapolated" in text) if said else "extrapolated" not in text


def test_errors_on_left_out_gpus_stand_for_a_gpu_without_any_deployment():
    said = f"{serving_accuracy()['elsewhere']['rank_correlation']:.3f}"
    left_out = serving_block("rtx-pro-6000", "trtllm", {"moe"}).partition("GPUs left out of their engine")[2]
    assert said in left_out
    for gpu, engine in (("h200-sxm", "trtllm"), ("jetson-thor", "ideal")):  # measured; no fit that leaves GPUs out
        assert "left out" not in serving_block(gpu, engine, {"moe"})


def test_rows_of_a_gpu_are_not_said_to_be_of_all():
    # the table of a GPU has its own count, beside which all GPUs of the engine were named
    engine, own = load_engine("trtllm").fit, load_accelerator("h200-sxm", engine="trtllm")
    note, rows = engine_note(own), own.engine.fit["rows"]
    assert rows < engine["rows"] and f"fitted on {rows} measured serving rows of h200-sxm, held near" in note
    assert "a100-sxm" in note.partition("constants of")[2] and "h200-sxm" not in note.partition("held near")[2]
    away = engine_note(load_accelerator("rtx-pro-6000", engine="trtllm"))
    assert f"fitted on {engine['rows']} measured serving rows (a100-sxm" in away
    assert "rtx-pro-6000 is not among them" in away


def test_kernels_of_a_moe_fold_their_exchanges_into_one_row():
    design = {"recipe": "nvfp4", "kv_format": "fp8", "kv_lora_rank": 0, "experts": 128}
    run = SimpleNamespace(designs=pd.DataFrame([design]))
    text = kernel_block(load_accelerator("gb200-nvl72"), run)
    used, _, others = text.partition("Other kernels")
    assert used.count("all to all</td>") == 1 and "kinds, the median one" in used
    assert others.count("all to all</td>") > 5
    assert "experts</td><td>nvfp4" in used and "mla decode" not in used
    dense = kernel_block(load_accelerator("gb200-nvl72"), SimpleNamespace(designs=run.designs.assign(experts=0)))
    assert "all to all</td>" not in dense.partition("Other kernels")[0]


def test_every_measured_gpu_is_bundled():
    assert {c["gpu"] for c in serving_accuracy()["cell"]} <= set(available())
