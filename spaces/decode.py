"""From grid indices to architectures: searched fields are looked up, the solved ones computed from the budget."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from spaces import axes as ax
from spaces.architecture import FIELDS, Architecture, unchecked
from spaces.budget import Solved, solve_dimension
from spaces.grid import Grid
from spaces.parameters import LayerParameters, Parameters, layer_parameters, parameters


@dataclass(frozen=True)
class Designs:
    """Designs of one structure; what the space does not search stays a scalar.

    Attributes:
        recipe, kv_format: codes. total_target, active_target: parameters aimed at (active None: not aimed at).
        steps: by solved dimension, one step's parameters relative to its target.
        rows: how many proposals.
    """

    architecture: Architecture
    parameters: Parameters
    layer: LayerParameters
    recipe: Any
    kv_format: Any
    total_target: Any
    active_target: Any
    steps: dict[str, Any]
    rows: int


def decode_rows(grid: Grid, index: np.ndarray, moe: bool) -> Designs:
    """Designs at (n, axes) indices that are all dense, or all MoE."""
    values = {name: grid.column(index, name, getattr(grid.reference, name)) for name in FIELDS}
    mla = grid.column(index, "attention", np.int64("mla" in grid.attentions)) == 1
    _settle_attention(values, mla)
    _settle_structure(values, moe)
    total = grid.column(index, "total_parameters", grid.targets["total_parameters"][0])
    active = grid.column(index, "active_parameters", grid.targets["active_parameters"][0])
    steps = _solve(grid.solved, values, moe, total, active)
    _settle_windows(values, grid, index)
    architecture = unchecked(values)
    layer = layer_parameters(architecture)
    return Designs(
        architecture=architecture,
        parameters=parameters(architecture, layer),
        layer=layer,
        recipe=grid.column(index, "recipe", None),
        kv_format=grid.column(index, "kv_format", None),
        total_target=total,
        active_target=active if moe else None,  # a dense design's one count answers to the whole active range
        steps=steps,
        rows=len(index),
    )


def _settle_attention(values: dict[str, Any], mla: Any) -> None:
    for name in ax.MLA_FIELDS:
        values[name] = np.where(mla, values[name], 0)
    values["kv_heads"] = np.where(mla, values["heads"], values["kv_heads"])
    values["head_dim"] = np.where(mla, values["v_head_dim"], values["head_dim"])
    values["qk_norm"] = np.where(mla, 0, values["qk_norm"])


def _settle_structure(values: dict[str, Any], moe: bool) -> None:
    if not moe:
        values |= dict.fromkeys((*ax.MOE_FIELDS, "router_bias", "shared_gate"), np.int64(0))
        values["moe_every"] = np.int64(1)
        return
    values["ffn"] = np.where((values["dense_layers"] > 0) | (values["moe_every"] > 1), values["ffn"], 0)
    values["shared_ffn"] = np.where(values["shared_experts"] > 0, values["shared_ffn"], 0)


def _settle_windows(values: dict[str, Any], grid: Grid, index: np.ndarray) -> None:
    layers, full = values["layers"], values["full_attention_layers"]
    if "full_attention_layers" not in grid.names:
        own = float(grid.reference.full_attention_layers / grid.reference.layers)
        share = grid.column(index, ax.SHARE, np.float64(own))
        full = np.ceil(share * layers - 1e-9).astype(np.int64)  # never sparser than the share
    values["full_attention_layers"] = np.where(values["window"] > 0, np.minimum(full, layers), 0)


def _solve(solved: dict[str, Solved], values: dict[str, Any], moe: bool, total: Any, active: Any) -> dict[str, Any]:
    """Write the solved dimensions into `values`; returns one step of each, relative to its target."""
    names = [name for name in solved if name == "layers" or (name == "experts") == moe]
    if len(names) == 2:
        return _solve_layers_and_experts(solved, values, total, active)
    name = names[0]

    def count(value: Any) -> Any:
        return parameters(unchecked({**values, name: value})).non_embedding_total

    first, period, low = _affine_from(values, name)
    values[name], step = solve_dimension(count, total, solved[name], low, first, period)
    return {name: step}


def _affine_from(values: dict[str, Any], name: str) -> tuple[Any, Any, Any]:
    """(first, period, low): counts are affine on first + i x period, and values below low make no model."""
    if name != "layers":
        return np.int64(1), np.int64(1), values["top_k"] if name == "experts" else np.int64(1)
    period = values["moe_every"]
    return -(-values["dense_layers"] // period) * period, period, values["dense_layers"] + 1


def _solve_layers_and_experts(
    solved: dict[str, Solved], values: dict[str, Any], total: Any, active: Any
) -> dict[str, Any]:
    """Layers from the active count, experts from the total: both counts are affine in each of the two.

    Experts change the active count only through the router, so that two rounds settle both.
    """
    first, period, low = _affine_from(values, "layers")
    corner = [
        [parameters(unchecked({**values, "layers": first + i * period, "experts": np.int64(1 + j)})) for j in (0, 1)]
        for i in (0, 1)
    ]

    def count(layers: Any, experts: Any, name: str) -> Any:
        base, more_experts = getattr(corner[0][0], name), getattr(corner[0][1], name)
        more_layers, both = getattr(corner[1][0], name), getattr(corner[1][1], name)
        per_expert = (more_experts - base) + (both - more_experts - more_layers + base) * ((layers - first) / period)
        return base + (more_layers - base) * ((layers - first) / period) + per_expert * (experts - 1)

    layers, experts = np.int64(1), np.int64(np.sqrt(solved["experts"].low * solved["experts"].high))
    steps = {}
    for _ in range(2):
        by_layers = partial(count, experts=experts, name="non_embedding_active")
        layers, steps["layers"] = solve_dimension(by_layers, active, solved["layers"], low, first, period)
        by_experts = partial(count, layers, name="non_embedding_total")
        experts, steps["experts"] = solve_dimension(by_experts, total, solved["experts"], values["top_k"], 1, 1)
    values |= {"layers": layers, "experts": experts}
    return steps
