"""How far a kernel's predicted time, and a predicted difference between two shapes, may be from the truth."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from cost_model.accelerator import Accelerator

_SHAPE_GAIN = Path(__file__).parent.parent / "calibration" / "shape_gain.toml"


def error_band(gpu: Accelerator, op: str, key: str) -> tuple[float, float, str]:
    """(low, high, evidence): in 80 % of cases the true time lies in [low, high] x predicted.

    Args:
        op, key: an entry of the calibration, e.g. ("gemm", "fp8").
    Returns:
        evidence is "measured" (fitted on this GPU and engine), "extrapolated" (borrowed from a relative or a
        documented default, band widened) or "ideal" (a perfect engine: a bound, not a prediction).
    Raises:
        KeyError: no such entry.
    """
    fit = gpu.calibration.fit(op, key)
    return fit["error_low"], fit["error_high"], fit["evidence"]


def difference_error(gpu: Accelerator, format: str) -> float:
    """Relative error that 80 % of predicted latency ratios between two GEMM shapes of equal weight count stay within.

    A gain smaller than this is within the model's error of a difference. Measured on held-out pairs by
    benchmarks/shape_gain.py; a GPU or format without pairs takes the largest error known for its format, or of all.
    """
    table = _shape_gain()
    measured = {(name, key): row["p80"] for name, rows in table.items() for key, row in rows.items()}
    if (gpu.name, format) in measured:
        return float(measured[gpu.name, format])
    return float(max([error for (_, key), error in measured.items() if key == format] or measured.values()))


@cache
def _shape_gain() -> dict[str, dict[str, Any]]:
    table = tomllib.loads(_SHAPE_GAIN.read_text(encoding="utf-8"))
    return {name: rows for name, rows in table.items() if isinstance(rows, dict)}
