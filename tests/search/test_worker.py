"""Workers on a shared storage: no design twice, and a dead worker's trial is done by another."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState

from benchmarks.toy import OBJECTIVES, ToyScorer, ToySpace
from search.frontier import Table, loss_values, merge, nondominated
from search.sampler import POINTS
from search.worker import open_study, work

optuna.logging.set_verbosity(optuna.logging.WARNING)
INNER = ("kv_heads", "experts", "top_k", "attention_ratio", "recipe", "kv_format")  # two parameters, coarse trials
SCORER = ToyScorer(ToySpace(INNER, hidden_step=1024, layer_step=8), batches=2)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


def test_workers_share_what_they_learn(url: str) -> None:
    frontiers: list[Table] = []
    for turn in range(3):
        study = open_study(SCORER, url, "shared", seed=turn % 2)
        frontier = work(SCORER, study, trials=2 * (turn + 1))
        assert frontier is not None
        frontiers.append(frontier)
    assert work(SCORER, study, trials=6) is None  # they are done
    trials = study.get_trials(deepcopy=False)
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 6
    assert len({tuple(trial.params.values()) for trial in trials}) == 6
    # the storage's points and the workers' own frontiers say the same
    stored = np.array([point[1:] for trial in trials for point in json.loads(trial.user_attrs[POINTS])])
    best = loss_values(merge(frontiers, OBJECTIVES), OBJECTIVES)
    assert nondominated(np.concatenate([best, stored])).tolist() == [True] * len(best) + [False] * len(stored)
    assert {tuple(point) for point in best} & {tuple(point) for point in stored}


def test_a_trial_records_values_constraints_and_numbers(url: str) -> None:
    seen: list[int] = []
    study = open_study(SCORER, url, "one", seed=0)
    frontier = work(SCORER, study, trials=3, on_trial=lambda table: seen.append(len(table["trial"])))
    assert len(seen) == 3
    assert frontier is not None
    assert set(frontier["trial"]) <= set(range(3))
    trial = study.get_trials(deepcopy=False)[0]
    assert len(trial.values) == len(SCORER.value_names)
    assert set(trial.constraints) == set(SCORER.constraint_names)


def test_a_dead_workers_trial_is_retried(url: str) -> None:
    study = open_study(SCORER, url, "shared", seed=0, heartbeat=60, grace=120)
    work(SCORER, study, trials=1)
    with pytest.warns(UserWarning, match="Heartbeat of storage is supposed to be used with Study.optimize"):
        lost = study.ask(study.sampler.infer_relative_search_space(study, study.trials[0]))
    storage = study._storage
    storage.record_heartbeat(lost._trial_id)  # type: ignore[attr-defined]
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:  # the worker died long ago
        connection.execute(sqlalchemy.text("UPDATE trial_heartbeats SET heartbeat = '2020-01-01 00:00:00'"))
    engine.dispose()
    work(SCORER, open_study(SCORER, url, "shared", seed=1), trials=3)
    trials = study.get_trials(deepcopy=False)
    assert trials[1].state == TrialState.FAIL
    retried = [trial for trial in trials[2:] if trial.params == lost.params]
    assert [trial.state for trial in retried] == [TrialState.COMPLETE]
