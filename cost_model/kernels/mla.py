"""Seconds of the multi-head latent attention core (DeepSeek-V2, arXiv 2405.04434).

Prefill expands the latent into per-head keys (nope + rope) and values and runs causal attention. Decode keeps the
up-projections absorbed: every head reads the same cached row of latent + rope numbers, so that one cache read serves
all heads of a rank (multi-query attention of width 576); the absorbed products are `batched_gemm`s of their own.
Same forms as kernels/attention.py; constants: cost_model/fit/mla.py. Heads are those of one rank; the latent is never
sharded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.kernels.attention import HEAD_STEP, TILE, prefill_seconds, split_kv_seconds
from spaces.formats import FORMATS, KV_BYTES, KV_FORMATS, kv_code

HEAD_TILE = 64  # heads that one decode block carries
_BF16_BYTES = 2.0
# number format of the products, by KV format: the cache is multiplied as it lies where the GPU can
_COMPUTE = np.array([FORMATS.index("bf16"), FORMATS.index("fp8"), FORMATS.index("fp8")])


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
    past: Any = 0,
) -> Any:
    """Seconds of causal attention of `tokens` new tokens in each of `batch` sequences, keys and values expanded.

    Arguments broadcast. `past` cached tokens before them are modelled: no measured row has a prefix; their expansion
    is a product of its own.

    Raises:
        ValueError: unknown KV format.
    """
    kv = kv_code(kv_format)
    c = gpu.calibration.at("mla_prefill", kv, KV_FORMATS)
    per_key = np.asarray(qk_nope_head_dim) + qk_rope_head_dim + v_head_dim
    rate = c.compute_efficiency * gpu.peak_flops["bf16"]
    tile_s = (2.0 * TILE * TILE * gpu.sm_count) * per_key / rate
    latent = (np.asarray(kv_lora_rank) + qk_rope_head_dim) * KV_BYTES[kv]
    # per head: query, output, key, value of a new token; key and value of a cached one
    moved = batch * (tokens * (2.0 * _BF16_BYTES * per_key * heads + latent) + past * (_BF16_BYTES * per_key) * heads)
    return prefill_seconds(gpu, c, np.asarray(batch) * heads, tokens, 0, past, tile_s, moved)


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
    queries: Any = 1,
    warm_l2: bool = False,
) -> Any:
    """Seconds of absorbed attention of one new token per sequence against `context` cached latents, itself included.

    Args:
        queries: new tokens per sequence (verification of drafts), further rows on one cache read; modelled.
        qk_nope_head_dim, v_head_dim: absorbed, without effect: both phases take one set of dimensions.
        warm_l2: the same call has just run, so that a small cache is still in L2 (as in a microbenchmark).
    Raises:
        ValueError: unknown KV format.
    """
    del qk_nope_head_dim, v_head_dim
    kv = kv_code(kv_format)
    c = gpu.calibration.at("mla_decode", kv, KV_FORMATS)
    rank = np.asarray(kv_lora_rank)
    width = rank + qk_rope_head_dim
    rows = np.asarray(heads, dtype=float) * queries
    per_sequence = np.asarray(context) * width * KV_BYTES[kv]
    rate = c.compute_efficiency * gpu.format_flops[_COMPUTE[kv]]

    def seconds(rows: Any) -> Any:
        tiles = np.ceil(rows * (1.0 / HEAD_TILE))
        padded = np.minimum(np.ceil(rows * (1.0 / HEAD_STEP)) * HEAD_STEP, HEAD_TILE)
        return split_kv_seconds(
            gpu,
            c,
            blocks=batch * tiles,
            block_s=c.block_s + c.block_row_s * padded,
            keys=context,
            first_bytes=per_sequence,
            cache_bytes=batch * per_sequence,
            other_bytes=batch * rows * (_BF16_BYTES * (width + rank)),
            flops_per_byte=tiles * ((2.0 * HEAD_TILE) * (width + rank) / (width * KV_BYTES[kv])),
            rate=rate,
            warm_l2=warm_l2,
            fixed_s=c.overhead_s,
            split=gpu.engine.mla_splits_kv,
        )

    # a second tile of heads leaves fewer splits to reduce; it must not make more heads look faster than one tile
    every = seconds(rows)
    return np.maximum(every, seconds(np.minimum(rows, HEAD_TILE))) if np.any(rows > HEAD_TILE) else every
