"""Seconds of y[m, n] = x[m, k] W[k, n]: roofline, tiles and waves, K prologue, activation quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from spaces.formats import ACTIVATION_BYTES, FORMATS, WEIGHT_BYTES, format_code


def gemm(
    gpu: Accelerator,
    m: Any,
    n: Any,
    k: Any,
    format: Any,
    out_format: Any = "bf16",
    quantise_activations: bool = True,
) -> Any:
    """Seconds of one matrix product with an m x k activation and a k x n weight of a number format.

    Args:
        m, n, k: positive numbers or arrays. format, out_format: names or code arrays of spaces.formats.
        quantise_activations: add the kernel that casts bf16 activations to `format`.
    Returns:
        seconds, shaped like the arguments broadcast together.
    """
    return batched_gemm(gpu, 1, m, n, k, format, out_format, quantise_activations)


def batched_gemm(
    gpu: Accelerator,
    batch: Any,
    m: Any,
    n: Any,
    k: Any,
    format: Any,
    out_format: Any = "bf16",
    quantise_activations: bool = False,
) -> Any:
    """Seconds of `batch` independent products in one launch, e.g. MLA's absorbed projections, one per head."""
    code = format_code(format)
    constants = gpu.calibration.at("gemm", code, FORMATS)
    m, n, k = (np.asarray(value, dtype=float) for value in (m, n, k))
    peak = gpu.format_flops[code]
    bandwidth = constants.memory_efficiency * gpu.memory_bytes_per_s
    out_bytes = ACTIVATION_BYTES[format_code(out_format)]
    math = 2 * batch * m * n * (k + constants.prologue_k) / (constants.compute_efficiency * peak)
    read = (WEIGHT_BYTES[code] * n + ACTIVATION_BYTES[code] * m) * k + out_bytes * m * n
    memory = batch * read / bandwidth
    seconds = constants.overhead_s + np.sqrt(math * math + memory * memory)
    if quantise_activations:
        seconds = seconds + constants.quantise_overhead_s + batch * m * k * constants.quantise_bytes / bandwidth
    return seconds
