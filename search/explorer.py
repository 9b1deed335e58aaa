"""The moves of a search: designs around the current frontier on the index grid, none of them priced before.

A proposal recombines and perturbs designs that hold points of the frontier, chosen by the hypervolume only they cover.
What is proposed for trial t is a function of the seed, of t and of the trials before t's block: a search that starts
again from its records goes on as if it had never stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from search.archive import Archive
from search.parameters import grid_rows

CROSSOVER = 0.3  # share of proposals that mix two parents axis by axis
DIFFERENCE = 0.4  # share that add the difference of two other parents: steps along the frontier (Storn & Price 1997)
RESTART = 0.02  # share drawn anywhere in the grid
MUTATIONS = 0.5  # expected axes perturbed; at least one where the child would equal its parent
STEP_SHARE = 0.1  # mean step on an ordered axis is 1 + this share of its length
OVERSAMPLE, LEAST_DRAWS = 4, 64  # candidates drawn per proposal: some were priced before, some decode to nothing
ATTEMPTS = 8  # draws around the frontier, then as many anywhere, before the grid is searched for what is left
ENUMERABLE = 200_000  # largest grid that is searched for what is left
REPLAY = 64  # trials learnt at a time, so that a rebuilt archive is thinned as the original was

Screen = Callable[[np.ndarray], np.ndarray]


class Outcome(NamedTuple):
    """What is known of some trials.

    Attributes:
        rows: (n, axes) indices of finished trials. misses: (n,) total violation.
        points: (p, 2 + objectives): position in rows, group, loss values.
        running: (r, axes) indices of trials without a result yet.
    """

    rows: np.ndarray
    misses: np.ndarray
    points: np.ndarray
    running: np.ndarray


class Explorer:
    """Proposes index rows in blocks of `batch`.

    Args:
        shape: values per axis. ordered: whether an axis's neighbours in order are neighbours in kind.
        feasible: screens (n, axes) rows cheaply, so that trials are not spent on designs that decode to nothing;
            returns (n,) bool. canonical: gives rows that decode to the same designs one form.
        seed: proposals are a function of it. batch: trials proposed at once from the same knowledge.
        capacity: largest number of frontier points kept; those that cover least hypervolume are dropped.
    """

    def __init__(
        self,
        shape: np.ndarray,
        ordered: np.ndarray,
        feasible: Screen | None,
        canonical: Screen | None,
        seed: int,
        batch: int,
        capacity: int = 4096,
    ) -> None:
        self.shape, self.ordered = np.asarray(shape, dtype=np.int64), np.asarray(ordered, dtype=bool)
        self.feasible, self.canonical = feasible, canonical
        self.seed, self.batch, self.capacity = seed, batch, capacity
        self._draws = max(OVERSAMPLE * batch, LEAST_DRAWS)
        self._forget()

    def _forget(self) -> None:
        self._known, self._block = 0, -1  # trials below this number were read; block that was proposed last
        self._priced: set[bytes] = set()  # rows that some trial has
        self.archive = Archive(len(self.shape), self.capacity)
        self._rows = np.empty((0, len(self.shape)), dtype=np.int64)

    def rows(self, number: int, count: int, read: Callable[[int, int], Outcome]) -> np.ndarray:
        """Proposals for trials number .. number + count - 1, fewer where their block ends: (n, axes) indices.

        Args:
            read: gives the outcome of trials start .. stop - 1 and of earlier ones that finished since.
        """
        block, offset = divmod(number, self.batch)
        if block < self._block:
            self._forget()  # an earlier block again: replay up to it
        if block != self._block:
            step = max(self.batch, REPLAY)
            for start in range(self._known, block * self.batch, step):
                self._learn(read(start, min(start + step, block * self.batch)))
            self._known, self._block = block * self.batch, block
            self._rows = self._propose(np.random.default_rng([self.seed, block]))
        return self._rows[offset : offset + count]

    def _learn(self, outcome: Outcome) -> None:
        for rows in (outcome.rows, outcome.running):
            self._priced.update(row.tobytes() for row in self._distinct(np.ascontiguousarray(rows, dtype=np.int64)))
        if len(outcome.rows):
            self.archive.add(outcome.rows, outcome.misses, outcome.points)

    def _propose(self, rng: np.random.Generator) -> np.ndarray:
        """(batch, axes) distinct rows that no trial has, feasible ones first."""
        taken = Fresh(self._priced, self.batch)
        for attempt in range(2 * ATTEMPTS):
            around = attempt < ATTEMPTS and len(self.archive.parents)
            self._take(taken, self._moves(rng) if around else self._anywhere(rng, self._draws))
            if not taken.missing:
                return taken.rows()
        enumerable = np.prod(self.shape, dtype=float) <= ENUMERABLE
        anything = self._everything(rng) if enumerable else self._anywhere(rng, self._draws)
        if enumerable:
            self._take(taken, anything)
        if not (enumerable and self.archive.filled):
            taken.add(taken.new(self._distinct(anything)))  # nothing feasible was found: such trials say what they miss
        taken.repeat(self.archive.parents if len(self.archive.parents) else anything)
        return taken.rows()

    def _take(self, taken: Fresh, rows: np.ndarray) -> None:
        """Add the feasible ones of new rows, screening no more than it takes."""
        rows = taken.new(self._distinct(rows))
        while len(rows) and taken.missing:
            count = max(2 * taken.missing, LEAST_DRAWS)
            part, rows = rows[:count], rows[count:]
            taken.add(part if self.feasible is None else part[self.feasible(part)])

    def _distinct(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.canonical is None else self.canonical(rows)

    def _everything(self, rng: np.random.Generator) -> np.ndarray:
        return grid_rows(self.shape.tolist(), rng.permutation(int(np.prod(self.shape))))

    def _anywhere(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.integers(0, self.shape, (count, len(self.shape)))

    def _moves(self, rng: np.random.Generator) -> np.ndarray:
        """(draws, parameters) children of the archive's parents."""
        count, axes = self._draws, len(self.shape)
        parents, weights = self.archive.parents, self.archive.weights
        first, second, third = parents[rng.choice(len(parents), (3, count), p=weights)]
        kind = rng.random((count, 1))
        mixed = np.where(rng.random((count, axes)) < 0.5, second, first)
        shifted = first + np.rint(rng.random((count, 1)) * (second - third)).astype(np.int64)
        shifted = np.where(self.ordered, np.clip(shifted, 0, self.shape - 1), first)
        child = np.where(kind < CROSSOVER, mixed, np.where(kind < CROSSOVER + DIFFERENCE, shifted, first))
        child = self._perturbed(rng, child, (child == first).all(axis=1))
        return np.where(rng.random((count, 1)) < RESTART, self._anywhere(rng, count), child)

    def _perturbed(self, rng: np.random.Generator, rows: np.ndarray, must: np.ndarray) -> np.ndarray:
        """Rows with a few axes changed: a geometric step on an ordered axis, another choice on a categorical one."""
        count, axes = rows.shape
        change = rng.random((count, axes)) < MUTATIONS / axes
        forced = np.flatnonzero(must & ~change.any(axis=1))
        change[forced, rng.integers(0, axes, len(forced))] = True
        step = rng.geometric(1 / (1 + STEP_SHARE * self.shape), (count, axes)) * rng.choice([-1, 1], (count, axes))
        stepped = rows + step
        stepped = np.where((stepped < 0) | (stepped >= self.shape), rows - step, stepped)  # bounce off the ends
        stepped = np.clip(stepped, 0, self.shape - 1)
        other = (rows + rng.integers(1, np.maximum(self.shape, 2), (count, axes))) % self.shape
        return np.where(change, np.where(self.ordered, stepped, other), rows)


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
