"""Seconds of y[m, n] = x[m, k] W[k, n]: m tokens through a weight matrix of n outputs and k inputs.

    seconds = overhead + serial_k min(k, serial_k_limit) + core + quantisation
    core    = (math^4 + 2 exposure (math memory)^2 + memory^4)^(1/4)       roofline with a rounded ridge
    math    = waves x tile time + what the last wave wastes + padding
    memory  = (read x, read W, write_factor x write y) / (efficiency x bandwidth)

Math is counted in output tiles of tile_m x tile_n, each 2 tile_m tile_n (k + prologue_k) FLOPs on one SM: filling the
pipeline and writing the tile out cost as much as prologue_k more elements of k. Tiles run in waves of one per SM;
libraries that schedule in fractions of a tile feel only part of a last wave (wave_quantisation 1 = whole waves).
With fewer tiles than SMs (small n, tall k) the product is split along k where adding partial sums costs less; that is
also why the latency of one SM's way along k (serial_k) stops growing where cuBLAS splits.
Tile quantisation: NVIDIA DU-09799-001; wave quantisation and K, N saturation: NVIDIA's co-design post of 2026-07;
split-K and K-prologue terms and the values of all constants come from the measured tables (cost_model/fit/gemm.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from spaces.formats import ACTIVATION_BYTES, FORMATS, WEIGHT_BYTES, format_code

BF16_BYTES = 2.0
DEQUANTISED = FORMATS.index("int4")  # whose constants every dequantised format takes
_ALL = np.arange(len(FORMATS))
_CAST = np.array([name != "bf16" for name in FORMATS])  # activations arrive in bf16
MEASURED_MULTIPLE = 256  # every measured N and K of at least 512 is a multiple of this
ALIGNED_ELEMENTS = 8  # rows of 16 bytes in bf16: what asynchronous copies to shared memory need
PANEL_COLUMNS = 64  # of W that one SM streams at a time
THROTTLE_ONSET_S = 3e-4  # products longer than this lose clock to the power limit
PADDED_COLUMNS = 128.0  # of a tile whose last rows are padding
RAMP_ROWS = 128.0  # rows at which the quantisation kernel has its full fixed cost


def gemm(
    gpu: Accelerator,
    m: Any,
    n: Any,
    k: Any,
    format: Any,
    out_format: Any = "bf16",
    quantise_activations: Any = True,
    warm_l2: bool = False,
) -> Any:
    """Seconds of one product of an m x k activation with a k x n weight of a number format.

    A format that the GPU does not multiply natively is dequantised: weights read in their format, bf16 math and
    activations, no quantisation kernel, and the constants of int4, which every GPU runs so.

    Args:
        m, n, k: positive numbers or arrays. format, out_format: names or code arrays of spaces.formats.
        quantise_activations: add the kernel that casts bf16 activations to `format` (bool or bool array).
        warm_l2: the same product has just run, so that small weights are still in L2 (as in a microbenchmark).
    Returns:
        seconds, shaped like the arguments broadcast together.
    Raises:
        ValueError: unknown format.
    """
    return batched_gemm(gpu, 1, m, n, k, format, out_format, quantise_activations, warm_l2)


def batched_gemm(
    gpu: Accelerator,
    batch: Any,
    m: Any,
    n: Any,
    k: Any,
    format: Any,
    out_format: Any = "bf16",
    quantise_activations: Any = False,
    warm_l2: bool = False,
) -> Any:
    """Seconds of `batch` independent products in one launch, e.g. MLA's absorbed projections, one per head."""
    code = format_code(format)
    constants = gpu.calibration.at("gemm", np.where(gpu.native, _ALL, DEQUANTISED)[code], FORMATS)
    m, n, k = (np.asarray(value, dtype=float) for value in (m, n, k))
    math = _math_seconds(gpu, constants, batch, m, n, k, gpu.format_flops[code])
    memory = _memory_seconds(gpu, constants, batch, m, n, k, code, format_code(out_format), warm_l2)
    larger = np.maximum(math, memory)
    ratio = np.minimum(math, memory) / larger
    ratio *= ratio
    core = larger * np.sqrt(np.sqrt(1 + ratio * (2 * constants.exposure + ratio)))
    whole = aligned(n, k)
    if not np.all(whole):
        core = core / (constants.misaligned_rate + (1 - constants.misaligned_rate) * whole)
    seconds = core + (constants.overhead_s + constants.serial_k_s * np.minimum(k, constants.serial_k_limit))
    alone = (gpu.native & _CAST)[code] & quantise_activations
    if np.any(alone):
        seconds = seconds + alone * _quantise_seconds(gpu, constants, batch, m, k)
    return seconds


def aligned(n: Any, k: Any) -> Any:
    """True where rows of weights and outputs start on 16-byte boundaries in bf16 (n and k multiples of 8)."""
    return _multiples(n, ALIGNED_ELEMENTS) & _multiples(k, ALIGNED_ELEMENTS)


def modelled_shape(n: Any, k: Any) -> Any:
    """True where no measured shape is like it: n or k is no multiple of 256, so that the time rests on the tile model.

    Callers show such a prediction as "modelled, not measured" whatever the evidence of `error_band`.
    """
    return ~(_multiples(n, MEASURED_MULTIPLE) & _multiples(k, MEASURED_MULTIPLE))


def _multiples(values: Any, of: int) -> Any:
    parts = np.asarray(values, dtype=float) * (1 / of)  # exact: powers of two
    return parts == np.floor(parts)


def roofline(gpu: Accelerator, m: Any, n: Any, k: Any, format: Any, out_format: Any = "bf16") -> SimpleNamespace:
    """Datasheet bounds of a product: seconds of `math`, `read` (x and W) and `write` (y), each alone."""
    code, out = format_code(format), format_code(out_format)
    m, n, k = (np.asarray(value, dtype=float) for value in (m, n, k))
    read = (WEIGHT_BYTES[code] * n + _activation_bytes(gpu)[code] * m) * k
    return SimpleNamespace(
        math=2 * m * n * k / gpu.format_flops[code],
        read=read / gpu.memory_bytes_per_s,
        write=ACTIVATION_BYTES[out] * m * n / gpu.memory_bytes_per_s,
    )


def wave_efficiency(tiles: Any, sm_count: int) -> Any:
    """Share of SMs at work when `tiles` equal tiles run in whole waves: 150 tiles on 148 SMs -> 0.51."""
    return tiles / (sm_count * np.ceil(tiles / sm_count))


def _math_seconds(gpu: Accelerator, constants: Any, batch: Any, m: Any, n: Any, k: Any, peak: Any) -> Any:
    per_k = 2 * constants.tile_m * constants.tile_n * gpu.sm_count / (constants.compute_efficiency * peak)
    tile_seconds = per_k * (k + constants.prologue_k)
    waves = batch * np.ceil(m / constants.tile_m) * np.ceil(n / constants.tile_n) / gpu.sm_count
    idle = (np.ceil(waves) - waves) * tile_seconds  # what a partly filled last wave costs, in SM time
    # partial sums of a split product go through memory
    split = constants.split_k_s + batch * m * (n * (constants.split_k_bytes / gpu.memory_bytes_per_s))
    math = waves * tile_seconds
    if np.any(constants.padding_s):
        panels = np.ceil(batch * n / (PADDED_COLUMNS * gpu.sm_count))  # tiles with such rows that one SM computes
        math = math + constants.padding_s * k * panels * _padded_rows(m)
    math += np.where(waves > 1, constants.wave_quantisation * idle, np.minimum(idle, split))
    return math * (1 + constants.throttle * math / (math + THROTTLE_ONSET_S))


def _memory_seconds(
    gpu: Accelerator, constants: Any, batch: Any, m: Any, n: Any, k: Any, code: Any, out: Any, warm_l2: bool
) -> Any:
    # a last wave of weight panels that does not fill the SMs leaves bandwidth unused (never more than half of it)
    wave = PANEL_COLUMNS * gpu.sm_count
    streamed = np.minimum(np.ceil(n / wave) * wave, 2 * n)
    weights = WEIGHT_BYTES[code] * k * (n + constants.panel_quantisation * (streamed - n))
    if warm_l2:
        # all of the weights stay in L2 up to a share of it, none from twice that on
        cached = np.clip(2 - batch * weights / (constants.l2_share * gpu.l2_bytes), 0.0, 1.0)
        weights = weights * (1 - constants.l2_hit * cached)
    moved = weights + m * (_activation_bytes(gpu)[code] * k + constants.write_factor * ACTIVATION_BYTES[out] * n)
    return batch * moved / (constants.memory_efficiency * gpu.memory_bytes_per_s)


def _activation_bytes(gpu: Accelerator) -> np.ndarray:
    """(formats,) bytes per activation value that the product reads: bf16 where the format is dequantised."""
    return np.where(gpu.native, ACTIVATION_BYTES, BF16_BYTES)


def _padded_rows(m: Any) -> Any:
    """Rows that the last tile computes for nothing: tiles of 64 rows up to m = 64, then 128; none up to 16."""
    tile = 64.0 + 64.0 * (m > 64)
    return (np.ceil(m / tile) * tile - m) * (m > 16)


def _quantise_seconds(gpu: Accelerator, constants: Any, batch: Any, m: Any, k: Any) -> Any:
    moved = constants.quantise_bytes * batch * m * k / gpu.memory_bytes_per_s
    return moved + (constants.quantise_overhead_s + constants.quantise_ramp_s * np.minimum(m / RAMP_ROWS, 1.0))
