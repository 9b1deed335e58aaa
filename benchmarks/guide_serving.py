"""Our side of the guide's claims about regimes, parallelism, speculation and whole designs: the serving model."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from benchmarks.guide_answer import BATCHES, NEAR, Answer, gpu, model, near, served
from cost_model import predict
from reports.pricing import serve
from reports.words import percent
from search.loop import Stop, search
from spaces import Deployment, Workload, enumerate_deployments
from studies.objective import build_objective
from studies.study import load_study


@cache
def small_study() -> Answer:
    study = load_study("8b-h200")
    objective = build_objective(study)
    state = search(objective, Stop(trials=1000), "frontier", 0, progress=False)
    rows = np.concatenate(state.trials.rows)
    good = (np.concatenate(state.trials.violations) <= 0).all(axis=1)
    values = np.concatenate(state.trials.values)[good]
    base = -log_reference(objective)
    gains = np.expm1(base - values.min(axis=0))
    text = ", ".join(f"{percent(g)} at {t:g}" for g, t in zip(gains, objective.targets, strict=True))
    return Answer(
        f"8B on H200 at equal parameters and held loss: {text} tokens/s/user (best of {len(rows)} trials "
        "over llama-3.1-8b under its best listed formats)",
        "serving, proxy",
        bool((gains > 0.05).any()),
    )


def log_reference(objective: Any) -> np.ndarray:
    """(targets,) log throughput of the reference under the best of the study's formats."""
    recipes, kv = objective.formats
    return np.nanmax(serve(objective, [objective.space.reference] * len(recipes), recipes, kv).log_throughput, axis=0)


def amdahl() -> Answer:
    return Answer(f"1 / 0.77 = {1 / 0.77:.2f}x", "arithmetic", near(1 / 0.77, 1.30))


def long_context() -> Answer:
    shares = []
    for context in (65_536, 131_072):
        best, _ = served("llama-3.1-70b", "b200-sxm", "fp8", "fp8", context, 1_024)
        shares.append(best.share("attention_core", best.most("tokens_per_s_per_gpu")[1]))
    text = (
        f"llama-3.1-70b FP8 on B200: attention core {percent(shares[0], sign=False)} of the token time at "
        f"64K, {percent(shares[1], sign=False)} at 128K"
    )
    return Answer(
        text,
        "serving",
        shares[1] > 0.5,
        "it becomes the largest part; how large depends on the model's group size and on prefill",
    )


def short_context() -> Answer:
    best, _ = served("llama-3.1-70b", "b200-sxm", "fp8", "fp8", 1_024, 1_024)
    _, at = best.most("tokens_per_s_per_gpu")
    shares = {part: best.share(part, at) for part in ("attention_linear", "attention_core", "ffn")}
    text = ", ".join(f"{part.replace('_', ' ')} {percent(share, sign=False)}" for part, share in shares.items())
    return Answer(f"1K in: {text}", "serving", max(shares.values()) < 0.65)


def tensor_parallel() -> Answer:
    rows = [
        predict(
            model("llama-3.1-70b"),
            "fp8",
            Deployment(attention_tp=tp, batch=1),
            Workload(isl=1024, osl=1024),
            gpu("b200-sxm"),
            "fp8",
        )
        for tp in (1, 8)
    ]
    share = rows[1].breakdown["communication"] / rows[1].tpot_s
    return Answer(
        f"llama-3.1-70b, batch 1, TP1 to TP8 on B200: {rows[0].tpot_s / rows[1].tpot_s:.1f}x faster, "
        f"{percent(share, sign=False)} of the time communicating",
        "serving",
        rows[0].tpot_s > rows[1].tpot_s,
    )


def wide_ep() -> Answer:
    plans = enumerate_deployments((8, 16, 32), model("deepseek-r1"), BATCHES, pp=(1,))
    one = model("deepseek-r1").map(lambda v: np.asarray(v).reshape(1, 1))
    p = predict(one, "nvfp4", plans, Workload(isl=1024, osl=1024), gpu("gb200-nvl72"), "fp8")
    fast = np.ravel(p.legal & p.fits & (p.tokens_per_s_per_user >= 50.0))
    rate = np.where(fast, np.ravel(p.tokens_per_s_per_gpu), 0.0)
    best = {ep: float(np.where(np.asarray(plans.ep) == ep, rate, 0.0).max()) for ep in (8, 32)}
    gain = best[32] / best[8]
    return Answer(
        f"DeepSeek-R1 NVFP4 on GB200 NVL72 at 50 tokens/s/user: EP32 {gain:.2f}x of EP8",
        "serving",
        1.0 < gain <= 1.8 * (1 + NEAR),
        "" if gain > 1 else "our all-to-all and load imbalance take more than the spared weight reads give",
    )


def throughput_recipe() -> Answer:
    best, plans = served("deepseek-r1", "gb200-nvl72", "nvfp4", "fp8", 1_024, 1_024, (8, 16, 32))
    rate = np.where(
        best.eligible & (best.prediction.tokens_per_s_per_user >= 25.0), best.prediction.tokens_per_s_per_gpu, -1.0
    )
    at = int(rate.argmax())
    dp, ep = int(np.asarray(plans.attention_dp)[at]), int(np.asarray(plans.ep)[at])
    return Answer(
        f"DeepSeek-R1 on GB200, best plan at 25 tokens/s/user: attention DP{dp}, EP{ep}", "serving", dp > 1 and ep > 1
    )


def expert_grain() -> Answer:
    rows = []
    for name in ("mixtral-8x7b", "qwen3-30b-a3b"):
        best, plans = served(name, "h200-sxm", "fp8", "fp8", 1_024, 1_024, (8,))
        one = np.asarray(plans.batch) == 1
        dense = best.most("tokens_per_s_per_user", one & (np.asarray(plans.ep) == 1))[0]
        split = best.most("tokens_per_s_per_user", one & (np.asarray(plans.ep) > 1))[0]
        rows.append((name, dense, split))
    text = "; ".join(f"{name}: experts in TP {dense:.0f}, with EP {split:.0f}" for name, dense, split in rows)
    preference = [split / dense for _, dense, split in rows]
    return Answer(
        f"8 x H200, batch 1, tokens/s/user: {text}",
        "serving",
        preference[1] > preference[0],
        "EP is relatively better for fine-grained experts" if preference[1] > preference[0] else "",
    )


def helix() -> Answer:
    load, context = Workload(isl=1_024, osl=1_024, cached=1_000_000), gpu("gb200-nvl72")
    a = model("llama-3.1-405b")
    times = {}
    for kvp in (1, 8):
        plans = enumerate_deployments((64,), a, batches=(1, 8), kvp=(kvp,), pp=(1,))
        p = predict(a.map(lambda v: np.asarray(v).reshape(1, 1)), "nvfp4", plans, load, context, "fp8")
        times[kvp] = float(np.where(p.legal & p.fits, p.tokens_per_s_per_user, 0.0).max())
    return Answer(
        f"llama-3.1-405b, 1M cached tokens, 64 x GB200: {times[1]:.0f} tokens/s/user without, "
        f"{times[8]:.0f} with KVP 8",
        "serving",
        times[8] > times[1],
    )


def uneven_stages() -> Answer:
    even, odd = (-(-layers // 4) * 4 / layers - 1 for layers in (60, 61))
    return Answer(
        f"PP4: 60 layers idle {percent(even, sign=False)}, 61 layers "
        f"{percent(odd / (1 + odd), sign=False)} of the time",
        "arithmetic",
        odd > even,
    )


def decoupling() -> Answer:
    best, plans = served("gpt-oss-120b", "b200-sxm", "mxfp4-experts", "fp8", 1_024, 1_024)
    coupled = (np.asarray(plans.attention_dp) == 1) & (np.asarray(plans.kvp) == 1)
    gains = {t: best.at(t) / best.at(t, coupled) - 1 for t in (50.0, 100.0, 200.0)}
    text = ", ".join(f"{percent(g)} at {t:g}" for t, g in gains.items())
    return Answer(
        f"gpt-oss-120b on B200, all plans over those with attention DP 1: {text} tokens/s/user",
        "serving",
        max(gains.values()) > 0,
    )


def chunked_pipeline() -> Answer:
    first, rate = [], []
    for stages in (1, 4):  # of a prefill pool that a decode pool never holds up
        pool = {"prefill_attention_tp": 8, "prefill_attention_dp": 1, "prefill_ffn_tp": 1, "prefill_ep": 8}
        plan = Deployment(
            attention_dp=8, ep=8, batch=8, prefill_pp=stages, prefill_replicas=1, decode_replicas=1, **pool
        )
        work, nvl72 = Workload(isl=262_144, osl=2, load="offline"), gpu("gb300-nvl72")
        p = predict(model("deepseek-r1"), "nvfp4", plan, work, nvl72, "fp8")
        first.append(p.ttft_s)
        rate.append(p.users / p.e2e_s / stages)
    return Answer(
        f"prefill pool of 8 GPUs per stage, PP1 to PP4: first token {first[0] / first[1]:.2f}x earlier, "
        f"prompts/s/GPU x {rate[1] / rate[0]:.2f}",
        "serving",
        bool(first[0] / first[1] > 1.5 and rate[1] / rate[0] > 0.8),
    )


def rivals() -> Answer:
    rows = []
    for name, engine in (("b200-sxm", "trtllm"), ("b200-sxm", "vllm"), ("b200-sxm", "sglang"), ("mi355x", "vllm")):
        best, _ = served("llama-3.1-70b", name, "fp8", "fp8", 1_024, 1_024, engine=engine)
        at = best.most("tokens_per_s_per_gpu")[1]
        rows.append(f"{name} {engine} {best.at(50.0):,.0f} ({best.prediction.as_columns()['evidence'][at]})")
    return Answer(
        "llama-3.1-70b FP8 at 50 tokens/s/user, tokens/s/GPU: " + ", ".join(rows),
        "serving",
        None,
        "other vendors' kernels are borrowed and widened until measured",
    )
