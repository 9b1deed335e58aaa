"""Writing architectures: which published model family can carry a shape, and its Hugging Face `config.json`.

A shape has an export family when serving engines run that family's code on it unchanged. The rules follow
the published model classes (transformers 5.24) and, where those are wider, what engines hard-code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from spaces.architecture import FIELDS, Architecture, canonical

Rule = tuple[Any, str]  # (where it holds, what the family needs)


def export_family(architecture: Architecture) -> Any:
    """Code of the export family in `FAMILIES`, -1 where no family has this shape; broadcasts.

    No shape has two families.
    """
    shape = np.broadcast_shapes(*(np.shape(getattr(architecture, name)) for name in FIELDS))
    common = np.ones(shape, dtype=bool)
    for holds, _ in _every_family(architecture):
        common &= holds
    family = np.full(shape, -1)
    for code, rules in enumerate(_RULES.values()):
        fits = common.copy()
        for holds, _ in rules(architecture):
            fits &= holds
        family[fits] = code
    return family if shape else family[()]


def exportable(architecture: Architecture) -> Any:
    """Whether some family can carry the shape; broadcasts."""
    return export_family(architecture) >= 0


def to_config(
    architecture: Architecture,
    family: str | None = None,
    torch_dtype: str = "bfloat16",
    max_position_embeddings: int = 131072,
    rope_theta: float = 500000.0,
) -> dict[str, Any]:
    """A Hugging Face `config.json` of one design; reading it back gives the design's canonical form.

    Args:
        architecture: a single design. family: a name in `FAMILIES`; None = the one that fits.
        max_position_embeddings, rope_theta: positions, which the shape says nothing about; plain rotary
            embeddings, without a length-extension scheme.
    Raises:
        ValueError: unknown family, a batch, or a shape that the family cannot carry, with what it needs.
    """
    if any(np.ndim(getattr(architecture, name)) for name in FIELDS):
        raise ValueError("to_config: one design at a time; take(index) picks one of a batch")
    name = _choose(architecture, family)
    a = Architecture(**canonical(architecture).as_dict())
    return {
        **_common(a),
        **_WRITERS[name](a),
        "max_position_embeddings": max_position_embeddings,
        "rope_theta": rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
        "torch_dtype": torch_dtype,
    }


def _choose(architecture: Architecture, family: str | None) -> str:
    if family is None:
        code = int(export_family(architecture))
        if code >= 0:
            return FAMILIES[code]
        common = _first_broken(_every_family(architecture))
        each = (f"{name} needs {_first_broken(_RULES[name](architecture))}" for name in FAMILIES)
        needs = f"every family needs {common}" if common else "; ".join(each)
        raise ValueError(f"no export family has this shape: {needs}")
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; valid: {', '.join(FAMILIES)}")
    broken = _first_broken((*_every_family(architecture), *_RULES[family](architecture)))
    if broken:
        raise ValueError(f"the {family} family cannot carry this shape: it needs {broken}")
    return family


def _first_broken(rules: Iterable[Rule]) -> str:
    return next((need for holds, need in rules if not np.all(holds)), "")


def _is(value: Any, wanted: Any) -> Any:
    return np.asarray(value) == wanted


def _every_family(a: Architecture) -> Iterator[Rule]:
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


_RULES: dict[str, Callable[[Architecture], Iterator[Rule]]] = {
    "Llama": _llama,
    "Qwen3": _qwen3,
    "Qwen3-MoE": _qwen3_moe,
    "Mixtral": _mixtral,
    "DeepSeek-V3": _deepseek_v3,
    "GLM-4-MoE": _glm4_moe,
    "gpt-oss": _gpt_oss,
    "Qwen2": _qwen2,
}
FAMILIES = tuple(_RULES)


def _common(a: Architecture) -> dict[str, Any]:
    return {
        "hidden_size": a.hidden,
        "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "vocab_size": a.vocab,
        "tie_word_embeddings": bool(a.tied_embeddings),
        "hidden_act": "silu",
        "rms_norm_eps": 1e-06,
        "initializer_range": 0.02,
        "attention_dropout": 0.0,
        "use_cache": True,
    }


def _named(architecture: str, model_type: str) -> dict[str, Any]:
    return {"architectures": [architecture], "model_type": model_type}


def _no_window(a: Architecture) -> dict[str, Any]:
    return {"use_sliding_window": False, "sliding_window": None, "max_window_layers": a.layers}


def _write_llama(a: Architecture) -> dict[str, Any]:
    return {
        **_named("LlamaForCausalLM", "llama"),
        "intermediate_size": a.ffn,
        "attention_bias": bool(a.qkv_bias),
        "mlp_bias": bool(a.ffn_bias),
    }


def _write_qwen2(a: Architecture) -> dict[str, Any]:
    return {**_named("Qwen2ForCausalLM", "qwen2"), "intermediate_size": a.ffn, **_no_window(a)}


def _write_qwen3(a: Architecture) -> dict[str, Any]:
    bias = {"attention_bias": bool(a.qkv_bias)}
    return {**_named("Qwen3ForCausalLM", "qwen3"), "intermediate_size": a.ffn, **bias, **_no_window(a)}


def _write_qwen3_moe(a: Architecture) -> dict[str, Any]:
    return {
        **_named("Qwen3MoeForCausalLM", "qwen3_moe"),
        "intermediate_size": a.ffn or a.top_k * a.expert_ffn,  # unused without dense layers, as published
        "attention_bias": bool(a.qkv_bias),
        "num_experts": a.experts,
        "num_experts_per_tok": a.top_k,
        "moe_intermediate_size": a.expert_ffn,
        "decoder_sparse_step": a.moe_every,
        "mlp_only_layers": list(range(a.dense_layers)),
        "norm_topk_prob": True,
        **_no_window(a),
    }


def _write_mixtral(a: Architecture) -> dict[str, Any]:
    return {
        **_named("MixtralForCausalLM", "mixtral"),
        "intermediate_size": a.expert_ffn,
        "num_local_experts": a.experts,
        "num_experts_per_tok": a.top_k,
        "sliding_window": None,
    }


def _shared_experts(a: Architecture) -> dict[str, Any]:
    return {
        "intermediate_size": a.ffn or a.top_k * a.expert_ffn,  # unused without dense layers
        "moe_intermediate_size": a.expert_ffn,
        "n_routed_experts": a.experts,
        "num_experts_per_tok": a.top_k,
        "n_shared_experts": a.shared_experts,
        "first_k_dense_replace": a.dense_layers,
        "n_group": 1,  # one routing group: any expert count is legal
        "topk_group": 1,
        "norm_topk_prob": True,
        "attention_bias": bool(a.qkv_bias),
        "num_nextn_predict_layers": 0,
    }


def _write_deepseek_v3(a: Architecture) -> dict[str, Any]:
    return {
        **_named("DeepseekV3ForCausalLM", "deepseek_v3"),
        **_shared_experts(a),
        "moe_layer_freq": 1,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "q_lora_rank": a.q_lora_rank or None,
        "kv_lora_rank": a.kv_lora_rank,
        "qk_nope_head_dim": a.qk_nope_head_dim,
        "qk_rope_head_dim": a.qk_rope_head_dim,
        "v_head_dim": a.v_head_dim,
        "head_dim": a.qk_rope_head_dim,  # what this family's class calls head_dim
    }


def _write_glm4_moe(a: Architecture) -> dict[str, Any]:
    return {
        **_named("Glm4MoeForCausalLM", "glm4_moe"),
        **_shared_experts(a),
        "routed_scaling_factor": 2.5,
        "use_qk_norm": bool(a.qk_norm),
        "partial_rotary_factor": 0.5,
    }


def _write_gpt_oss(a: Architecture) -> dict[str, Any]:
    return {
        **_named("GptOssForCausalLM", "gpt_oss"),
        "intermediate_size": a.expert_ffn,
        "num_local_experts": a.experts,
        "num_experts_per_tok": a.top_k,
        "experts_per_token": a.top_k,
        "attention_bias": True,
        "sliding_window": a.window,
        "layer_types": ["full_attention" if i % 2 else "sliding_attention" for i in range(a.layers)],
        "swiglu_limit": 7.0,
    }


_WRITERS: dict[str, Callable[[Architecture], dict[str, Any]]] = {
    "Llama": _write_llama,
    "Qwen3": _write_qwen3,
    "Qwen3-MoE": _write_qwen3_moe,
    "Mixtral": _write_mixtral,
    "DeepSeek-V3": _write_deepseek_v3,
    "GLM-4-MoE": _write_glm4_moe,
    "gpt-oss": _write_gpt_oss,
    "Qwen2": _write_qwen2,
}
