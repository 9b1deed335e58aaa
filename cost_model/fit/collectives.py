"""Fit of kernels/collectives.py to the engines' all-reduce (allreduce.csv) and to NCCL (nccl.csv)."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.fit.common import Columns, Constants, Op, band, fit_constants, joined, partitions, table
from cost_model.kernels.collectives import all_gather, all_reduce, reduce_scatter

WIDENING = 1.4  # found by five-fold cross-validation
TRAY_GPUS = 4  # GPUs of one NVL72 tray: beyond it engines leave their own kernel for a multi-tray one or NCCL
START = {
    "one_shot_s": 3e-6,
    "one_shot_rank_s": 1e-7,
    "one_shot_hidden_s": 1e-6,
    "one_shot_efficiency": 0.6,
    "two_shot_s": 1e-5,
    "two_shot_rank_s": 1e-7,
    "two_shot_efficiency": 0.5,
    "bulk_s": 2e-5,
    "bulk_rank_s": 1e-6,
    "ring_efficiency": 0.8,
    "ring_small_group": 0.5,
    "switch_efficiency": 0.55,
}
BOUNDS = {
    "one_shot_s": (0.0, 5e-5),
    "one_shot_rank_s": (0.0, 5e-6),
    "one_shot_fill_s": (0.0, 3e-6),
    "one_shot_hidden_s": (0.0, 5e-6),
    "one_shot_efficiency": (0.02, 1.0),
    "two_shot_s": (0.0, 5e-5),
    "two_shot_rank_s": (0.0, 1e-5),
    "two_shot_efficiency": (0.02, 1.0),
    "bulk_s": (0.0, 1e-4),
    "bulk_rank_s": (0.0, 1e-5),
    "ring_efficiency": (0.05, 1.0),
    "ring_small_group": (0.0, 1.0),
    "switch_efficiency": (0.02, 1.0),
    "launch_floor_s": (0.0, 2e-4),
    "host_contention": (0.0, 5.0),
}
FIXED = {"host_contention": 0.0, "launch_floor_s": 0.0, "one_shot_fill_s": 0.0, "own_ranks": 1e9}


def prepare_engines(file: str, raw: Columns) -> Columns:
    """The engines' own all-reduce; multi-tray kernels of NVL72 racks apart, eager ones on them left out."""
    launch = np.where(np.char.find(raw["impl"].astype(str), "eager") >= 0, "eager", "graph")
    wide = np.isin(raw["system"], ("gb200", "gb300")) & (raw["num_gpus"] > TRAY_GPUS)
    key = np.where(wide, "wide", launch)
    keep = ~(wide & (launch == "eager"))
    return _table(raw, keep, np.char.add("all-reduce ", launch), "all_reduce", key, launch)


def prepare_nccl(file: str, raw: Columns) -> Columns:
    names = {op: op.replace("_", "-") + " nccl" for op in ("all_reduce", "all_gather", "reduce_scatter")}
    keep = np.isin(raw["op"], list(names)) & (raw["dtype"] == "half")
    label = np.array([names.get(str(op), "") for op in raw["op"]])
    return _table(raw, keep, label, raw["op"], "nccl", "nccl")


def _table(raw: Columns, keep: np.ndarray, op: np.ndarray, calibrated: object, key: object, launch: object) -> Columns:
    ranks, size = raw["num_gpus"], raw["bytes"]
    group = joined(ranks, size)
    return table(
        raw,
        keep,
        op=op,
        format="bf16",
        calibrated=calibrated,
        key=key,
        group=group,
        ranks=ranks,
        size=size,
        launch=launch,
    )


KERNELS = {"all_reduce": all_reduce, "all_gather": all_gather, "reduce_scatter": reduce_scatter}


def predict(gpu: Accelerator, rows: Columns) -> np.ndarray:
    seconds = np.empty(len(rows["seconds"]))
    for op, kernel in KERNELS.items():
        for launch in ("graph", "eager", "nccl"):
            own = (rows["calibrated"] == op) & (rows["launch"] == launch)
            if own.any():
                seconds[own] = kernel(gpu, rows["size"][own], rows["ranks"][own], launch)
    return seconds


def fit(gpu: Accelerator, rows: Columns) -> Constants:
    fitted: Constants = {}
    rack = {"own_ranks": float(TRAY_GPUS)} if gpu.link_domain > 8 else {}
    gpu = gpu.with_constants("all_reduce", "graph", FIXED | rack)
    for (op, key), own in partitions(rows, "calibrated", "key"):
        fixed = FIXED | (rack if key in ("graph", "eager") else {})
        values = _protocols(gpu, op, key, own, fixed) if op == "all_reduce" else _half(gpu, op, key, own)
        fitted.setdefault(op, {})[key] = values
    return fitted


def _protocols(gpu: Accelerator, op: str, key: str, rows: Columns, fixed: dict[str, float]) -> dict[str, Any]:
    """Best of several starts: where one protocol hands over to the next makes the loss multi-modal."""
    trial_gpu = gpu.with_constants(op, key, fixed)
    starts = []
    for two_shot_s, hidden_s in product((4e-6, 1e-5, 2e-5), (1e-8, 1e-6)):
        start = START | {"two_shot_s": two_shot_s, "bulk_s": 2.0 * two_shot_s, "one_shot_hidden_s": hidden_s}
        if key == "eager":
            start["launch_floor_s"] = float(np.median(rows["seconds"][rows["size"] < 1e5]))
        if key in ("graph", "wide"):  # launch floors and NCCL hide how a small message fills the kernel
            start["one_shot_fill_s"] = 2e-7
        if gpu.link_domain == 1:
            start["host_contention"] = 2.0
        starts.append(start)

    def trial(values: dict[str, float]) -> np.ndarray:
        return predict(trial_gpu.with_constants(op, key, values), rows)

    best = [fit_constants(trial, rows["seconds"], start, BOUNDS) for start in starts]
    chosen = min(best, key=lambda values: _loss(trial(values), rows["seconds"]))
    return fixed | chosen | {"fit": widened(trial(chosen), rows["seconds"])}


HALF_START = {
    "latency_s": 4e-6,
    "rank_s": 1e-6,
    "quick_efficiency": 0.3,
    "bulk_s": 2e-5,
    "bulk_rank_s": 1e-6,
    "ring_efficiency": 0.8,
    "ring_small_group": 0.8,
}
HALF_BOUNDS = BOUNDS | {"latency_s": (0.0, 3e-5), "rank_s": (0.0, 5e-6), "quick_efficiency": (0.005, 1.0)}
HALF_BOUNDS["ring_small_group"] = (0.0, 2.0)


def _half(gpu: Accelerator, op: str, key: str, rows: Columns) -> dict[str, Any]:
    fixed = {"host_contention": 0.0}
    start = HALF_START | ({"host_contention": 2.0} if gpu.link_domain == 1 else {})
    trial_gpu = gpu.with_constants(op, key, fixed)

    def trial(values: dict[str, float]) -> np.ndarray:
        return predict(trial_gpu.with_constants(op, key, values), rows)

    chosen = fit_constants(trial, rows["seconds"], start, HALF_BOUNDS)
    return fixed | chosen | {"fit": widened(trial(chosen), rows["seconds"])}


def widened(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    """The fit's 80 % band, wider: with a dozen constants on about 50 rows, unseen sizes scatter that much more."""
    return {name: round(value**WIDENING, 4) for name, value in band(predicted, measured).items()}


def _loss(predicted: np.ndarray, measured: np.ndarray) -> float:
    return float(np.sum(np.sqrt(1 + (np.log(predicted / measured) / 0.1) ** 2)))


def target(op: str, form: str) -> tuple[float, float] | None:
    return (0.05, 0.18) if op == "all-reduce graph" else None


ALL_REDUCE = Op("all_reduce", ("allreduce",), prepare_engines, predict, fit, target)
NCCL = Op("nccl", ("nccl",), prepare_nccl, predict, fit, target)
