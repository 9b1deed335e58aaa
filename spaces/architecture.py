"""What can be trained: one decoder-only transformer, or a whole batch of them.

Every field is a number or a NumPy array; arrays broadcast, so that a single design is the shape-() case
of the same code that prices a million. Dimensions are counts of values unless their name says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

Number = Any  # int, float, bool or np.ndarray: every formula broadcasts

# fields that must be at least one for any model
_POSITIVE = ("hidden", "layers", "heads", "kv_heads", "head_dim", "vocab", "moe_every")
# upper bounds, far above any published model: inside them every parameter count fits an int64
MOST = {
    **dict.fromkeys(("hidden", "q_lora_rank", "kv_lora_rank"), 2**17),
    **dict.fromkeys(("heads", "kv_heads", "head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 2**12),
    **dict.fromkeys(("layers", "dense_layers", "full_attention_layers", "moe_every"), 2**10),
    **dict.fromkeys(("ffn", "expert_ffn", "shared_ffn"), 2**20),
    **dict.fromkeys(("experts", "top_k"), 2**13),
    **dict.fromkeys(("vocab", "window"), 2**24),
    **{"shared_experts": 2**6, "ffn_matrices": 3, "qk_norm": 2, "norms": 4},
}


@dataclass(frozen=True)
class Architecture:
    """The shape of a decoder-only language model.

    Attributes:
        hidden: width of the residual stream (d_model).
        layers: number of transformer blocks.
        heads: query heads. kv_heads: key/value heads (under MLA: heads).
        head_dim: width of one head, independent of hidden / heads (under MLA: v_head_dim).
        ffn: width of a dense FFN; 0 where every layer is MoE.
        vocab: vocabulary size, unpadded. tied_embeddings: LM head shares the embedding matrix.
        experts: routed experts per MoE layer; 0 = dense model. top_k: experts per token.
        expert_ffn: width of one routed expert.
        shared_experts: experts every token visits; shared_ffn: width of one of them, 0 = expert_ffn.
        dense_layers: how many leading layers stay dense. moe_every: every n-th of the others is MoE.
        q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim: multi-head latent
            attention (DeepSeek-V2, arXiv 2405.04434); kv_lora_rank = 0 means GQA/MHA/MQA.
        window: sliding-window length in tokens, 0 = none; full_attention_layers: how many layers
            attend to the whole context where window > 0.
        ffn_matrices: 3 = gated (SwiGLU), 2 = plain.
        qkv_bias, output_bias, ffn_bias, router_bias, head_bias: bias vectors of those linears.
        qk_norm: 0 none, 1 per head (one gain of head_dim), 2 over the whole projection.
        attention_sinks: one learned logit per query head.
        norms: norm gains of width hidden per layer; norm_bias: they carry a bias too (LayerNorm).
        parallel_block: attention and FFN read the same input (GPT-J, Falcon).
        shared_gate: a sigmoid gate of width hidden on the shared expert (Qwen2-MoE).
    """

    hidden: Number
    layers: Number
    heads: Number
    kv_heads: Number
    head_dim: Number
    ffn: Number
    vocab: Number
    tied_embeddings: Number = False
    experts: Number = 0
    top_k: Number = 0
    expert_ffn: Number = 0
    shared_experts: Number = 0
    shared_ffn: Number = 0
    dense_layers: Number = 0
    moe_every: Number = 1
    q_lora_rank: Number = 0
    kv_lora_rank: Number = 0
    qk_nope_head_dim: Number = 0
    qk_rope_head_dim: Number = 0
    v_head_dim: Number = 0
    window: Number = 0
    full_attention_layers: Number = 0
    ffn_matrices: Number = 3
    qkv_bias: Number = False
    output_bias: Number = False
    ffn_bias: Number = False
    router_bias: Number = False
    head_bias: Number = False
    qk_norm: Number = 0
    attention_sinks: Number = False
    norms: Number = 2
    norm_bias: Number = False
    parallel_block: Number = False
    shared_gate: Number = False

    def __post_init__(self) -> None:
        for name in FIELDS:
            value = np.asarray(getattr(self, name))
            if value.dtype.kind not in "iub":
                raise ValueError(f"{name} = {getattr(self, name)!r}: a whole number is needed")
            least, most = 1 if name in _POSITIVE else 0, MOST.get(name, 1)
            if value.size and value.min() < least:
                raise ValueError(f"{name} = {value.min()}: must be at least {least}")
            if value.size and value.max() > most:
                raise ValueError(f"{name} = {value.max()}: must be at most {most}")
        for broken, message in _inconsistencies(self):
            if np.any(broken):
                raise ValueError(message)

    @property
    def is_moe(self) -> Any:
        return np.asarray(self.experts) > 0

    @property
    def is_mla(self) -> Any:
        return np.asarray(self.kv_lora_rank) > 0

    @property
    def is_windowed(self) -> Any:
        return np.asarray(self.window) > 0

    @property
    def moe_layers(self) -> Any:
        """Layers i (from 0) with i >= dense_layers and (i + 1) % moe_every == 0; 0 for a dense model."""
        moe = np.asarray(self.layers) // self.moe_every - np.asarray(self.dense_layers) // self.moe_every
        return np.where(self.is_moe, np.maximum(moe, 0), 0)

    @property
    def windowed_layers(self) -> Any:
        return np.where(self.is_windowed, np.asarray(self.layers) - self.full_attention_layers, 0)

    @property
    def shared_width(self) -> Any:
        """Total width of the shared experts of one MoE layer."""
        one = np.where(np.asarray(self.shared_ffn) > 0, self.shared_ffn, self.expert_ffn)
        return np.asarray(self.shared_experts) * one

    @property
    def query_dim(self) -> Any:
        """Width of one query/key head as the attention core sees it (un-absorbed for MLA)."""
        return np.where(self.is_mla, np.asarray(self.qk_nope_head_dim) + self.qk_rope_head_dim, self.head_dim)

    @property
    def value_dim(self) -> Any:
        return np.where(self.is_mla, self.v_head_dim, self.head_dim)

    def map(self, function: Any) -> Architecture:
        """A copy with `function` applied to every field (reshape, index, broadcast)."""
        return unchecked({name: function(getattr(self, name)) for name in FIELDS})

    def take(self, index: Any) -> Architecture:
        """Fields of a batch at `index` along their first axis; scalars stay scalars."""
        return self.map(lambda value: value[index] if np.ndim(value) else value)

    def column(self) -> Architecture:
        """Fields of a (A,) batch as (A, 1), to broadcast against (P,) deployments."""
        return self.map(lambda value: np.asarray(value)[:, None] if np.ndim(value) else value)

    def as_dict(self) -> dict[str, Any]:
        """Plain Python numbers of a single design."""
        return {name: np.asarray(getattr(self, name)).item() for name in FIELDS}


FIELDS = tuple(field.name for field in fields(Architecture))


def _inconsistencies(a: Architecture) -> Iterator[tuple[Any, str]]:
    """(where it is broken, message) for every rule that joins two fields."""
    moe, mla = a.is_moe, a.is_mla
    experts, top_k = np.asarray(a.experts), np.asarray(a.top_k)
    yield moe & (top_k > experts), f"top_k = {a.top_k}: at most the number of experts, {a.experts}"
    yield moe & (top_k < 1), f"top_k = {a.top_k}: at least 1 where experts = {a.experts}"
    yield moe & (np.asarray(a.expert_ffn) < 1), f"expert_ffn = {a.expert_ffn}: at least 1 where experts = {a.experts}"
    dense = np.asarray(a.layers) > a.moe_layers
    yield dense & (np.asarray(a.ffn) < 1), f"ffn = {a.ffn}: at least 1 where some layers are dense"
    divides = np.asarray(a.heads) % a.kv_heads == 0
    yield ~mla & ~divides, f"kv_heads = {a.kv_heads}: must divide heads = {a.heads}"
    for name in ("dense_layers", "full_attention_layers"):
        value = getattr(a, name)
        yield np.asarray(value) > a.layers, f"{name} = {value}: at most layers = {a.layers}"
    for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        value = getattr(a, name)
        yield mla & (np.asarray(value) < 1), f"{name} = {value}: at least 1 where kv_lora_rank = {a.kv_lora_rank}"


def unchecked(values: dict[str, Any]) -> Architecture:
    """Build an Architecture from values that come from one already checked (the search's inner loop)."""
    architecture = object.__new__(Architecture)
    for name in FIELDS:
        object.__setattr__(architecture, name, values[name])
    return architecture


def stack(architectures: list[Architecture]) -> Architecture:
    """One (n,) batch of n single designs."""
    return unchecked({name: np.array([getattr(a, name) for a in architectures]) for name in FIELDS})


def canonical(architecture: Architecture) -> Architecture:
    """The same model with every field that does not concern it at its neutral value.

    Architectures with equal canonical forms are the same model: expert fields of a dense model, `ffn` where
    no layer is dense, latent widths without MLA, `full_attention_layers` without a window, and the head
    fields that MLA replaces say nothing. Broadcasts.
    """
    a = architecture
    moe_layers = a.moe_layers
    moe, mla, windowed = moe_layers > 0, a.is_mla, a.windowed_layers > 0
    shared = moe & (a.shared_width > 0)
    values: dict[str, Any] = {name: np.asarray(getattr(a, name)) for name in FIELDS}
    shared_ffn = values["shared_ffn"]
    values |= {
        "kv_heads": np.where(mla, a.heads, a.kv_heads),
        "head_dim": np.where(mla, a.v_head_dim, a.head_dim),
        "ffn": np.where(values["layers"] > moe_layers, a.ffn, 0),
        "shared_ffn": np.where(shared & (shared_ffn != a.expert_ffn), shared_ffn, 0),
        "dense_layers": np.where(moe, values["dense_layers"] // a.moe_every * a.moe_every, 0),
        "moe_every": np.where(moe, a.moe_every, 1),
        "qk_norm": np.where(mla, 0, a.qk_norm),
        "window": np.where(windowed, a.window, 0),
        "full_attention_layers": np.where(windowed, a.full_attention_layers, 0),
    }
    for name in ("experts", "top_k", "expert_ffn", "router_bias"):
        values[name] = np.where(moe, values[name], 0).astype(values[name].dtype)
    for name in ("shared_experts", "shared_gate"):
        values[name] = np.where(shared, values[name], 0).astype(values[name].dtype)
    for name in ("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        values[name] = np.where(mla, values[name], 0)
    return unchecked(values)
