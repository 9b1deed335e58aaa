"""Fits of kernels/attention.py to measured prefill and decode (attention_context.csv, attention_generation.csv)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator, load_accelerator
from cost_model.fit.common import (
    FEW_ROWS,
    FORMAT_NAMES,
    Columns,
    Constants,
    Op,
    fit_constants,
    group_weights,
    joined,
    renamed,
    select,
    table,
)
from cost_model.kernels.attention import (
    DECODE_CLASSES,
    DECODE_KEYS,
    PREFILL_CLASSES,
    PREFILL_KEYS,
    WIDEST,
    attention_decode,
    attention_prefill,
    decode_class,
)
from spaces.formats import KV_FORMATS

# the kernels that an engine dispatches for a phase; the tables hold others beside them (Triton, vLLM's other phase);
# "torch" rows are a machine's own (cost_model/measure.py)
DISPATCHED = {
    "prefill": ("torch_flow", "vllm_flash_attn", "fa2", "fa3", "fa4", "prefill", "torch"),
    "decode": ("torch_flow", "vllm_flash_attn", "fa2", "fa3", "fa4", "decode", "torch"),
}
HEADS = ("heads", "kv_heads", "head_dim")
WIDE_KERNELS = ("torch_flow_flashinfer",)  # what trtllm falls back to for head_dim 512
PULL = 0.3  # ridge of a class fit towards the fit of all classes together
SHARED = ("", "-single", "-large")  # classes whose query heads share a cache read

PREFILL_BOUNDS = {
    "overhead_s": (1e-6, 60e-6),
    "memory_efficiency": (0.05, 1.0),
    "compute_efficiency": (0.05, 1.0),
    "block_s": (0.0, 10e-6),
    "tail": (0.0, 3.0),
    "window_tiles": (1.0, 8.0),
    "tile_quantisation": (0.0, 1.0),
    "cache_passes": (1.0, 40.0),
    "rate_at_64": (0.2, 1.0),
    "rate_at_256": (0.5, 2.0),
    "other_width_s": (0.0, 6e-6),
    "append_s": (0.0, 5e-8),
}
PREFILL_START = {
    "overhead_s": 12e-6,
    "memory_efficiency": 0.4,
    "compute_efficiency": 0.65,
    "block_s": 2e-6,
    "tail": 0.7,
    "window_tiles": 2.5,
    "tile_quantisation": 0.5,
    "cache_passes": 2.0,
    "rate_at_64": 0.6,
    "rate_at_256": 1.1,
    "other_width_s": 0.0,
    "append_s": 0.0,
}
DECODE_BOUNDS = {
    "overhead_s": (1e-6, 60e-6),
    "narrow_s": (-3e-6, 5e-6),
    "ramp_s": (0.0, 6e-6),
    "ramp_bytes": (2048.0, 131072.0),
    "reduce_s": (0.0, 1e-6),
    "block_s": (0.0, 20e-6),
    "block_row_s": (0.0, 1e-6),
    "block_width": (0.0, 1.0),
    "memory_efficiency": (0.05, 1.0),
    "l2_saving": (0.0, 0.9),
    "split_tokens": (64.0, 4096.0),
    "resident_waves": (0.5, 10.0),
    "max_splits": (8.0, 300.0),
    "masked_splits": (0.0, 1.0),
    "wave_quantisation": (0.0, 1.0),
    "reread": (0.0, 2.0),
    "full_waves": (0.0, 6.0),
    "exposure": (0.0, 1.0),
}
DECODE_START = {
    "overhead_s": 9e-6,
    "narrow_s": 0.0,
    "ramp_s": 1e-6,
    "ramp_bytes": 16384.0,
    "reduce_s": 0.02e-6,
    "block_s": 1e-6,
    "block_row_s": 0.05e-6,
    "block_width": 0.3,
    "memory_efficiency": 0.9,
    "l2_saving": 0.5,
    "masked_splits": 0.5,
    "full_waves": 0.1,
    "exposure": 0.2,
}
# how kernels split: XQA's many short slices in whole waves, FlashInfer's one wave, long slices
SPLITTING = (
    {"split_tokens": 128.0, "resident_waves": 8.0, "max_splits": 64.0, "wave_quantisation": 0.9},
    {"split_tokens": 256.0, "resident_waves": 1.0, "max_splits": 200.0, "wave_quantisation": 0.1},
    {"split_tokens": 1024.0, "resident_waves": 1.0, "max_splits": 200.0, "wave_quantisation": 0.5},
)
POOLED = ("h100-sxm",)  # GPUs that H200's rows, of the same kernels, help to fit (found by cross-validation)
OF_ONE_GPU = ("overhead_s", "memory_efficiency")  # what GPUs that run the same kernels do not share
DECODE_FIXED = {"compute_efficiency": 0.6}  # no measured row with head_dim <= 256 is bound by it


def prepare_prefill(file: str, raw: Columns) -> Columns:
    """Rows of the dispatched kernels; head_dim beyond 256 is an operation of its own."""
    wide = raw["head_dim"] > WIDEST
    return _prepare("prefill", "attention_prefill", raw, wide.astype(int), PREFILL_CLASSES, tokens=raw.get("seq"))


def prepare_decode(file: str, raw: Columns) -> Columns:
    group = raw["heads"] / raw["kv_heads"]
    kind = decode_class(group, group, raw["head_dim"])
    return _prepare("decode", "attention_decode", raw, kind, DECODE_CLASSES, context=raw.get("kv_len"))


def _prepare(
    phase: str, calibrated: str, raw: Columns, kind: np.ndarray, classes: tuple[str, ...], **length: Any
) -> Columns:
    wide = raw["head_dim"] > WIDEST
    kernel = raw["kernel"].astype(str)
    dispatched = np.array([name.endswith(DISPATCHED[phase]) for name in kernel])
    dispatched |= wide & np.isin(kernel, WIDE_KERNELS)
    kv = renamed(raw["kv_cache_dtype"], FORMAT_NAMES, "kv_cache_dtype")
    large = raw["heads"] > 16 * raw["kv_heads"] if phase == "decode" else np.zeros(len(wide), dtype=bool)
    names = np.where(wide, f"{phase} attention, head_dim 512", f"{phase} attention")
    names = np.where(large & ~wide, f"{phase} attention, group > 16", names)
    return table(
        raw,
        dispatched,
        op=names,
        format=kv,
        calibrated=calibrated,
        key=np.char.add(kv, np.array(classes)[kind]),
        group=joined(*(raw[name] for name in HEADS)),
        batch=raw["batch"],
        window=raw["window_size"],
        **{name: raw[name] for name in HEADS},
        **length,
    )


def predict_prefill(gpu: Accelerator, rows: Columns) -> np.ndarray:
    """Seconds; fp8 and bf16 products share constants, as fp8 prefill is measured to be no faster."""
    batch, tokens, heads, kv_heads, head_dim = (rows[name] for name in ("batch", "tokens", *HEADS))
    kv, window = rows["format"], rows["window"]
    return np.asarray(attention_prefill(gpu, batch, tokens, heads, kv_heads, head_dim, kv, window=window))


def predict_decode(gpu: Accelerator, rows: Columns) -> np.ndarray:
    """Seconds as the tables were measured: replays of one call, which leave a small cache in L2."""
    batch, context, heads, kv_heads, head_dim = (rows[name] for name in ("batch", "context", *HEADS))
    kv, window = rows["format"], rows["window"]
    return np.asarray(attention_decode(gpu, batch, context, heads, kv_heads, head_dim, kv, window=window, warm_l2=True))


def fit_prefill(gpu: Accelerator, rows: Columns) -> Constants:
    """Constants per KV format, and apart for head_dim beyond 256, where rows are enough; others stay borrowed."""
    fitted = {}
    for key in np.unique(rows["key"]):
        own = select(rows, rows["key"] == key)
        if len(own["seconds"]) < FEW_ROWS:
            continue  # a relative's constants serve the class
        fixed = {"fp8_gain": 0.0}
        start = dict(PREFILL_START)
        for name, present in (
            ("window_tiles", np.any(own["window"] > 0)),
            ("rate_at_64", np.any(own["head_dim"] < 128)),
            ("rate_at_256", np.any(own["head_dim"] > 128)),
            ("other_width_s", len(np.unique(own["head_dim"])) > 1),
            ("append_s", gpu.engine.kernels == "vllm"),
        ):
            if not present:
                fixed[name] = start.pop(name)
        values = fixed | _fit(predict_prefill, gpu, "attention_prefill", (str(key),), own, start, fixed)
        predicted = predict_prefill(gpu.with_constants("attention_prefill", str(key), values), own)
        fitted[str(key)] = values | {"fit": unseen_band(predicted, own["seconds"], len(start))}
    return {"attention_prefill": with_nvfp4(fitted, PREFILL_KEYS)}


def fit_decode(gpu: Accelerator, rows: Columns) -> Constants:
    """Constants per KV format and kernel class, each class near the fit of all classes that share reads.

    Rows of other GPUs of the generation, which run the same kernels, count as its own do.
    """
    fitted: dict[str, dict[str, Any]] = {}
    for kv in np.unique(rows["format"]):
        keys = {kind: f"{kv}{kind}" for kind in DECODE_CLASSES}
        shared = tuple(keys[kind] for kind in SHARED)
        together = select(rows, np.isin(rows["key"], shared))
        fixed = DECODE_FIXED | {"reread": 0.0}
        if len(together["seconds"]) < FEW_ROWS:
            continue
        pooled = _best(gpu, shared, together, [DECODE_START | scheme for scheme in SPLITTING], fixed)
        for kind, key in keys.items():
            own = select(rows, rows["key"] == key)
            few = len(own["seconds"]) < FEW_ROWS
            if kind == "-unshared" and len(own["seconds"]) > FEW_ROWS // 2:
                start = {name: value for name, value in pooled.items() if name != "block_row_s"} | {"reread": 0.5}
                unshared = DECODE_FIXED | {"block_row_s": 0.0}
                fitted[key] = unshared | _best(gpu, (key,), own, [start], unshared, PULL)
            elif kind in SHARED and few:
                fitted[key] = fixed | pooled  # the constants of its engine's decode as a whole
            elif not few and kind != "-unshared":
                fitted[key] = fixed | _best(gpu, (key,), own, [pooled, DECODE_START | SPLITTING[0]], fixed, PULL)
            own = select(own, _measured_on(gpu, own))
            if key in fitted and len(own["seconds"]):
                if len(own["seconds"]) < np.sum(rows["key"] == key):
                    start = {name: fitted[key].pop(name) for name in OF_ONE_GPU}
                    fitted[key] |= _fit(predict_decode, gpu, "attention_decode", (key,), own, start, fitted[key], PULL)
                predicted = predict_decode(gpu.with_constants("attention_decode", key, fitted[key]), own)
                fitted[key]["fit"] = unseen_band(predicted, own["seconds"], len(DECODE_START))
    return {"attention_decode": with_nvfp4(fitted, DECODE_KEYS)}


def _measured_on(gpu: Accelerator, rows: Columns) -> np.ndarray:
    """(rows,) bool: measured on this GPU, not on another of its generation."""
    own: np.ndarray = rows["gpu"] == gpu.name
    return own if own.any() else np.ones(len(own), dtype=bool)  # a user's machine, calibrated from another's constants


def _predict_generation(gpu: Accelerator, rows: Columns) -> np.ndarray:
    """Seconds of rows of this GPU and of others, all with its constants."""
    seconds = np.empty(len(rows["seconds"]))
    own = _measured_on(gpu, rows)
    for name in np.unique(rows["gpu"]):
        mask = rows["gpu"] == name
        runs = gpu if own[mask].all() else replace(load_accelerator(name), calibration=gpu.calibration)
        seconds[mask] = predict_decode(runs, select(rows, mask))
    return seconds


def unseen_band(predicted: np.ndarray, measured: np.ndarray, constants: int) -> dict[str, float]:
    """80 % band of measured / predicted for rows outside the fit, from the rows inside it.

    A fit of p constants to n rows leaves residuals smaller than its errors elsewhere: in the mean of least squares by
    sqrt((n - p) / (n + p)), which widens the band here (by at most 2).
    """
    low, high = np.quantile(np.log(measured / predicted), (0.08, 0.92))  # as for other kernels
    rows = len(measured)
    wider = 0.5 * (high - low) * min(np.sqrt((rows + constants) / max(rows - constants, 1)), 2.0)
    middle = 0.5 * (high + low)
    return {
        "error_low": round(float(np.exp(middle - wider)), 4),
        "error_high": round(float(np.exp(middle + wider)), 4),
    }


def _best(
    gpu: Accelerator,
    keys: tuple[str, ...],
    rows: Columns,
    starts: list[dict[str, float]],
    fixed: dict[str, float],
    pull: float = 0.0,
) -> dict[str, float]:
    """Best of the fits from several starts, as the constants of splitting have several local optima.

    pull: ridge towards the first start.
    """
    fits = [
        _fit(
            _predict_generation, gpu, "attention_decode", keys, rows, start, fixed, pull if start is starts[0] else 0.0
        )
        for start in starts
    ]

    def misfit(values: dict[str, float]) -> float:
        predicted = _predict_generation(_with(gpu, "attention_decode", keys, fixed | values), rows)
        error = np.abs(np.log(predicted / rows["seconds"]))
        return float(np.mean(np.minimum(error, 0.1 + 0.3 * error)))

    return min(fits, key=misfit)


def _fit(
    predict: Any,
    gpu: Accelerator,
    op: str,
    keys: tuple[str, ...],
    rows: Columns,
    start: dict[str, float],
    fixed: dict[str, float],
    pull: float = 0.0,
) -> dict[str, float]:
    bounds = PREFILL_BOUNDS if op == "attention_prefill" else DECODE_BOUNDS

    def trial(values: dict[str, float]) -> np.ndarray:
        return np.asarray(predict(_with(gpu, op, keys, fixed | values), rows))

    return fit_constants(trial, rows["seconds"], start, bounds, group_weights(rows["group"]), pull=pull)


def _with(gpu: Accelerator, op: str, keys: tuple[str, ...], values: dict[str, float]) -> Accelerator:
    for key in keys:
        gpu = gpu.with_constants(op, key, values)
    return gpu


def with_nvfp4(fitted: dict[str, dict[str, Any]], keys: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Entries of an nvfp4 cache, which no table measures: those of fp8, marked extrapolated."""
    source, target = KV_FORMATS.index("fp8"), KV_FORMATS.index("nvfp4")
    for code in range(0, len(keys), len(KV_FORMATS)):
        lender = fitted.get(keys[code + source])
        if lender:
            record = {
                "error_low": 0.7,
                "error_high": 1.45,
                "source": "as fp8: not measured",
                "evidence": "extrapolated",
            }
            fitted[keys[code + target]] = {**lender, "fit": record}
    return fitted


def prefill_target(op: str, form: str) -> tuple[float, float] | None:
    return (0.07, 0.18) if op == "prefill attention" else None


def decode_target(op: str, form: str) -> tuple[float, float] | None:
    return (0.07, 0.25) if op == "decode attention" else None


PREFILL = Op("prefill-attention", ("attention_context",), prepare_prefill, predict_prefill, fit_prefill, prefill_target)
DECODE = Op(
    "decode-attention",
    ("attention_generation",),
    prepare_decode,
    predict_decode,
    fit_decode,
    decode_target,
    pooled=POOLED,
)
