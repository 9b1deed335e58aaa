"""What each export family can carry: named rules over an architecture, each with what the family needs.

The rules follow the published model classes (transformers 5.24) and, where those are wider, what engines hard-code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from spaces.architecture import Architecture

Rule = tuple[Any, str]  # (where it holds, what the family needs)


def _is(value: Any, wanted: Any) -> Any:
    return np.asarray(value) == wanted


def every_family(a: Architecture) -> Iterator[Rule]:
    yield _is(a.ffn_matrices, 3), "gated FFNs (ffn_matrices = 3)"
    yield _is(a.norms, 2) & _is(a.norm_bias, 0), "two RMS norms per layer without biases"
    yield _is(a.parallel_block, 0), "sequential attention and FFN"
    yield _is(a.head_bias, 0), "an LM head without bias"
    rotary: Any = np.where(a.is_mla, a.qk_rope_head_dim, a.head_dim)
    yield rotary % 2 == 0, "an even number of rotary dimensions per head"


def _grouped(a: Architecture) -> Iterator[Rule]:
    yield ~a.is_mla, "grouped-query attention (kv_lora_rank = 0)"
    yield np.asarray(a.heads) % a.kv_heads == 0, "kv_heads that divide heads"


def _full_attention(a: Architecture) -> Iterator[Rule]:
    yield a.windowed_layers == 0, "full attention in every layer (window = 0)"
    yield _is(a.attention_sinks, 0), "no attention sinks"


def _dense(a: Architecture) -> Iterator[Rule]:
    yield from _grouped(a)
    yield from _full_attention(a)
    yield a.moe_layers == 0, "a dense model (experts = 0)"


def _routed(a: Architecture) -> Iterator[Rule]:
    yield a.moe_layers > 0, "MoE layers (experts > 0)"
    yield np.asarray(a.experts) > 1, "at least two experts"


def _one_attention_bias(a: Architecture) -> Iterator[Rule]:
    yield _is(a.qkv_bias, a.output_bias), "the same attention bias on QKV and output"


def _no_ffn_bias(a: Architecture) -> Iterator[Rule]:
    yield _is(a.ffn_bias, 0) & (_is(a.router_bias, 0) | (a.moe_layers == 0)), "no biases in FFNs and routers"


def _shared(a: Architecture) -> Iterator[Rule]:
    """First k dense layers, then MoE layers with shared experts as wide as the routed ones."""
    yield from _routed(a)
    yield _is(a.moe_every, 1), "every layer after the dense ones MoE (moe_every = 1)"
    yield a.shared_width > 0, "at least one shared expert"
    yield _is(a.shared_ffn, 0) | _is(a.shared_ffn, a.expert_ffn), "shared experts as wide as the routed ones"
    yield _is(a.shared_gate, 0), "shared experts without a gate"
    yield from _no_ffn_bias(a)


def _llama(a: Architecture) -> Iterator[Rule]:
    yield from _dense(a)
    yield from _one_attention_bias(a)
    yield _is(a.qk_norm, 0), "no QK norm"
    yield np.asarray(a.hidden) % a.heads == 0, "hidden a multiple of heads"  # its configuration class checks this


def _qwen2(a: Architecture) -> Iterator[Rule]:
    yield from _dense(a)
    yield from _no_ffn_bias(a)
    yield _is(a.qk_norm, 0), "no QK norm"
    yield _is(a.qkv_bias, 1) & _is(a.output_bias, 0), "biases on QKV only"


def _qwen3(a: Architecture) -> Iterator[Rule]:
    yield from _dense(a)
    yield from _one_attention_bias(a)
    yield from _no_ffn_bias(a)
    yield _is(a.qk_norm, 1), "QK norm per head (qk_norm = 1)"


def _no_shared(a: Architecture) -> Iterator[Rule]:
    yield from _routed(a)
    yield from _grouped(a)
    yield a.shared_width == 0, "no shared experts"


def _qwen3_moe(a: Architecture) -> Iterator[Rule]:
    yield from _no_shared(a)
    yield from _full_attention(a)
    yield from _one_attention_bias(a)
    yield from _no_ffn_bias(a)
    yield _is(a.qk_norm, 1), "QK norm per head (qk_norm = 1)"


def _mixtral(a: Architecture) -> Iterator[Rule]:
    yield from _no_shared(a)
    yield from _full_attention(a)
    yield from _no_ffn_bias(a)
    yield _is(a.qkv_bias, 0) & _is(a.output_bias, 0), "no attention biases"
    yield _is(a.qk_norm, 0), "no QK norm"
    yield a.moe_layers == a.layers, "MoE in every layer"


def _deepseek_v3(a: Architecture) -> Iterator[Rule]:
    yield a.is_mla, "multi-head latent attention (kv_lora_rank > 0)"
    yield from _full_attention(a)
    yield from _one_attention_bias(a)
    yield from _shared(a)


def _glm4_moe(a: Architecture) -> Iterator[Rule]:
    yield from _grouped(a)
    yield from _full_attention(a)
    yield _is(a.output_bias, 0), "no bias on the attention output"
    yield np.asarray(a.qk_norm) < 2, "QK norm per head or none"
    yield from _shared(a)


def _gpt_oss(a: Architecture) -> Iterator[Rule]:
    yield from _no_shared(a)
    biased = _is(a.qkv_bias, 1) & _is(a.output_bias, 1) & _is(a.ffn_bias, 1) & _is(a.router_bias, 1)
    yield biased, "biases on every linear but the LM head"
    yield _is(a.attention_sinks, 1), "attention sinks"
    yield _is(a.qk_norm, 0), "no QK norm"
    yield a.moe_layers == a.layers, "MoE in every layer"
    # engines do not read layer_types: they hard-code a window in every other layer, from the first
    half = np.asarray(a.layers) // 2
    yield (np.asarray(a.window) > 0) & _is(a.full_attention_layers, half), "windows in every other layer"


RULES: dict[str, Callable[[Architecture], Iterator[Rule]]] = {
    "Llama": _llama,
    "Qwen3": _qwen3,
    "Qwen3-MoE": _qwen3_moe,
    "Mixtral": _mixtral,
    "DeepSeek-V3": _deepseek_v3,
    "GLM-4-MoE": _glm4_moe,
    "gpt-oss": _gpt_oss,
    "Qwen2": _qwen2,
}
