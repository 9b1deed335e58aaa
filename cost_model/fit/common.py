"""What every kernel fit shares: held-out groups, robust least squares on log time, and the fit record."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

HELD_OUT = 5  # one group in five is never fitted


def held_out(groups: np.ndarray) -> np.ndarray:
    """(rows,) bool: rows whose whole group (a string per row) is kept for scoring, by a fixed hash."""
    unique, inverse = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    return np.array([zlib.crc32(name.encode()) % HELD_OUT == 0 for name in unique])[inverse]


def fit_constants(
    predict: Callable[[dict[str, float]], np.ndarray],
    measured: np.ndarray,
    start: dict[str, float],
    bounds: dict[str, tuple[float, float]],
    weights: np.ndarray | None = None,
) -> dict[str, float]:
    """Constants that minimise the soft-L1 of log(predicted / measured), each inside its physical range.

    Args:
        predict: seconds (rows,) for a dictionary of constants: the product's own kernel function.
        measured: (rows,) seconds. weights: (rows,) relative weight of each row.
        start, bounds: first guess and range of every fitted constant.
    """
    from scipy.optimize import least_squares  # the calibration extra

    names = list(start)
    low = np.array([bounds[name][0] for name in names])
    high = np.array([bounds[name][1] for name in names])
    root = np.ones(len(measured)) if weights is None else np.sqrt(weights / np.mean(weights))
    target = np.log(measured)

    def residuals(unit: np.ndarray) -> np.ndarray:
        values = dict(zip(names, low + unit * (high - low), strict=True))
        return root * (np.log(predict(values)) - target)

    first = np.clip((np.array([start[name] for name in names]) - low) / (high - low), 1e-6, 1 - 1e-6)
    best = least_squares(residuals, first, bounds=(0, 1), loss="soft_l1", f_scale=0.1, diff_step=1e-4)
    return {name: float(value) for name, value in zip(names, low + best.x * (high - low), strict=True)}


def fit_record(predicted: np.ndarray, measured: np.ndarray, groups: np.ndarray, source: str, date: str) -> dict[str, Any]:
    """How good a fit is: median over groups of each group's median error, p90 over rows, 80 % band."""
    ratio = measured / predicted
    error = np.abs(predicted / measured - 1)
    names = np.unique(groups)
    medians = [np.median(error[groups == name]) for name in names]
    return {
        "rows": len(measured),
        "groups": len(names),
        "median_error": round(float(np.median(medians)), 4),
        "p90_error": round(float(np.quantile(error, 0.9)), 4),
        "error_low": round(float(np.quantile(ratio, 0.1)), 4),
        "error_high": round(float(np.quantile(ratio, 0.9)), 4),
        "source": source,
        "date": date,
    }
