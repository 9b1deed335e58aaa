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
        return np.asarray((self.violations <= 0).all(axis=1))


class Scorer(Protocol):
    """Prices trials: rows of outer axis indices, each with every inner design and every legal deployment.

    Attributes:
        space: a DesignSpace. objectives: of the points. value_names, constraint_names: of the columns of Scores.
        group_by: whole-number column within which points compete (a frontier per recipe); None: all compete.
    """

    space: Any
    objectives: tuple[Objective, ...]

    @property
    def value_names(self) -> Sequence[str]: ...

    @property
    def constraint_names(self) -> Sequence[str]: ...

    @property
    def group_by(self) -> str | None: ...

    @property
    def points_per_trial(self) -> int:
        """Inner designs times deployments."""

    def score(self, indices: np.ndarray) -> Scores:
        """Scores of (n, outer axes) indices, in one vectorised call."""

    def points(self, indices: np.ndarray) -> Table:
        """`score(indices).points` alone."""

    def feasible(self, indices: np.ndarray) -> np.ndarray:
        """(n,) bool: rows with at least one design that may be priced; cheap."""

    def canonical(self, indices: np.ndarray) -> np.ndarray:
        """The rows with axes that do not concern their designs set to 0: equal rows are equal trials."""


def throughput_at_targets(
    interactivity: np.ndarray,
    throughput: np.ndarray,
    eligible: np.ndarray,
    targets: np.ndarray,
    steps: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Best throughput of each design at each interactivity target, and by how much a target is out of reach.

    Args:
        interactivity, throughput: (n, deployments), positive. eligible: (n, deployments) bool: points that exist (they
            fit memory and meet the limits). targets: (targets,) tokens/s/user.
        steps: (slow, fast) deployment indices of the same plan at neighbouring batches. A batch between them can be
            run too, so a target between their interactivities is met by interpolating both in logarithms; without,
            the grid of batches would decide who gains.

    Returns:
        values: (n, targets) -log(throughput) of the best eligible point at least that fast. Where none is, the fastest
            eligible point counts (any point where none is eligible), worsened by its shortfall: values stay finite.
        shortfall: (n, targets) log(target / fastest), <= 0 where the target is met.
    """
    pool = eligible | ~eligible.any(axis=1, keepdims=True)
    fastest = np.where(pool, interactivity, 0.0).max(axis=1)
    slowest_kept = np.minimum(targets[None, :], fastest[:, None])
    x, y = np.log(interactivity), np.log(throughput)
    if steps is not None:
        slow, fast = steps
        both = pool[:, slow] & pool[:, fast] & (x[:, fast] > x[:, slow])
        span = np.where(both, x[:, fast] - x[:, slow], 1.0)
        rise = y[:, slow] - y[:, fast]
    values = np.empty((len(interactivity), len(targets)))
    for column in range(len(targets)):  # a handful of targets: less memory than one (n, deployments, targets) array
        wanted = np.log(slowest_kept[:, column, None])
        usable = pool & (interactivity >= slowest_kept[:, column, None])
        best = np.where(usable, y, -np.inf).max(axis=1)
        if steps is not None:
            share = (x[:, fast] - wanted) / span
            between = both & (share > 0) & (share < 1)
            best = np.maximum(best, np.where(between, y[:, fast] + share * rise, -np.inf).max(axis=1, initial=-np.inf))
        values[:, column] = -best
    shortfall = np.log(targets[None, :] / fastest[:, None])
    return values + 2.0 * np.maximum(shortfall, 0.0), shortfall
