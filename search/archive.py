"""Which designs hold the frontier, and how much of it only they cover: the parents of a sampler's proposals."""

from __future__ import annotations

import numpy as np

from search.frontier import Scale, Table, hypervolume_contributions, largest, loss_values, nondominated
from search.scores import Scorer

EVEN_SHARE = 0.1  # of the weight of parents: spread evenly, the rest by hypervolume contribution
SPARE_PARENTS = 32  # least infeasible rows that serve as parents until one is feasible
POINTS_PER_TRIAL = 64  # most points of one trial that its record keeps


class Archive:
    """Frontier points of the index rows seen so far, and the rows that hold them.

    Attributes:
        parents: (parents, axes) index rows that hold a frontier point, in the order in which they were added; as long
            as there is no point, the least infeasible rows.
        weights: (parents,) probability of choosing each.
        capacity: largest number of points; those that cover least hypervolume are dropped.
    """

    def __init__(self, axes: int, capacity: int) -> None:
        self.capacity = capacity
        self.parents = np.empty((0, axes), dtype=np.int64)
        self.weights = np.empty(0)
        self._holders = np.empty(0, dtype=np.int64)  # (points,) position in parents
        self._groups = np.empty(0, dtype=np.int64)  # (points,) points compete within their group
        self._losses: np.ndarray | None = None  # (points, objectives)
        self._misses = np.empty(0)  # (parents,) total violation, as long as there is no point

    @property
    def filled(self) -> bool:
        """Whether some row was feasible."""
        return self._losses is not None

    def add(self, rows: np.ndarray, misses: np.ndarray, points: np.ndarray) -> None:
        """Merge what came out of rows.

        Args:
            rows: (n, axes) indices. misses: (n,) total violation.
            points: (p, 2 + objectives): position in rows, group, loss values.
        """
        if len(points):
            self._merge(rows, points)
        elif not self.filled:
            self.parents = np.concatenate([self.parents, rows])
            self._misses = np.concatenate([self._misses, misses])
            least = np.sort(np.argsort(self._misses, kind="stable")[:SPARE_PARENTS])
            self.parents, self._misses = self.parents[least], self._misses[least]
            self.weights = np.full(len(least), 1 / len(least))

    def _merge(self, rows: np.ndarray, points: np.ndarray) -> None:
        known = self.parents if self.filled else self.parents[:0]
        parents = np.concatenate([known, rows])
        holders = np.concatenate([self._holders, points[:, 0].astype(np.int64) + len(known)])
        groups = np.concatenate([self._groups, points[:, 1].astype(np.int64)])
        losses = points[:, 2:] if self._losses is None else np.concatenate([self._losses, points[:, 2:]])
        keep = np.flatnonzero(nondominated(losses, groups if groups.any() else None))
        contributions = group_contributions(losses[keep], groups[keep])
        if len(keep) > self.capacity:
            most = np.sort(np.argsort(-contributions, kind="stable")[: self.capacity])
            keep, contributions = keep[most], contributions[most]
        used, self._holders = np.unique(holders[keep], return_inverse=True)
        self._groups, self._losses, self.parents = groups[keep], losses[keep], parents[used]
        share = np.bincount(self._holders, weights=contributions, minlength=len(used))
        self.weights = EVEN_SHARE / len(used) + (1 - EVEN_SHARE) * share / share.sum()


def group_contributions(losses: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """(points,) hypervolume contributions as a share of their group's, so that groups weigh the same.

    Args:
        losses: (points, objectives), none dominated within its group.
    """
    contributions = np.zeros(len(losses))
    for group in np.unique(groups):
        own = groups == group
        volume = hypervolume_contributions(losses[own], Scale.of(losses[own]))
        contributions[own] = volume / volume.sum() if volume.sum() > 0 else 1 / own.sum()
    return contributions


def trial_points(scorer: Scorer, points: Table) -> np.ndarray:
    """(p, 2 + objectives) trial, group and loss values of points; of a trial with many, those that cover most."""
    losses = loss_values(points, scorer.objectives)
    groups = points[scorer.group_by] if scorer.group_by else np.zeros(len(losses))
    keep = np.ones(len(losses), dtype=bool)
    trials, counts = np.unique(points["trial"], return_counts=True)
    for trial in trials[counts > POINTS_PER_TRIAL]:
        own = np.flatnonzero(points["trial"] == trial)
        keep[np.delete(own, largest(losses[own], POINTS_PER_TRIAL))] = False
    return np.column_stack([points["trial"], groups, losses])[keep]
