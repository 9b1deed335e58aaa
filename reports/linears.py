"""The weight matrices of one layer as a GPU sees them, after sharding."""

from __future__ import annotations

from dataclasses import dataclass

from spaces.architecture import Architecture
from spaces.formats import RECIPE_ATTENTION, RECIPE_FFN


@dataclass(frozen=True)
class Linear:
    """One weight matrix as a GPU sees it: m tokens by an (n, k) shard, `times` of them per token."""

    name: str
    n: int
    k: int
    times: float
    code: int


def linears(a: Architecture, recipe: int, attention_tp: int, kvp: int, ffn_tp: int) -> list[Linear]:
    """The weight matrices of one layer as one rank multiplies them."""
    v = a.as_dict()
    attention, ffn = int(RECIPE_ATTENTION[recipe]), int(RECIPE_FFN[recipe])
    tp = attention_tp * kvp
    rows: list[Linear] = []
    if v["kv_lora_rank"]:
        rank = v["q_lora_rank"] or v["hidden"]
        rows.append(
            Linear(
                "latent down-projection",
                v["q_lora_rank"] + v["kv_lora_rank"] + v["qk_rope_head_dim"],
                v["hidden"],
                1,
                attention,
            )
        )
        query = v["heads"] * (v["qk_nope_head_dim"] + v["qk_rope_head_dim"])
        rows.append(Linear("query up-projection", query // attention_tp, rank, 1, attention))
        rows.append(Linear("attention output", v["hidden"], v["heads"] * v["v_head_dim"] // tp, 1, attention))
    else:
        kv = max(-(-v["kv_heads"] // attention_tp), 1)
        rows.append(Linear("QKV", (v["heads"] // attention_tp + 2 * kv) * v["head_dim"], v["hidden"], 1, attention))
        rows.append(Linear("attention output", v["hidden"], v["heads"] * v["head_dim"] // tp, 1, attention))
    gates = v["ffn_matrices"] - 1
    if v["experts"]:
        width, name = v["expert_ffn"] // ffn_tp, "expert"
    else:
        width, name = v["ffn"] // ffn_tp, "FFN"
    rows.append(Linear(f"{name} up" if gates == 1 else f"{name} gate and up", gates * width, v["hidden"], 1, ffn))
    rows.append(Linear(f"{name} down", v["hidden"], width, 1, ffn))
    return rows
