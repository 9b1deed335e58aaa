"""Speed of full predictions on one core: `python benchmarks/speed.py [--json] [--plans N]`.

A point is one full prediction (TTFT, TPOT, memory, $, J, breakdown) of one architecture under one plan: 1024/1024
tokens, aggregated, batches of 64 random architectures, half of them MoE, x N plans of up to 8 GPUs (default: every plan
that `enumerate_deployments` lists). Seconds are process CPU time, so that other processes do not count; best of
several repeats. Also: single predictions per second, and aiconfigurator (if installed) on the same kind of question.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import command, positive  # noqa: E402
from cost_model import load_accelerator, predict  # noqa: E402
from spaces.architecture import Architecture  # noqa: E402
from spaces.deployment import Deployment, enumerate_deployments  # noqa: E402
from spaces.formats import KV_FORMATS, RECIPES  # noqa: E402
from spaces.workload import Workload  # noqa: E402

ARCHITECTURES = 64
WORKLOAD = Workload(isl=1024, osl=1024)


def architectures(seed: int, count: int = ARCHITECTURES) -> Architecture:
    """Random dense and MoE shapes, alternating, of 3 to 100 billion parameters."""
    rng = np.random.default_rng(seed)
    moe = np.arange(count) % 2 == 1
    return Architecture(
        hidden=rng.choice(np.arange(2048, 8193, 256), count),
        layers=rng.integers(24, 81, count),
        heads=rng.choice([32, 64], count),
        kv_heads=rng.choice([4, 8], count),
        head_dim=np.full(count, 128),
        ffn=np.where(moe, 0, rng.choice(np.arange(8192, 28673, 1024), count)),
        vocab=np.full(count, 128256),
        experts=np.where(moe, rng.choice([32, 64, 128], count), 0),
        top_k=np.where(moe, rng.choice([2, 4, 8], count), 0),
        expert_ffn=np.where(moe, rng.choice(np.arange(1024, 4097, 256), count), 0),
    ).column()


def plans(count: int | None) -> Deployment:
    every = enumerate_deployments([1, 2, 4, 8], moe=True)
    total = len(every.batch)
    return every if count is None else every.take(np.linspace(0, total - 1, count).astype(int))


def points_per_s(deployment: Deployment, gpu: Any, repeats: int = 15) -> float:
    """Best rate over batches of different architectures, each after one warm-up call."""
    rates = []
    for seed in range(repeats):
        batch = architectures(seed)
        recipe = np.random.default_rng(seed).choice([RECIPES.index("bf16"), RECIPES.index("fp8")], (ARCHITECTURES, 1))
        kv = np.full((ARCHITECTURES, 1), KV_FORMATS.index("fp8"))
        rates.append(
            ARCHITECTURES * len(deployment.batch) / seconds(predict, batch, recipe, deployment, WORKLOAD, gpu, kv)
        )
    return max(rates)


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Process CPU seconds of one call."""
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def single_predictions_per_s(gpu: Any, count: int = 200) -> float:
    """One architecture under one plan at a time, both changing."""
    batch, every = architectures(0), plans(None)
    singles = [batch.take(i).map(lambda value: np.asarray(value).item()) for i in range(0, ARCHITECTURES, 2)]
    dense = every.take(np.flatnonzero((every.ep == 1) & (every.attention_dp == 1) & (every.attention_tp <= 4)))
    pairs = [(singles[i % len(singles)], dense.take(np.array(7 * i % len(dense.batch)))) for i in range(count)]
    pairs = [(a, Deployment(**{k: v for k, v in d.as_dict().items()})) for a, d in pairs if a.ffn % d.ffn_tp == 0]
    spent = sum(seconds(predict, a, "fp8", d, WORKLOAD, gpu, "fp8") for a, d in pairs)
    return len(pairs) / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plans", type=positive, help="plans per batch (default: all of them)")
    parser.add_argument("--gpu", default="h200-sxm")
    arguments = parser.parse_args()
    gpu, deployment = load_accelerator(arguments.gpu), plans(arguments.plans)
    points_per_s(deployment, gpu, repeats=1)  # warm-up: constants and plan keys
    result: dict[str, Any] = {
        "plans": len(deployment.batch),
        "points_per_s": round(points_per_s(deployment, gpu)),
        "predictions_per_s": round(single_predictions_per_s(gpu)),
        "peers": peers(),
    }
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{result['points_per_s']:,} points/s ({ARCHITECTURES} architectures x {result['plans']} plans, one core)")
    print(f"{result['predictions_per_s']:,} single predictions/s")
    for name, rate in result["peers"].items():
        print(
            f"{name}: {rate:,.2f} architectures/s, "
            f"1/{result['points_per_s'] / result['plans'] / rate:,.0f} of our {result['plans']} plans each"
        )


def peers() -> dict[str, float]:
    """Architectures per second of other tools that are installed."""
    if importlib.util.find_spec("aiconfigurator") is None:
        return {}
    from benchmarks.serving_peer import architectures_per_s

    return {"aiconfigurator": architectures_per_s()}


if __name__ == "__main__":
    command(main)
