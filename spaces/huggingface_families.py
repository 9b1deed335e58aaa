"""Which key of a Hugging Face `config.json` holds which field, one table per family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spaces.config_file import REQUIRED, Fields

_FLAGS = frozenset(("tied_embeddings", "qkv_bias", "output_bias", "ffn_bias", "head_bias"))
_PER_HEAD = object()  # head_dim = hidden / heads, the published class's own rule; exact or an error
Layout = Callable[[Fields, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Family:
    """How one family's configuration is read.

    Attributes:
        name: as shown to users.
        keys: Architecture field -> config key (required), or (key, default): a constant of the published class.
        fixed: fields that the family's code fixes. expect: key -> the values supported.
        layouts: rules that read what depends on the layer (windows, dense and MoE layers).
        unused: keys of the family that say nothing about the shape here.
    """

    name: str
    keys: dict[str, str | tuple[str, Any]]
    fixed: dict[str, Any] = field(default_factory=dict)
    expect: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    layouts: tuple[Layout, ...] = ()
    unused: tuple[str, ...] = ()

    def read(self, fields: Fields) -> dict[str, Any]:
        fields.read.update(self.unused)
        values = dict(self.fixed)
        for name, spec in self.keys.items():
            key, default = spec if isinstance(spec, tuple) else (spec, REQUIRED)
            values[name] = fields.flag(key, default) if name in _FLAGS else fields.integer(key, default)
        if values.get("head_dim") is _PER_HEAD:
            values["head_dim"] = _width_per_head(fields, values)
        for key, allowed in self.expect.items():
            fields.expect(key, *allowed)
        for layout in self.layouts:
            values |= layout(fields, values)
        return values


def _width_per_head(fields: Fields, values: dict[str, Any]) -> int:
    if values["heads"] < 1 or values["hidden"] % values["heads"]:
        raise fields.error(
            "head_dim", f"is missing and hidden {values['hidden']} is not a multiple of {values['heads']} heads"
        )
    return int(values["hidden"] // values["heads"])


def _windows(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """`layer_types` lists every layer's attention."""
    kinds = fields.words("layer_types")
    if len(kinds) != values["layers"]:
        raise fields.error("layer_types", f"lists {len(kinds)} layers; num_hidden_layers = {values['layers']}")
    return _count_windows(fields, kinds)


def _count_windows(fields: Fields, kinds: list[str]) -> dict[str, Any]:
    known = ("full_attention", "sliding_attention", "chunked_attention")
    for kind in kinds:
        if kind not in known:
            raise fields.error("layer_types", f"has {kind!r}: only {', '.join(known)} are supported")
    full = kinds.count("full_attention")
    if full == len(kinds):
        return {}
    key = "attention_chunk_size" if "chunked_attention" in kinds else "sliding_window"
    return {"window": fields.integer(key, least=1), "full_attention_layers": full}


def _uniform_window(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Mistral: one window for every layer, `null` for none; a file must say which."""
    if "sliding_window" not in fields.values:
        raise fields.error("sliding_window", "is missing: a window in tokens, or null for full attention")
    window = fields.integer("sliding_window", 0, least=1)
    return {"window": window}


def _optional_window(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Qwen2 and Qwen3: windows only where switched on, from layer `max_window_layers` up."""
    fields.read.update(("sliding_window", "max_window_layers", "layer_types"))
    if not fields.flag("use_sliding_window", False):
        return {}
    if fields.get("layer_types") is not None:
        return _windows(fields, values)
    full = min(fields.integer("max_window_layers"), values["layers"])
    return {"window": fields.integer("sliding_window", least=1), "full_attention_layers": full}


def _every_nth_full(key: str, period: int) -> Layout:
    """Gemma: `layer_types`, or the class's own rule that every n-th layer is full."""

    def layout(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
        if fields.get("layer_types") is not None:
            return _windows(fields, values)
        n = fields.integer(key, period, least=1)
        kinds = ["sliding_attention" if (i + 1) % n else "full_attention" for i in range(_layers(fields, values))]
        return _count_windows(fields, kinds)

    return layout


def _llama4_chunks(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Llama-4: layers without rotary positions attend to everything, the others inside a chunk."""
    fields.read.update(("no_rope_layers", "no_rope_layer_interval", "attention_chunk_size"))
    if fields.get("layer_types") is not None:
        return _windows(fields, values)
    layers = _layers(fields, values)
    rotary = fields.integers("no_rope_layers", [])
    if not rotary:  # the class writes 1 for a layer with rotary positions
        interval = fields.integer("no_rope_layer_interval", 4, least=1)
        rotary = [int((i + 1) % interval != 0) for i in range(layers)]
    if fields.get("attention_chunk_size") is None:
        return {}
    return _count_windows(fields, ["chunked_attention" if on else "full_attention" for on in rotary[:layers]])


def _first_dense(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """DeepSeek and GLM: the first k layers are dense."""
    return {"dense_layers": min(fields.integer("first_k_dense_replace"), _layers(fields, values))}


def _sparse_step(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Qwen: layer i is MoE where (i + 1) % decoder_sparse_step == 0 and i is not in mlp_only_layers."""
    step = fields.integer("decoder_sparse_step", 1, least=1)
    dense = set(fields.integers("mlp_only_layers", []))
    sparse = [(i + 1) % step == 0 and i not in dense for i in range(_layers(fields, values))]
    return _moe_layout(fields, "mlp_only_layers", sparse, step)


def _llama4_moe(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    step = fields.integer("interleave_moe_layer_step", 1, least=1)
    layers = _layers(fields, values)
    listed = fields.integers("moe_layers", list(range(step - 1, layers, step)))
    return _moe_layout(fields, "moe_layers", [i in set(listed) for i in range(layers)], step)


def _moe_layout(fields: Fields, key: str, sparse: list[bool], step: int) -> dict[str, Any]:
    """(dense_layers, moe_every) that give exactly the listed MoE layers."""
    if True not in sparse:
        return {"dense_layers": len(sparse)}
    dense = sparse.index(True)
    if sparse != [i >= dense and (i + 1) % step == 0 for i in range(len(sparse))]:
        raise fields.error(
            key, f"leaves an irregular pattern: only leading dense layers and every {step}-th are supported"
        )
    return {"dense_layers": dense, "moe_every": step}


def _layers(fields: Fields, values: dict[str, Any]) -> int:
    """The layer count, bounded before lists of that length are built."""
    if not 1 <= values["layers"] <= 2**10:
        raise fields.error("num_hidden_layers", f"= {values['layers']}: must be 1 to {2**10}")
    return int(values["layers"])


def _optional_qk_norm(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    return {"qk_norm": int(fields.flag("use_qk_norm"))}


def _attention_ones(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """MiniMax lists 1 for softmax and 0 for lightning attention."""
    if set(fields.integers("attn_type_list", [1])) != {1}:
        raise fields.error("attn_type_list", "has linear-attention layers: only 1 (softmax attention) is supported")
    return {}


def _falcon(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """Falcon's fused QKV: grouped in the new decoder, else multi-query or multi-head."""
    new = fields.flag("new_decoder_architecture", False)
    multi_query = fields.flag("multi_query", True)
    parallel = fields.flag("parallel_attn", True) or new
    listed = fields.integer("num_kv_heads", 0)
    if new and not listed:
        raise fields.error("num_kv_heads", "is missing: the new decoder architecture needs it")
    bias = fields.flag("bias", False)
    return {
        "kv_heads": listed if new else 1 if multi_query else values["heads"],
        "ffn": fields.integer("ffn_hidden_size", 4 * values["hidden"]),  # the class's own rule
        "norms": fields.integer("num_ln_in_parallel_attn", 2 if new else 1) if parallel else 2,
        "parallel_block": parallel,
        "qkv_bias": bias,
        "output_bias": bias,
        "ffn_bias": bias,
    }


def _latent(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    return {"kv_lora_rank": fields.integer("kv_lora_rank", least=1)}  # 0 would stand for another kind of attention


def _gptj(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    return {"kv_heads": values["heads"], "ffn": fields.integer("n_inner", 4 * values["hidden"])}  # the class's own rule


_BASE: dict[str, Any] = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "vocab": "vocab_size",
    "tied_embeddings": ("tie_word_embeddings", False),
}
_DENSE = _BASE | {"ffn": "intermediate_size"}
_BIAS = {"qkv_bias": ("attention_bias", False), "output_bias": ("attention_bias", False)}
_OWN_HEAD = {"head_dim": "head_dim"}
_DERIVED_HEAD = {"head_dim": ("head_dim", _PER_HEAD)}
_ROUTED = {"experts": "num_experts", "top_k": "num_experts_per_tok", "expert_ffn": "moe_intermediate_size"}
_MLA = {
    "kv_heads": "num_attention_heads",
    "head_dim": "v_head_dim",
    "q_lora_rank": ("q_lora_rank", 0),
    "kv_lora_rank": "kv_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim",
    "qk_rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
}
_FINE_EXPERTS = _ROUTED | {"experts": "n_routed_experts", "shared_experts": ("n_shared_experts", 0)}
_LOCAL_EXPERTS = {"experts": "num_local_experts", "top_k": "num_experts_per_tok", "expert_ffn": "intermediate_size"}
_TIED = {"tied_embeddings": ("tie_word_embeddings", True)}
_GEMMA = _DENSE | _BIAS | _OWN_HEAD | _TIED

_DEEPSEEK = Family(
    "DeepSeek",
    _DENSE | _BIAS | _MLA | _FINE_EXPERTS,
    expect={"moe_layer_freq": (1,)},
    layouts=(_latent, _first_dense),
    unused=("num_key_value_heads", "head_dim"),
)
_GEMMA3 = Family(
    "Gemma-3",
    # published files leave out what the class fixes: 8 heads of 256 with 4 KV heads, 262,208 tokens
    _GEMMA
    | {
        "heads": ("num_attention_heads", 8),
        "kv_heads": ("num_key_value_heads", 4),
        "head_dim": ("head_dim", 256),
        "vocab": ("vocab_size", 262208),
    },
    fixed={"norms": 4, "qk_norm": 1},
    layouts=(_every_nth_full("sliding_window_pattern", 6),),
)
_LLAMA4 = Family(
    "Llama-4",
    _BASE | _BIAS | _OWN_HEAD | _LOCAL_EXPERTS | {"ffn": "intermediate_size_mlp"},
    fixed={"shared_experts": 1},
    layouts=(_llama4_moe, _llama4_chunks),
    unused=("use_qk_norm", "floor_scale", "for_llm_compressor"),  # an L2 norm without gains
)

TABLES: dict[str, Family] = {
    "llama": Family("Llama", _DENSE | _BIAS | _DERIVED_HEAD | {"ffn_bias": ("mlp_bias", False)}),
    "mistral": Family("Mistral", _DENSE | _DERIVED_HEAD, layouts=(_uniform_window,)),
    "qwen2": Family("Qwen2", _DENSE | _DERIVED_HEAD, fixed={"qkv_bias": True}, layouts=(_optional_window,)),
    "qwen2_moe": Family(
        "Qwen2-MoE",
        _DENSE
        | _DERIVED_HEAD
        | _ROUTED
        | {"qkv_bias": ("qkv_bias", True), "shared_ffn": "shared_expert_intermediate_size"},
        fixed={"shared_experts": 1, "shared_gate": True},
        expect={"use_sliding_window": (False,)},
        layouts=(_sparse_step,),
        unused=("sliding_window", "layer_types"),
    ),
    "qwen3": Family("Qwen3", _DENSE | _BIAS | _OWN_HEAD, fixed={"qk_norm": 1}, layouts=(_optional_window,)),
    "qwen3_moe": Family(
        "Qwen3-MoE",
        _DENSE | _BIAS | _OWN_HEAD | _ROUTED,
        fixed={"qk_norm": 1},
        expect={"use_sliding_window": (False,), "shared_expert_intermediate_size": (0,)},
        layouts=(_sparse_step,),
        unused=("sliding_window",),
    ),
    "mixtral": Family("Mixtral", _BASE | _DERIVED_HEAD | _LOCAL_EXPERTS, fixed={"ffn": 0}, layouts=(_uniform_window,)),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe": Family(
        "GLM-4-MoE",
        _DENSE | _OWN_HEAD | _FINE_EXPERTS | {"qkv_bias": "attention_bias"},
        layouts=(_first_dense, _optional_qk_norm),
    ),
    "minimax_m2": Family(
        "MiniMax-M2",
        _BASE | _OWN_HEAD | _LOCAL_EXPERTS,
        fixed={"ffn": 0, "qk_norm": 2},
        expect={"use_qk_norm": (True,), "qk_norm_type": ("per_layer",), "shared_intermediate_size": (0,)},
        layouts=(_attention_ones,),
        unused=("mlp_intermediate_size", "sliding_window"),
    ),
    "gpt_oss": Family(
        "gpt-oss",
        _BASE
        | _OWN_HEAD
        | _LOCAL_EXPERTS
        | {"qkv_bias": ("attention_bias", True), "output_bias": ("attention_bias", True)},
        fixed={"ffn": 0, "ffn_bias": True, "router_bias": True, "attention_sinks": True},
        layouts=(_windows,),
        unused=("sliding_window", "experts_per_token", "swiglu_limit", "swiglu_alpha"),
    ),
    "llama4_text": _LLAMA4,
    "gemma": Family("Gemma", _GEMMA),
    "gemma2": Family("Gemma-2", _GEMMA, fixed={"norms": 4}, layouts=(_every_nth_full("", 2),)),
    "gemma3_text": _GEMMA3,
    "falcon": Family(
        "Falcon",
        {key: spec for key, spec in _BASE.items() if key != "kv_heads"} | _DERIVED_HEAD | _TIED,
        fixed={"ffn_matrices": 2, "norm_bias": True},
        layouts=(_falcon,),
        unused=("alibi", "num_ln_in_parallel_attn"),
    ),
    "gptj": Family(
        "GPT-J",
        {
            "hidden": "n_embd",
            "layers": "n_layer",
            "heads": "n_head",
            "head_dim": ("head_dim", _PER_HEAD),
            "vocab": "vocab_size",
            "tied_embeddings": ("tie_word_embeddings", False),
        },
        fixed={
            "ffn_matrices": 2,
            "norms": 1,
            "norm_bias": True,
            "ffn_bias": True,
            "head_bias": True,
            "parallel_block": True,
        },
        layouts=(_gptj,),
    ),
}
