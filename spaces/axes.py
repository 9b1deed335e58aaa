"""The axes of a design space: named lists of values, read from a study's [space] table.

A value is a number, a list, or a range {min, max, step}; widths must be multiples of `align`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np

from spaces.architecture import MOST
from spaces.formats import KV_FORMATS, RECIPES

STRUCTURES = ("dense", "moe")
ATTENTIONS = ("gqa", "mla")
KINDS = ("structure", "attention")
NAMED = {"structure": STRUCTURES, "attention": ATTENTIONS, "recipe": RECIPES, "kv_format": KV_FORMATS}

ALIGNED = ("hidden", "ffn", "expert_ffn", "shared_ffn")
# architecture axes in the order in which a space lists them, with the default step of a range (0 = align)
_STEPS = {
    "hidden": 0,
    "layers": 1,
    "heads": 8,
    "kv_heads": 1,
    "head_dim": 64,
    "ffn": 0,
    "experts": 8,
    "top_k": 1,
    "expert_ffn": 0,
    "shared_experts": 1,
    "shared_ffn": 0,
    "dense_layers": 1,
    "moe_every": 1,
    "window": 1024,
    "full_attention_layers": 1,
    "q_lora_rank": 128,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "vocab": 128,
}
NUMERIC = tuple(_STEPS)
SHARE = "full_attention_share"
AXIS_NAMES = (*KINDS, *NUMERIC, SHARE, "tied_embeddings", "recipe", "kv_format")
MOE_FIELDS = ("experts", "top_k", "expert_ffn", "shared_experts", "shared_ffn", "dense_layers", "moe_every")
MLA_FIELDS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_MAY_BE_ZERO = ("shared_experts", "shared_ffn", "dense_layers", "window", "full_attention_layers", "q_lora_rank")
_MOST_VALUES = 100_000


@dataclass(frozen=True, eq=False)
class Axis:
    """One searched dimension: its values in index order; `ordered` values ascend, others are codes."""

    name: str
    values: np.ndarray
    ordered: bool

    @property
    def labels(self) -> tuple[Any, ...]:
        """The values as a person writes them."""
        if self.name in NAMED:
            return tuple(NAMED[self.name][code] for code in self.values)
        return tuple(self.values.tolist())


def axis(name: str, spec: Any, align: int, step: int = 0) -> Axis:
    """Build an axis from a study's value.

    Args:
        spec: a value, a list of values, or a mapping with min, max and optionally step.
        align: multiple that widths must keep. step: default step of a range, 0 = the axis's own.
    Raises:
        ValueError: naming the axis, the value and what is valid.
    """
    if name not in AXIS_NAMES:
        raise ValueError(f"unknown axis {name!r} in space; valid: {', '.join(AXIS_NAMES)}")
    if name in NAMED:
        return Axis(name, _codes(name, _listed(spec, name)), ordered=False)
    if name == "tied_embeddings":
        choices = _listed(spec, name)
        if any(not isinstance(value, bool) for value in choices):
            raise ValueError(f"space.{name} = {spec!r}: valid: true, false")
        return Axis(name, np.array(_distinct(name, choices), dtype=np.int64), ordered=False)
    if name == SHARE:
        return Axis(name, _shares(spec), ordered=True)
    if isinstance(spec, Mapping):
        low, high, pace = span(name, spec, align, step)
        return Axis(name, np.arange(low, high + 1, pace, dtype=np.int64), ordered=True)
    values = [_whole(f"space.{name}", value, name) for value in _listed(spec, name)]
    for value in values:
        _check_aligned(f"space.{name}", value, name, align)
    return Axis(name, np.array(sorted(_distinct(name, values)), dtype=np.int64), ordered=True)


def span(name: str, spec: Mapping[str, Any], align: int, step: int = 0) -> tuple[int, int, int]:
    """(min, max, step) of a range; min, max and step of a width are multiples of align."""
    if set(spec) - {"min", "max", "step"} or not {"min", "max"} <= set(spec):
        raise ValueError(f"space.{name} = {dict(spec)!r}: a range needs min and max, and may have step")
    low = _whole(f"space.{name}.min", spec["min"], name)
    high = _whole(f"space.{name}.max", spec["max"], name)
    if low > high:
        raise ValueError(f"space.{name}: min = {low} is above max = {high}")
    pace = default_step(name, align, step)
    if "step" in spec:
        pace = _whole(f"space.{name}.step", spec["step"])
        if pace < 1:
            raise ValueError(f"space.{name}.step = {pace}: must be at least 1")
    for key, value in (("min", low), ("step", pace)):
        _check_aligned(f"space.{name}.{key}", value, name, align)
    if (high - low) // pace >= _MOST_VALUES:
        raise ValueError(f"space.{name}: more than {_MOST_VALUES} values; use a larger step")
    return low, high, pace


def default_step(name: str, align: int, step: int = 0) -> int:
    return step or _STEPS[name] or align


def heads_step(kv_values: np.ndarray) -> int:
    """The step of a range of heads that keeps every listed number of KV heads a divisor."""
    return lcm(*kv_values.tolist())


def choices(table: Mapping[str, Any], name: str, otherwise: str) -> tuple[str, ...]:
    """The values of a named axis (structure, attention) in a [space] table, or what the reference is."""
    values = _distinct(name, _listed(table.get(name, otherwise), name))
    _codes(name, values)
    return tuple(values)


def _listed(spec: Any, name: str) -> list[Any]:
    if isinstance(spec, Mapping):
        raise ValueError(f"space.{name} = {dict(spec)!r}: a list of values is needed, not a range")
    values = list(spec) if isinstance(spec, list | tuple | np.ndarray) else [spec]
    if not values:
        raise ValueError(f"space.{name} = []: at least one value is needed")
    return values


def _distinct(name: str, values: list[Any]) -> list[Any]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"space.{name}: {value!r} is listed twice")
    return values


def _codes(name: str, values: list[Any]) -> np.ndarray:
    names = NAMED[name]
    for value in values:
        if value not in names:
            raise ValueError(f"space.{name} = {value!r}: valid: {', '.join(names)}")
    return np.array([names.index(value) for value in _distinct(name, values)], dtype=np.int64)


def _shares(spec: Any) -> np.ndarray:
    values = _distinct(SHARE, _listed(spec, SHARE))
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"space.{SHARE} = {value!r}: must be a number from 0 to 1")
    return np.array(sorted(values), dtype=float)


def _whole(where: str, value: Any, name: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{where} = {value!r}: a whole number is needed")
    least = 0 if name in _MAY_BE_ZERO else 1
    if value < least:
        raise ValueError(f"{where} = {value}: must be at least {least}")
    if value > MOST.get(name, value):
        raise ValueError(f"{where} = {value}: must be at most {MOST[name]}")
    return int(value)


def _check_aligned(where: str, value: int, name: str, align: int) -> None:
    if name in ALIGNED and value % align:
        below, above = value // align * align, -(-value // align) * align
        nearest = f"{below} or {above}" if below else f"{above}"
        raise ValueError(f"{where} = {value}: not a multiple of align = {align}; nearest: {nearest}")
