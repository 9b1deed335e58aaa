"""How far a kernel's predicted time may be from the true one, from the calibration's fit records."""

from __future__ import annotations

from cost_model.accelerator import Accelerator


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
