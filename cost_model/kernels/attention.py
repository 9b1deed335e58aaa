"""Seconds of the attention core with grouped query heads: causal prefill, and decode from the KV cache.

Prefill is FlashAttention (arXiv 2205.14135, 2307.08691): 128 x 128 tiles of queries and keys, those above the causal
diagonal or left of the window skipped, one thread block per query tile and head.

    seconds = overhead + moved bytes / bandwidth + mean load of an SM + share of the longest block + append
    block   = key tiles x tile time + block_s
    append  = tokens x append_s x min(kv_heads x head_dim, 512) / 512

A partly filled query tile costs between its share and the whole (tile_quantisation). Keys and values move
cache_passes times: appended to the cache, read back, cast on the way. On Hopper, bf16 heads of another width than 128
have a longer launch path (other_width_s). vLLM appends in a kernel of its own (reshape_and_cache_flash of its
csrc/cache_kernels.cu), a thread block of up to 512 threads for every token: SMs hold few of them at once, and each
lasts as long as its memory latencies; TensorRT-LLM appends within its kernels (append_s 0).

Decode is split-KV (FlashDecoding, XQA, trtllm-gen): a block carries the query heads of a group over one slice of the
context, so that a group reads the cache once.

    seconds = overhead + ramp + reduction of the slices + sqrt(start^2 + 2 exposure start core + core^2)
    start   = waves x (block_s + block_row_s x padded heads of the group)     core = max(stream, math)
    stream  = cache bytes / bandwidth x (1 + full_waves / waves)

The last factor is Little's law: few blocks keep too few bytes in flight to fill the bandwidth.

Four classes of group size have constants of their own, because engines dispatch other kernels for them: one query head
per KV head (CUDA cores), up to 8, up to 32, and more than 32, where the TensorRT-LLM kernels measured stop sharing the
cache read (every query head reads it again, from L2). So have heads wider than 256. Forms and values are fitted to the
aiconfigurator-core 0.12.0 tables (cost_model/fit/attention.py). Heads are those of one rank.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from spaces.formats import FORMATS, KV_BYTES, KV_FORMATS, format_code, kv_code

TILE = 128  # queries and keys of a prefill tile; head_dim that fills the tensor cores
GROUP_TILE = 64  # query heads of a group that one decode block carries
HEAD_STEP = 8  # heads of a group are padded to the 8 columns of a matrix instruction
WIDEST = 256  # head_dim beyond which engines fall back to other kernels
APPEND_THREADS = 512  # of a thread block that appends a token's keys and values to the cache
# calibration keys: KV format and kernel class; decode by query heads per KV head (1, 2-8, 9-32, more) or head_dim > 256
PREFILL_CLASSES = ("", "-wide")
DECODE_CLASSES = ("-single", "", "-large", "-unshared", "-wide")
PREFILL_KEYS = tuple(kv + kind for kind in PREFILL_CLASSES for kv in KV_FORMATS)
DECODE_KEYS = tuple(kv + kind for kind in DECODE_CLASSES for kv in KV_FORMATS)
SHARED_GROUP = 32  # query heads of a group that share a cache read in the kernels measured
_WIDE = DECODE_CLASSES.index("-wide")
_CLASS_OF_ROWS = np.digitize(np.arange(SHARED_GROUP + 2), (2, 9, SHARED_GROUP + 1))
_UNLIMITED = 2.0**40  # tokens: a window that never binds
_BF16_BYTES = 2.0


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
    """Seconds of causal attention of `tokens` new tokens in each of `batch` sequences, `past` cached ones before them.

    Arguments broadcast; formats are names or codes; window 0 attends to everything before. `past` is modelled (more key
    tiles for every query tile, cached keys read once per query tile row): no measured row has a prefix.

    Raises:
        ValueError: unknown format, or a compute format other than bf16 and fp8.
    """
    kv = kv_code(kv_format)
    kind = np.greater(head_dim, WIDEST)
    c = gpu.calibration.at("attention_prefill", kv + len(KV_FORMATS) * kind, PREFILL_KEYS)
    rate = c.compute_efficiency * gpu.peak_flops["bf16"] * _head_dim_rate(head_dim, c)
    tile_s = (4.0 * TILE * TILE * gpu.sm_count) * head_dim / rate
    if np.any(format_code(compute_format)):
        tile_s = tile_s / fp8_gain(gpu, compute_format, c.fp8_gain)
    # query and output of every head; keys and values, new and cached
    keys = np.asarray(tokens) + (np.minimum(past, _limit(window)) if np.any(window) else past)
    cache = (2.0 * KV_BYTES[kv]) * c.cache_passes * kv_heads * keys
    moved = batch * head_dim * (2.0 * _BF16_BYTES * heads * tokens + cache)
    seconds = prefill_seconds(gpu, c, np.asarray(batch) * heads, tokens, window, past, tile_s, moved)
    seconds = seconds + c.other_width_s * np.not_equal(head_dim, TILE)
    if np.any(c.append_s):
        threads = np.minimum(np.multiply(kv_heads, head_dim) * (1.0 / APPEND_THREADS), 1.0)
        seconds = seconds + c.append_s * threads * batch * tokens
    return seconds


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
    warm_l2: bool = False,
) -> Any:
    """Seconds of attention of one new token per sequence against `context` cached ones, the new one included.

    Args:
        queries: new tokens per sequence (verification of drafts): further rows of the group that share its cache read.
            Modelled, no measured row has more than one.
        warm_l2: the same call has just run, so that a small cache is still in L2 (as in a microbenchmark).
    Raises:
        ValueError: unknown format, or a compute format other than bf16 and fp8.
    """
    kv = kv_code(kv_format)
    width = np.asarray(head_dim) * (1.0 / TILE)
    group = np.asarray(heads, dtype=float) / kv_heads
    rows = group * queries
    c = gpu.calibration.at("attention_decode", kv + len(KV_FORMATS) * decode_class(group, rows, head_dim), DECODE_KEYS)
    length = keys = context
    masking: Any = 1.0
    if np.any(window):
        length = np.minimum(context, _limit(window) + (np.asarray(queries) - 1.0))
        keys = length + c.masked_splits * (context - length)
        masking = keys / length
    sequences = blocks = np.asarray(batch) * kv_heads  # sequences x KV heads
    per_head = cache = length * ((2.0 * TILE) * KV_BYTES[kv] * width)  # key and value bytes of one KV head
    padded = np.ceil(rows * (1.0 / HEAD_STEP)) * HEAD_STEP
    flops = padded * (2.0 / KV_BYTES[kv])  # per byte of the cache
    unshared = np.greater(group, SHARED_GROUP)
    if np.any(unshared):
        reads = 1.0 + c.reread * (group - 1.0)
        blocks, cache, flops = blocks * np.where(unshared, rows, 1.0), cache * reads, flops / reads
    if np.any(queries != 1):
        blocks = blocks * np.where(unshared, 1.0, np.ceil(rows * (1.0 / GROUP_TILE)))
    rate = c.compute_efficiency * gpu.peak_flops["bf16"]
    if np.any(format_code(compute_format)):
        rate = rate * fp8_gain(gpu, compute_format, 1.0)
    return split_kv_seconds(
        gpu,
        c,
        blocks=blocks,
        block_s=(c.block_s + c.block_row_s * np.minimum(padded, GROUP_TILE)) * (1.0 + c.block_width * (width - 1.0)),
        keys=keys,
        first_bytes=per_head,
        cache_bytes=sequences * cache,
        other_bytes=sequences * rows * (width * (2.0 * TILE * _BF16_BYTES)),
        flops_per_byte=flops,
        rate=rate,
        warm_l2=warm_l2,
        masking=masking,
        fixed_s=c.overhead_s + c.narrow_s * np.minimum(np.maximum(2.0 - 2.0 * width, 0.0), 1.0),
    )


def decode_class(group: Any, rows: Any, head_dim: Any) -> Any:
    """Index into DECODE_CLASSES by query heads per KV head, rows (those x new tokens: they share a read), head_dim."""
    shared = np.minimum(np.ceil(rows), SHARED_GROUP)
    if np.any(unshared := np.greater(group, SHARED_GROUP)):
        shared = shared + unshared
    kind = _CLASS_OF_ROWS.take(shared.astype(int))
    wide = np.greater(head_dim, WIDEST)
    return np.maximum(kind, _WIDE * wide) if np.any(wide) else kind


def prefill_seconds(
    gpu: Accelerator, c: Any, heads: Any, tokens: Any, window: Any, past: Any, tile_s: Any, moved: Any
) -> Any:
    """FlashAttention over `heads` sequences x heads, from the seconds of one tile on one SM and the bytes moved."""
    total, longest, rows = causal_tiles(tokens, window, past, c.window_tiles, c.tile_quantisation)
    mean = heads * (total * tile_s + rows * c.block_s) * (1.0 / gpu.sm_count)
    tail = c.tail * (longest * tile_s + c.block_s)
    return c.overhead_s + moved / (c.memory_efficiency * gpu.memory_bytes_per_s) + mean + tail


def causal_tiles(tokens: Any, window: Any, past: Any, window_tiles: Any, quantisation: Any) -> tuple[Any, Any, Any]:
    """(key tiles that the query tiles of one head visit, key tiles of the longest row, query tiles).

    Args:
        window: tokens, 0 for none. window_tiles: key tiles that a row visits beyond those of its window.
        quantisation: 1 counts whole query tiles, 0 their filled share.
    """
    filled = np.asarray(tokens) * (1.0 / TILE)
    rows = filled + quantisation * (np.ceil(filled) - filled)
    before = np.ceil(np.asarray(past) * (1.0 / TILE))
    if not np.any(window):
        return rows * (0.5 * rows + (before + 0.5)), before + rows, rows
    widest = np.ceil(_limit(window) * (1.0 / TILE)) + window_tiles
    growing = np.minimum(np.maximum(widest - before, 0.0), rows)  # query tiles whose row the window does not cut
    total = growing * (0.5 * growing + (before + 0.5)) + (rows - growing) * widest
    return total, np.minimum(before + rows, widest), rows


def split_kv_seconds(
    gpu: Accelerator,
    c: Any,
    blocks: Any,
    block_s: Any,
    keys: Any,
    first_bytes: Any,
    cache_bytes: Any,
    other_bytes: Any,
    flops_per_byte: Any,
    rate: Any,
    warm_l2: bool,
    fixed_s: Any,
    masking: Any = 1.0,
    split: bool = True,
) -> Any:
    """Decode attention from its unsplit thread blocks, the bytes of the whole call and the math done on each of them.

    A block is split over its `keys` into slices of at least split_tokens while fewer than resident_waves blocks per SM
    exist, at most max_splits; the slices' results are then reduced. The reduction never costs more than one more
    sequence's cache read would, which keeps seconds from falling as the batch grows. `masking`: slices there are for
    each that reads keys, the others lying left of a window. Not `split`, a block does the math of all keys on one SM.
    """
    slots = c.resident_waves * gpu.sm_count
    most = slots / blocks if split else 1.0
    splits = np.maximum(np.minimum(np.minimum(keys / c.split_tokens, most), c.max_splits), 1.0)
    waves = blocks * splits * (1.0 / gpu.sm_count)
    start = (waves + c.wave_quantisation * (np.ceil(waves) - 1.0 - waves)) * block_s
    bandwidth = c.memory_efficiency * gpu.memory_bytes_per_s
    stream = cache_bytes / bandwidth
    reduction = np.minimum(c.reduce_s * splits, np.sqrt(c.reduce_s * most * stream))
    ramp = c.ramp_s * np.minimum(first_bytes / c.ramp_bytes, 1.0)
    math = stream * (flops_per_byte * (bandwidth / rate))
    if not split:
        math = math / np.minimum(waves, 1.0)
    read = stream * (1.0 + c.full_waves * masking / waves)
    if warm_l2:  # all of the cache stays in L2 up to 0.4 of it, none from 1.0 on
        cached = np.clip((1.0 - cache_bytes / gpu.l2_bytes) / 0.6, 0.0, 1.0)
        read = read * (1.0 - c.l2_saving * cached)
    core = np.maximum(read + other_bytes * (1.0 / gpu.memory_bytes_per_s), math)
    return fixed_s + ramp + reduction + np.sqrt(start * start + core * (core + (2.0 * c.exposure) * start))


def fp8_gain(gpu: Accelerator, compute_format: Any, realised: Any) -> Any:
    """Speed-up over bf16 products; `realised` is the share of the tensor cores' own that a kernel reaches.

    Raises:
        ValueError: a compute format other than bf16 and fp8.
    """
    compute = format_code(compute_format)
    if np.any(np.asarray(compute) > FORMATS.index("fp8")):
        raise ValueError(f"attention compute format {compute_format!r}; valid: bf16, fp8")
    return 1.0 + realised * (gpu.format_flops[compute] / gpu.format_flops[0] - 1.0)


def _head_dim_rate(head_dim: Any, c: SimpleNamespace) -> Any:
    """Tensor-core rate relative to head_dim 128: 64 pays for a 128-wide tile, 256 amortises the softmax."""
    width = np.asarray(head_dim) * (1.0 / TILE)
    narrow = 1.0 - (1.0 - c.rate_at_64) * np.maximum(2.0 - 2.0 * width, 0.0)
    return np.maximum(narrow, 0.1) * (1.0 + (c.rate_at_256 - 1.0) * np.minimum(np.maximum(width - 1.0, 0.0), 1.0))


def _limit(window: Any) -> Any:
    return np.where(np.equal(window, 0), _UNLIMITED, window)
