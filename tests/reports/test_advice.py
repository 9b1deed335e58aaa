"""Advice and comparison: what they must say, and that they say it in every form."""

from __future__ import annotations

import io
import json

import pandas as pd
import pytest
from rich.console import Console

from cost_model import load_accelerator
from reports.advice import advise, write_advice
from reports.advice_page import print_advice
from reports.compare import compare, differences, overlay, read_measured
from reports.compare_page import write_comparison
from reports.shards import shards, wasted_wave
from spaces import load_architecture
from spaces.formats import RECIPES


@pytest.fixture(scope="module")
def advice():
    return advise("llama-3.1-8b", "h200-sxm", isl=1024, osl=512, recipe="fp8")


def test_advice_is_json_and_answers_everything(advice):
    again = json.loads(json.dumps(advice, allow_nan=False))
    assert [f["guideline"] for f in again["guidelines"]] == [f"G{i}" for i in range(1, 8)]
    assert again["kv_heads"]["most_tp"] == 8 and again["experts"] is None
    assert {e["engine"] for e in again["buyer"]["engines"]} == {"trtllm", "vllm", "sglang"}
    assert again["buyer"]["fit"]["weight_bytes"] == pytest.approx(9.08e9, rel=0.01)  # published: FP8 checkpoint


def test_nearby_changes_hold_loss_and_gain(advice):
    assert advice["changes"]
    for change in advice["changes"]:
        assert change["shape_loss_difference"] <= 0.005
        assert max(g for g in change["gain"] if g is not None) > 0


def test_advice_as_page_and_on_a_terminal(advice, tmp_path):
    files = write_advice(advice, tmp_path / "out")
    text = files[0].read_text(encoding="utf-8")
    assert "Which precision format?" in text and "scaling laws" in text and "http" not in text
    stream = io.StringIO()
    print_advice(advice, Console(file=stream, width=140))
    assert "Guidelines, measured" in stream.getvalue() and "KV heads" in stream.getvalue()


def test_advice_for_experts_and_latent_attention():
    advice = advise("deepseek-v2-lite", "h200-sxm", isl=1024, osl=256)
    assert advice["experts"]["compute_bound_tokens_in_flight"] == pytest.approx(256 * 64 / 6)
    assert "MLA" in advice["kv_heads"]["text"]


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="no-such-gpu"):
        advise("llama-3.1-8b", "no-such-gpu")


def test_shards_off_alignment():
    rows = shards(load_architecture("gpt-oss-120b"), RECIPES.index("mxfp4-experts"), load_accelerator("b200-sxm"))
    down = next(r for r in rows if r.name == "expert down" and r.tp == 4)
    assert (down.n, down.k) == (2880, 720) and len(down.off) == 2 and not down.legal  # 720 is no multiple of 32
    assert all(0 <= r.wasted < 1 for r in rows)


def test_a_full_wave_wastes_nothing():
    gpu = load_accelerator("h200-sxm")
    tile = gpu.calibration.at("gemm", "bf16")
    assert wasted_wave(gpu, int(tile.tile_n * gpu.sm_count), 0, m=int(tile.tile_m)) == pytest.approx(0)


def test_a_run_compared_with_itself_differs_in_nothing(small_run, tmp_path):
    assert differences([small_run, small_run]) == {}
    result = compare([small_run, small_run])
    volumes = result["hypervolumes"]["runs"]
    assert volumes[0]["hypervolume"] == volumes[1]["hypervolume"] > volumes[0]["reference_hypervolume"]
    json.dumps(result, allow_nan=False)
    text = write_comparison([small_run, small_run], tmp_path / "c").read_text(encoding="utf-8")
    assert "Frontiers" in text and "alert(1)</script>" not in text
    with pytest.raises(ValueError, match="at least two"):
        compare([small_run])


def test_measured_points_are_laid_over(small_run, tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("model,tok_s_per_user,output_tok_s_per_gpu\nllama,50,4000\nllama,,100\n")
    measured = read_measured(path)
    assert len(measured) == 1 and measured["label"][0] == "llama"
    assert overlay(small_run, measured).data[-1].name == "measured"
    path.write_text("tok_s_per_user,output_tok_s_per_gpu\n50,-1\n")
    with pytest.raises(ValueError, match="row 2"):
        read_measured(path)
    pd.DataFrame({"x": [1]}).to_csv(path, index=False)
    with pytest.raises(ValueError, match="needs a column"):
        read_measured(path)
