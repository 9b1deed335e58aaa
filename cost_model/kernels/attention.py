"""Seconds of the attention core with grouped query heads: causal prefill and decode from the KV cache.

Prefill is FlashAttention (arXiv 2205.14135, 2307.08691): square tiles of queries and keys, those above the
causal diagonal skipped. Decode is split-KV (FlashDecoding, XQA): one thread block per sequence, KV head and
slice of the context; the query heads of a group share one read of the cache. Query and head counts are those
of one rank. Forms and constants: fit on aiconfigurator-core 0.12.0 tables by cost_model/fit/attention.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spaces.formats import FORMATS, KV_BYTES, KV_FORMATS, format_code, kv_code

if TYPE_CHECKING:
    from cost_model.accelerator import Accelerator

TILE = 128  # rows and columns of a prefill tile; keys of a decode tile
GROUP_TILE = 64  # query heads of a group that one decode thread block carries
_UNLIMITED = 2.0**40  # tokens: a window that never binds


def attention_prefill(
    gpu: Accelerator,
    batch: Any,
    tokens: Any,
    heads: Any,
    kv_heads: Any,
    head_dim: Any,
    kv_format: Any = "bf16",
    compute_format: Any = "bf16",
    window: Any = 0,
    past: Any = 0,
) -> Any:
    """Causal attention of `tokens` new tokens in each of `batch` sequences, with `past` cached ones before them.

    Arguments broadcast; formats are names or codes. `window` 0 attends to everything before. `past` is modelled
    (whole extra key tiles for every query tile): no measured row has a prefix.

    Returns:
        Seconds, shaped like the arguments.
    Raises:
        ValueError: unknown format, or a compute format other than bf16 and fp8.
    """
    kv = kv_code(kv_format)
    c = gpu.calibration.at("attention_prefill", kv, KV_FORMATS)
    tiles, longest = causal_tiles(tokens, window, past)
    rows = np.ceil(np.asarray(tokens) / TILE)
    flops = 4.0 * head_dim * (tiles * TILE + rows * c.prologue_keys) * TILE  # QK^T and PV, padded tiles
    slowest = 4.0 * head_dim * (longest * TILE + c.prologue_keys) * TILE * gpu.sm_count
    rate = (
        c.compute_efficiency
        * gpu.peak_flops["bf16"]
        * fp8_gain(gpu, compute_format, c.fp8_gain)
        * head_dim_factor(head_dim, c)
    )
    moved = batch * tokens * head_dim * (4.0 * heads + 2.0 * kv_heads * KV_BYTES[kv])
    moved = moved + batch * np.minimum(past, _limit(window)) * head_dim * 2.0 * kv_heads * KV_BYTES[kv]
    return (
        c.overhead_s
        + moved / (c.memory_efficiency * gpu.memory_bytes_per_s)
        + np.maximum(batch * heads * flops, slowest) / rate
    )


def attention_decode(
    gpu: Accelerator,
    batch: Any,
    context: Any,
    heads: Any,
    kv_heads: Any,
    head_dim: Any,
    kv_format: Any = "bf16",
    compute_format: Any = "bf16",
    window: Any = 0,
    queries: Any = 1,
) -> Any:
    """Attention of one new token per sequence against `context` cached tokens, the new one included.

    `queries` > 1 verifies that many drafted tokens of each sequence in one pass (modelled: they are further rows
    of the group, which share the read of the cache).

    Returns:
        Seconds, shaped like the arguments.
    Raises:
        ValueError: unknown format, or a compute format other than bf16 and fp8.
    """
    kv = kv_code(kv_format)
    fp8_gain(gpu, compute_format, 0.0)
    c = gpu.calibration.at("attention_decode", kv, KV_FORMATS)
    group = queries * (np.asarray(heads) / kv_heads)
    length = np.minimum(context, _limit(window) + queries - 1.0)
    blocks = batch * kv_heads * np.ceil(group / GROUP_TILE)
    moved = batch * head_dim * (2.0 * kv_heads * length * KV_BYTES[kv] + 4.0 * heads * queries)
    spread = np.minimum(1.0, blocks * np.ceil(length / c.split_tokens) / gpu.sm_count)
    memory = moved * (1.0 + c.group_cost * group) / (c.memory_efficiency * gpu.memory_bytes_per_s * np.sqrt(spread))
    start = blocks * (c.block_s + c.block_row_s * group) / gpu.sm_count
    return c.overhead_s + c.step_s * np.log2(1.0 + length / 64.0) + np.sqrt(start * start + memory * memory)


def causal_tiles(tokens: Any, window: Any, past: Any) -> tuple[Any, Any]:
    """Key tiles that the query tiles of one head visit: in total, and by the longest row of them."""
    rows = np.ceil(np.asarray(tokens) / TILE)
    before = np.ceil(np.asarray(past) / TILE)
    widest = np.ceil(_limit(window) / TILE) + 1.0
    growing = np.clip(widest - before, 0.0, rows)  # query tiles whose row the window does not cut
    total = growing * (before + 0.5 * (growing + 1.0)) + (rows - growing) * widest
    return total, np.minimum(before + rows, widest)


def head_dim_factor(head_dim: Any, c: Any) -> Any:
    """Relative tensor-core rate by head_dim: 64 pays for a 128-wide tile and is bound by the softmax."""
    dim = np.asarray(head_dim, dtype=float)
    small = np.minimum(dim / 128.0, 1.0)
    large = np.clip(dim / 128.0 - 1.0, 0.0, 1.0)
    return (c.rate_at_64 + (1.0 - c.rate_at_64) * (2.0 * small - 1.0)) * (1.0 + (c.rate_at_256 - 1.0) * large)


def fp8_gain(gpu: Accelerator, compute_format: Any, realised: Any) -> Any:
    """Speed-up over bf16 products; `realised` is the share of the tensor cores' own that the kernel reaches.

    Raises:
        ValueError: a compute format other than bf16 and fp8.
    """
    compute = format_code(compute_format)
    fp8 = FORMATS.index("fp8")
    if np.any(np.asarray(compute) > fp8):
        raise ValueError(f"attention compute format {compute_format!r}; valid: bf16, fp8")
    return 1.0 + realised * (gpu.format_flops[compute] / gpu.format_flops[0] - 1.0)


def _limit(window: Any) -> Any:
    return np.where(np.equal(window, 0), _UNLIMITED, window)
