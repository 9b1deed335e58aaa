"""Seconds of the multi-head latent attention core (DeepSeek-V2, arXiv 2405.04434).

Prefill expands the latent into per-head keys (nope + rope) and values and runs causal attention. Decode keeps the
up-projections absorbed: every head reads the same cached row of latent + rope numbers, so that one cache read
serves all heads of a rank (multi-query attention of width 576); the absorbed products are `batched_gemm`s.
Heads are those of one rank; the latent is never sharded. Constants: cost_model/fit/mla.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cost_model.kernels.attention import TILE, causal_tiles, fp8_gain
from spaces.formats import KV_BYTES, KV_FORMATS, kv_code

if TYPE_CHECKING:
    from cost_model.accelerator import Accelerator

HEAD_TILE = 64  # heads of one decode thread block


def mla_prefill(
    gpu: Accelerator,
    batch: Any,
    tokens: Any,
    heads: Any,
    kv_lora_rank: Any = 512,
    qk_rope_head_dim: Any = 64,
    qk_nope_head_dim: Any = 128,
    v_head_dim: Any = 128,
    kv_format: Any = "bf16",
    compute_format: Any = "bf16",
    past: Any = 0,
) -> Any:
    """Causal attention of `tokens` new tokens in each of `batch` sequences, keys and values expanded.

    `past` cached tokens before them are modelled: no measured row has a prefix.

    Returns:
        Seconds, shaped like the arguments.
    Raises:
        ValueError: unknown format, or a compute format other than bf16 and fp8.
    """
    kv = kv_code(kv_format)
    c = gpu.calibration.at("mla_prefill", kv, KV_FORMATS)
    tiles, longest = causal_tiles(tokens, 0, past)
    rows = np.ceil(np.asarray(tokens) / TILE)
    width = np.asarray(qk_nope_head_dim) + qk_rope_head_dim
    per_key = 2.0 * (width + v_head_dim) * TILE
    flops = per_key * (tiles * TILE + rows * c.prologue_keys)
    slowest = per_key * (longest * TILE + c.prologue_keys) * gpu.sm_count
    rate = c.compute_efficiency * gpu.peak_flops["bf16"] * fp8_gain(gpu, compute_format, c.fp8_gain)
    latent = (np.asarray(kv_lora_rank) + qk_rope_head_dim) * KV_BYTES[kv]
    moved = batch * (tokens * (4.0 * heads * (width + v_head_dim) + latent) + past * 2.0 * heads * (width + v_head_dim))
    return (
        c.overhead_s
        + moved / (c.memory_efficiency * gpu.memory_bytes_per_s)
        + np.maximum(batch * heads * flops, slowest) / rate
    )


def mla_decode(
    gpu: Accelerator,
    batch: Any,
    context: Any,
    heads: Any,
    kv_lora_rank: Any = 512,
    qk_rope_head_dim: Any = 64,
    qk_nope_head_dim: Any = 128,
    v_head_dim: Any = 128,
    kv_format: Any = "bf16",
    compute_format: Any = "bf16",
    queries: Any = 1,
) -> Any:
    """Absorbed attention of one new token per sequence against `context` cached latents, the new one included.

    `queries` > 1 verifies that many drafted tokens per sequence in one pass (modelled). The per-head widths do not
    enter the absorbed core; they are accepted so that both phases take one set of dimensions.

    Returns:
        Seconds, shaped like the arguments.
    Raises:
        ValueError: unknown format, or a compute format other than bf16 and fp8.
    """
    del qk_nope_head_dim, v_head_dim
    kv = kv_code(kv_format)
    c = gpu.calibration.at("mla_decode", kv, KV_FORMATS)
    rank = np.asarray(kv_lora_rank)
    width = rank + qk_rope_head_dim
    group = np.asarray(heads) * queries
    tiles = np.ceil(group / HEAD_TILE)
    moved = batch * (context * width * KV_BYTES[kv] + 2.0 * group * (width + rank))
    spread = np.minimum(1.0, batch * np.ceil(np.asarray(context) / c.split_tokens) / gpu.sm_count)
    rate = c.compute_efficiency * gpu.peak_flops["bf16"] * fp8_gain(gpu, compute_format, c.fp8_gain)
    memory = moved / (c.memory_efficiency * gpu.memory_bytes_per_s * np.sqrt(spread))
    math = 2.0 * batch * context * (width + rank) * tiles * HEAD_TILE / rate
    start = batch * tiles * c.block_s / gpu.sm_count
    return c.overhead_s + np.sqrt(start * start + np.maximum(memory, math) ** 2)
