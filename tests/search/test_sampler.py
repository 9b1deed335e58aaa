"""FrontierSampler: where it proposes, what it remembers, and that only the storage decides."""

from __future__ import annotations

from functools import partial

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

import search.sampler
from search.archive import SPARE_PARENTS, Archive
from search.sampler import POINTS, FrontierSampler, as_attribute

GRID = {
    "x": IntDistribution(0, 39),
    "y": IntDistribution(0, 19),
    "kind": CategoricalDistribution(("plain", "wide", "deep")),
}
PENALTY = {"plain": 0.0, "wide": 3.0, "deep": 7.0}


def objective(trial: optuna.Trial) -> tuple[float, float]:
    """Two distances that cannot both vanish; x + y must be at least 4."""
    x, y = trial.suggest_int("x", 0, 39), trial.suggest_int("y", 0, 19)
    kind = trial.suggest_categorical("kind", ("plain", "wide", "deep"))
    trial.set_constraint("sum", 4.0 - x - y)
    return float((x - 5) ** 2 + y + PENALTY[kind]), float((x - 30) ** 2 + (19 - y) + PENALTY[kind])


def new_study(sampler: FrontierSampler) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)


def params(study: optuna.Study) -> list[tuple]:
    return [tuple(trial.params[name] for name in GRID) for trial in study.get_trials(deepcopy=False)]


def test_proposals_lie_on_the_grid_and_never_repeat() -> None:
    study = new_study(FrontierSampler(GRID, batch=16))
    study.optimize(objective, n_trials=300)
    proposed = params(study)
    assert len(set(proposed)) == 300
    for x, y, kind in proposed:
        assert 0 <= x <= 39
        assert 0 <= y <= 19
        assert kind in PENALTY


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_the_seed_decides(batch: int) -> None:
    first, same, other = (new_study(FrontierSampler(GRID, seed=seed, batch=batch)) for seed in (3, 3, 4))
    for study in (first, same, other):
        study.optimize(objective, n_trials=80)
    assert params(first) == params(same)
    assert params(first) != params(other)


@pytest.mark.parametrize("cut", [1, 37, 64, 100])
def test_a_sampler_made_anew_goes_on_as_the_old_one(cut: int) -> None:
    whole = new_study(FrontierSampler(GRID, seed=1, batch=32))
    whole.optimize(objective, n_trials=160)
    broken = new_study(FrontierSampler(GRID, seed=1, batch=32))
    broken.optimize(objective, n_trials=cut)
    broken.sampler = FrontierSampler(GRID, seed=1, batch=32)
    broken.optimize(objective, n_trials=160 - cut)
    assert params(whole) == params(broken)


def test_a_thinned_archive_is_rebuilt_as_it_was() -> None:
    def sampler() -> FrontierSampler:
        return FrontierSampler(GRID, seed=1, batch=64, capacity=5)

    whole = new_study(sampler())
    whole.optimize(objective, n_trials=256)
    assert len(whole.sampler.explorer.archive._losses) <= 5  # type: ignore[attr-defined]
    broken = new_study(sampler())
    broken.optimize(objective, n_trials=150)
    broken.sampler = sampler()
    broken.optimize(objective, n_trials=106)
    assert params(whole) == params(broken)


def test_every_design_of_a_small_grid_is_proposed_once() -> None:
    grid = {"x": IntDistribution(2, 10, step=2), "kind": CategoricalDistribution(("a", "b", "c"))}
    study = optuna.create_study(directions=["minimize"], sampler=FrontierSampler(grid, batch=4))

    def distance(trial: optuna.Trial) -> float:
        return trial.suggest_int("x", 2, 10, step=2) + len(trial.suggest_categorical("kind", ("a", "b", "c")))

    study.optimize(distance, n_trials=15)
    assert len({tuple(trial.params.items()) for trial in study.trials}) == 15
    study.optimize(distance, n_trials=3)  # nothing is left: it repeats instead of failing
    assert len(study.trials) == 18


def test_learns_from_other_workers_and_does_not_repeat_them() -> None:
    workers = [FrontierSampler(GRID, seed=seed, batch=1) for seed in (0, 1)]
    study = new_study(workers[0])
    for turn in range(120):
        study.sampler = workers[turn % 2]
        study.optimize(objective, n_trials=1)
    assert len(set(params(study))) == 120
    fresh = FrontierSampler(GRID, batch=1)
    parents = []
    for sampler in (workers[0], fresh):
        sampler.explorer.rows(120, 1, partial(sampler.read, study))
        parents.append(np.unique(sampler.explorer.archive.parents, axis=0))
    assert np.array_equal(*parents)


def test_a_running_trial_is_not_proposed_again() -> None:
    study = new_study(FrontierSampler(GRID, batch=1))
    running = study.ask(GRID)
    for _ in range(50):
        study.tell(study.ask(GRID), [1.0, 1.0])
    assert params(study).count(tuple(running.params[name] for name in GRID)) == 1
    study.tell(running, [0.0, 0.0])  # and its late result is read
    study.ask(GRID)
    assert study.sampler.explorer.archive.parents.tolist() == [  # type: ignore[attr-defined]
        [running.params["x"], running.params["y"], list(PENALTY).index(running.params["kind"])]
    ]


def test_each_trial_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    read = search.sampler.row_of
    monkeypatch.setattr(search.sampler, "row_of", lambda *a: calls.append(1) or read(*a))
    study = new_study(FrontierSampler(GRID, batch=10))
    study.optimize(objective, n_trials=200)
    assert len(calls) <= 200


def test_screened_designs_are_never_proposed() -> None:
    study = new_study(FrontierSampler(GRID, feasible=lambda rows: rows[:, 0] % 2 == 0, batch=16))
    study.optimize(objective, n_trials=200)
    assert all(x % 2 == 0 for x, _, _ in params(study))


def test_designs_that_are_the_same_are_proposed_once() -> None:
    def canonical(rows: np.ndarray) -> np.ndarray:  # the kind does not matter where y is 0
        rows = rows.copy()
        rows[rows[:, 1] == 0, 2] = 0
        return rows

    study = new_study(FrontierSampler(GRID, canonical=canonical, batch=16))
    study.optimize(objective, n_trials=600)
    at_zero = [x for x, y, _ in params(study) if y == 0]
    assert len(at_zero) == len(set(at_zero))


def test_while_nothing_is_feasible_the_nearest_misses_are_parents() -> None:
    study = new_study(FrontierSampler(GRID, batch=16))

    def hopeless(trial: optuna.Trial) -> tuple[float, float]:
        values = objective(trial)
        trial.set_constraint("hopeless", 1.0 + trial.params["x"])
        return values

    study.optimize(hopeless, n_trials=200)
    parents = study.sampler.explorer.archive.parents  # type: ignore[attr-defined]
    assert len(parents) == SPARE_PARENTS
    assert parents[:, 0].mean() < 3  # the miss grows with x


def test_own_points_of_a_trial_replace_its_values() -> None:
    study = new_study(FrontierSampler(GRID, batch=1))
    trial = study.ask(GRID)
    trial.set_user_attr(POINTS, as_attribute([[0, 1.0, 2.0], [0, 2.0, 1.0], [4, 9.0, 9.0]]))
    study.tell(trial, [5.0, 5.0])
    study.ask(GRID)
    archive = study.sampler.explorer.archive  # type: ignore[attr-defined]
    assert archive._losses.tolist() == [[1.0, 2.0], [2.0, 1.0], [9.0, 9.0]]
    assert archive._groups.tolist() == [0, 0, 4]


def test_maximised_values_count_as_gains() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=FrontierSampler(GRID, batch=1))
    for values in ([1.0, 1.0], [2.0, 1.0]):
        study.tell(study.ask(GRID), values)
    study.ask(GRID)
    assert study.sampler.explorer.archive._losses.tolist() == [[-2.0, 1.0]]  # type: ignore[attr-defined]


def test_parents_are_weighed_by_what_only_they_cover() -> None:
    archive = Archive(1, capacity=10)
    points = [[0, 0, 0.0, 10.0], [1, 0, 4.9, 5.1], [2, 0, 5.0, 5.0], [3, 0, 10.0, 0.0], [4, 0, 11.0, 11.0]]
    archive.add(np.arange(5)[:, None], np.zeros(5), np.array(points))
    assert archive.parents.ravel().tolist() == [0, 1, 2, 3]  # the dominated row is none
    assert archive.weights.sum() == pytest.approx(1)
    assert archive.weights[0] > archive.weights[1]
    assert archive.weights[3] > archive.weights[2]


def test_continuous_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"z: FloatDistribution.*must be an IntDistribution or a Categorical"):
        FrontierSampler({"z": FloatDistribution(0, 1)})
    study = new_study(FrontierSampler(GRID))
    with pytest.raises(ValueError, match="other: not a parameter of this sampler; it has x, y, kind"):
        study.ask({"other": IntDistribution(0, 3)})
