"""Writing architectures: which published model family can carry a shape, and its Hugging Face `config.json`.

A shape has an export family when serving engines run that family's code on it unchanged (see `family_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from spaces.architecture import FIELDS, Architecture, canonical
from spaces.family_rules import RULES, Rule, every_family

FAMILIES = tuple(RULES)


def export_family(architecture: Architecture) -> Any:
    """Code of the export family in `FAMILIES`, -1 where no family has this shape; broadcasts.

    No shape has two families.
    """
    shape = np.broadcast_shapes(*(np.shape(getattr(architecture, name)) for name in FIELDS))
    common = np.ones(shape, dtype=bool)
    for holds, _ in every_family(architecture):
        common &= holds
    family = np.full(shape, -1)
    for code, rules in enumerate(RULES.values()):
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
        common = _first_broken(every_family(architecture))
        each = (f"{name} needs {_first_broken(RULES[name](architecture))}" for name in FAMILIES)
        needs = f"every family needs {common}" if common else "; ".join(each)
        raise ValueError(f"no export family has this shape: {needs}")
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; valid: {', '.join(FAMILIES)}")
    broken = _first_broken((*every_family(architecture), *RULES[family](architecture)))
    if broken:
        raise ValueError(f"the {family} family cannot carry this shape: it needs {broken}")
    return family


def _first_broken(rules: Iterable[Rule]) -> str:
    return next((need for holds, need in rules if not np.all(holds)), "")


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
