"""Whether every weight matrix, cut by tensor parallelism, still divides into its format's blocks.

Scales belong to blocks of values (16 for NVFP4, 32 for MXFP4, 128 x 128 for block fp8, 128 for AWQ and GPTQ): a
shard that cuts a block cannot be quantised, and kernels refuse it or an engine pads it. K is the dimension
summed over: hidden for the first products, cut for the row-sharded ones (attention output, FFN down). Sharding as
in `memory`: dense FFNs and shared experts of an MoE model follow the attention group, routed experts ffn_tp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.architecture import Architecture
from spaces.formats import FORMATS, K_MULTIPLE, N_MULTIPLE, RECIPE_ATTENTION, RECIPE_FFN, recipe_code


@dataclass(frozen=True)
class Dimension:
    """One dimension of one kind of weight matrix: `size` values cut into `shards` along `plan`."""

    name: str
    size: Any
    shards: Any
    plan: str
    multiple: Any
    formats: Any
    present: Any = True

    @property
    def holds(self) -> Any:
        whole = np.asarray(self.size) % (np.asarray(self.multiple) * self.shards) == 0
        return whole | ~np.asarray(self.present)


def aligned(architecture: Architecture, recipe: Any, attention_tp: Any = 1, ffn_tp: Any = 1, kvp: Any = 1) -> Any:
    """Whether every shard of every quantised matrix holds whole blocks; broadcasts over designs and plans.

    Args:
        recipe: names or codes. attention_tp, ffn_tp, kvp: as in `Deployment`.
    Raises:
        ValueError: unknown recipe.
    """
    mask: Any = np.array(True)
    for dimension in _dimensions(architecture, recipe, attention_tp, ffn_tp, kvp):
        mask = mask & dimension.holds
    return mask


def check_aligned(
    architecture: Architecture, recipe: Any, attention_tp: int = 1, ffn_tp: int = 1, kvp: int = 1
) -> None:
    """Raise a ValueError that names the first matrix of one design that a plan cuts through blocks."""
    for dimension in _dimensions(architecture, recipe, attention_tp, ffn_tp, kvp):
        if not np.all(dimension.holds):
            raise ValueError(_message(dimension))


def _message(d: Dimension) -> str:
    size, shards, multiple = int(d.size), int(d.shards), int(d.multiple)
    least = f"{d.name} = {size} / {shards} = {size / shards:g}" if shards > 1 else f"{d.name} = {size}"
    legal = [str(n) for n in (2**i for i in range(10)) if size % (multiple * n) == 0]
    cure = f"{d.plan} of {', '.join(legal)} keeps whole blocks" if legal else f"a multiple of {multiple} is needed"
    return f"{FORMATS[int(d.formats)]}: {least} is not a multiple of {multiple}; {cure}"


def _dimensions(a: Architecture, recipe: Any, attention_tp: Any, ffn_tp: Any, kvp: Any) -> Iterator[Dimension]:
    code = recipe_code(recipe)
    attention, ffn = RECIPE_ATTENTION[code], RECIPE_FFN[code]
    yield from _attention(a, attention, attention_tp, kvp)
    group = np.asarray(attention_tp) * kvp
    k, n = K_MULTIPLE[ffn], N_MULTIPLE[ffn]
    both = np.lcm(k, n)  # an FFN's width is N of the first products and K of the last
    yield Dimension("hidden (K of the FFN)", a.hidden, 1, "hidden", k, ffn)
    dense = np.asarray(a.layers) > a.moe_layers
    yield Dimension("ffn", a.ffn, ffn_tp, "ffn_tp", both, ffn, dense & ~a.is_moe)
    yield Dimension("ffn (dense layers)", a.ffn, group, "attention_tp x kvp", both, ffn, dense & a.is_moe)
    yield Dimension("expert_ffn (routed experts)", a.expert_ffn, ffn_tp, "ffn_tp", both, ffn, a.moe_layers > 0)
    shared = (a.moe_layers > 0) & (a.shared_width > 0)
    yield Dimension("shared width (shared experts)", a.shared_width, group, "attention_tp x kvp", both, ffn, shared)


def _attention(a: Architecture, formats: Any, attention_tp: Any, kvp: Any) -> Iterator[Dimension]:
    """Column-sharded outputs are checked along N; replicated MLA down-projections may end in part of a block."""
    mla, k, n = a.is_mla, K_MULTIPLE[formats], N_MULTIPLE[formats]
    tp = np.asarray(attention_tp)
    query = np.asarray(a.heads) * a.query_dim
    values = np.asarray(a.heads) * a.value_dim
    yield Dimension("hidden (K of the attention inputs)", a.hidden, 1, "hidden", k, formats)
    yield Dimension("heads x head_dim (N of the query projection)", query, tp, "attention_tp", n, formats)
    yield Dimension("heads x head_dim (K of the output projection)", values, tp * kvp, "attention_tp x kvp", k, formats)
    keys, copies = np.asarray(a.kv_heads) * a.head_dim, np.minimum(tp, a.kv_heads)  # beyond one head: replicated
    yield Dimension("kv_heads x head_dim (N of keys and values)", keys, copies, "attention_tp", n, formats, ~mla)
    latent = "q_lora_rank (K of the query up-projection)"
    yield Dimension(latent, a.q_lora_rank, 1, "q_lora_rank", k, formats, mla)
    latent = "kv_lora_rank (K of the key and value up-projection)"
    yield Dimension(latent, a.kv_lora_rank, 1, "kv_lora_rank", k, formats, mla)
    up = np.asarray(a.heads) * (np.asarray(a.qk_nope_head_dim) + a.v_head_dim)
    yield Dimension("heads x (nope + v) (N of the up-projection)", up, tp, "attention_tp", n, formats, mla)
