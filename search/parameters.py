"""Between the index grid of a space and Optuna's parameters: one static parameter per outer axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

Grid = dict[str, IntDistribution | CategoricalDistribution]  # parameters whose values can be counted


def axis_distributions(space: Any) -> Grid:
    """A parameter per outer axis: the position on an ordered axis, the label of the value on a categorical one."""
    return {
        axis.name: IntDistribution(0, len(axis.values) - 1) if axis.ordered else CategoricalDistribution(axis.labels)
        for axis in (space.axes[i] for i in space.outer)
    }


def grid_of(distributions: Mapping[str, BaseDistribution]) -> Grid:
    """The distributions, all integer or categorical.

    Raises:
        ValueError: another kind of distribution.
    """
    grid: Grid = {}
    for name, distribution in distributions.items():
        if not isinstance(distribution, IntDistribution | CategoricalDistribution):
            raise ValueError(f"{name}: {distribution}; must be an IntDistribution or a CategoricalDistribution")
        grid[name] = distribution
    return grid


def grid_rows(shape: Sequence[int], numbers: np.ndarray) -> np.ndarray:
    """(n, axes) index rows of the numbered points of a grid, the last axis fastest; a grid without axes has one."""
    if not len(shape):
        return np.empty((len(numbers), 0), dtype=np.int64)
    return np.stack(np.unravel_index(numbers, tuple(shape)), axis=1)


def cardinality(distribution: IntDistribution | CategoricalDistribution) -> int:
    """How many values a distribution has."""
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    return (distribution.high - distribution.low) // distribution.step + 1


def index_of(distribution: IntDistribution | CategoricalDistribution, value: Any) -> int:
    """Position of a parameter's value among the distribution's values."""
    if isinstance(distribution, CategoricalDistribution):
        return int(distribution.to_internal_repr(value))
    return int(value - distribution.low) // distribution.step


def parameters(grid: Grid, row: np.ndarray) -> dict[str, Any]:
    """Parameter values of one index row."""
    return {
        name: d.choices[i] if isinstance(d, CategoricalDistribution) else d.low + i * d.step
        for (name, d), i in zip(grid.items(), row.tolist(), strict=True)
    }


def row_of(grid: Grid, params: Mapping[str, Any]) -> np.ndarray | None:
    """Index row of a trial's parameters; None where it has not (yet) all of them."""
    if any(name not in params for name in grid):
        return None
    return np.array([index_of(d, params[name]) for name, d in grid.items()], dtype=np.int64)
