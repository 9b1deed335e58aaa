"""The envelope: the range of shapes where the loss model and the engines are known to hold.

An optimiser sits on these corners (unbounded, it finds one KV head at no predicted cost), so every limit is
named, sourced in envelope.toml, marked reject or flag, and reported wherever a design touches it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from spaces.architecture import Architecture
from spaces.parameters import LayerParameters, Parameters

ACTIONS = ("reject", "flag", "off")
TOUCH = 0.02  # a value this close to a bound (relative) touches it
_ROUNDING = 1e-9  # a value this close outside a bound is on it


@dataclass(frozen=True)
class Limit:
    """One named limit: a quantity of a design and the range in which it is known to hold."""

    name: str
    what: str
    low: float | None
    high: float | None
    action: str
    reference_widens: bool = True

    @property
    def message(self) -> str:
        bounds = ("at least", self.low), ("at most", self.high)
        wanted = " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
        return f"{self.name}: {self.what} must be {wanted}"


@dataclass(frozen=True)
class Check:
    """A value of every design against its range; arrays broadcast, a missing bound is None.

    `concerns`: which designs it says something about; elsewhere its value is one well inside.
    """

    name: str
    value: Any
    low: Any
    high: Any
    rejects: bool
    concerns: Any = True

    def outside(self) -> Any:
        """Where the value is not in the range."""
        under = False if self.low is None else self.value < self.low * (1 - _ROUNDING)
        over = False if self.high is None else self.value > self.high * (1 + _ROUNDING)
        return np.logical_or(under, over)

    def miss(self) -> Any:
        """Relative distance out of the range, 0 inside; a bound of 0 counts the value itself."""
        under = 0.0 if self.low is None else 1.0 - self.value / self.low
        over = 0.0
        if self.high is not None:
            over = self.value / self.high - 1.0 if np.all(self.high) else self.value
        return np.where(self.outside(), np.maximum(under, over), 0.0)

    def touched(self) -> Any:
        """At or beyond a bound, or within TOUCH of it."""
        low = False if self.low is None else self.value <= self.low * (1 + TOUCH)
        high = False if self.high is None else self.value >= self.high * (1 - TOUCH)
        return np.logical_or(low, high)


@cache
def default_limits() -> dict[str, Limit]:
    """The limits of envelope.toml, by name."""
    table = tomllib.loads((Path(__file__).parent / "envelope.toml").read_text(encoding="utf-8"))
    return {
        name: Limit(name, row["what"], row.get("min"), row.get("max"), row["action"], row.get("reference_widens", True))
        for name, row in table.items()
    }


def envelope(overrides: Mapping[str, Any] | None = None) -> dict[str, Limit]:
    """The default limits with a study's overrides: an action, or a table of min, max and action.

    Raises:
        ValueError: unknown limit, key or action, or an empty range.
    """
    limits = dict(default_limits())
    for name, override in (overrides or {}).items():
        if name not in limits:
            raise ValueError(f"unknown envelope limit {name!r}; valid: {', '.join(limits)}")
        limits[name] = _overridden(limits[name], {"action": override} if isinstance(override, str) else override)
    return limits


def _overridden(limit: Limit, override: Any) -> Limit:
    where = f"envelope.{limit.name}"
    if not isinstance(override, Mapping) or not set(override) <= {"min", "max", "action"}:
        raise ValueError(f"{where} = {override!r}: one of {', '.join(ACTIONS)}, or a table with min, max, action")
    if override.get("action", limit.action) not in ACTIONS:
        raise ValueError(f"{where}.action = {override['action']!r}; valid: {', '.join(ACTIONS)}")
    for key in ("min", "max"):
        value = override.get(key, 1.0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ValueError(f"{where}.{key} = {value!r}: must be a finite number >= 0")
    low, high = override.get("min", limit.low), override.get("max", limit.high)
    if low is not None and high is not None and low > high:
        raise ValueError(f"{where}: min = {low:g} is above max = {high:g}")
    # a bound that the study states is meant: the reference does not move it
    stated = "min" in override or "max" in override
    return Limit(
        limit.name,
        limit.what,
        low or None,
        high,
        "off" if low in (None, 0) and high is None else override.get("action", limit.action),
        limit.reference_widens and not stated,
    )


def widened(limits: Mapping[str, Limit], checks: Iterator[Check]) -> dict[str, Limit]:
    """The limits that are on, moved to the reference's own values where the reference lies outside.

    Args:
        checks: of the reference, a single design.
    """
    result = {name: limit for name, limit in limits.items() if limit.action != "off"}
    for check in checks:
        limit, value = result[check.name], float(check.value)
        if limit.reference_widens and limit.low is not None and value < limit.low:
            limit = replace(limit, low=value or None)
        if limit.reference_widens and limit.high is not None and value > limit.high:
            limit = replace(limit, high=value)
        result[check.name] = limit
    return {name: limit for name, limit in result.items() if limit.low is not None or limit.high is not None}


def envelope_checks(
    limits: Mapping[str, Limit],
    architecture: Architecture,
    parameters: Parameters,
    layer: LayerParameters,
    train_tokens: float,
) -> Iterator[Check]:
    """A check per limit that is on and may concern a design, in the order of envelope.toml."""
    for name, value, concerns in _quantities(architecture, parameters, layer, train_tokens):
        limit = limits.get(name)
        if limit is None or limit.action == "off":
            continue
        if np.ndim(concerns) == 0 and not concerns:
            continue
        if np.ndim(concerns):
            value = np.where(concerns, value, _inside(limit))
        yield Check(name, value, limit.low, limit.high, limit.action == "reject", concerns)


def _inside(limit: Limit) -> float:
    if limit.low is None:
        assert limit.high is not None
        return limit.high / 2
    return limit.low * 2 if limit.high is None else (limit.low * limit.high) ** 0.5


def _quantities(
    a: Architecture, n: Parameters, layer: LayerParameters, train_tokens: float
) -> Iterator[tuple[str, Any, Any]]:
    """(limit, value, which designs it concerns) for every limit."""
    moe, mla, windowed = a.is_moe, a.is_mla, a.is_windowed
    active = n.non_embedding_active
    small = n.non_embedding_total < 2e9
    attention = layer.attention_sharded + layer.attention_replicated
    ffn = np.where(moe, a.top_k * layer.expert + layer.shared, layer.ffn_dense)
    yield "hidden_per_layer", a.hidden / a.layers, True
    yield "hidden", a.hidden, True
    yield "layers", a.layers, True
    yield "width_ratio", a.hidden * np.sqrt(np.maximum(a.layers, 28) / (28.0 * active)), True
    yield "mlp_attention_ratio", ffn / attention, True
    yield "query_width_ratio", a.heads * a.value_dim / a.hidden, True
    yield "kv_width", a.kv_heads * a.head_dim, ~mla
    yield "kv_heads", a.kv_heads, ~mla
    yield "head_dim", a.head_dim, ~mla & ~small
    yield "head_dim_small", a.head_dim, ~mla & small
    yield "mla_kv_rank", a.kv_lora_rank, mla
    yield "mla_rope", a.qk_rope_head_dim, mla
    yield "mla_nope", a.qk_nope_head_dim, mla
    yield "mla_v", a.v_head_dim, mla
    yield "window", a.window, windowed
    yield "full_attention_share", np.where(windowed, a.full_attention_layers, a.layers) / a.layers, windowed
    yield "top_k", a.top_k, moe
    yield "experts", a.experts, moe
    yield "activation_ratio", (a.top_k + a.shared_experts) / np.maximum(a.experts + a.shared_experts, 1), moe
    yield "granularity", 2 * a.hidden / np.maximum(a.expert_ffn, 1), moe
    yield "ffn_matrices", a.ffn_matrices, True
    yield "model_size", active, True
    yield "tokens_per_active_parameter", train_tokens / active, True
