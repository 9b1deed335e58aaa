"""Fit of kernels/gemm.py to measured GEMMs (gemm.csv)."""

from __future__ import annotations

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.fit.common import (
    FORMAT_NAMES,
    Columns,
    Constants,
    Op,
    fit_constants,
    group_weights,
    joined,
    partitions,
    renamed,
    table,
)
from cost_model.kernels.gemm import gemm


def prepare(file: str, raw: Columns) -> Columns:
    """Rows with N, K >= 512; Hopper's fp8-block only where m % 4 = 0, since engines pad m to that."""
    form = renamed(raw["dtype"], FORMAT_NAMES, "dtype", strict=False)
    m, n, k = raw["m"], raw["n"], raw["k"]
    keep = (n >= 512) & (k >= 512) & (form != "int8_wo")
    keep &= (form != "fp8-block") | (m % 4 == 0)
    return table(raw, keep, op="gemm", format=form, calibrated="gemm", key=form, group=joined(n, k), m=m, n=n, k=k)


def predict(gpu: Accelerator, rows: Columns) -> np.ndarray:
    seconds = np.empty(len(rows["m"]))
    for form in np.unique(rows["format"]):
        own = rows["format"] == form
        seconds[own] = gemm(gpu, rows["m"][own], rows["n"][own], rows["k"][own], str(form))
    return seconds


BOUNDS = {
    "compute_efficiency": (0.05, 1.0),
    "memory_efficiency": (0.05, 1.0),
    "overhead_s": (0.0, 50e-6),
    "prologue_k": (0.0, 2000.0),
    "quantise_bytes": (0.0, 20.0),
    "quantise_overhead_s": (0.0, 20e-6),
}
START = {
    "compute_efficiency": 0.75,
    "memory_efficiency": 0.8,
    "overhead_s": 3e-6,
    "prologue_k": 200.0,
    "quantise_bytes": 3.0,
    "quantise_overhead_s": 2e-6,
}


def fit(gpu: Accelerator, rows: Columns) -> Constants:
    fitted: Constants = {"gemm": {}}
    for (form,), own in partitions(rows, "format"):

        def trial(values: dict[str, float], form: str = form, own: Columns = own) -> np.ndarray:
            return predict(gpu.with_constants("gemm", form, values), own)

        fitted["gemm"][form] = fit_constants(trial, own["seconds"], START, BOUNDS, group_weights(own["group"]))
    return fitted


def target(op: str, form: str) -> tuple[float, float] | None:
    return {"bf16": (0.05, 0.16), "fp8": (0.05, 0.16), "nvfp4": (0.05, 0.16), "fp8-block": (0.07, 0.20)}.get(form)


GEMM = Op("gemm", ("gemm",), prepare, predict, fit, target)
