"""Recipes against the scripts they were read from, and rows that they must leave alone."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks.serving_recipes import engine_settings, launched, recipes
from benchmarks.serving_rows import NAMES, refusals
from spaces.formats import KV_FORMATS

ROW = {
    "source_group": "InferenceX",
    "engine": "sglang",
    "gpu": "B200-SXM",
    "model_shape": "DeepSeek-R1",
    "precision_weights": "fp8",
    "precision_kv": None,
    "mode": "aggregated",
    "isl": 1024.0,
    "osl": 1024.0,
    "concurrency_or_batch": 16,
    "day": "2026-03-25",
    "attention_tp": 8,
    "attention_dp": 1,
    "ffn_tp": 8,
    "expert_parallel": 1,
    "prefill_workers": None,
    "decode_workers": None,
}


def launch(**changed):
    (row,) = launched(pd.DataFrame([ROW | changed])).to_dict("records")
    return row


def test_sglang_looks_for_prompts_every_ten_passes_or_thirty():
    # dsr1_fp8_b200.sh: --scheduler-recv-interval 30 where CONC >= 16, else 10; --kv-cache-dtype fp8_e4m3
    many, few = launch(), launch(concurrency_or_batch=8)
    assert engine_settings(many) == {"poll_steps": 30.0} and engine_settings(few) == {"poll_steps": 10.0}
    assert many["precision_kv"] == "fp8" and many["prefill_chunk"] == 32768 and many["slots"] == 128


def test_plans_that_a_script_chose_itself():
    # dsr1_fp4_b200_trt_slurm.sh before 2025-11-03: attention DP and expert parallelism by users; later as asked for
    trt = dict(engine="trtllm", precision_weights="nvfp4", isl=8192.0, concurrency_or_batch=64)
    own, asked = launch(**trt, day="2025-11-02"), launch(**trt, day="2026-02-03")
    plan = ("attention_tp", "attention_dp", "ffn_tp", "expert_parallel")
    assert [own[name] for name in plan] == [1, 8, 1, 8] and [asked[name] for name in plan] == [8, 1, 8, 1]
    assert not engine_settings(own)["fused_experts"]  # CUTLASS
    # minimaxm2.5_fp8_b200.sh until 2026-04-03: --enable-expert-parallel at any EP_SIZE
    row = dict(engine="vllm", model_shape="MiniMax-M2.5", attention_tp=4, ffn_tp=4)
    assert launch(**row, day="2026-03-15")["expert_parallel"] == 4
    assert launch(**row, day="2026-04-10")["expert_parallel"] == 1


def test_slots_of_disaggregated_decode_workers():
    # srt-slurm ctx1_gen6_tep8_batch64: six decode workers of 64 sequences each, for 450 users
    row = dict(engine="trtllm", precision_weights="nvfp4", mode="disaggregated", concurrency_or_batch=450)
    pool = dict(prefill_workers=1, prefill_attention_tp=1, prefill_attention_dp=4, prefill_ffn_tp=1, prefill_ep=4)
    found = launch(**row, **pool, decode_workers=6, expert_parallel=8, ffn_tp=1, day="2026-01-29")
    assert found["slots"] == 64 and found["prefill_chunk"] == 10240 and found["prefill_batch"] == 8


def test_slots_and_experts_of_amd_pools():
    # amd_utils/models.yaml: 128 sequences a tensor-parallel decode worker, 256 with expert parallelism, which the mxfp4
    # script turned on at any EP until 2026-03-04; 160 a rank with attention DP, 512 from 2026-05-07; KV in fp8
    row = dict(gpu="MI355X", precision_weights="mxfp4", mode="disaggregated", prefill_workers=1, decode_workers=2)
    row |= dict(prefill_attention_tp=8, prefill_attention_dp=1, prefill_ffn_tp=8, prefill_ep=1)
    early, late = launch(**row, day="2026-02-13"), launch(**row, day="2026-03-13")
    assert [early[name] for name in ("expert_parallel", "prefill_ep", "slots")] == [8, 8, 256]
    assert [late[name] for name in ("expert_parallel", "prefill_ep", "slots")] == [1, 1, 128]
    spread = row | dict(attention_tp=1, attention_dp=8, ffn_tp=1, expert_parallel=8)
    assert [launch(**spread, day=day)["slots"] for day in ("2026-03-13", "2026-05-07")] == [1280, 4096]
    assert late["precision_kv"] == "fp8" and late["prefill_chunk"] == 16384


def test_a_row_that_does_not_tell_its_users_is_refused():
    # gptoss_fp4_h100_docker.sh asked for 512 users over --max-num-seqs $CONC until 2025-12-08 (InferenceX #310)
    row = ROW | dict(
        engine="vllm", gpu="H100-SXM", model_shape="gpt-oss-120b", precision_weights="mxfp4", load="closed-loop"
    )
    row |= dict(input_tokens=922, output_tokens=922, concurrency_or_batch=512)
    told = dict(concurrency_or_batch=64), dict(day="2025-12-10"), dict(source_group="MLPerf")
    table = launched(pd.DataFrame([row | dict(day="2025-12-05"), *(row | dict(day="2025-12-05") | t for t in told)]))
    reasons = refusals(table).tolist()
    assert "users that ran are not told" in reasons[0] and reasons[1:] == ["", "", ""]


@pytest.mark.parametrize("changed", [{"source_group": "MLPerf"}, {"gpu": "MI300X", "model_shape": "Llama-3.1-70B"}])
def test_other_rows_stay_as_they_are(changed):
    row = launch(**changed)
    assert engine_settings(row) == {} and pd.isna(row["slots"]) and pd.isna(row["precision_kv"])


def test_rows_with_gaps_do_not_disturb_their_neighbours():
    gaps = ROW | dict(precision_weights=None, concurrency_or_batch=None, isl=None, day="")
    whole, other = launched(pd.DataFrame([ROW, gaps])).to_dict("records")
    assert engine_settings(whole) == {"poll_steps": 30.0} and engine_settings(other) == {}


def test_a_named_kv_format_is_kept():
    assert launch(precision_kv="bf16")["precision_kv"] == "bf16"


def test_every_recipe_names_what_exists():
    table = recipes()
    assert set(table.engine) <= set(NAMES["engines"])
    assert set(" ".join(table.gpu).split(" ")) <= set(NAMES["gpus"])
    assert set(table.model) <= set(NAMES["models"]) and set(table.kv_format) <= {"", *KV_FORMATS}
    assert set(table.fused_experts) | set(table.mla_splits_kv) <= {"", "true", "false"}
    assert (table.source != "").all()
    for name in ("slots", "prefill_chunk", "prefill_batch", "poll_steps", "batch_wait_steps"):
        assert (pd.to_numeric(table[name][table[name] != ""]) > 0).all()
