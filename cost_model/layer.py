"""Seconds that one pass spends in every layer, as functions of plan-side keys (see `grid.gathered`).

Each function takes arrays of keys (shards and tokens), broadcasts them against the designs, and returns seconds of
all layers of a kind, before the engine's factors and the cut into pipeline stages.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from cost_model import kernels
from cost_model.design import Design, by_ffn, once_per
from cost_model.grid import gathered, split_by
from spaces.formats import FORMATS

BF16 = FORMATS.index("bf16")
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
HEADS = ("heads", "kv_heads", "head_dim", *LATENT)


def attention_side(design: Design, tp: Any, kvp: Any, tokens: Any, sampled: Any) -> tuple[Any, ...]:
    """What the ranks of one attention group, which hold the same tokens, do besides the attention core.

    Args:
        tokens: of one attention-DP rank. sampled: rows that reach the LM head.
    Returns:
        (attention linears, all-reduces after attention, LM head and sampling, small operations, and the part of an MoE
        model's FFN that is not routed): seconds.
    """
    a = design.architecture
    layers = np.asarray(a.layers)
    linears = (mla_linears if np.any(a.is_mla) else gqa_linears)(design, tp, kvp, tokens)
    ranks = tp * kvp
    reduce = hidden_all_reduce(design, ranks, tokens) if np.any(ranks > 1) else 0.0
    # a parallel block sums attention and FFN before its one all-reduce, which `feed_forward` counts
    count = np.where(a.parallel_block, 0, layers) if np.any(a.parallel_block) else layers
    return (
        layers * linears,
        count * reduce,
        lm_head(design, tp, sampled),
        layers * small_operations(design, ranks, tokens),
        by_ffn(design, lambda *_: 0.0, unrouted_ffn, ranks, tokens),
    )


@once_per("hidden")
def hidden_all_reduce(design: Design, ranks: Any, tokens: Any) -> Any:
    message = 2.0 * np.asarray(tokens) * design.architecture.hidden
    return kernels.all_reduce(design.gpu, message, ranks, launch=design.gpu.engine.all_reduce_launch)


def linear(design: Design, tokens: Any, n: Any, k: Any, code: Any) -> Any:
    """A GEMM whose activations the engine may quantise inside the kernel before it (`fused_quantisation`)."""
    return kernels.gemm(design.gpu, tokens, n, k, code, quantise_activations=~design.gpu.engine.fused[code])


@once_per("hidden", "heads", "kv_heads", "head_dim", "attention_format")
def gqa_linears(design: Design, tp: Any, kvp: Any, tokens: Any) -> Any:
    """QKV and output projections; every rank holds at least one KV head, and Helix ranks all hold QKV."""
    a, code = design.architecture, design.attention_format
    kv_heads = np.maximum(np.ceil(np.asarray(a.kv_heads) / tp), 1.0)
    width = (a.heads / tp + 2.0 * kv_heads) * a.head_dim
    return linear(design, tokens, width, a.hidden, code) + linear(
        design, tokens, a.hidden, np.asarray(a.heads) * a.head_dim / (tp * kvp), code
    )


@once_per("hidden", "heads", *LATENT, "attention_format")
def mla_linears(design: Design, tp: Any, kvp: Any, tokens: Any) -> Any:
    """Down-projections (whole on every rank), query up-projection, output projection."""
    a, code = design.architecture, design.attention_format
    rank = np.where(np.asarray(a.q_lora_rank) > 0, a.q_lora_rank, a.hidden)
    down = np.asarray(a.q_lora_rank) + a.kv_lora_rank + a.qk_rope_head_dim
    return (
        linear(design, tokens, down, a.hidden, code)
        + linear(design, tokens, np.asarray(a.heads) * a.query_dim / tp, rank, code)
        + linear(design, tokens, a.hidden, np.asarray(a.heads) * a.v_head_dim / (tp * kvp), code)
    )


def mla_absorbed(design: Design, tp: Any, tokens: Any) -> tuple[Any]:
    """Products of decoded queries and outputs with the absorbed up-projections, one per head."""
    a, gpu = design.architecture, design.gpu
    heads = np.asarray(a.heads) / tp
    into = kernels.batched_gemm(gpu, heads, tokens, a.kv_lora_rank, a.qk_nope_head_dim, BF16)
    out = kernels.batched_gemm(gpu, heads, tokens, a.v_head_dim, a.kv_lora_rank, BF16)
    return (np.asarray(a.layers) * (into + out),)


def mla_expanded(design: Design, tp: Any, tokens: Any) -> tuple[Any]:
    """Keys and values of prompt tokens, expanded from their latents."""
    a = design.architecture
    width = np.asarray(a.heads) * (np.asarray(a.qk_nope_head_dim) + a.v_head_dim) / tp
    expand = linear(design, tokens, width, a.kv_lora_rank, design.attention_format)
    return (np.asarray(a.layers) * expand,)


def decode_core(design: Design, tp: Any, kvp: Any, batch: Any, queries: Any, context: Any) -> tuple[Any]:
    """Attention of decoding sequences against their cache, over windowed and full layers."""
    return (_over_windows(design, partial(_decode_layer, design, tp, np.ceil(context / kvp), batch, queries)),)


@once_per(*HEADS, "window", "kv_format")
def _decode_layer(design: Design, tp: Any, context: Any, batch: Any, queries: Any, windowed: bool) -> Any:
    a, gpu, kv = design.architecture, design.gpu, design.kv_format
    heads = np.asarray(a.heads) / tp
    if np.any(a.is_mla):
        dims = (a.kv_lora_rank, a.qk_rope_head_dim, a.qk_nope_head_dim, a.v_head_dim)
        return kernels.mla_decode(gpu, batch, context, heads, *dims, kv_format=kv, queries=queries)
    kv_heads, window = np.maximum(np.ceil(np.asarray(a.kv_heads) / tp), 1.0), a.window if windowed else 0
    return kernels.attention_decode(
        gpu, batch, context, heads, kv_heads, a.head_dim, kv_format=kv, window=window, queries=queries
    )


def prefill_core(design: Design, tp: Any, prompts: Any, tokens: Any, past: Any) -> tuple[Any]:
    """Attention of `tokens` prompt tokens in each of `prompts` prompts, after `past` cached ones."""
    return (_over_windows(design, partial(_prefill_layer, design, tp, prompts, tokens, past)),)


@once_per(*HEADS, "window", "kv_format")
def _prefill_layer(design: Design, tp: Any, prompts: Any, tokens: Any, past: Any, windowed: bool) -> Any:
    a, gpu, kv = design.architecture, design.gpu, design.kv_format
    heads = np.asarray(a.heads) / tp
    if np.any(a.is_mla):
        dims = (a.kv_lora_rank, a.qk_rope_head_dim, a.qk_nope_head_dim, a.v_head_dim)
        return kernels.mla_prefill(gpu, prompts, tokens, heads, *dims, kv_format=kv, past=past)
    kv_heads, window = np.maximum(np.ceil(np.asarray(a.kv_heads) / tp), 1.0), a.window if windowed else 0
    return kernels.attention_prefill(
        gpu, prompts, tokens, heads, kv_heads, a.head_dim, kv_format=kv, window=window, past=past
    )


def _over_windows(design: Design, core: Any) -> Any:
    """core(windowed) summed over the layers that attend to everything and those that see a window."""
    a = design.architecture
    if not np.any(a.is_windowed):
        return np.asarray(a.layers) * core(False)
    windowed = a.windowed_layers
    full = np.asarray(a.layers) - windowed
    total = full * core(False) if np.any(full > 0) else 0.0
    return total + windowed * core(True) if np.any(windowed > 0) else total


def feed_forward(design: Design, ffn_tp: Any, ep: Any, spare: Any, tokens: Any, exchanged: Any) -> tuple[Any]:
    """Routed experts, or the dense FFN of a dense model, of all layers.

    Args:
        tokens: of the whole FFN group. exchanged: whether they come from several attention-DP ranks.
    """
    return (by_ffn(design, _dense_layers, _routed_experts, ffn_tp, ep, spare, tokens, exchanged),)


def _dense_layers(design: Design, ffn_tp: Any, ep: Any, spare: Any, tokens: Any, exchanged: Any) -> Any:
    a = design.architecture

    def seconds(tp: Any, tokens: Any) -> tuple[Any]:
        return (np.asarray(a.layers) * _dense_layer(design, tp, tokens),)

    ((every,),) = gathered(seconds, design.product, (ffn_tp, tokens))  # fewer keys than experts need
    return every


@once_per("hidden", "ffn", "ffn_matrices", "ffn_format")
def _dense_layer(design: Design, tp: Any, tokens: Any) -> Any:
    return dense_ffn(design, design.architecture.ffn, tp, tokens)


def _routed_experts(design: Design, ffn_tp: Any, ep: Any, spare: Any, tokens: Any, exchanged: Any) -> Any:
    # spare replicas go to the hottest experts, which evens the ranks out (EPLB)
    even, uneven = (partial(_by_kernel, design, levelled) for levelled in (True, False))
    one = split_by(np.asarray(spare) > 0, even, uneven, design.product, ffn_tp, ep, spare, tokens, exchanged)
    return design.architecture.moe_layers * one


def _by_kernel(design: Design, levelled: bool, ffn_tp: Any, ep: Any, spare: Any, tokens: Any, exchanged: Any) -> Any:
    """Dispatched tokens take kernels that are built for it; tokens at hand also the fused ones, if those are faster."""
    grouped = partial(_routed_layer, design, levelled, ("experts",))
    if "experts_fused" not in design.gpu.calibration.entries or not design.gpu.engine.fused_experts:
        return grouped(ffn_tp, ep, spare, tokens, exchanged)
    fastest = partial(_routed_layer, design, levelled, ("experts", "experts_fused"))
    dispatched = (exchanged > 0) & (ep > 1) & design.gpu.engine.dispatched_kernels
    return split_by(dispatched, grouped, fastest, design.product, ffn_tp, ep, spare, tokens, exchanged)


@once_per("hidden", "experts", "top_k", "expert_ffn", "ffn_matrices", "ffn_format", "skew")
def _routed_layer(
    design: Design,
    levelled: bool,
    ways: tuple[str, ...],
    ffn_tp: Any,
    ep: Any,
    spare: Any,
    tokens: Any,
    exchanged: Any,
) -> Any:
    a, gpu = design.architecture, design.gpu
    # an all-to-all brings a rank only tokens that picked one of its experts; kernels were measured with all at hand,
    # and engines since spare the others' work (TensorRT-LLM tech blog 8, "MoE auxiliary kernels")
    missed = np.where(exchanged, 1.0 - 1.0 / ep, 0.0) ** np.asarray(a.top_k)
    return kernels.experts(
        gpu,
        tokens,
        a.hidden,
        a.expert_ffn,
        a.experts + spare,
        a.top_k,
        design.ffn_format,
        tp=ffn_tp,
        ep=ep,
        gated=np.equal(a.ffn_matrices, 3),
        skew="balanced" if levelled else design.skew,
        served=True,
        present=tokens * (1.0 - missed),
        kernels=ways,
    )


def unrouted_ffn(design: Design, group: Any, tokens: Any) -> Any:
    """Router, shared experts and dense layers of an MoE model: sharded over the ranks that hold the same tokens."""
    a, moe = design.architecture, design.architecture.moe_layers
    seconds = moe * kernels.gemm(design.gpu, tokens, a.experts, a.hidden, BF16)
    for width, count in ((a.shared_width, moe), (np.asarray(a.ffn), np.asarray(a.layers) - moe)):
        if np.any((width > 0) & (count > 0)):
            part = dense_ffn(design, np.maximum(width, 1), group, tokens)
            seconds = seconds + np.where(width > 0, count, 0) * part
    return seconds


def dense_ffn(design: Design, width: Any, shard: Any, tokens: Any) -> Any:
    a, code = design.architecture, design.ffn_format
    up = linear(design, tokens, (np.asarray(a.ffn_matrices) - 1) * np.asarray(width) / shard, a.hidden, code)
    return up + linear(design, tokens, a.hidden, np.asarray(width) / shard, code)


def uneven_stages(design: Design, pp: Any) -> tuple[Any]:
    """Layers of `pp` stages as large as the largest over layers of the model."""
    layers = np.asarray(design.architecture.layers)
    return (np.ceil(layers / pp) * pp / layers,)


def stage_sends(design: Design, pp: Any, across: Any, tokens: Any) -> tuple[Any]:
    """Seconds of the sends between pipeline stages."""
    send = kernels.send(design.gpu, 2.0 * tokens * design.architecture.hidden, across_domains=across > 0)
    return ((pp - 1.0) * send,)


@once_per("hidden", "vocab")
def lm_head(design: Design, tp: Any, rows: Any) -> Any:
    """The bf16 vocabulary projection, the gathering of its shards, and the sampler's reads of the logits."""
    a, gpu = design.architecture, design.gpu
    head = kernels.gemm(gpu, rows, np.ceil(np.asarray(a.vocab) / tp), a.hidden, BF16)
    logits = rows * np.asarray(a.vocab)
    gather = kernels.all_gather(gpu, 2.0 * logits, tp) if np.any(tp > 1) else 0.0
    sample = kernels.elementwise(gpu, 8.0 * logits)  # bf16 in, fp32 out, read once more for the maximum
    return head + gather + sample


def small_operations(design: Design, shard: Any, tokens: Any) -> Any:
    """Norms with their residual, rotary embedding with the KV write, and the gate of one layer."""
    a, gpu = design.architecture, design.gpu
    norms = np.asarray(a.norms) * kernels.elementwise(gpu, 8.0 * tokens * a.hidden)
    rotary = kernels.elementwise(gpu, 4.0 * tokens * a.query_dim * (np.asarray(a.heads) / shard + a.kv_heads))
    if np.all(design.moe):
        return norms + rotary
    gate = kernels.elementwise(gpu, 6.0 * tokens * np.asarray(a.ffn) / shard)
    return norms + rotary + (np.where(a.is_moe, 0.0, gate) if np.any(design.moe) else gate)
