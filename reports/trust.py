"""How far to trust a difference: what of the model's error two designs share, and what they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cost_model.constants import EXTRAPOLATED_WIDENING

PARTS = ("attention_linear", "attention_core", "ffn", "communication", "head", "overhead")


def points_at(points: pd.DataFrame, target: float) -> pd.DataFrame:
    """The point of highest throughput of each design, in each cell, at no less than `target` tokens/s/user."""
    fast = points[points["within_ttft"] & (points["tokens_per_s_per_user"] >= target)]
    best = fast.groupby(["design", "recipe", "kv_format", "gpu", "workload"])["tokens_per_s_per_gpu"].idxmax()
    return fast.loc[best]


def difference_error(points: pd.DataFrame) -> np.ndarray:
    """(n,) fraction by which the ratio of two designs' times may be off, 80 % of the time.

    A point's band [error_low, error_high] is that of kernels on shapes not used in their fit. Two designs on the
    same GPU have errors of their own there, so the ratio of one kernel's times is off by sqrt(2) of the band; over
    components with shares s of the time, whose errors are independent, by sqrt(2 sum s^2). A constant borrowed from
    another GPU is wrong for both alike: its widening cancels and is taken out.
    """
    half = 0.5 * np.log(points["error_high"].to_numpy(dtype=float) / points["error_low"].to_numpy(dtype=float))
    half = np.where(points["evidence"].to_numpy() == "extrapolated", half / EXTRAPOLATED_WIDENING, half)
    shares = np.stack([points[f"{part}_s"].to_numpy(dtype=float) for part in PARTS]) / points["tpot_s"].to_numpy(
        dtype=float
    )
    return np.asarray(np.expm1(half * np.sqrt(2.0 * (shares * shares).sum(axis=0))))


def within_error(gain: float | None, error: float | None) -> bool:
    """Whether a gain is no larger than the model's error of a difference."""
    return gain is not None and error is not None and bool(abs(np.log1p(gain)) <= np.log1p(error))


def calibration_rows(gpu: Any) -> list[dict[str, Any]]:
    """Fit records of every kernel constant this GPU and engine use, measured ones first."""
    rows = []
    for op, keys in gpu.calibration.entries.items():
        for key, entry in keys.items():
            fit = entry.get("fit", {})
            rows.append({"operation": op, "key": key, **fit})
    return sorted(rows, key=lambda row: (row.get("evidence") != "measured", row["operation"], row["key"]))
