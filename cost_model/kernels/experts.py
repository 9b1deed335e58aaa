"""Seconds of the routed experts of one rank: routing, permutation, activation quantisation, two grouped GEMMs, combine.

FC1 is hidden -> expert width (twice that where gated), FC2 goes back. Both stream the weights of the activated experts
only and run in waves of output tiles on the SMs; the kernel's auto-tuner picks the cheaper of two tile heights.
Around them, memory passes carry the (token, expert) pairs, and the routing kernels sort all pairs of the whole
expert-parallel group. Fitted on aiconfigurator-core 0.12.0 tables by cost_model/fit/experts.py.

CUTLASS, DeepGEMM and TensorRT-LLM copy the tokens of the rank's own experts side by side first (`permutes` 1). Triton
and Marlin read tokens where they are, but keep a row for every pair, also for those of other ranks' experts: the
activation and the final sum pass over all of them, however many ranks share the experts (vLLM, `fused_moe.py`).

Two families of kernels have constants of their own. `experts`: grouped GEMMs, which also take tokens that an
all-to-all brought. `experts_fused`: on Blackwell TensorRT-LLM's fused kernels for nvfp4 and fp8-block, about twice as
fast while the batch is small; on Hopper vLLM's Triton kernels for fp8-block, its choice without expert parallelism;
under SGLang those that it shares with vLLM.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.kernels.routing import RankLoad, busiest_rank
from spaces.formats import ACTIVATION_BYTES, FORMATS, WEIGHT_BYTES, format_code

TILE_ROWS = (32.0, 128.0)
TILE_COLUMNS = 128.0
RAMP_TOKENS = 128.0  # at which fused experts have their full fixed cost (64 to 256 are alike by cross-validation)


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
    served: bool = False,
    present: Any = None,
    kernels: tuple[str, ...] = ("experts",),
) -> Any:
    """Seconds of the busiest rank's experts; `tokens` enter the whole expert-parallel group.

    Args:
        hidden, expert_ffn: model width and width of one expert, before tensor parallelism `tp` divides the latter.
        experts, top_k: of the layer; `ep` ranks share the experts. gated: SwiGLU (three matrices) or two matrices.
        format: weight format, a name or code array. skew: routing, a name or code array of kernels.routing.SKEWS.
        served: popularity as in serving; otherwise as in the measured tables (kernels.routing).
        present: tokens that the rank sees; None: all, as measured, and as without attention DP.
        kernels: operations of the calibration that can do it, `experts` and `experts_fused`; the fastest does.
    Returns:
        seconds, shaped like the arguments broadcast together. No communication, shared expert or router GEMM.
    Raises:
        ValueError: unknown format or skew.
    """
    form = format_code(format)
    tokens, hidden, top_k = (np.asarray(value, dtype=float) for value in (tokens, hidden, top_k))
    width = np.asarray(expert_ffn, dtype=float) / tp
    matrices = 1.0 + np.asarray(gated, dtype=float)  # of FC1
    seen = tokens if present is None else present
    load = busiest_rank(tokens, experts, top_k, ep, skew, TILE_ROWS, served)
    carried = np.where(gpu.native, ACTIVATION_BYTES, 2.0)[form]
    # FC1 output written and read, FC2 input written and read; FC2 output written and gathered
    passes = width * (4.0 * matrices + 2.0 * carried) + hidden * 4.0
    permutation = hidden * (2.0 + 2.0 * carried)  # input read, written in its format, read by FC1

    def seconds(kernel: str) -> Any:
        c = gpu.calibration.at(kernel, form, FORMATS)
        passed = load.assignments * (passes + c.permutes * permutation)
        if not np.all(c.permutes):  # rows kept for pairs of other ranks' experts
            passed = passed + (1.0 - c.permutes) * np.maximum(seen * top_k - load.assignments, 0.0) * passes
        moved = passed / c.pass_efficiency + seen * (hidden * c.token_bytes)
        routing = c.overhead_s + c.overhead_choice_s * top_k + seen * (top_k * c.pair_s)
        if np.any(c.ramp_s):
            routing = routing + c.ramp_s * np.minimum(seen * (1.0 / RAMP_TOKENS), 1.0)
        gemms = _grouped_gemms(gpu, c, form, load, hidden, matrices * width, width)
        return routing + moved / gpu.memory_bytes_per_s + gemms

    return reduce(np.minimum, map(seconds, kernels))


def _grouped_gemms(gpu: Accelerator, c: Any, form: Any, load: RankLoad, hidden: Any, up: Any, width: Any) -> Any:
    """Seconds of FC1 and FC2: per GEMM the root sum of squares of tile waves and weight streaming."""
    rate = c.compute_efficiency * gpu.format_flops[form] / gpu.sm_count
    streamed = load.activated * (WEIGHT_BYTES[form] / (c.memory_efficiency * gpu.memory_bytes_per_s))
    tiles = [count * (1.0 / gpu.sm_count) for count in load.tiles]
    totals: list[Any] = [0.0 for _ in TILE_ROWS]
    for columns, depth in ((up, hidden), (hidden, width)):
        memory = streamed * (columns * depth)
        memory *= memory
        across = np.ceil(columns / TILE_COLUMNS)
        for i, rows in enumerate(TILE_ROWS):
            math = np.ceil(tiles[i] * across) * (c.wave_s + 2.0 * rows * TILE_COLUMNS / rate * depth)
            math *= math
            math += memory
            totals[i] = totals[i] + np.sqrt(math)
    return np.minimum(totals[0], totals[1])
