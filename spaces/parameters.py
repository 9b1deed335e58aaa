"""Exact parameter counts: per layer, by how they shard, and of the whole model.

Integers throughout (int64: every product stays below 2^62 inside the limits of `Architecture`).
Multi-head latent attention follows DeepSeek-V2 (arXiv 2405.04434, section 2.1), the rest the published
model classes of each family. Speculative (MTP) layers and vision towers are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.architecture import FIELDS, Architecture


@dataclass(frozen=True)
class LayerParameters:
    """Counts of one layer; every field broadcasts like the architecture's.

    Attributes:
        attention_sharded: projections that tensor parallelism shards (with their biases).
        attention_replicated: MLA down-projections, whole on every rank (with their biases).
        norms: every gain of a layer: block norms with their biases, QK norms, MLA latent norms, sinks.
        ffn_dense: the FFN of one dense layer. expert: one routed expert.
        shared: all shared experts of one MoE layer, with their gate. router: the routing matrix and bias.
        attention_bias, ffn_dense_bias, expert_bias, shared_bias: the part of those counts that is bias
            vectors, which stay bf16 under every recipe.
    """

    attention_sharded: Any
    attention_replicated: Any
    norms: Any
    ffn_dense: Any
    router: Any
    expert: Any
    shared: Any
    attention_bias: Any
    ffn_dense_bias: Any
    expert_bias: Any
    shared_bias: Any


@dataclass(frozen=True)
class Parameters:
    """Counts of a whole model.

    Attributes:
        total: every parameter, a tied LM head once.
        active: what one token visits: total less the experts not routed to (embeddings included).
        embedding: input embedding plus, where untied, the LM head (and its bias).
        non_embedding_total, non_embedding_active: total and active less embedding.
    """

    total: Any
    active: Any
    embedding: Any
    non_embedding_total: Any
    non_embedding_active: Any


def layer_parameters(architecture: Architecture) -> LayerParameters:
    """Exact counts per layer; where a kind of layer does not exist its count is of width 0, i.e. 0."""
    a = _int64(architecture)
    sharded, replicated, attention_bias = _attention(a)
    ffn_dense, ffn_dense_bias = _ffn(a, a.ffn)
    expert, expert_bias = _ffn(a, a.expert_ffn)
    width = a.shared_width
    shared, shared_bias = _ffn(a, width)
    return LayerParameters(
        attention_sharded=sharded,
        attention_replicated=replicated,
        norms=_norms(a),
        ffn_dense=ffn_dense,
        router=a.experts * (a.hidden + a.router_bias),
        expert=expert,
        shared=shared + a.shared_gate * a.hidden * (width > 0),
        attention_bias=attention_bias,
        ffn_dense_bias=ffn_dense_bias,
        expert_bias=expert_bias,
        shared_bias=shared_bias,
    )


def parameters(architecture: Architecture, layer: LayerParameters | None = None) -> Parameters:
    """Exact counts of the whole model (see `Parameters`); `layer`: its counts per layer, where known already."""
    a = _int64(architecture)
    layer = layer_parameters(a) if layer is None else layer
    moe_layers = a.moe_layers
    every_layer = layer.attention_sharded + layer.attention_replicated + layer.norms
    non_embedding = (
        a.layers * every_layer
        + (a.layers - moe_layers) * layer.ffn_dense
        + moe_layers * (layer.router + layer.shared + a.experts * layer.expert)
        + a.hidden * (1 + a.norm_bias)  # final norm
    )
    non_embedding_active = non_embedding - moe_layers * (a.experts - a.top_k) * layer.expert
    embedding = a.vocab * (a.hidden * (2 - a.tied_embeddings) + a.head_bias)
    return Parameters(
        total=non_embedding + embedding,
        active=non_embedding_active + embedding,
        embedding=embedding,
        non_embedding_total=non_embedding,
        non_embedding_active=non_embedding_active,
    )


def _int64(architecture: Architecture) -> Architecture:
    """Every field as int64: narrow or unsigned arrays of a batch must not wrap around."""
    if all(getattr(getattr(architecture, name), "dtype", None) == np.int64 for name in FIELDS):
        return architecture
    return architecture.map(lambda value: np.asarray(value, dtype=np.int64))


def _attention(a: Architecture) -> tuple[Any, Any, Any]:
    """(sharded, replicated, bias) parameters of the attention linears of one layer."""
    mla = a.kv_lora_rank > 0
    query = a.heads * a.head_dim
    key_value = 2 * a.kv_heads * a.head_dim
    bias = a.qkv_bias * (query + key_value) + a.output_bias * a.hidden
    gqa = a.hidden * (2 * query + key_value) + bias
    if not mla.any():
        return gqa, np.zeros_like(gqa), bias
    latent = a.kv_lora_rank + a.qk_rope_head_dim
    down_bias = a.qkv_bias * (a.q_lora_rank + latent)
    down = a.hidden * (a.q_lora_rank + latent) + down_bias
    query_input = np.where(a.q_lora_rank > 0, a.q_lora_rank, a.hidden)  # rank 0: queries straight from hidden
    up = a.heads * (
        query_input * (a.qk_nope_head_dim + a.qk_rope_head_dim)
        + a.kv_lora_rank * (a.qk_nope_head_dim + a.v_head_dim)
        + a.v_head_dim * a.hidden
    )
    output_bias = a.output_bias * a.hidden
    return (
        np.where(mla, up + output_bias, gqa),
        np.where(mla, down, 0),
        np.where(mla, down_bias + output_bias, bias),
    )


def _norms(a: Architecture) -> Any:
    mla = a.kv_lora_rank > 0
    per_head = 2 * a.head_dim * (a.qk_norm == 1)
    per_projection = (a.heads + a.kv_heads) * a.head_dim * (a.qk_norm == 2)
    attention = np.where(mla, a.q_lora_rank + a.kv_lora_rank, per_head + per_projection)
    return a.norms * a.hidden * (1 + a.norm_bias) + attention + a.attention_sinks * a.heads


def _ffn(a: Architecture, width: Any) -> tuple[Any, Any]:
    """(all, bias) parameters of one FFN: up matrices (one, or two where gated) and a down matrix."""
    bias = a.ffn_bias * ((a.ffn_matrices - 1) * width + a.hidden) * (width > 0)
    return a.ffn_matrices * a.hidden * width + bias, bias
