"""The closed loop against Little's law, published speculation and disaggregation figures, and measured rows."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model import load_accelerator, predict, serving
from spaces import Deployment, Workload, load_architecture
from spaces.deployment import enumerate_deployments

MEASURED = Path(__file__).parents[1] / "measured" / "serving_sample.csv"


def loop(decode_s, mixed_s, sequences, isl, osl, queue=0.0, held_back=0.0):
    return serving.continuous(decode_s, mixed_s, sequences, isl, osl, float(isl), 1, 1.0, 0.0, queue, held_back)


@settings(max_examples=200)
@given(
    decode_s=st.floats(1e-3, 0.1),
    extra=st.floats(0.0, 0.5),
    sequences=st.integers(1, 2048),
    isl=st.integers(1, 32768),
    osl=st.integers(2, 8192),
)
def test_steady_state_closes(decode_s, extra, sequences, isl, osl):
    s = loop(decode_s, decode_s + extra, sequences, isl, osl)
    assert decode_s <= s.tpot_s * (1 + 1e-9) and s.tpot_s <= (decode_s + extra) * (1 + 1e-9)
    assert s.requests_per_s * s.e2e_s == pytest.approx(sequences)  # Little's law
    assert s.e2e_s == pytest.approx(s.ttft_s + (osl - 1) * s.tpot_s, rel=1e-6)
    # the share of mixed passes is what the finished requests need
    if s.mixed_share < 1:
        assert s.mixed_share == pytest.approx(s.requests_per_s * s.tpot_s, rel=1e-6)
        assert s.tpot_s == pytest.approx(decode_s + s.mixed_share * extra, rel=1e-6)


def test_prompts_alone_bound_the_rate():
    s = loop(0.01, 1.0, 64, 8192, 16)  # 64 prompts of one second each per cycle
    assert s.requests_per_s <= 1.0 + 1e-9
    assert s.ttft_s > 32


def test_a_queue_delays_the_mean_more_than_the_median():
    alone, queued = loop(0.02, 0.3, 64, 8192, 1024), loop(0.02, 0.3, 64, 8192, 1024, queue=1.0)
    assert queued.ttft_s > queued.ttft_median_s > alone.ttft_median_s
    assert queued.tpot_s == alone.tpot_s


@given(held_back=st.floats(0.0, 100.0), sequences=st.integers(1, 512), extra=st.floats(0.0, 0.3))
def test_held_back_prompts_wait_as_many_passes_and_close_the_loop(held_back, sequences, extra):
    s = loop(0.02, 0.02 + extra, sequences, 1024, 1024, held_back=held_back)
    assert s.requests_per_s * s.e2e_s == pytest.approx(sequences)  # Little's law
    assert s.ttft_s >= held_back * s.tpot_s * (1 - 1e-9)
    assert s.tpot_s <= loop(0.02, 0.02 + extra, sequences, 1024, 1024).tpot_s * (1 + 1e-9)  # fewer prompts per pass


def test_attention_dp_ranks_wait_for_one_another_under_tensorrt_llm():
    # InferenceX, DeepSeek-R1 nvfp4 on 8 B200, attention DP 8, EP 8, 1k/1k, 128 users, 2026-05-19: the mean TTFT is
    # 734 ms where a step takes 20 ms and a prompt 50, since the scheduler holds prompts back (tech blog 10)
    gpu, a = load_accelerator("b200-sxm", engine="trtllm:2026-05-19"), load_architecture("deepseek-r1")
    plan = Deployment(attention_dp=8, ep=8, batch=128)
    p = predict(a, "nvfp4", plan, Workload(922, 922), gpu)
    assert p.ttft_s == pytest.approx(0.734, rel=0.25)
    assert p.tpot_s == pytest.approx(0.0204, rel=0.15)


@pytest.mark.parametrize(("users", "poll_steps", "measured"), [(4, 10, 0.154), (16, 30, 0.323), (64, 30, 0.487)])
def test_prompts_wait_until_the_engine_looks_for_them(users, poll_steps, measured):
    # InferenceX, DeepSeek-R1 fp8 on 8 B200, TP 8, 1k/8k, SGLang of 2025-12-15: median TTFT. Its script has SGLang look
    # for prompts every 10 passes, from 16 users on every 30; kernels alone would grow from 0.12 s to 0.15
    gpu, a = load_accelerator("b200-sxm", engine="sglang:2025-12-15"), load_architecture("deepseek-r1")
    gpu = replace(gpu, engine=replace(gpu.engine, poll_steps=float(poll_steps)))
    p = predict(a, "fp8-block", Deployment(attention_tp=8, batch=users), Workload(922, 7373), gpu, "fp8")
    assert p.ttft_median_s == pytest.approx(measured, rel=0.2)


def test_a_lone_prompt_waits_for_others_as_long_as_the_engine_lets_it():
    gpu, a = load_accelerator("b200-sxm", engine="trtllm"), load_architecture("llama-3.1-70b")
    waits = replace(gpu, engine=replace(gpu.engine, batch_wait_steps=20.0))
    # alone all 20 passes; of 64 users one comes every 32 passes: 0.6 others join the first and wait half as long
    for users, passes in ((1, 20.0), (64, 16.2)):
        plan, work = Deployment(attention_tp=4, batch=users), Workload(128, 2048)
        at_once, held = (predict(a, "fp8", plan, work, on) for on in (gpu, waits))
        assert (held.ttft_s - at_once.ttft_s) / held.tpot_s == pytest.approx(passes, rel=0.05)


def test_expected_tokens_of_a_verify_pass():
    # Leviathan et al.: three drafts at 0.8 give 1 + 0.8 + 0.64 + 0.512
    assert serving.expected_tokens(3, 0.8) == pytest.approx(2.952)
    assert serving.expected_tokens(0, 0.0) == 1.0


def test_speculation_pays_at_small_batch_and_fades_at_large():
    gpu, a = load_accelerator("h200-sxm", engine="ideal"), load_architecture("llama-3.1-70b")
    work = Workload(1024, 1024)

    def gain(batch):
        plain = predict(a, "fp8", Deployment(attention_tp=8, batch=batch), work, gpu, "fp8").tpot_s
        drafted = Deployment(attention_tp=8, batch=batch, draft_tokens=3, acceptance=0.8)
        return plain / predict(a, "fp8", drafted, work, gpu, "fp8").tpot_s

    assert gain(1) > 1.8 and gain(1) > gain(512)


def test_a_verify_pass_wakes_more_experts():
    gpu, a = load_accelerator("h200-sxm", engine="ideal"), load_architecture("deepseek-r1")
    work = Workload(1024, 1024)
    one = predict(a, "fp8-block", Deployment(attention_tp=8, batch=1), work, gpu, "fp8", "random")
    four = predict(a, "fp8-block", Deployment(attention_tp=8, batch=1, draft_tokens=3), work, gpu, "fp8", "random")
    assert four.decode_step_s > 1.5 * one.decode_step_s


def test_cached_prefix_costs_attention_but_not_prefill():
    gpu, a = load_accelerator("h200-sxm"), load_architecture("llama-3.1-70b")
    plan = Deployment(attention_tp=4, batch=16)
    cold = predict(a, "fp8", plan, Workload(8192, 512), gpu)
    warm = predict(a, "fp8", plan, Workload(1024, 512, cached=7168), gpu)
    short = predict(a, "fp8", plan, Workload(1024, 512), gpu)
    assert warm.ttft_s < 0.5 * cold.ttft_s
    assert warm.memory_bytes_per_gpu == cold.memory_bytes_per_gpu
    assert warm.decode_step_s == pytest.approx(cold.decode_step_s) and warm.decode_step_s > short.decode_step_s


def disaggregated(prefill_replicas, batch):
    plan = dict(attention_dp=16, ep=16, batch=batch, decode_replicas=1, prefill_replicas=prefill_replicas)
    prefill = dict(prefill_attention_tp=1, prefill_attention_dp=4, prefill_ffn_tp=1, prefill_ep=4, prefill_pp=1)
    return Deployment(**plan, **prefill)


def test_the_prefill_pool_bounds_the_rate():
    gpu, a = load_accelerator("gb200-nvl72"), load_architecture("deepseek-r1")
    work = Workload(8192, 1024)
    one, four = (predict(a, "nvfp4-ffn", disaggregated(n, 2048), work, gpu, "fp8") for n in (1, 4))
    assert one.gpus == 20 and four.gpus == 32 and one.users == 2048
    rates = [p.tokens_per_s_per_gpu * p.gpus / 1024 for p in (one, four)]
    assert 2.0 < rates[1] / rates[0] <= 4.0 + 1e-9
    assert one.ttft_s > four.ttft_s
    assert one.tpot_s < four.tpot_s  # the starved decode pool runs smaller batches


def test_disaggregation_gains_over_aggregated_serving():
    # TensorRT-LLM blog 5: DeepSeek-R1 on GB200, 4400 / 1200 tokens, 1.4-1.8x at equal interactivity
    gpu, a = load_accelerator("gb200-nvl72"), load_architecture("deepseek-r1")
    work, interactivity = Workload(4400, 1200), 20.0
    plain = predict(a, "nvfp4-ffn", enumerate_deployments([4, 8, 16], a, pp=(1,)), work, gpu, "fp8")
    together = plain.tokens_per_s_per_gpu[plain.fits & (plain.tokens_per_s_per_user >= interactivity)].max()
    pools = [disaggregated(replicas, batch) for replicas in (2, 4, 6, 8) for batch in (1024, 2048, 4096)]
    apart = [predict(a, "nvfp4-ffn", pool, work, gpu, "fp8") for pool in pools]
    best = max(p.tokens_per_s_per_gpu for p in apart if p.fits and p.tokens_per_s_per_user >= interactivity)
    assert 1.2 < best / together < 2.2


@pytest.mark.parametrize(("users", "measured"), [(128, 0.03243), (512, 0.03195)])
def test_decode_attention_that_divides_no_context(users, measured):
    # InferenceX, DeepSeek-R1 fp8 on GB200, SGLang of December 2025 with cutlass_mla, medians of seven days: TPOT is
    # 32 ms with 5 sequences a rank as with 21, since one SM pair reads the whole context of a sequence
    gpu, a = load_accelerator("gb200-nvl72", engine="sglang:2025-12-12"), load_architecture("deepseek-r1")
    pool = dict(prefill_attention_tp=1, prefill_attention_dp=8, prefill_ffn_tp=1, prefill_ep=8, prefill_pp=1)
    pool |= dict(prefill_replicas=6, decode_replicas=1)
    plan = Deployment(attention_dp=24, ep=24, redundant_experts=8, batch=users, **pool)
    whole = replace(gpu, engine=replace(gpu.engine, mla_splits_kv=False))
    split, unsplit = (predict(a, "fp8-block", plan, Workload(7373, 922), on, "bf16") for on in (gpu, whole))
    assert unsplit.tpot_s == pytest.approx(measured, rel=0.1)
    assert split.tpot_s < 0.85 * measured


def rows():
    return list(csv.DictReader(MEASURED.open()))


@pytest.mark.parametrize(("split", "median", "p90"), [("calibration", 0.12, 0.35), ("validation", 0.25, 0.6)])
def test_measured_deployments(split, median, p90):
    """A sample of measured rows; benchmarks/serving.py scores the whole files."""
    errors = []
    for row in (r for r in rows() if r["split"] == split):
        gpu = load_accelerator(row["gpu"], engine=f"{row['engine']}:{row['date']}")
        names = ("attention_tp", "attention_dp", "ep", "batch")
        plan = Deployment(**{name: int(row[name]) for name in names})
        work = Workload(float(row["isl"]), float(row["osl"]))
        kv = gpu.engine.default_kv_format(row["recipe"])
        p = predict(load_architecture(row["model"]), row["recipe"], plan, work, gpu, kv)
        errors.append(abs(p.tpot_s / float(row["tpot_s"]) - 1))
    assert len(errors) >= 20
    assert np.median(errors) < median and np.quantile(errors, 0.9) < p90


def test_engines_without_mixed_steps_stall_decoding():
    gpu, a = load_accelerator("h200-sxm", engine="ideal"), load_architecture("llama-3.1-70b")
    apart = replace(gpu, engine=replace(gpu.engine, mixed_steps=False))
    plan, work = Deployment(attention_tp=4, batch=64), Workload(4096, 512)
    assert predict(a, "fp8", plan, work, apart).mixed_step_s > predict(a, "fp8", plan, work, gpu).mixed_step_s
