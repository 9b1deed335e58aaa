"""One of many workers on a shared Optuna storage: `study.optimize` over the same scorer, one trial after another."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError

from search.archive import trial_points
from search.frontier import Table, merge
from search.parameters import Grid, axis_distributions, row_of
from search.patient import PatientStorage, unreachable
from search.sampler import POINTS, FrontierSampler, as_attribute
from search.scores import Scorer
from search.state import experimental

HEARTBEAT_SECONDS, GRACE_SECONDS = 30, 90  # a worker silent for the grace period has died
OPEN_ATTEMPTS = 5  # a second apart
RETRIES = 2  # of a dead worker's trial, with the same parameters
FORM = "form"  # study attribute: axes, values and constraints, the same for every worker


def open_study(
    scorer: Scorer, url: str, name: str, seed: int, heartbeat: int = HEARTBEAT_SECONDS, grace: int = GRACE_SECONDS
) -> optuna.Study:
    """The shared study `name` of a storage, made where it does not exist.

    Args:
        url: of a database, e.g. postgresql+psycopg://user@host/database. seed: different for each worker.
    Raises:
        ValueError: no such storage, or its study of that name has other axes, values or constraints.
    """
    storage = open_storage(url, heartbeat, grace)
    sampler = FrontierSampler(axis_distributions(scorer.space), scorer.feasible, scorer.canonical, seed=seed, batch=1)
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        sampler=sampler,
        directions=["minimize"] * len(scorer.value_names),
        load_if_exists=True,
    )
    form = {axis.name: [str(label) for label in axis.labels] for axis in scorer.space.axes}
    text = json.dumps([form, list(scorer.value_names), list(scorer.constraint_names)])
    if study.user_attrs.get(FORM, text) != text:
        raise ValueError(
            f"study {name!r} of this storage has other axes, objectives or constraints; give yours another name"
        )
    study.set_user_attr(FORM, text)
    return study


def open_storage(url: str, heartbeat: int, grace: int) -> PatientStorage:
    """The storage, its tables made where there are none.

    Raises:
        ValueError: not the URL of a database that can be reached from here.
    """
    try:
        shown = make_url(url).render_as_string()  # without the password
        return _connected(url, heartbeat, grace)
    except ImportError as error:
        raise ValueError(f"--storage {shown}: no driver: {error}; pip install 'ridgeline[distributed]'") from error
    except SQLAlchemyError as error:
        why = f"cannot be reached: {getattr(error, 'orig', None) or error}" if unreachable(error) else str(error)
        raise ValueError(f"--storage: {why}; valid: e.g. postgresql+psycopg://user@host/database") from error


def _connected(url: str, heartbeat: int, grace: int) -> PatientStorage:
    def connect() -> PatientStorage:
        with experimental():
            return PatientStorage(
                url,
                engine_kwargs={"pool_pre_ping": True},  # a connection that died in the pool is replaced
                heartbeat_interval=heartbeat,
                grace_period=grace,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=RETRIES),
            )

    for _ in range(OPEN_ATTEMPTS - 1):  # workers that start at once on an empty database race to make its tables
        try:
            return connect()
        except (IntegrityError, ProgrammingError):
            time.sleep(1)
    return connect()


def work(
    scorer: Scorer,
    study: optuna.Study,
    trials: int | None = None,
    seconds: float | None = None,
    on_trial: Callable[[Table], None] | None = None,
) -> Table | None:
    """Price trials until the study has so many, time is up, or the worker is stopped; None and None: for ever.

    Args:
        trials: completed ones of all workers together; each finishes the trial in hand. seconds: of this worker.
        on_trial: called after each trial with this worker's frontier, to write it beside the other workers'.

    Returns:
        The frontier of this worker's own trials, None where none was feasible; the storage holds trials only.
    """
    grid = axis_distributions(scorer.space)
    frontier: list[Table] = []
    begun: list[int] = []  # ids of this worker's trials

    def objective(trial: optuna.Trial) -> list[float]:
        begun.append(trial._trial_id)
        row = row_of(grid, {name: suggest(trial, grid, name) for name in grid})
        scores = scorer.score(np.array([row]))
        for name, value in zip(scorer.constraint_names, scores.violations[0].tolist(), strict=True):
            trial.set_constraint(name, value)
        trial.set_user_attr(POINTS, as_attribute(trial_points(scorer, scores.points)[:, 1:].tolist()))
        points = {**scores.points, "trial": np.full(len(scores.points["trial"]), trial.number)}
        frontier[:] = [merge([*frontier, points], scorer.objectives, scorer.group_by)]
        if on_trial:
            on_trial(frontier[0])
        values: list[float] = scores.values[0].tolist()
        return values

    start = time.monotonic()
    callbacks = [] if trials is None else [MaxTrialsCallback(trials)]
    while trials is None or completed(study) < trials:
        left = None if seconds is None else seconds - (time.monotonic() - start)
        try:
            study.optimize(objective, timeout=left, callbacks=callbacks)
            break
        except (ValueError, AssertionError) as error:
            if not given_up(study, begun, error):
                raise
    return frontier[0] if frontier else None


def completed(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))


def given_up(study: optuna.Study, begun: list[int], error: Exception) -> bool:
    """Whether others thought this worker dead and failed its trial, to be retried: Optuna then refuses its outcome."""
    refused = isinstance(error, AssertionError) or str(error).startswith("Cannot tell a FAIL trial")
    return bool(refused and begun and study._storage.get_trial(begun[-1]).state == TrialState.FAIL)


def suggest(trial: optuna.Trial, grid: Grid, name: str) -> Any:
    """The trial's value of a parameter."""
    distribution = grid[name]
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    return trial.suggest_int(name, distribution.low, distribution.high)
