"""The Pareto frontier: which points nothing beats, and how much of the objective space they cover.

Dominance, hypervolume and epsilon come from moocore. Everything is minimised: an `Objective` turns natural values
into loss values once, and a `Scale`, stored in the run, says in which unit box hypervolume is measured. Points live in
columnar tables (a dictionary of equally long arrays), so that a frontier keeps whatever describes its points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import moocore
import numpy as np

Table = dict[str, np.ndarray]

REFERENCE = 1.1  # hypervolume's reference point in unit coordinates: extremes keep a contribution of their own


@dataclass(frozen=True)
class Objective:
    """A column of a points table and how its values are compared.

    Attributes:
        name: the column. maximise: larger is better.
        logarithmic: compared by ratio (rates, times, money: all positive), not by difference (losses).
    """

    name: str
    maximise: bool
    logarithmic: bool

    def loss_values(self, values: Any) -> np.ndarray:
        """Values (any shape) as numbers to minimise: sign-normalised, log where compared by ratio.

        Raises:
            ValueError: a value is not finite, or not positive where its logarithm is needed.
        """
        values = np.asarray(values, dtype=float)
        if not np.isfinite(values).all():
            raise ValueError(f"{self.name}: {np.count_nonzero(~np.isfinite(values))} values are not finite numbers")
        if self.logarithmic:
            if values.size and values.min() <= 0:
                raise ValueError(f"{self.name} = {values.min()}: must be positive, it is compared by ratio")
            values = np.log(values)
        return np.asarray(-values if self.maximise else values)


def loss_values(points: Mapping[str, np.ndarray], objectives: Sequence[Objective]) -> np.ndarray:
    """(n, objectives) loss values of a points table."""
    return np.stack([objective.loss_values(points[objective.name]) for objective in objectives], axis=-1)


def minimised(points: Mapping[str, np.ndarray], objectives: Sequence[Objective]) -> np.ndarray:
    """(n, objectives) values of a points table to minimise: all that dominance asks for, logarithms or not."""
    return np.stack([-points[o.name] if o.maximise else points[o.name] for o in objectives], axis=-1)


@dataclass(frozen=True)
class Scale:
    """The box hypervolume is measured in: ideal maps to 0, nadir to 1, the reference point is REFERENCE everywhere.

    An objective on which ideal and nadir agree is measured in its own unit.
    """

    ideal: tuple[float, ...]
    nadir: tuple[float, ...]

    @classmethod
    def around(cls, losses: np.ndarray) -> Scale:
        """The box of the non-dominated rows of (n, objectives) loss values."""
        if not len(losses):
            raise ValueError("no points: a scale needs at least one")
        return cls.of(losses[nondominated(losses)])

    @classmethod
    def of(cls, front: np.ndarray) -> Scale:
        """The box of (n, objectives) loss values of which none dominates another."""
        return cls(tuple(front.min(axis=0).tolist()), tuple(front.max(axis=0).tolist()))

    def unit(self, losses: np.ndarray) -> np.ndarray:
        """Loss values (..., objectives) in unit coordinates."""
        ideal, nadir = np.array(self.ideal), np.array(self.nadir)
        return np.asarray((losses - ideal) / np.where(nadir > ideal, nadir - ideal, 1.0))


def nondominated(losses: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
    """(n,) bool: rows of (n, objectives) loss values that no other row dominates; of equal rows, the first.

    Args:
        groups: (n,) labels; a row is then compared with the rows of its own group only.

    Raises:
        ValueError: a loss value is not finite.
    """
    losses = np.ascontiguousarray(losses, dtype=float)
    if not np.isfinite(losses).all():
        raise ValueError(f"loss values: {np.count_nonzero(~np.isfinite(losses))} are not finite numbers")
    if groups is None or not len(losses):
        return np.asarray(moocore.is_nondominated(losses))
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order])) + 1
    keep = np.empty(len(losses), dtype=bool)
    for own in np.split(order, starts):  # moocore's is_nondominated_within_sets is quadratic in the number of sets
        keep[own] = moocore.is_nondominated(losses[own])
    return keep


def hypervolume(losses: np.ndarray, scale: Scale) -> float:
    """Volume of the scale's box (up to REFERENCE) that (n, objectives) loss values dominate; 0 for no points."""
    if not len(losses):
        return 0.0
    return float(moocore.hypervolume(scale.unit(losses), ref=REFERENCE))


def hypervolume_contributions(losses: np.ndarray, scale: Scale) -> np.ndarray:
    """(n,) hypervolume that each row alone dominates; dominated and repeated rows contribute 0."""
    if losses.shape[1] == 1:  # moocore starts at two objectives: the best row alone gains over the second
        unit = np.minimum(scale.unit(losses)[:, 0], REFERENCE)
        ordered = np.sort(np.append(unit, REFERENCE))
        return np.where(unit == ordered[0], ordered[1] - ordered[0], 0.0)
    if not len(losses):
        return np.zeros(0)
    return np.asarray(moocore.hv_contributions(scale.unit(losses), ref=REFERENCE))


def largest(losses: np.ndarray, count: int) -> np.ndarray:
    """Indices, ascending, of the `count` rows of a frontier with the largest hypervolume contributions."""
    contributions = hypervolume_contributions(losses, Scale.around(losses))
    return np.sort(np.argsort(-contributions, kind="stable")[:count])


def multiplicative_epsilon(
    points: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray], objectives: Sequence[Objective]
) -> float:
    """By what factor the worst-served exact point is missed: 1 = every exact point is matched.

    The smallest factor by which every objective of `points` must improve for each exact point to be weakly dominated
    (Zitzler et al. 2003, 10.1109/TEVC.2003.810758). Values are natural and must be positive.
    """
    columns = [np.stack([table[o.name] for o in objectives], axis=-1).astype(float) for table in (points, exact)]
    for column in columns:
        if not len(column) or not np.isfinite(column).all() or column.min() <= 0:
            raise ValueError("epsilon: needs at least one point on each side, and finite, positive values")
    return float(moocore.epsilon_mult(columns[0], ref=columns[1], maximise=[o.maximise for o in objectives]))


def take(points: Mapping[str, np.ndarray], index: Any) -> Table:
    """Rows of a points table."""
    return {name: column[index] for name, column in points.items()}


def concatenate(tables: Sequence[Mapping[str, np.ndarray]]) -> Table:
    """One table of the rows of several with the same columns."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def merge(
    tables: Sequence[Mapping[str, np.ndarray]], objectives: Sequence[Objective], group_by: str | None = None
) -> Table:
    """The frontier of several frontiers: their non-dominated points, within each value of `group_by` where given.

    Associative: merging in a tree, in any order of chunks, gives the same set of objective values.
    """
    points = concatenate(tables)
    keep = nondominated(loss_values(points, objectives), points[group_by] if group_by else None)
    return take(points, keep)
