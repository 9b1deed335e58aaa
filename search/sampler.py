"""FrontierSampler: the search's moves as an Optuna sampler, for studies that several workers share.

Everything it knows it reads from the study's storage, so that a study can be taken up by another process, and workers
learn from each other's trials.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from search.explorer import Explorer, Outcome, Screen
from search.parameters import cardinality, grid_of, parameters, row_of

POINTS = "frontier"  # trial user attribute: the trial's own frontier points, as written by `as_attribute`


class FrontierSampler(BaseSampler):
    """Multi-objective sampler for static integer and categorical parameters.

    A trial's points come from its user attribute `POINTS`; a feasible trial without it counts as one point, its
    values. Constraints (`trial.set_constraint`) decide feasibility. Never proposes parameters that a trial of the study
    already has, until none are left. Reads each trial once.

    Args:
        distributions: the parameters, all IntDistribution (ordered axis) or CategoricalDistribution.
        feasible, canonical, capacity: see `Explorer`. seed: every worker of a shared storage needs its own.
        batch: trials proposed at once from the same knowledge; 1 for workers that ask one by one.
    """

    def __init__(
        self,
        distributions: Mapping[str, BaseDistribution],
        feasible: Screen | None = None,
        canonical: Screen | None = None,
        seed: int = 0,
        batch: int = 64,
        capacity: int = 4096,
    ) -> None:
        self.grid = grid_of(distributions)
        shape = np.array([cardinality(d) for d in self.grid.values()], dtype=np.int64)
        ordered = np.array([not isinstance(d, CategoricalDistribution) for d in self.grid.values()], dtype=bool)
        self.explorer = Explorer(shape, ordered, feasible, canonical, seed, batch, capacity)
        self._unfinished: list[int] = []  # numbers of trials that were read without a result

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(self.grid)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        row = self.explorer.rows(trial.number, 1, partial(self.read, study))[0]
        return parameters(self.grid, row)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise ValueError(f"{param_name}: not a parameter of this sampler; it has {', '.join(self.grid)}")

    def read(self, study: Study, start: int, stop: int) -> Outcome:
        """Outcome of trials number start .. stop - 1, and of earlier ones that had none when they were read."""
        stored = study.get_trials(deepcopy=False)
        trials = [stored[number] for number in self._unfinished if number < start] + stored[start:stop]
        self._unfinished = []
        signs = np.where([d.name == "MAXIMIZE" for d in study.directions], -1.0, 1.0)
        rows: list[np.ndarray] = []
        running: list[np.ndarray] = []
        misses, points = [], []
        for trial in trials:
            row = row_of(self.grid, trial.params)
            if not trial.state.is_finished():
                self._unfinished.append(trial.number)
            if row is None:
                continue
            if trial.state == TrialState.COMPLETE:
                points += [[len(rows), *point] for point in points_of(trial, signs)]
                misses.append(sum(max(0.0, value) for value in trial.constraints.values()))
                rows.append(row)
            else:
                running.append(row)  # or failed: another worker retries it
        finished = np.array(rows, dtype=np.int64).reshape(len(rows), len(self.grid))
        others = np.array(running, dtype=np.int64).reshape(len(running), len(self.grid))
        return Outcome(finished, np.array(misses), np.array(points), others)


def as_attribute(points: list[list[float]]) -> str:
    """Rows (group, loss values...) as JSON text: Optuna copies attributes deeply, which costs nothing for text."""
    return json.dumps(points, separators=(",", ":"))


def points_of(trial: FrozenTrial, signs: np.ndarray) -> list[list[float]]:
    """Rows (group, loss values...) of a finished trial's frontier points; signs: (values,) of the directions."""
    if POINTS in trial.user_attrs:
        points: list[list[float]] = json.loads(trial.user_attrs[POINTS])
        return points
    feasible = all(value <= 0 for value in trial.constraints.values())
    return [[0.0, *(signs * trial.values).tolist()]] if feasible else []
