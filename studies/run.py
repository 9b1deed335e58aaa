"""Launch a study: search, or enumerate where that is cheaper; checkpoint as it goes; write the run directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import optuna

from search.loop import Stop, search
from search.objective import ServingObjective
from studies.objective import build_objective
from studies.outcome import Outcome, from_search, from_sweep, sweep_is_cheaper, write_results
from studies.results import Run
from studies.resume import Checkpoints, open_directory
from studies.store import RunDirectory
from studies.study import Study, load_study
from studies.sweep import swept


def run(
    study: Study | str | Path,
    trials: int | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    command: str = "",
) -> Run:
    """Search a study's space and write its run directory; a small space is enumerated instead.

    Args:
        study: a Study, a preset name or a path. trials, seed: override the study's.
        out: the run directory; default runs/<name>-<n>. resume: go on with the run in `out`.
        progress: show a progress bar; None: where standard error is a terminal. command: for the record.
    Raises:
        ValueError: bad study, directory in use, another study's directory, or no feasible design at all.
    """
    study = study if isinstance(study, Study) else load_study(study)
    changes = {"search.trials": trials, "search.seed": seed}
    if any(value is not None for value in changes.values()):
        study = study.override({key: value for key, value in changes.items() if value is not None})
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    objective = build_objective(study)
    directory = open_directory(study, study.name, out, resume)
    with directory.lock():
        directory.write_text("study.toml", study.toml())
        if study.search.sampler == "frontier" and sweep_is_cheaper(study, objective):
            outcome = from_sweep(study, objective, swept(objective, directory, resume=resume, progress=progress))
        else:
            outcome = _searched(study, objective, directory, resume, progress)
        write_results(directory, study, objective, outcome, command)
    return Run(directory)


def _searched(
    study: Study, objective: ServingObjective, directory: RunDirectory, resume: bool, progress: bool | None
) -> Outcome:
    checkpoints = Checkpoints(directory)
    state = search(
        objective,
        _stop(study),
        study.search.sampler,
        study.search.seed,
        state=checkpoints.read(objective) if resume else None,
        on_batch=checkpoints.save_sometimes,
        progress=progress,
    )
    checkpoints.save(state)
    return from_search(study, objective, state)


def _stop(study: Study) -> Stop:
    plateau = study.search.plateau
    return Stop(
        trials=study.search.trials,
        seconds=study.search.seconds or np.inf,
        plateau_trials=plateau.trials if plateau else 0,
        plateau_gain=plateau.gain if plateau else 0.001,
    )
