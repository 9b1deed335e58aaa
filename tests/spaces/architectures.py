"""Random legal architectures of every export family, small enough to build."""

from hypothesis import strategies as st

from spaces import Architecture
from spaces.families import FAMILIES


@st.composite
def of_family(draw, family: str, max_layers: int = 6) -> Architecture:
    whole = st.integers
    kv_heads = draw(whole(1, 6))
    heads = kv_heads * draw(whole(1, 4))
    layers = draw(whole(1, max_layers))
    bias = draw(st.booleans())
    values = {
        # Llama's configuration class wants hidden a multiple of heads; the others do not
        "hidden": heads * draw(whole(1, 40)) if family == "Llama" else draw(whole(1, 300)),
        "layers": layers,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": 2 * draw(whole(1, 40)),
        "ffn": draw(whole(1, 500)),
        "vocab": draw(whole(3, 3000)),
        "tied_embeddings": draw(st.booleans()),
    }
    if family in ("Llama", "Qwen3", "Qwen3-MoE", "DeepSeek-V3"):
        values |= {"qkv_bias": bias, "output_bias": bias}
    if family == "Llama":
        values["ffn_bias"] = draw(st.booleans())
    if family in ("Qwen3", "Qwen3-MoE"):
        values["qk_norm"] = 1
    if family == "Qwen2":
        values["qkv_bias"] = True
    if family in ("Qwen3-MoE", "Mixtral", "DeepSeek-V3", "GLM-4-MoE", "gpt-oss"):
        experts = draw(whole(2, 9))
        values |= {"experts": experts, "top_k": draw(whole(1, experts)), "expert_ffn": draw(whole(1, 200))}
    if family in ("Mixtral", "gpt-oss"):
        values["ffn"] = 0
    if family == "Qwen3-MoE":
        every = draw(whole(1, layers))
        values |= {"moe_every": every, "dense_layers": every * draw(whole(0, layers // every - 1))}
    if family in ("DeepSeek-V3", "GLM-4-MoE"):
        values |= {"shared_experts": draw(whole(1, 3)), "dense_layers": draw(whole(0, layers - 1))}
    if family == "GLM-4-MoE":
        values |= {"qkv_bias": bias, "qk_norm": draw(whole(0, 1))}
    if family == "DeepSeek-V3":
        value_dim = draw(whole(1, 60))
        values |= {
            "kv_heads": heads,
            "head_dim": value_dim,
            "q_lora_rank": draw(st.just(0) | whole(1, 99)),
            "kv_lora_rank": draw(whole(1, 99)),
            "qk_nope_head_dim": draw(whole(1, 60)),
            "qk_rope_head_dim": 2 * draw(whole(1, 30)),
            "v_head_dim": value_dim,
        }
    if family == "gpt-oss":
        biases = ("qkv_bias", "output_bias", "ffn_bias", "router_bias", "attention_sinks")
        values |= dict.fromkeys(biases, True) | {"window": draw(whole(1, 200)), "full_attention_layers": layers // 2}
    if family != "Mixtral" and family != "gpt-oss" and not _has_dense_layer(values):
        values["ffn"] = 0
    return Architecture(**values)


def _has_dense_layer(values) -> bool:
    moe_every, dense = values.get("moe_every", 1), values.get("dense_layers", 0)
    return not values.get("experts") or any(i < dense or (i + 1) % moe_every for i in range(values["layers"]))


def exportable() -> st.SearchStrategy[tuple[str, Architecture]]:
    """(family, architecture) over all families."""
    return st.sampled_from(FAMILIES).flatmap(lambda family: st.tuples(st.just(family), of_family(family)))
