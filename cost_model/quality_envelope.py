"""Where the predicted loss is known to hold: named limits of quality.toml, evaluated for a batch of designs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cost_model.scaling_laws import COEFFICIENTS
from spaces.architecture import Architecture


class Limit(NamedTuple):
    """One limit over a batch.

    Attributes:
        name: the limited quantity. kind: reject (the prediction is not to be trusted outside) or flag.
        low, high: the range, ends included.
        value: the quantity, per design. applies: designs that it concerns (sparsity: MoE only ...).
        inside: bool per design: within the range, or not concerned.
        message: the range and its reason.
    """

    name: str
    kind: str
    low: float
    high: float
    value: Any
    applies: Any
    inside: Any
    message: str


def limits(architecture: Architecture, terms: dict[str, Any]) -> tuple[Limit, ...]:
    """Every limit, for an architecture and the `terms` of its `PredictedLoss`; all broadcast."""
    quantities = _quantities(architecture, terms)
    return tuple(_limit(name, *quantities[name], **row) for name, row in COEFFICIENTS["envelope"].items())


def inside(evaluated: tuple[Limit, ...]) -> Any:
    """Bool per design: every `reject` limit holds."""
    result: Any = True
    for limit in evaluated:
        if limit.kind == "reject":
            result = result & limit.inside
    return result


def _limit(name: str, value: Any, applies: Any, low: float, high: float, kind: str, why: str) -> Limit:
    within = (value >= low) & (value <= high) | np.logical_not(applies)
    if low == high:
        span = f"{low:g}"
    elif high == np.inf:
        span = f"at least {low:g}"
    else:
        span = f"{low:g} to {high:g}"
    return Limit(name, kind, low, high, value, applies, within, f"{name} is trusted at {span}: {why}")


def _quantities(a: Architecture, terms: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """(value, designs it applies to) of every limited quantity."""
    hidden, layers = np.asarray(a.hidden), np.asarray(a.layers)
    moe, gqa = a.moe_layers > 0, ~a.is_mla
    value_dim = a.value_dim
    return {
        "active_parameters": (terms["active_parameters"], True),
        "total_parameters": (terms["total_parameters"], True),
        "tokens_per_active_parameter": (terms["train_tokens"] / terms["active_parameters"], True),
        "layers": (layers, True),
        "hidden": (hidden, True),
        "hidden_per_layer": (hidden / layers, True),
        "depth_ratio": (terms["depth_ratio"], True),
        "width_ratio": (terms["width_ratio"], True),
        "mlp_attention_ratio": (terms["mlp_attention_ratio"], True),
        "head_dim": (value_dim, True),
        "query_width_ratio": (a.heads * value_dim / hidden, True),
        "kv_heads": (np.asarray(a.kv_heads), gqa),
        "activation_ratio": (terms["activation_ratio"], moe),
        "granularity": (terms["granularity"], moe),
        "coarse_granularity": (terms["granularity"], moe),
        "experts": (np.asarray(a.experts), True),
        "four_bit_effective_parameters": (terms["effective_parameters"], terms["four_bit"]),
        "windowed_layers": (a.windowed_layers, True),
    }
