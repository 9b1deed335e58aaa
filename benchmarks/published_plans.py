"""Our side of what others published about whole deployments: Helix, disaggregation, PaLM on TPU v4, DeepSeek's service.

Each function takes its table of published.toml and returns rows of the benchmark: figure, published, ours, error, met,
and why where it is missed or what the setting could not say.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cost_model import Accelerator, Prediction, kernels, load_accelerator, predict
from spaces import Architecture, Deployment, Workload, enumerate_deployments, load_architecture

TPU = Path(__file__).parent / "tpu-v4.toml"
BATCHES = sorted({round(2 ** (i / 3)) for i in range(40)})  # third powers of two, 1 to 8,192


def row(figure: str, published: str, ours: str, met: bool | None, why: str, table: dict[str, Any]) -> dict[str, Any]:
    source = f"{table['source']} ({table['date']})"
    return {"figure": figure, "published": published, "ours": ours, "met": met, "why": why, "source": source}


def near(ours: float, published: float, within: float) -> bool:
    return bool(abs(ours / published - 1.0) <= within)


def alone(architecture: Architecture) -> Architecture:
    """A batch of one design, for the layout in which plans are cheap."""
    return architecture.map(lambda value: np.asarray(value).reshape(1, 1))


def all_to_all(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Dispatch and combine of 32 tokens: the paper's arithmetic on the kernel model's own terms."""
    gpu = replace(load_accelerator("h800-sxm", engine="ideal"), nic_bytes_per_s=table["bytes_per_s"])
    dims = {"tokens": table["tokens"], "hidden": table["hidden"], "top_k": table["copies"], "experts": 256, "ep": 256}
    phases = (("dispatch", "fp8"), ("combine", "bf16"))
    ours = sum(float(kernels.all_to_all(gpu, **dims, phase=p, format=f, backend="deepep-ll")) for p, f in phases)
    why = "a launch latency is ours, and copies to the GPU's own node of 8 do not cross the network"
    met = near(ours, table["seconds"], table["within"])
    return [row(table["figure"], f"{table['seconds'] * 1e6:.2f} us", f"{ours * 1e6:.1f} us", met, why, table)]


def helix(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Interactivity and batch of the best plans with KV parallelism over the best without, at a million tokens.

    The paper simulates: priced with perfect kernels and with TensorRT-LLM's, which decide whether a figure is met.
    """
    rows = []
    for name, published in table["models"].items():
        gains: dict[str, list[str]] = {"interactivity": [], "batch": []}
        best: dict[str, float] = {}
        for engine in ("ideal", "trtllm"):
            points = _decode_points(load_architecture(name), load_accelerator(table["gpu"], engine=engine), table)
            split = points["kvp"] > 1
            fastest = points["user"][~split].max()
            floors = np.geomspace(fastest / 20.0, fastest, 60)
            denser = max(_densest(points, split, t) / _densest(points, ~split, t) for t in floors)
            for key, value in zip(gains, (points["user"][split].max() / fastest, denser), strict=True):
                gains[key].append(f"{value:.2f}x ({engine})")
                best[key] = value
        for key, ours in gains.items():
            figure = f"Helix, {name}: {'tokens/s/user' if key == 'interactivity' else 'batch at equal tokens/s/user'}"
            met = near(best[key], published[key], table["within"])
            why = "" if met else table["why"]
            rows.append(row(figure, f"up to {published[key]:g}x", "; ".join(ours), met, why, table))
    return rows


def _densest(points: dict[str, np.ndarray], mask: np.ndarray, floor: float) -> float:
    """Most sequences per GPU at so many tokens/s/user or more."""
    return float(points["each"][mask & (points["user"] >= floor * (1.0 - 1e-9))].max())


def _decode_points(a: Architecture, gpu: Accelerator, table: dict[str, Any]) -> dict[str, np.ndarray]:
    """tokens/s/user, sequences per GPU and KV parallelism of every plan of 1-64 GPUs that fits; decode only."""
    load, sizes = Workload(isl=1, osl=2, cached=table["context"], load="static"), (1, 2, 4, 8, 16, 32, 64)
    plans = enumerate_deployments(sizes, a, BATCHES[:24], kvp=sizes)
    p = predict(alone(a), table["recipe"], plans, load, gpu, table["kv_format"])
    good = np.ravel(p.legal & p.fits)
    values = {
        "user": 1.0 / np.ravel(np.broadcast_to(p.decode_step_s, p.legal.shape)),
        "each": np.asarray(plans.batch) / np.asarray(plans.replica_gpus),
        "kvp": np.asarray(plans.kvp),
    }
    return {name: value[good] for name, value in values.items()}


def disaggregation(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Best rate-matched pools over the best aggregated plan, at equal interactivity."""
    a, gpu, work = load_architecture(table["model"]), load_accelerator(table["gpu"]), _work(table)
    plans = enumerate_deployments(table["gpus"], a, BATCHES, pp=(1,))

    def priced(deployment: Deployment) -> Prediction:
        return predict(alone(a), table["recipe"], deployment, work, gpu, table["kv_format"])

    together, apart = priced(plans), priced(_pools(plans, 10**6, 1))
    prompts = enumerate_deployments(table["gpus"], a, (0,), pp=(1,))
    pool = priced(_pools(replace(prompts, batch=np.asarray(prompts.attention_dp)), 1, 10**6))
    per_gpu = _requests(pool) / np.ravel(np.asarray(prompts.replica_gpus))  # prompts per second and prefill GPU
    supply = np.where(np.ravel(pool.legal & pool.fits), per_gpu, 0.0).max()
    own, demand = np.ravel(np.asarray(plans.replica_gpus)), _requests(apart)
    rates = np.ravel(together.tokens_per_s_per_gpu), demand * work.osl / (own + demand / supply)
    rows = []
    for target in table["interactivity"]:
        plain, split = (
            np.where(np.ravel(p.legal & p.fits & (p.tokens_per_s_per_user >= target)), rate, 0.0).max()
            for p, rate in zip((together, apart), rates, strict=True)
        )
        ours = f"{split / plain:.2f}x ({split:,.0f} over {plain:,.0f} tokens/s/GPU)"
        met = bool(table["low"] <= split / plain <= table["high"])
        figure = f"{table['figure']}, at {target:g} tokens/s/user"
        rows.append(row(figure, f"{table['low']}-{table['high']}x", ours, met, "" if met else table["why"], table))
    return rows


def _work(table: dict[str, Any]) -> Workload:
    return Workload(table["isl"], table["osl"])


def _pools(plans: Deployment, prefill_replicas: int, decode_replicas: int) -> Deployment:
    """The plans as decode pools and as their own prefill pools; a million replicas never hold up the other pool."""
    ones = np.ones_like(np.asarray(plans.attention_tp))
    own = {f"prefill_{name}": getattr(plans, name) for name in ("attention_tp", "attention_dp", "ffn_tp", "ep", "pp")}
    return replace(plans, **own, prefill_replicas=ones * prefill_replicas, decode_replicas=ones * decode_replicas)


def _requests(p: Prediction) -> np.ndarray:
    """Requests per second of the whole deployment."""
    return np.ravel(p.users / p.e2e_s)


def palm(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Fastest legal plan of 64 chips, or of 48 scaled to 64 where 48 heads cannot be spread over 64."""
    a, gpu = Architecture(**table["architecture"]), load_accelerator(TPU, engine="ideal")
    rows = []
    for figure in table["figure"]:
        chips, plans = 64, enumerate_deployments((64,), a, (figure["batch"],), pp=(1,))
        if not np.size(plans.batch):
            chips, plans = 48, enumerate_deployments((48,), a, (figure["batch"],), pp=(1,))
        decode = figure["kind"] == "decode"
        load = Workload(1, 64, 2047) if decode else Workload(2048, 1, 0, "static")
        p = predict(alone(a), figure["recipe"], replace(plans, prefill_chunk=np.int64(2048)), load, gpu)
        seconds = np.ravel(p.decode_step_s if decode else p.e2e_s) * chips / 64
        at = int(seconds.argmin())
        ours = f"{seconds[at]:.3g} s (TP{plans.attention_tp[at]} x DP{plans.attention_dp[at]}, {chips} chips"
        ours += ", scaled)" if chips != 64 else ")" if np.ravel(p.fits)[at] else ", memory not held to)"
        met = near(seconds[at], figure["seconds"], table["within"])
        rows.append(row(figure["name"], f"{figure['seconds']:g} s", ours, met, "" if met else table["why"], table))
    return rows


def production(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Output and input tokens per second of a node of DeepSeek's own service.

    It overlaps two micro-batches, one computing while the other communicates: a pair takes twice the longer of the two
    parts of a half. Sequences per decode GPU follow from the published rates (Little's law).
    """
    a, gpu = load_architecture(table["model"]), load_accelerator(table["gpu"], engine=table["engine"])
    context, fresh = table["context"], round(table["context"] * (1.0 - table["cached"]))

    def priced(ranks: int, each: int, load: Workload) -> Prediction:
        plan = Deployment(attention_dp=ranks, ep=ranks, redundant_experts=32, batch=ranks * each)
        return predict(a, table["recipe"], plan, load, gpu, table["kv_format"])

    each = round(table["output_tokens_per_s"] / 8 / table["tokens_per_s_per_user"])
    decode, prompt = Workload(1, 2, context - 2, "static"), Workload(fresh, 1, context - fresh, "static")
    rows = []
    for name, tokens, whole, half in (
        ("output", each, priced(144, each, decode), priced(144, each // 2, decode)),
        ("input", 2 * context, priced(32, 2, prompt), priced(32, 1, prompt)),
    ):
        seconds = [_pass_seconds(p, name) for p in (whole, half)]
        wire = half.breakdown["communication"] / sum(half.breakdown.values())
        overlapped = 2.0 * seconds[1] * max(wire, 1.0 - wire)
        rates = [8 * tokens / s for s in (overlapped, seconds[0])]
        published = table[f"{name}_tokens_per_s"]
        ours = f"{rates[0] / 1e3:.1f}k ({rates[1] / 1e3:.1f}k without overlap)"
        met = near(rates[0], published, table["within"])
        figure = f"DeepSeek's service, {name} tokens/s per H800 node"
        rows.append(row(figure, f"{published / 1e3:g}k", ours, met, "" if met else table["why"], table))
    return rows


def _pass_seconds(p: Prediction, name: str) -> float:
    return float(p.decode_step_s if name == "output" else p.e2e_s)
