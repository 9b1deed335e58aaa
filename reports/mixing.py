"""Variants of a design at the parameters of another: change some fields, solve one dimension again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces.architecture import FIELDS, Architecture
from spaces.parameters import parameters

SLACK = 0.02  # relative difference in parameters that a variant may keep


def size(values: Mapping[str, Any]) -> float:
    """Non-embedding parameters of plain field values."""
    return float(parameters(Architecture(**values)).non_embedding_total)


def step_of(solved: str | None, align: int) -> int:
    """The step of a solved dimension: widths move in multiples of `align`, counts one by one."""
    return align if solved in ("ffn", "expert_ffn", "hidden") else 1


def variant(
    base: Mapping[str, Any],
    changes: Mapping[str, Any],
    solved: str | None,
    step: int = 1,
    wanted: float | None = None,
    slack: float = SLACK,
) -> Architecture | None:
    """`base` with `changes`, its `solved` dimension chosen so that the non-embedding parameters stay.

    Args:
        base: plain fields of a design. solved: a dimension that parameters are linear in; None changes nothing else.
        step: whole multiple of the solved dimension. wanted: parameters to meet, default those of `base`.
    Returns:
        None where the fields contradict each other or no multiple of `step` comes within `slack`.
    """
    values = {name: changes.get(name, base[name]) for name in FIELDS}
    target = size(base) if wanted is None else wanted
    try:
        if solved is not None:
            values[solved] = _solution(values, solved, step, target)
        architecture = Architecture(**values)
    except (ValueError, ZeroDivisionError):  # these fields make no model
        return None
    return architecture if abs(size(values) / target - 1) <= slack + 1e-9 else None


def _solution(values: dict[str, Any], solved: str, step: int, target: float) -> int:
    """The multiple of `step` whose parameters are nearest to the target."""
    at = (64 * step, 128 * step)
    low, high = (size({**values, solved: each}) for each in at)
    exact = at[0] + (target - low) * (at[1] - at[0]) / (high - low)
    return round(exact / step) * step
