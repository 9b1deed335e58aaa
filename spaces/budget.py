"""The parameter budget of a study, and the dimension solved from it so that proposals land inside.

A count is affine in the solved dimension (FFN width, layers, or experts), so two exact counts give the
real-valued solution, which is rounded to the dimension's alignment step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SOLVABLE = ("ffn", "layers", "experts")
# one unknown per budget: experts change only the total, so they pair with a dimension solved from the active count
SOLVE_CHOICES = (("ffn",), ("layers",), ("experts",), ("layers", "experts"), ("ffn", "experts"))
LARGEST_AXIS = 1000  # targets that a budget range may be cut into


@dataclass(frozen=True)
class Budget:
    """What a design may hold, in non-embedding parameters.

    Attributes:
        total_parameters: a number; a (min, max) range, searched as an axis of targets; or None for the
            reference's own.
        active_parameters: likewise; needed where MoE designs can be proposed. A range bounds the active count
            and is searched as an axis only where two dimensions are solved.
        tolerance: relative half width of the band around a target.
        solve: the solved dimensions, one of SOLVE_CHOICES. With experts as the second, the first is solved
            from active_parameters (MoE) and experts from total_parameters.
        max_training_flops_ratio: most training FLOPs relative to the reference; needed where a study mixes
            dense and MoE designs.
    """

    total_parameters: float | tuple[float, float] | None = None
    active_parameters: float | tuple[float, float] | None = None
    tolerance: float = 0.02
    solve: tuple[str, ...] = ("ffn",)
    max_training_flops_ratio: float | None = None

    def __post_init__(self) -> None:
        if self.solve not in SOLVE_CHOICES:
            raise ValueError(f"budget.solve = {list(self.solve)}; valid: {', '.join(map(_spelled, SOLVE_CHOICES))}")
        if not 0 < self.tolerance <= 0.5:
            raise ValueError(f"budget.tolerance = {self.tolerance!r}: must be above 0 and at most 0.5")
        for name in ("total_parameters", "active_parameters"):
            low, high = band_of(getattr(self, name) or 1.0)
            if not 0 < low <= high < np.inf:
                raise ValueError(f"budget.{name} = {getattr(self, name)!r}: needs 0 < min <= max")
        ratio = self.max_training_flops_ratio
        if ratio is not None and not 0 < ratio < np.inf:
            raise ValueError(f"budget.max_training_flops_ratio = {ratio!r}: must be a number above 0")


def _spelled(choice: tuple[str, ...]) -> str:
    return repr(choice[0]) if len(choice) == 1 else repr(list(choice))


def band_of(amount: float | tuple[float, float]) -> tuple[float, float]:
    """(min, max) of a number or a range."""
    return amount if isinstance(amount, tuple) else (amount, amount)


def targets(amount: float | tuple[float, float], tolerance: float, name: str) -> np.ndarray:
    """Targets whose bands of +-tolerance tile a range: one for a number, a geometric ladder for a range."""
    low, high = band_of(amount)
    if low == high:
        return np.array([low])
    count = int(np.ceil(np.log(high / low) / np.log((1 + tolerance) / (1 - tolerance))))
    if count > LARGEST_AXIS:
        raise ValueError(f"budget.{name}: {count} targets of +-{tolerance:.2g} in the range; widen the tolerance")
    edges = np.geomspace(low, high, count + 1)
    return np.sqrt(edges[:-1] * edges[1:])


@dataclass(frozen=True)
class Solved:
    """A dimension to solve: its step and range, and where its count becomes affine."""

    name: str
    step: int
    low: int
    high: int


def solve_dimension(
    count: Callable[[Any], Any], target: Any, dimension: Solved, low: Any, first: Any, period: int
) -> tuple[Any, Any]:
    """The multiple of the step whose count is nearest to a target.

    Args:
        count: exact parameters for values of the dimension, affine on first + i x period.
        target: parameters wanted (n,). low: least value allowed per design, a whole number.
        first: (n,) or scalar, a value in the affine range. period: distance between counts.
    Returns:
        (n,) int64 values, and one step's parameters relative to the target.
    """
    base = count(first)
    slope = np.maximum((count(first + period) - base) / period, 1.0)
    exact = first + (target - base) / slope
    step = dimension.step
    least = -(-np.maximum(low, dimension.low) // step) * step
    value = np.clip(np.rint(exact / step) * step, least, dimension.high // step * step)
    return value.astype(np.int64), slope * step / target
