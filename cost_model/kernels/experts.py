"""Seconds of the routed experts of one rank: permutation, activation quantisation, two grouped GEMMs, combine."""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.kernels.routing import busiest_rank, row_tiles
from spaces.formats import ACTIVATION_BYTES, FORMATS, WEIGHT_BYTES, format_code

TILES = (16.0, 128.0)  # smallest and largest M tile of the grouped GEMM


def experts(
    gpu: Accelerator,
    tokens: Any,
    hidden: Any,
    expert_ffn: Any,
    experts: Any,
    top_k: Any,
    format: Any,
    tp: Any = 1,
    ep: Any = 1,
    gated: Any = True,
    skew: Any = "balanced",
) -> Any:
    """Seconds of the busiest rank's experts; `tokens` enter the whole expert-parallel group.

    Args:
        hidden, expert_ffn: model width and width of one expert, before tensor parallelism `tp` divides the latter.
        experts, top_k: of the layer; `ep` ranks share the experts. gated: SwiGLU (three matrices) or two matrices.
        format: weight format, a name or code array. skew: routing, a name or code array of kernels.routing.SKEWS.
    Returns:
        seconds, shaped like the arguments broadcast together. No communication, shared expert or router GEMM.
    Raises:
        ValueError: unknown format or skew.
    """
    form = format_code(format)
    c = gpu.calibration.at("experts", form, FORMATS)
    load = busiest_rank(tokens, experts, top_k, ep, skew)
    hidden, width = np.asarray(hidden, dtype=float), np.asarray(expert_ffn, dtype=float) / tp
    up = width * np.where(gated, 2.0, 1.0)
    bandwidth = c.memory_efficiency * gpu.memory_bytes_per_s
    tile = np.clip(2.0 ** np.ceil(np.log2(load.assignments / load.activated)), *TILES)
    rows = row_tiles(load, tile) * tile
    math = 2.0 * rows * (up * (hidden + c.prologue_k) + hidden * (width + c.prologue_k))
    math = math / (c.compute_efficiency * gpu.format_flops[form])
    memory = load.activated * hidden * (up + width) * WEIGHT_BYTES[form] / bandwidth
    carried = ACTIVATION_BYTES[form]
    moved = load.assignments * (hidden * (2.0 * carried + 4.0) + (up + width) * (2.0 + carried))
    return c.overhead_s + np.sqrt(math * math + memory * memory) + moved / bandwidth
