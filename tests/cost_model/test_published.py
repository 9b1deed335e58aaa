"""Whole deployments against what others published of them, and what every plan of the guide must do."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from cost_model import load_accelerator, predict
from cost_model.accelerator import available
from cost_model.memory import memory, nearest_fit
from spaces import Architecture, Deployment, Workload, enumerate_deployments, load_architecture

ROOT = Path(__file__).parents[2]
PALM = Architecture(
    hidden=18432,
    layers=118,
    heads=48,
    kv_heads=1,
    head_dim=256,
    ffn=73728,
    vocab=256_000,
    tied_embeddings=True,
    parallel_block=True,
)


def test_offline_maxima_with_the_batch_from_memory():
    """TensorRT-LLM's performance overviews v0.14, v1.0 and later: every plan listed at 1,000 / 1,000 tokens."""
    errors = []
    for row in csv.DictReader((ROOT / "tests" / "measured" / "offline_sample.csv").open()):
        gpu = load_accelerator(row["gpu"], engine=f"trtllm:{row['release']}")
        names = ("attention_tp", "attention_dp", "ffn_tp", "ep", "pp")
        plan = Deployment(**{name: int(row[name]) for name in names}, batch=None)
        work = Workload(int(row["isl"]), int(row["osl"]), load="offline")
        p = predict(load_architecture(row["model"]), row["recipe"], plan, work, gpu, row["kv_format"])
        assert p.fits and p.batch >= 1
        errors.append(abs(p.tokens_per_s_per_gpu / float(row["tokens_per_s_per_gpu"]) - 1))
    assert len(errors) > 50 and np.median(errors) <= 0.25


@pytest.mark.parametrize(
    ("recipe", "plan", "work", "chips", "seconds"),
    [
        # Pope et al., arXiv 2211.05102, table 2: 6.0 s for 64 tokens; 0.29 s (on 48 of the 64 chips, scaled)
        ("bf16", {"attention_tp": 8, "attention_dp": 8, "batch": 512}, Workload(1, 64, 2047), 64, 6.0 / 64),
        ("int8", {"attention_tp": 48, "batch": 1}, Workload(2048, 1, 0, "static"), 48, 0.29),
    ],
)
def test_palm_on_tpu_v4(recipe, plan, work, chips, seconds):
    gpu = load_accelerator(ROOT / "benchmarks" / "tpu-v4.toml", engine="ideal")
    p = predict(PALM, recipe, Deployment(**plan, prefill_chunk=2048), work, gpu)
    ours = (p.e2e_s if work.osl == 1 else p.decode_step_s) * chips / 64
    assert ours == pytest.approx(seconds, rel=0.30)


@pytest.mark.parametrize("name", ["deepseek-r1", "llama-3.1-405b"])
def test_helix_is_faster_and_denser_at_a_million_tokens(name):
    # arXiv 2507.07120: at least 1.13 times the tokens/s/user of any plan without, and 4 times the batch at its fastest
    gpu, a = load_accelerator("gb200-nvl72", engine="ideal"), load_architecture(name)
    plans = enumerate_deployments((8, 16, 32, 64), a, (1, 2, 4, 8, 16, 32), kvp=(1, 2, 4, 8, 16, 32, 64), pp=(1,))
    one = a.map(lambda value: np.asarray(value).reshape(1, 1))
    p = predict(one, "nvfp4", plans, Workload(1, 2, 1_000_000, "static"), gpu, "nvfp4")
    fits, split = np.ravel(p.legal & p.fits), np.asarray(plans.kvp) > 1
    user, each = np.ravel(p.tokens_per_s_per_user), np.asarray(plans.batch) / np.asarray(plans.replica_gpus)
    fastest = user[fits & ~split].max()
    assert user[fits & split].max() > 1.13 * fastest
    within = fits & (user >= 0.999 * fastest)
    assert each[within & split].max() >= 4.0 * each[within & ~split].max()


@pytest.mark.parametrize(("name", "heads", "copies"), [("deepseek-r1", 1, 8), ("qwen3-235b-a22b", 4, 2)])
def test_context_parallel_decode_removes_the_copies_of_tensor_parallelism(name, heads, copies):
    # vLLM context parallel deployment: TP 8 keeps 8 copies of DeepSeek-R1's latent and 2 of Qwen3-235B's 4 KV heads
    a, gpu, work = load_architecture(name), load_accelerator("h200-sxm", engine="vllm"), Workload(8192, 1024)
    plain, dcp = Deployment(attention_tp=8, batch=8), Deployment(attention_tp=heads, kvp=8 // heads, batch=8)
    before, after = (memory(a, "fp8-block", plan, work, gpu) for plan in (plain, dcp))
    assert before.kv_cache == pytest.approx(copies * after.kv_cache)
    assert predict(a, "fp8-block", dcp, work, gpu).gpus == 8


def test_plans_of_pipelines_feed_every_stage():
    plans = enumerate_deployments((8,), load_architecture("qwen3-235b-a22b"))
    assert set(np.asarray(plans.pp)) == {1, 2, 4, 8}
    assert np.all(np.asarray(plans.batch) >= np.asarray(plans.pp) * np.asarray(plans.attention_dp))


def test_chunks_of_one_prompt_fill_a_prefill_pipeline():
    # NVIDIA, 2026-07: DeepSeek-R1 on GB300, 256K tokens: the first token comes sooner with PP at constant rate per GPU
    a, gpu = load_architecture("deepseek-r1"), load_accelerator("gb300-nvl72")
    pool = dict(prefill_attention_tp=4, prefill_attention_dp=1, prefill_ffn_tp=1, prefill_ep=4, prefill_replicas=1)
    one, four = (
        predict(
            a,
            "nvfp4-ffn",
            Deployment(attention_dp=8, ep=8, batch=8, prefill_pp=pp, decode_replicas=10**6, **pool),
            Workload(262_144, 2, load="offline"),
            gpu,
            "fp8",
        )
        for pp in (1, 4)
    )
    prompts = [p.users / p.e2e_s for p in (one, four)]
    assert prompts[1] / prompts[0] == pytest.approx(4.0, rel=0.15)  # on four times the prefill GPUs
    assert four.ttft_s < 0.4 * one.ttft_s


def test_every_price_names_its_source_and_year():
    gpus = [load_accelerator(name) for name in available()]
    for gpu in (gpu for gpu in gpus if gpu.usd_per_gpu_hour is not None):
        assert re.search(r"20\d\d", gpu.price_source), gpu.name


def test_the_nearest_fit_of_a_plan_that_asks_for_what_memory_holds():
    a, gpu, work = load_architecture("llama-3.1-405b"), load_accelerator("h100-sxm"), Workload(1024, 1024)
    plan = Deployment(attention_tp=4)
    assert not memory(a, "bf16", plan, work, gpu).fits
    near = nearest_fit(a, "bf16", plan, work, gpu)
    assert near is not None and near.replica_gpus > 4 and memory(a, "bf16", near, work, gpu).fits
