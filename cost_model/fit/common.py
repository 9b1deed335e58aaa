"""What every kernel fit shares: reading measured rows, held-out groups, robust least squares, the fit record.

How an operation joins `benchmarks/calibrate.py` and `benchmarks/kernels.py`: its module in `cost_model/fit/`
defines one `Op` per line of the error table and `cost_model/fit/ops.py` lists it.

    def prepare(file, raw):            # one measured file -> normalised columns; drops rows that mislead
        keep = ...
        return table(raw, keep, op=..., format=..., key=..., group=..., m=raw["m"], ...)
    def predict(gpu, rows): return kernels.gemm(gpu, rows["m"], ...)       # seconds (rows,)
    def fit(gpu, rows): return {"gemm": {"fp8": {"compute_efficiency": 0.7, ...}}}
    GEMM = Op("gemm", ("gemm",), prepare, predict, fit, target)

- `prepare` returns, beside the dimensions `predict` needs, the columns that `table()` lists: `op` (name in the error
  table, e.g. "experts balanced"), `gpu` (our name), `backend`, `format`, `calibrated` (the operation in the calibration
  file) and `key` (its key there), `group` (string; whole groups are held out, named by shape alone so that a shape is
  held out on every GPU), `seconds`.
  A further column `holdout` makes groups of equal value share their side of the split (shapes to be compared).
- `fit` sees the rows of ONE gpu and backend, held-out groups already removed, and a gpu whose constants are those now
  on disk; trial constants go in through `gpu.with_constants(op, key, values)`. It returns {operation: {key:
  constants}}. The harness adds each entry's fit record (errors and 80 % band on the held-out rows whose
  `calibrated` and `key` name the entry) and writes `cost_model/calibration/<gpu>.<engine>.toml`.
- `target(op, format)` is issue 4's (median, p90) for trtllm on H100, H200, B200, GB200, or None.
- `calibrate.py DIR --ops NAME` refits one Op, touching only the calibration tables that its fit returns.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.fit.measured import read_csv

HELD_OUT = 5  # one group in five is never fitted
FEW_ROWS = 25  # fewer do not carry what a class of kernels could have for itself: constants, or an error band

Columns = dict[str, np.ndarray]
Constants = dict[str, dict[str, dict[str, Any]]]  # {operation: {key: {constant: value}}}

GPUS = {
    "a100_sxm": "a100-sxm",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "l40s": "l40s",
    "b200_sxm": "b200-sxm",
    "gb200": "gb200-nvl72",
    "b300_sxm": "b300-sxm",
    "gb300": "gb300-nvl72",
}
HOPPER = ("h100_sxm", "h200_sxm", "h100-sxm", "h200-sxm")  # of those, under either name
FORMAT_NAMES = {
    "bfloat16": "bf16",
    "half": "bf16",
    "float16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8-block",
    "nvfp4": "nvfp4",
    "sq": "int8",
    "int4_wo": "int4",
}


@dataclass(frozen=True)
class Op:
    """One measured operation: how its rows are read, predicted and fitted (see the module's docstring)."""

    name: str
    files: tuple[str, ...]
    prepare: Callable[[str, Columns], Columns]
    predict: Callable[[Accelerator, Columns], np.ndarray]
    fit: Callable[[Accelerator, Columns], Constants]
    target: Callable[[str, str], tuple[float, float] | None]
    pooled: tuple[str, ...] = ()  # GPUs whose `fit` also takes rows of their generation's others, told apart by `gpu`


def load(op: Op, directory: Path, system: str | None = None) -> Columns | None:
    """Normalised rows of an operation from the files of a directory, or None where it has none of them.

    Args:
        system: name every row takes instead of its own (measurements of one machine).
    Raises:
        ValueError: a file that cannot be read, or a column that is missing or holds what nobody can have measured.
    """
    parts = []
    for name in op.files:
        for path in (directory / f"{name}.csv", directory / f"{name}.csv.gz"):
            if path.is_file():
                raw = read_csv(path)
                if system:
                    raw["system"] = np.full(len(raw["latency_us"]), system)
                parts.append(op.prepare(name, raw))
    if not parts:
        return None
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def table(raw: Columns, keep: np.ndarray, **columns: Any) -> Columns:
    """Normalised columns of the kept rows; `gpu`, `backend`, `version` and `seconds` come from the raw ones.

    Args:
        raw: columns as read. keep: (rows,) bool.
        columns: `op`, `format`, `calibrated`, `key`, `group` and the kernel's dimensions: arrays (rows,) or one value.
    Raises:
        ValueError: a required column is missing, or a GPU of the file is unknown.
    """
    missing = {"op", "format", "calibrated", "key", "group"} - set(columns)
    if missing:
        raise ValueError(f"measured table lacks {', '.join(sorted(missing))}")
    columns["seconds"] = raw["latency_us"] * 1e-6
    columns["gpu"] = renamed(raw["system"], GPUS, "system")
    columns["backend"] = raw["backend"]
    columns["version"] = raw["backend_version"]
    rows = len(keep)
    return {name: np.broadcast_to(np.asarray(values), (rows,))[keep] for name, values in columns.items()}


def renamed(values: np.ndarray, names: dict[str, str], what: str, strict: bool = True) -> np.ndarray:
    """Values mapped through `names`; with strict=False unknown ones pass through unchanged."""
    unique, inverse = np.unique(values, return_inverse=True)
    unknown = [str(value) for value in unique if value not in names and value not in names.values()]
    if unknown and strict:
        raise ValueError(f"unknown {what} {unknown[0]!r} in measured data; valid: {', '.join(names)}")
    return np.array([names.get(str(value), str(value)) for value in unique])[inverse]


def joined(*columns: np.ndarray) -> np.ndarray:
    """(rows,) group names such as "4096x14336" from several columns."""
    return np.array(["x".join(map(str, row)) for row in zip(*columns, strict=True)])


def select(rows: Columns, mask: np.ndarray) -> Columns:
    return {name: values[mask] for name, values in rows.items()}


def partitions(rows: Columns, *names: str) -> list[tuple[tuple[str, ...], Columns]]:
    """Rows split by the distinct values of some columns, in sorted order."""
    keys = np.stack([rows[name].astype(str) for name in names])
    unique, inverse = np.unique(keys, axis=1, return_inverse=True)
    inverse = inverse.ravel()
    return [(tuple(map(str, unique[:, i])), select(rows, inverse == i)) for i in range(unique.shape[1])]


def held_out(groups: np.ndarray) -> np.ndarray:
    """(rows,) bool: rows whose whole group (a string per row) is kept for scoring, by a fixed hash."""
    unique, inverse = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    return np.array([zlib.crc32(name.encode()) % HELD_OUT == 0 for name in unique])[inverse]


def group_weights(groups: np.ndarray) -> np.ndarray:
    """(rows,) weights that let a group count as the root of its number of rows, neither as one nor as all of them."""
    _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return 1 / np.sqrt(counts[inverse])


def fit_constants(
    predict: Callable[[dict[str, float]], np.ndarray],
    measured: np.ndarray,
    start: dict[str, float],
    bounds: dict[str, tuple[float, float]],
    weights: np.ndarray | None = None,
    scale: float = 0.1,
    starts: int = 1,
    pull: float = 0.0,
) -> dict[str, float]:
    """Constants that minimise the soft-L1 of log(predicted / measured), each inside its physical range.

    Args:
        predict: seconds (rows,) for a dictionary of constants: the product's own kernel function.
        measured: (rows,) seconds. weights: (rows,) relative weight of each row.
        start, bounds: first guess and range of every fitted constant.
        scale: log error from which residuals count linearly instead of squared.
        starts: how many first guesses to try, `start` and perturbations of it; the best fit wins.
        pull: where rows are few: log error that moving one constant across its whole range must save on some row
            (a ridge penalty towards `start`).
    """
    from scipy.optimize import least_squares  # the calibration extra

    names = list(start)
    low = np.array([bounds[name][0] for name in names])
    high = np.array([bounds[name][1] for name in names])
    root = np.ones(len(measured)) if weights is None else np.sqrt(weights / np.mean(weights))
    target = np.log(measured)

    def residuals(unit: np.ndarray) -> np.ndarray:
        values = dict(zip(names, low + unit * (high - low), strict=True))
        errors = root * (np.log(predict(values)) - target)
        return np.concatenate([errors, pull * (unit - first)]) if pull else errors

    first = np.clip((np.array([start[name] for name in names]) - low) / (high - low), 1e-6, 1 - 1e-6)
    random = np.random.default_rng(0)
    guesses = [first] + [np.clip(first + random.normal(0, 0.15, len(first)), 1e-3, 0.999) for _ in range(starts - 1)]
    fits = [
        least_squares(
            residuals, guess, bounds=(0, 1), loss="soft_l1", f_scale=scale, diff_step=1e-4, ftol=1e-6, xtol=1e-6
        )
        for guess in guesses
    ]
    best = min(fits, key=lambda fit: fit.cost)
    return {name: float(value) for name, value in zip(names, low + best.x * (high - low), strict=True)}


def group_medians(error: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """(groups,) median of each group's rows."""
    _, inverse = np.unique(groups, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    parts = np.split(error[order], np.flatnonzero(np.diff(inverse[order])) + 1)
    return np.array([np.median(part) for part in parts])


def errors(predicted: np.ndarray, measured: np.ndarray, groups: np.ndarray) -> dict[str, Any]:
    """rows, groups, median over groups of each group's median relative error, p90 over rows."""
    error = np.abs(predicted / measured - 1)
    medians = group_medians(error, groups)
    return {
        "groups": len(medians),
        "rows": len(error),
        "median": round(float(np.median(medians)), 4),
        "p90": round(float(np.quantile(error, 0.9)), 4),
    }


def band(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    """The band [error_low, error_high] x predicted that holds 80 % of measured times, on the rows of the fit.

    Taken a little wider (84 %) because rows of unseen groups scatter slightly more; benchmarks/kernels.py prints
    the share of held-out rows that it really holds.
    """
    low, high = np.quantile(measured / predicted, (0.08, 0.92))
    return {"error_low": round(float(low), 4), "error_high": round(float(high), 4)}


def fit_record(predicted: np.ndarray, measured: np.ndarray, groups: np.ndarray) -> dict[str, Any]:
    """How good a fit is on rows not used in it."""
    score = errors(predicted, measured, groups)
    return {
        "rows": score["rows"],
        "groups": score["groups"],
        "median_error": score["median"],
        "p90_error": score["p90"],
    }
