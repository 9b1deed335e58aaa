"""What scoring a batch of trials gives: values Optuna sees, constraint violations, and the points worth keeping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from search.frontier import Objective, Table


@dataclass(frozen=True)
class Scores:
    """The outcome of n trials.

    Attributes:
        values: (n, values) finite numbers to minimise. violations: (n, constraints), <= 0 where satisfied.
        points: non-dominated (design, deployment) points of the batch: one column per objective in natural units,
            `trial` (row in the batch) and whatever describes a point (design, deployment, recipe...).
    """

    values: np.ndarray
    violations: np.ndarray
    points: Table

    @property
    def feasible(self) -> np.ndarray:
        return (self.violations <= 0).all(axis=1)


class Axis(Protocol):
    """One dimension of the index grid: its values, and whether neighbours in order are neighbours in kind."""

    name: str
    values: np.ndarray
    ordered: bool


class Space(Protocol):
    """The part of a DesignSpace that searching needs: `outer` are the positions of the axes a trial fixes."""

    axes: tuple[Any, ...]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    shape: tuple[int, ...]


class Scorer(Protocol):
    """Prices trials: rows of outer axis indices, each with every inner design and every legal deployment."""

    space: Any
    objectives: tuple[Objective, ...]
    value_names: Sequence[str]
    constraint_names: Sequence[str]
    group_by: str | None  # column within which points compete (a frontier per recipe); None: all compete

    def score(self, indices: np.ndarray) -> Scores:
        """Scores of (n, outer axes) indices, in one vectorised call."""

    def feasible(self, indices: np.ndarray) -> np.ndarray:
        """(n,) bool: rows with at least one design inside the budget and the envelope; cheap, prices nothing."""


def throughput_at_targets(
    interactivity: np.ndarray, throughput: np.ndarray, eligible: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Best throughput of each design at each interactivity target, and by how much a target is out of reach.

    Args:
        interactivity, throughput: (n, deployments), positive. eligible: (n, deployments) bool: points that exist (they
            fit memory and meet the limits). targets: (targets,) tokens/s/user.

    Returns:
        values: (n, targets) -log(throughput) of the best eligible point at least that fast. Where none is, the
            fastest eligible point counts (any point where none is eligible), worsened by its shortfall: always finite.
        shortfall: (n, targets) log(target / fastest), <= 0 where the target is met.
    """
    rows = eligible.any(axis=1)
    pool = eligible | ~rows[:, None]
    fastest = np.where(pool, interactivity, 0.0).max(axis=1)
    slowest_kept = np.minimum(targets[None, :], fastest[:, None])
    values = np.empty((len(interactivity), len(targets)))
    for column in range(len(targets)):  # a handful of targets: less memory than one (n, deployments, targets) array
        usable = pool & (interactivity >= slowest_kept[:, column, None])
        values[:, column] = -np.log(np.where(usable, throughput, 0.0).max(axis=1))
    shortfall = np.log(targets[None, :] / fastest[:, None])
    return values + 2.0 * np.maximum(shortfall, 0.0), shortfall
