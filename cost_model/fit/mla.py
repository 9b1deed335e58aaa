"""Fits of kernels/mla.py to measured multi-head latent attention (mla.csv), prefill and decode."""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.fit.attention import unseen_band, with_nvfp4
from cost_model.fit.common import (
    FORMAT_NAMES,
    Columns,
    Constants,
    Op,
    fit_constants,
    renamed,
    select,
    table,
)
from cost_model.kernels.mla import mla_decode, mla_prefill
from spaces.formats import KV_FORMATS

BOUNDS = {
    "overhead_s": (1e-6, 60e-6),
    "memory_efficiency": (0.05, 1.0),
    "compute_efficiency": (0.05, 1.0),
    "block_s": (0.0, 20e-6),
    "tail": (0.0, 3.0),
    "tile_quantisation": (0.0, 1.0),
    "ramp_s": (0.0, 8e-6),
    "ramp_bytes": (1e4, 8e6),
    "reduce_s": (0.0, 2e-6),
    "block_row_s": (0.0, 0.5e-6),
    "l2_saving": (0.0, 0.9),
    "split_tokens": (16.0, 4096.0),
    "resident_waves": (0.5, 8.0),
    "max_splits": (4.0, 300.0),
    "wave_quantisation": (0.0, 1.0),
}
PREFILL_START = {
    "overhead_s": 14e-6,
    "memory_efficiency": 0.6,
    "compute_efficiency": 0.65,
    "block_s": 1.5e-6,
    "tail": 0.8,
    "tile_quantisation": 0.5,
}
DECODE_START = {
    "overhead_s": 10e-6,
    "ramp_s": 2e-6,
    "ramp_bytes": 1e6,
    "reduce_s": 0.1e-6,
    "block_s": 4e-6,
    "block_row_s": 0.1e-6,
    "memory_efficiency": 0.8,
    "compute_efficiency": 0.6,
    "l2_saving": 0.5,
    "split_tokens": 256.0,
    "resident_waves": 1.0,
    "max_splits": 100.0,
    "wave_quantisation": 0.5,
}
SPLITTING: tuple[dict[str, float], ...] = ({}, {"resident_waves": 4.0}, {"split_tokens": 1024.0, "resident_waves": 2.0})


def prepare(phase: str, calibrated: str) -> Any:
    """Reader of one phase's rows; a group is a number of heads per rank, whatever the tensor parallelism behind it."""

    def read(file: str, raw: Columns) -> Columns:
        kv = renamed(raw["kv_cache_dtype"], FORMAT_NAMES, "kv_cache_dtype")
        keep = raw["phase"] == phase
        group = np.array([f"heads{heads}" for heads in raw["heads"]])
        name = "MLA prefill" if phase == "context" else "MLA decode"
        dims = {"batch": raw["batch"], "heads": raw["heads"], "tokens": raw["seq"], "context": raw["kv_len"]}
        return table(raw, keep, op=name, format=kv, calibrated=calibrated, key=kv, group=group, **dims)

    return read


def predict_prefill(gpu: Accelerator, rows: Columns) -> np.ndarray:
    return np.asarray(mla_prefill(gpu, rows["batch"], rows["tokens"], rows["heads"], kv_format=rows["format"]))


def predict_decode(gpu: Accelerator, rows: Columns) -> np.ndarray:
    """Seconds as the tables were measured: replays of one call, which leave a small cache in L2."""
    return np.asarray(
        mla_decode(gpu, rows["batch"], rows["context"], rows["heads"], kv_format=rows["format"], warm_l2=True)
    )


def fit_prefill(gpu: Accelerator, rows: Columns) -> Constants:
    """Constants per KV format."""
    return _fit(predict_prefill, gpu, "mla_prefill", rows, (PREFILL_START,), {"window_tiles": 0.0})


def fit_decode(gpu: Accelerator, rows: Columns) -> Constants:
    """Constants per KV format, from several splitting schemes as the split constants have several local optima."""
    starts = tuple(DECODE_START | scheme for scheme in SPLITTING)
    return _fit(predict_decode, gpu, "mla_decode", rows, starts, {"full_waves": 0.0, "exposure": 0.0})


def _fit(
    predict: Any,
    gpu: Accelerator,
    op: str,
    rows: Columns,
    starts: tuple[dict[str, float], ...],
    fixed: dict[str, float],
) -> Constants:
    fitted: dict[str, dict[str, Any]] = {}
    for key in map(str, np.unique(rows["key"])):
        own = select(rows, rows["key"] == key)

        def trial(values: dict[str, float], key: str = key, own: Columns = own) -> np.ndarray:
            return np.asarray(predict(gpu.with_constants(op, key, fixed | values), own))

        def misfit(values: dict[str, float], trial: Any = trial, own: Columns = own) -> float:
            error = np.abs(np.log(trial(values) / own["seconds"]))
            return float(np.mean(np.minimum(error, 0.1 + 0.3 * error)))

        fits = [fit_constants(trial, own["seconds"], start, BOUNDS) for start in starts]
        best = fixed | min(fits, key=misfit)
        fitted[key] = best | {"fit": unseen_band(trial(best), own["seconds"], len(starts[0]))}
    return {op: with_nvfp4(fitted, KV_FORMATS)}


def target(op: str, form: str) -> tuple[float, float] | None:
    return (0.08, 0.25)


MLA_PREFILL = Op("mla-prefill", ("mla",), prepare("context", "mla_prefill"), predict_prefill, fit_prefill, target)
MLA_DECODE = Op("mla-decode", ("mla",), prepare("generation", "mla_decode"), predict_decode, fit_decode, target)
