"""How much of the exact frontier a search found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search.frontier import Objective, Scale, hypervolume, loss_values, multiplicative_epsilon

TOLERANCE = 0.01  # a design counts as recovered where each of its points is matched this closely
_ROWS = 512  # exact points compared at a time


@dataclass(frozen=True)
class Certificate:
    """A found frontier against the exact one.

    Attributes:
        share_of_hypervolume: of the exact frontier's. share_of_gain: of what the exact frontier covers beyond the
            reference's own frontier; None where it covers nothing more.
        epsilon: factor by which the worst-served exact point is missed.
        designs_recovered: share of exact designs all of whose points are matched within TOLERANCE in every objective;
            for objectives compared by difference, within that share of the exact frontier's range.
        designs_identical: share of exact designs that the found frontier holds themselves.
        scale: of the hypervolumes, around the exact frontier.
    """

    share_of_hypervolume: float
    share_of_gain: float | None
    epsilon: float
    designs_recovered: float
    designs_identical: float
    scale: Scale


def certify(
    found: Mapping[str, np.ndarray],
    exact: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    objectives: Sequence[Objective],
    design: str = "design",
) -> Certificate:
    """Compare frontiers given as points tables.

    Args:
        found, exact: a search's frontier and a sweep's. reference: points of the design that gains are measured from.
        design: column that identifies a point's design in `found` and `exact`.

    Raises:
        ValueError: a table without points.
    """
    for name, table in (("found", found), ("exact", exact), ("reference", reference)):
        if not len(table[objectives[0].name]):
            raise ValueError(f"certify: the {name} frontier holds no point")
    ours, theirs, base = (loss_values(table, objectives) for table in (found, exact, reference))
    scale = Scale.around(theirs)
    volume, exact_volume, base_volume = (hypervolume(losses, scale) for losses in (ours, theirs, base))
    gain = hypervolume(np.concatenate([ours, base]), scale) - base_volume
    exact_gain = hypervolume(np.concatenate([theirs, base]), scale) - base_volume
    names, owner = np.unique(exact[design], return_inverse=True)
    missed = np.bincount(owner, weights=~matched(ours, theirs, objectives), minlength=len(names))
    return Certificate(
        share_of_hypervolume=volume / exact_volume,
        share_of_gain=gain / exact_gain if exact_gain > 0 else None,
        epsilon=multiplicative_epsilon(found, exact, objectives),
        designs_recovered=float(np.mean(missed == 0)),
        designs_identical=float(np.mean(np.isin(names, found[design]))),
        scale=scale,
    )


def matched(ours: np.ndarray, theirs: np.ndarray, objectives: Sequence[Objective]) -> np.ndarray:
    """(exact points,) bool: some found point is at most TOLERANCE worse in every objective."""
    span = np.ptp(theirs, axis=0)
    slack = np.where([o.logarithmic for o in objectives], np.log1p(TOLERANCE), TOLERANCE * span)
    enough = np.empty(len(theirs), dtype=bool)
    for start in range(0, len(theirs), _ROWS):
        bound = theirs[start : start + _ROWS, None, :] + slack
        enough[start : start + _ROWS] = (ours[None, :, :] <= bound).all(axis=2).any(axis=1)
    return enough
