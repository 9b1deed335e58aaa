"""How far to trust a prediction: error bands of its kernels, weighted by the time they take."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from cost_model.constants import Calibration
from cost_model.design import Design
from cost_model.kernels.attention import DECODE_KEYS, decode_class
from spaces.formats import FORMATS, KV_FORMATS

EVIDENCE = ("measured", "interpolated", "extrapolated")
MEASURED_STEP = 256  # every measured N and K is a multiple


def error_and_evidence(design: Design, breakdown: dict[str, Any], total: Any) -> tuple[Any, Any, Any]:
    """(error_low, error_high, evidence code): bands of linears, experts and attention, weighted by their time.

    Kernel errors of one component are taken as fully correlated (one constant is wrong everywhere), those of
    different components as adding linearly, which is the cautious end. Communication, overheads and the head
    carry the band of the bf16 linears. Constants borrowed from another GPU make a prediction extrapolated; a
    width or FFN off the measured grid makes it interpolated.

    Args:
        total: sum of the breakdown.
    """
    a = design.architecture
    constants = design.gpu.calibration
    linear, experts = _bands(constants, "gemm", FORMATS), _expert_bands(constants)
    if np.any(a.is_mla):
        core = _bands(constants, "mla_decode", KV_FORMATS)[design.kv_format]
    else:
        group = np.asarray(a.heads) / a.kv_heads
        kernel = len(KV_FORMATS) * decode_class(group, group, a.head_dim)
        core = _bands(constants, "attention_decode", DECODE_KEYS)[design.kv_format + kernel]
    used = {
        "attention_linear": linear[design.attention_format],
        "ffn": np.where(a.is_moe[..., None], experts[design.ffn_format], linear[design.ffn_format]),
        "attention_core": core,
    }
    rest = linear[0]
    low, high = rest[0], rest[1]
    inverse = 1.0 / total
    for name, band in used.items():
        share = breakdown[name] * inverse
        low = low + share * (band[..., 0] - rest[0])
        high = high + share * (band[..., 1] - rest[1])
    borrowed = np.maximum.reduce(np.broadcast_arrays(*(band[..., 2] for band in used.values())))
    width: Any = np.where(a.is_moe, a.expert_ffn, a.ffn)
    on_grid = (np.asarray(a.hidden) % MEASURED_STEP == 0) & (width % MEASURED_STEP == 0)
    return low, high, np.where(borrowed > 0, 2, np.where(on_grid, 0, 1))


@lru_cache(maxsize=256)
def _expert_bands(constants: Calibration) -> np.ndarray:
    """Of grouped and fused kernels, either of which a plan may run, the wider band to each side."""
    grouped = _bands(constants, "experts", FORMATS)
    if "experts_fused" not in constants.entries:
        return grouped
    fused = _bands(constants, "experts_fused", FORMATS)
    return np.column_stack([np.minimum(grouped[:, 0], fused[:, 0]), np.maximum(grouped[:, 1:], fused[:, 1:])])


@lru_cache(maxsize=256)
def _bands(calibration: Calibration, op: str, names: tuple[str, ...]) -> np.ndarray:
    """(keys, 3): low, high, and 1 where the constants are borrowed."""
    rows = [calibration.fit(op, name) for name in names]
    return np.array([(row["error_low"], row["error_high"], row["evidence"] == "extrapolated") for row in rows])
