"""FrontierSampler: proposes designs by moving around the current frontier on the index grid.

A proposal recombines and perturbs designs that hold points of the frontier, chosen by the hypervolume only they cover.
Everything the sampler knows it reads from the study's storage, and what it proposes for trial t is a function of its
seed, of t and of the trials before t's block: a resumed study goes on as if never stopped, and several workers on one
storage learn from each other's trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from search.archive import Archive
from search.parameters import cardinality, grid_of, grid_rows, parameters, row_of

POINTS = "frontier"  # trial user attribute: rows (group, loss values...) of the trial's own frontier points

CROSSOVER = 0.3  # share of proposals that mix two parents axis by axis
DIFFERENCE = 0.4  # share that add the difference of two other parents: steps along the frontier (Storn & Price 1997)
RESTART = 0.02  # share drawn anywhere in the grid
MUTATIONS = 0.5  # expected axes perturbed; at least one where the child would equal its parent
STEP_SHARE = 0.1  # mean step on an ordered axis is 1 + this share of its length
OVERSAMPLE, LEAST_DRAWS = 4, 64  # candidates drawn per proposal: some were priced before, some decode to nothing
ATTEMPTS = 8  # draws around the frontier, then as many anywhere, before the grid is searched for what is left
ENUMERABLE = 200_000  # largest grid that is searched for what is left
REPLAY = 64  # trials learnt at a time, so that a rebuilt archive is thinned as the original was


class FrontierSampler(BaseSampler):
    """Multi-objective sampler for static integer and categorical parameters.

    A trial's points come from its user attribute `POINTS`; a feasible trial without it counts as one point,
    its values. Constraints (`trial.set_constraint`) decide feasibility. Never proposes parameters that a trial of the
    study already has, until none are left.

    Args:
        distributions: the parameters, all IntDistribution (ordered axis) or CategoricalDistribution.
        feasible: screens (n, parameters) index rows cheaply, so that trials are not spent on designs that decode to
            nothing; returns (n,) bool. canonical: gives rows that decode to the same designs one form.
        seed: proposals are a function of the seed; every worker of a shared storage needs its own.
        batch: trials proposed at once from the same knowledge; 1 for workers that ask one by one.
        capacity: largest number of points kept; those that cover least hypervolume are dropped.
    """

    def __init__(
        self,
        distributions: Mapping[str, BaseDistribution],
        feasible: Callable[[np.ndarray], np.ndarray] | None = None,
        canonical: Callable[[np.ndarray], np.ndarray] | None = None,
        seed: int = 0,
        batch: int = 64,
        capacity: int = 4096,
    ) -> None:
        self.grid = grid_of(distributions)
        self.feasible, self.canonical = feasible, canonical
        self.seed, self.batch, self.capacity = seed, batch, capacity
        self._draws = max(OVERSAMPLE * batch, LEAST_DRAWS)
        self._ordered = np.array([not isinstance(d, CategoricalDistribution) for d in self.grid.values()])
        self._shape = np.array([cardinality(d) for d in self.grid.values()])
        self._priced: set[bytes] = set()  # index rows that some trial has
        self._known = 0  # trials below this number have been read
        self._unfinished: list[int] = []  # of those, the ones without a result yet
        self._archive = Archive(len(self._shape), capacity)
        self._block = -1
        self._rows = np.empty((0, len(self._shape)), dtype=np.int64)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(self.grid)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        row = self.rows(study, trial.number, 1)[0]
        return parameters(self.grid, row)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise ValueError(f"{param_name}: not a parameter of this sampler; it has {', '.join(self.grid)}")

    def rows(self, study: Study, number: int, count: int) -> np.ndarray:
        """Proposals for trials number .. number + count - 1, fewer where their block ends: (n, parameters) indices."""
        block, offset = divmod(number, self.batch)
        if block != self._block:
            self._learn(study, block * self.batch)
            self._rows = self._propose(np.random.default_rng([self.seed, block]))
            self._block = block
        return self._rows[offset : offset + count]

    def _learn(self, study: Study, until: int) -> None:
        """Read the trials below number `until` that were not read before, and those that have finished since."""
        if until < self._known:  # an earlier block again: forget, and replay up to it
            self._priced, self._unfinished, self._known = set(), [], 0
            self._archive = Archive(len(self._shape), self.capacity)
        trials = study.get_trials(deepcopy=False)
        waiting, self._unfinished = self._unfinished, []
        step = max(self.batch, REPLAY)
        for start in range(self._known, until, step):
            self._absorb(study, [trials[i] for i in waiting] + trials[start : min(start + step, until)])
            waiting = []
        self._known = until

    def _absorb(self, study: Study, trials: list[FrozenTrial]) -> None:
        finished, rows = [], []
        for trial in trials:
            row = row_of(self.grid, trial.params)
            if row is not None:
                self._priced.add(row.tobytes())
            if not trial.state.is_finished():
                self._unfinished.append(trial.number)
            elif row is not None and trial.state == TrialState.COMPLETE:
                finished.append(trial)
                rows.append(row)
        if finished:
            signs = np.where([d.name == "MAXIMIZE" for d in study.directions], -1.0, 1.0)
            points = [[i, *point] for i, trial in enumerate(finished) for point in points_of(trial, signs)]
            misses = [sum(max(0.0, value) for value in trial.constraints.values()) for trial in finished]
            self._archive.add(np.array(rows), np.array(misses), np.array(points))

    def _propose(self, rng: np.random.Generator) -> np.ndarray:
        """(batch, parameters) distinct rows that no trial has, feasible ones first."""
        taken = Fresh(self._priced, self.batch)
        for attempt in range(2 * ATTEMPTS):
            around = attempt < ATTEMPTS and len(self._archive.parents)
            self._take(taken, self._moves(rng) if around else self._anywhere(rng, self._draws))
            if not taken.missing:
                return taken.rows()
        enumerable = np.prod(self._shape, dtype=float) <= ENUMERABLE
        anything = self._everything(rng) if enumerable else self._anywhere(rng, self._draws)
        if enumerable:
            self._take(taken, anything)
        if not (enumerable and self._archive.filled):
            taken.add(taken.new(self._distinct(anything)))  # nothing feasible was found: such trials say what they miss
        taken.repeat(self._archive.parents if len(self._archive.parents) else anything)
        return taken.rows()

    def _take(self, taken: Fresh, rows: np.ndarray) -> None:
        """Add the feasible ones of new rows, screening no more than it takes."""
        rows = taken.new(self._distinct(rows))
        while len(rows) and taken.missing:
            count = max(2 * taken.missing, LEAST_DRAWS)
            part, rows = rows[:count], rows[count:]
            taken.add(part if self.feasible is None else part[self.feasible(part)])

    def _everything(self, rng: np.random.Generator) -> np.ndarray:
        return grid_rows(self._shape.tolist(), rng.permutation(int(np.prod(self._shape))))

    def _distinct(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.canonical is None else self.canonical(rows)

    def _anywhere(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.integers(0, self._shape, (count, len(self._shape)))

    def _moves(self, rng: np.random.Generator) -> np.ndarray:
        """(draws, parameters) children of the archive's parents."""
        count, axes = self._draws, len(self._shape)
        parents, weights = self._archive.parents, self._archive.weights
        first, second, third = parents[rng.choice(len(parents), (3, count), p=weights)]
        kind = rng.random((count, 1))
        mixed = np.where(rng.random((count, axes)) < 0.5, second, first)
        shifted = first + np.rint(rng.random((count, 1)) * (second - third)).astype(np.int64)
        shifted = np.where(self._ordered, np.clip(shifted, 0, self._shape - 1), first)
        child = np.where(kind < CROSSOVER, mixed, np.where(kind < CROSSOVER + DIFFERENCE, shifted, first))
        child = self._perturbed(rng, child, (child == first).all(axis=1))
        return np.where(rng.random((count, 1)) < RESTART, self._anywhere(rng, count), child)

    def _perturbed(self, rng: np.random.Generator, rows: np.ndarray, must: np.ndarray) -> np.ndarray:
        """Rows with a few axes changed: a geometric step on an ordered axis, another choice on a categorical one."""
        count, axes = rows.shape
        change = rng.random((count, axes)) < MUTATIONS / axes
        forced = np.flatnonzero(must & ~change.any(axis=1))
        change[forced, rng.integers(0, axes, len(forced))] = True
        step = rng.geometric(1 / (1 + STEP_SHARE * self._shape), (count, axes)) * rng.choice([-1, 1], (count, axes))
        stepped = rows + step
        stepped = np.where((stepped < 0) | (stepped >= self._shape), rows - step, stepped)  # bounce off the ends
        stepped = np.clip(stepped, 0, self._shape - 1)
        other = (rows + rng.integers(1, np.maximum(self._shape, 2), (count, axes))) % self._shape
        return np.where(change, np.where(self._ordered, stepped, other), rows)


def points_of(trial: FrozenTrial, signs: np.ndarray) -> list[list[float]]:
    """Rows (group, loss values...) of a finished trial's frontier points; signs: (values,) of the directions."""
    if POINTS in trial.user_attrs:
        return trial.user_attrs[POINTS]
    feasible = all(value <= 0 for value in trial.constraints.values())
    return [[0.0, *(signs * trial.values).tolist()]] if feasible else []


class Fresh:
    """Collects distinct rows that were not priced before, up to a number."""

    def __init__(self, priced: set[bytes], count: int) -> None:
        self._priced, self._count = priced, count
        self._rows: dict[bytes, np.ndarray] = {}
        self._repeats: list[np.ndarray] = []

    @property
    def missing(self) -> int:
        return self._count - len(self._rows)

    def new(self, rows: np.ndarray) -> np.ndarray:
        """The rows, each once, that were neither priced nor collected."""
        found: dict[bytes, int] = {}
        for i, row in enumerate(np.ascontiguousarray(rows, dtype=np.int64)):
            key = row.tobytes()
            if key not in self._priced and key not in self._rows:
                found.setdefault(key, i)
        return rows[list(found.values())]

    def add(self, rows: np.ndarray) -> None:
        """Collect new rows as far as there is room."""
        for row in np.ascontiguousarray(rows[: self.missing], dtype=np.int64):
            self._rows[row.tobytes()] = row

    def repeat(self, rows: np.ndarray) -> None:
        """Fill up with rows that were priced before: no other is left."""
        self._repeats = [rows[i % len(rows)] for i in range(self.missing)]

    def rows(self) -> np.ndarray:
        return np.array([*self._rows.values(), *self._repeats])
