"""What a design holds and what one token takes, as exact counts: parameters, KV and weight bytes, FLOPs.

Pure and broadcasting. Everything here is of the whole model; one GPU's share under a plan is `memory.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.architecture import Architecture
from spaces.formats import KV_BYTES, RECIPE_ATTENTION, RECIPE_FFN, WEIGHT_BYTES, kv_code, recipe_code
from spaces.parameters import LayerParameters, Parameters, layer_parameters, parameters

__all__ = [
    "LayerParameters",
    "Parameters",
    "WeightBytes",
    "attention_flops_per_token",
    "kv_bytes_per_sequence",
    "kv_values_per_token_layer",
    "layer_parameters",
    "matrix_flops_per_token",
    "parameters",
    "training_flops",
    "weight_bytes",
]

BF16_BYTES = 2


@dataclass(frozen=True)
class WeightBytes:
    """Bytes of all weights of a model, every expert resident, by what its recipe may quantise.

    Attributes:
        attention: attention linears. ffn: dense FFNs, routed and shared experts.
        plain: what stays bf16: embeddings, LM head, norms, routers, biases.
        total: their sum.
    """

    attention: Any
    ffn: Any
    plain: Any

    @property
    def total(self) -> Any:
        return self.attention + self.ffn + self.plain


def kv_values_per_token_layer(architecture: Architecture) -> Any:
    """Cached values of one token in one layer: keys and values of every KV head, or the MLA latent once."""
    a = architecture
    grouped = 2 * np.asarray(a.kv_heads, dtype=np.int64) * a.head_dim
    return np.where(a.is_mla, np.asarray(a.kv_lora_rank) + a.qk_rope_head_dim, grouped)


def kv_bytes_per_sequence(architecture: Architecture, kv_format: Any, context: Any) -> Any:
    """KV-cache bytes of one sequence of `context` tokens, scales included, without page rounding.

    Windowed layers hold min(context, window) tokens.

    Args:
        kv_format: bf16, fp8 or nvfp4, or codes. context: tokens cached, any number >= 0.
    Raises:
        ValueError: unknown format, or a negative context.
    """
    context = _context(context)
    windowed = architecture.windowed_layers
    token_layers = (np.asarray(architecture.layers) - windowed) * context
    token_layers = token_layers + windowed * np.minimum(context, architecture.window)
    return token_layers * kv_values_per_token_layer(architecture) * KV_BYTES[kv_code(kv_format)]


def weight_bytes(architecture: Architecture, recipe: Any) -> WeightBytes:
    """Bytes of the whole model under a recipe, block scales included (see `spaces.formats`).

    Raises:
        ValueError: unknown recipe.
    """
    a, code = architecture, recipe_code(recipe)
    layer, count = layer_parameters(a), parameters(a)
    layers, moe_layers, experts = np.asarray(a.layers), a.moe_layers, np.asarray(a.experts)
    dense_layers = layers - moe_layers
    gate = np.asarray(a.shared_gate) * np.asarray(a.hidden) * (a.shared_width > 0)
    attention = layers * (layer.attention_sharded + layer.attention_replicated - layer.attention_bias)
    ffn = dense_layers * (layer.ffn_dense - layer.ffn_dense_bias) + moe_layers * (
        experts * (layer.expert - layer.expert_bias) + layer.shared - layer.shared_bias - gate
    )
    return WeightBytes(
        attention=attention * WEIGHT_BYTES[RECIPE_ATTENTION[code]],
        ffn=ffn * WEIGHT_BYTES[RECIPE_FFN[code]],
        plain=BF16_BYTES * (count.total - attention - ffn),
    )


def matrix_flops_per_token(architecture: Architecture) -> Any:
    """Forward FLOPs of one token's matrix products, two per multiply-add, attention core excluded.

    The experts that the token visits, the router, and always the LM head: a tied matrix is stored once and
    still multiplied. The input embedding is a look-up.
    """
    a = architecture
    layer = layer_parameters(a)
    moe_layers = a.moe_layers
    per_layer = layer.attention_sharded + layer.attention_replicated - layer.attention_bias
    router = np.asarray(a.experts, dtype=np.int64) * a.hidden
    moe = router + layer.shared - layer.shared_bias + np.asarray(a.top_k) * (layer.expert - layer.expert_bias)
    dense = layer.ffn_dense - layer.ffn_dense_bias
    head = np.asarray(a.vocab, dtype=np.int64) * a.hidden
    layers = np.asarray(a.layers)
    return 2 * (layers * per_layer + (layers - moe_layers) * dense + moe_layers * moe + head)


def attention_flops_per_token(architecture: Architecture, context: Any, absorbed: Any = False) -> Any:
    """Forward FLOPs of one token's attention core (scores and weighted values) over `context` tokens.

    Args:
        context: tokens attended to, the new one included; for a causal prefill of n tokens, (n + 1) / 2 on average.
        absorbed: MLA as it decodes, against the latent instead of expanded keys and values
            (arXiv 2405.04434, appendix C); says nothing without MLA.
    """
    a, context = architecture, _context(context)
    latent = np.asarray(a.is_mla) & absorbed
    width = np.where(latent, 2 * np.asarray(a.kv_lora_rank) + a.qk_rope_head_dim, a.query_dim + a.value_dim)
    windowed = a.windowed_layers
    attended = (np.asarray(a.layers) - windowed) * context + windowed * np.minimum(context, a.window)
    return 2.0 * np.asarray(a.heads) * width * attended


def training_flops(architecture: Architecture, train_tokens: Any) -> Any:
    """Training FLOPs by the 6 N D rule, N the active matrices with the LM head (arXiv 2001.08361, section 2.1).

    The attention core is left out: ratios between designs of one study are at equal sequence length.
    """
    return 3.0 * matrix_flops_per_token(architecture) * np.asarray(train_tokens, dtype=float)


def _context(context: Any) -> Any:
    value = np.asarray(context, dtype=float)
    if not np.all(np.isfinite(value) & (value >= 0)):
        raise ValueError(f"context = {context!r}: must be a finite number of tokens >= 0")
    return value
