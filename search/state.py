"""Everything a search knows between two batches, and how its trials are recorded in an Optuna study."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
from optuna.samplers import RandomSampler
from optuna.storages import InMemoryStorage

from search.explorer import Explorer, Outcome
from search.frontier import Scale, Table, hypervolume, loss_values
from search.parameters import Grid, axis_distributions, parameters
from search.sampler import POINTS, as_attribute
from search.scores import Scorer

STUDY = "search"  # name of the one study of the in-memory storage


@contextmanager
def experimental() -> Iterator[None]:
    """Use what Optuna has called experimental for years (metric names, QMC, heartbeats) without its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


@dataclass
class Trials:
    """Trials in the order of their numbers, a block of rows per batch."""

    rows: list[np.ndarray] = field(default_factory=list)  # (n, outer axes) indices
    values: list[np.ndarray] = field(default_factory=list)  # (n, values)
    violations: list[np.ndarray] = field(default_factory=list)  # (n, constraints)
    points: list[np.ndarray] = field(default_factory=list)  # (p, 2 + objectives): trial, group, loss values

    def add(self, rows: np.ndarray, values: np.ndarray, violations: np.ndarray, points: np.ndarray) -> None:
        self.rows.append(rows)
        self.values.append(values)
        self.violations.append(violations)
        self.points.append(points)

    def outcome(self, start: int, stop: int) -> Outcome:
        """What a sampler learns from trials start .. stop - 1, which must be the last ones or start a replay."""
        first, end = len(self.rows), sum(map(len, self.rows))
        begin = end
        while begin > start:  # the blocks that hold them
            first -= 1
            begin -= len(self.rows[first])
        blocks = self.rows[first:], self.violations[first:], self.points[first:]
        rows, violations, points = map(np.concatenate, blocks)
        own = points[(points[:, 0] >= start) & (points[:, 0] < stop)]
        own[:, 0] -= start
        part = slice(start - begin, stop - begin)
        return Outcome(rows[part], violations[part].clip(min=0).sum(axis=1), own, rows[:0])


@dataclass(frozen=True)
class Progress:
    """Where a search stood after a batch: trials so far, feasible ones, hypervolume, seconds since it began."""

    trials: int
    feasible: int
    hypervolume: float
    seconds: float


@dataclass
class SearchState:
    """A search between two batches.

    Attributes:
        scorer: prices trials. sampler, seed, batch: how they are proposed. grid: the trials' parameters.
        trials: what was proposed and came out. memo: values and violations by canonical index row.
        explorer: proposes trials where the sampler is our own. storage: of the Optuna study.
        frontier: non-dominated points of all trials, `trial` being the trial's number; None before the first batch.
        scale: box of the hypervolume, set by the first batch with points. history: one entry per batch.
        stopped: why the last call ended, "" while running.
    """

    scorer: Scorer
    sampler: str
    seed: int
    batch: int
    grid: Grid
    explorer: Explorer
    storage: InMemoryStorage
    trials: Trials = field(default_factory=Trials)
    memo: dict[bytes, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    frontier: Table | None = None
    scale: Scale | None = None
    history: list[Progress] = field(default_factory=list)
    stopped: str = ""
    exhausted: bool = False  # no trial is left that was not priced

    @property
    def study(self) -> optuna.Study:
        """The Optuna study of all trials.

        Trials of Optuna's samplers enter it as they are asked and told; our own, for which no sampler of Optuna needs
        it, when somebody looks: recording a trial costs Optuna more than finding it costs us.
        """
        study = optuna.load_study(study_name=STUDY, storage=self.storage)
        missing = len(study.get_trials(deepcopy=False))
        if missing < self.progress.trials:
            rows, values, violations, points = (np.concatenate(blocks) for blocks in vars(self.trials).values())
            points = points[points[:, 0] >= missing]
            record(self, study, rows[missing:], values[missing:], violations[missing:], points)
        return study

    @property
    def trials_possible(self) -> int:
        """How many different trials the outer axes allow."""
        return math.prod(self.scorer.space.shape[i] for i in self.scorer.space.outer)

    @property
    def progress(self) -> Progress:
        return self.history[-1] if self.history else Progress(0, 0, 0.0, 0.0)

    def measure(self) -> float:
        """Hypervolume of the frontier; 0 before the first feasible trial."""
        if self.frontier is None or not len(self.frontier["trial"]):
            return 0.0
        losses = loss_values(self.frontier, self.scorer.objectives)
        if self.scale is None:
            self.scale = Scale.around(losses)
        return hypervolume(losses, self.scale)

    def nearest_miss(self) -> dict[str, float]:
        """Violations of the trial nearest to feasibility by constraint; empty where a trial is feasible."""
        violations = np.concatenate(self.trials.violations)
        total = violations.clip(min=0).sum(axis=1)
        nearest = violations[total.argmin()].tolist()
        return {name: value for name, value in zip(self.scorer.constraint_names, nearest, strict=True) if value > 0}

    def trials_table(self) -> Table:
        """One row per trial: number, an index column per outer axis, values, violations, feasible, seconds."""
        rows, values, violations = (
            np.concatenate(blocks) for blocks in (self.trials.rows, self.trials.values, self.trials.violations)
        )
        per_batch = np.diff([0, *(entry.trials for entry in self.history)])
        return {
            "number": np.arange(len(rows)),
            **{f"axis_{name}": rows[:, i] for i, name in enumerate(self.grid)},
            **{f"value_{name}": values[:, i] for i, name in enumerate(self.scorer.value_names)},
            **{f"violation_{name}": violations[:, i] for i, name in enumerate(self.scorer.constraint_names)},
            "feasible": np.asarray((violations <= 0).all(axis=1)),
            "seconds": np.repeat([entry.seconds for entry in self.history], per_batch),
        }


def new_state(scorer: Scorer, sampler: str, seed: int, batch: int) -> SearchState:
    """A search that has not begun."""
    storage = InMemoryStorage()
    study = optuna.create_study(
        storage=storage, study_name=STUDY, directions=["minimize"] * len(scorer.value_names), sampler=RandomSampler(0)
    )
    with experimental():
        study.set_metric_names(list(scorer.value_names))  # for Optuna's plots
    axes = [scorer.space.axes[i] for i in scorer.space.outer]
    explorer = Explorer(
        np.array([len(axis.values) for axis in axes], dtype=np.int64),
        np.array([axis.ordered for axis in axes], dtype=bool),
        scorer.feasible,
        scorer.canonical,
        seed,
        batch,
    )
    return SearchState(scorer, sampler, seed, batch, axis_distributions(scorer.space), explorer, storage)


def record(
    state: SearchState,
    study: optuna.Study,
    rows: np.ndarray,
    values: np.ndarray,
    violations: np.ndarray,
    points: np.ndarray,
    attributes: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Add finished trials to an Optuna study, numbered on from those it has.

    Args:
        points: (p, 2 + objectives) trial number, group and loss values of points. attributes: system attributes of
            each trial, where a sampler left any.
    """
    own: list[list[list[float]]] = [[] for _ in rows]
    first = len(study.get_trials(deepcopy=False))
    for number, *point in points.tolist():
        own[int(number) - first].append(point)
    for i, (row, value, violation) in enumerate(zip(rows, values.tolist(), violations.tolist(), strict=True)):
        trial = optuna.create_trial(
            params=parameters(state.grid, row),
            distributions=dict(state.grid),
            values=value,
            constraints=dict(zip(state.scorer.constraint_names, violation, strict=True)),
            user_attrs={POINTS: as_attribute(own[i])},
            system_attrs=dict(attributes[i]) if attributes else None,
        )
        study.add_trial(trial)
