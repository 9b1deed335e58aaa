"""The search: ask for a batch of trials, score it in one call, tell the outcome; until a limit is reached."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.samplers import BaseSampler, NSGAIISampler, QMCSampler, RandomSampler, TPESampler

from search.archive import trial_points
from search.frontier import merge, take
from search.parameters import parameters, row_of
from search.scores import Scorer, Scores
from search.state import Progress, SearchState, experimental, new_state
from search.terminal import postponed_interrupt, progress_bar

SAMPLERS = ("frontier", "nsga2", "tpe", "random", "qmc")
POPULATION = 50  # of NSGA-II, Optuna's default


@dataclass(frozen=True)
class Stop:
    """When a search ends: at so many trials or seconds, or when hypervolume grows too little.

    Attributes:
        plateau_trials, plateau_gain: end when the last `plateau_trials` trials raised the hypervolume by less than
            the fraction `plateau_gain` of it; 0 trials: never.
    """

    trials: int = 2000
    seconds: float = math.inf
    plateau_trials: int = 0
    plateau_gain: float = 0.001

    def __post_init__(self) -> None:
        for name, least in (("trials", 1), ("seconds", 0), ("plateau_trials", 0), ("plateau_gain", 0)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} = {getattr(self, name)!r}: must be at least {least}")


def search(
    scorer: Scorer,
    stop: Stop,
    sampler: str = "frontier",
    seed: int = 0,
    batch: int = 64,
    state: SearchState | None = None,
    on_batch: Callable[[SearchState], None] | None = None,
    progress: bool | None = None,
) -> SearchState:
    """Search until `stop` says so, or until Ctrl-C, after which the batch in hand is still finished.

    Args:
        sampler: one of SAMPLERS. batch: trials scored per call. state: a restored search to go on with, which then
            says sampler, seed and batch. on_batch: called after every batch, to save a checkpoint.
        progress: show a progress bar; None: where standard error is a terminal.

    Returns:
        The state, `stopped` naming why: trials, seconds, plateau, exhausted (no design is left) or interrupted.
    """
    state = state or new_state(scorer, sampler, seed, batch)
    start = time.monotonic() - state.progress.seconds
    with progress_bar("search", stop.trials, progress) as show, postponed_interrupt() as interrupt:
        while not (reason := stop_reason(state, stop, interrupt.requested)):
            rows, waiting = ask(state, min(state.batch, stop.trials - state.progress.trials))
            if not len(rows):
                state.exhausted = True
                continue
            values, violations = score(state, rows)
            tell(state, rows, waiting, values, violations, time.monotonic() - start)
            if on_batch:
                on_batch(state)
            show(state.progress.trials, note(state.progress))
    state.stopped = reason
    return state


def stop_reason(state: SearchState, stop: Stop, interrupted: bool) -> str:
    """Why the search must end now, or ""."""
    now = state.progress
    if interrupted:
        return "interrupted"
    if now.trials >= stop.trials:
        return "trials"
    if now.seconds >= stop.seconds:
        return "seconds"
    if state.exhausted:
        return "exhausted"
    before = [entry for entry in state.history if entry.trials <= now.trials - stop.plateau_trials]
    if stop.plateau_trials and before and now.hypervolume > 0:
        gain = 1 - before[-1].hypervolume / now.hypervolume
        return "plateau" if gain < stop.plateau_gain else ""
    return ""


def note(progress: Progress) -> str:
    return f"{progress.feasible / max(progress.trials, 1):.0%} feasible, hypervolume {progress.hypervolume:.4f}"


def ask(state: SearchState, count: int) -> tuple[np.ndarray, list[optuna.Trial]]:
    """(n, outer axes) index rows of at most `count` proposals, and the Optuna trials waiting for their outcome.

    Our own explorer needs no waiting trials. It repeats itself only where no design is left, so repeats are dropped,
    and no rows mean the end.
    """
    number = state.progress.trials
    if state.sampler == "frontier":
        rows = state.explorer.rows(number, count, state.trials.outcome)
        return rows[list(unpriced(state, rows).values())], []
    study = state.study
    study.sampler = optuna_sampler(state, number)
    waiting = [study.ask(dict(state.grid)) for _ in range(count)]
    return np.array([row_of(state.grid, trial.params) for trial in waiting]), waiting


def optuna_sampler(state: SearchState, number: int) -> BaseSampler:
    """Optuna's sampler for the batch that starts at trial `number`.

    It carries a random state that no storage holds: seeded anew for each batch, a resumed search proposes what an
    uninterrupted one would have.
    """
    seed = int(np.random.SeedSequence([state.seed, number]).generate_state(1)[0])
    match state.sampler:
        case "nsga2":
            return NSGAIISampler(population_size=POPULATION, seed=seed)
        case "tpe":
            return TPESampler(multivariate=True, seed=seed)
        case "random":
            return RandomSampler(seed=seed)
        case "qmc":  # one sequence: its position is kept in the study
            with experimental():
                return QMCSampler(seed=state.seed, independent_sampler=RandomSampler(seed=seed))
    raise ValueError(f"sampler = {state.sampler!r}; valid: {', '.join(SAMPLERS)}")


def keys_of(state: SearchState, rows: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in state.scorer.canonical(rows)]


def unpriced(state: SearchState, rows: np.ndarray) -> dict[bytes, int]:
    """Key and position, each once, of the rows that the memo does not know."""
    first: dict[bytes, int] = {}
    for i, key in enumerate(keys_of(state, rows)):
        if key not in state.memo:
            first.setdefault(key, i)
    return first


def score(state: SearchState, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and violations of index rows; designs priced before come from the memo. New points join the frontier."""
    first = unpriced(state, rows)
    if first:
        fresh = np.fromiter(first.values(), dtype=np.int64)
        scores = state.scorer.score(rows[fresh])
        check_finite(state, rows[fresh], scores)
        state.memo.update(zip(first, zip(scores.values, scores.violations, strict=True), strict=True))
        points = {**scores.points, "trial": state.progress.trials + fresh[scores.points["trial"]]}
        known = [state.frontier] if state.frontier else []
        state.frontier = merge([*known, points], state.scorer.objectives, state.scorer.group_by)
    state.exhausted = len(state.memo) >= state.trials_possible
    outcomes = [state.memo[key] for key in keys_of(state, rows)]
    return np.stack([values for values, _ in outcomes]), np.stack([violations for _, violations in outcomes])


def check_finite(state: SearchState, rows: np.ndarray, scores: Scores) -> None:
    """Optuna must never see NaN or infinity: name the design that gave one."""
    bad = ~(np.isfinite(scores.values).all(axis=1) & np.isfinite(scores.violations).all(axis=1))
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"trial {parameters(state.grid, rows[i])}: values {scores.values[i].tolist()}, violations "
            f"{scores.violations[i].tolist()} are not all finite"
        )


def tell(
    state: SearchState,
    rows: np.ndarray,
    waiting: list[optuna.Trial],
    values: np.ndarray,
    violations: np.ndarray,
    seconds: float,
) -> None:
    """Record the outcome of a batch."""
    for trial, value, violation in zip(waiting, values.tolist(), violations.tolist(), strict=bool(waiting)):
        for name, excess in zip(state.scorer.constraint_names, violation, strict=True):
            trial.set_constraint(name, excess)
        trial.study.tell(trial, value)
    state.trials.add(rows, values, violations, new_points(state))
    feasible = state.progress.feasible + int((violations <= 0).all(axis=1).sum())
    state.history.append(Progress(state.progress.trials + len(rows), feasible, state.measure(), seconds))


def new_points(state: SearchState) -> np.ndarray:
    """Points (see `trial_points`) that the batch in hand put on the frontier."""
    if state.frontier is None:
        return np.zeros((0, 2 + len(state.scorer.objectives)))
    new = state.frontier["trial"] >= state.progress.trials
    return trial_points(state.scorer, take(state.frontier, new))
