"""One worker of a study that many machines search together, through an Optuna storage."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import numpy as np

from search.frontier import Table
from search.worker import open_study, work
from studies.objective import build_objective
from studies.store import RunDirectory, reason
from studies.study import Study


def run_worker(
    study: Study, storage: str, seed: int | None = None, trials: int | None = None, out: str | Path | None = None
) -> dict[str, Any]:
    """Price trials until all workers together have done the study's number of them (or `trials`).

    The storage holds trials only; this worker's frontier is written to `out` after every trial, as
    frontier_<seed>.npz beside the other workers'.
    Raises:
        ValueError: the storage cannot be reached, or the objective cannot be built.
    """
    objective = build_objective(study)
    seed = secrets.randbelow(2**31) if seed is None else seed
    directory = RunDirectory(Path(out) if out else Path("runs") / f"{study.name}-workers")
    shared = open_study(objective, storage, study.name, seed)
    try:
        directory.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {directory.path}: cannot be made: {reason(error)}") from error

    def keep(frontier: Table) -> None:
        directory.write_arrays(f"frontier_{seed}", {name: np.asarray(column) for name, column in frontier.items()})

    frontier = work(objective, shared, trials or study.search.trials, study.search.seconds, keep)
    points = 0 if frontier is None else len(frontier["trial"])
    return {"study": study.name, "seed": seed, "frontier_points": points, "path": str(directory.path)}
