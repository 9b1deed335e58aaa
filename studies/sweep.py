"""Enumerate a study: its exact frontier, and how much of it a run found."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from search.certify import Certificate, certify
from search.frontier import Objective, Table
from search.objective import ServingObjective
from search.sweep import Sweep, sweep
from studies.objective import build_objective
from studies.results import Run, load_run
from studies.resume import HOW_TO_SEARCH, open_directory, refuse_another_study
from studies.store import RunDirectory
from studies.study import Study, load_study
from studies.tables import archive_index, design_ids, own_points, reference_set

CHECKPOINT, EXACT = "sweep", "exact"


def swept(
    objective: ServingObjective,
    directory: RunDirectory,
    scheduler: str | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> Sweep:
    """Enumerate an objective's whole space, with a checkpoint in the directory after every round of chunks."""

    def save(now: Sweep) -> None:
        directory.write_arrays(CHECKPOINT, _saved(now))

    arrays = directory.read_arrays(CHECKPOINT) if resume else None
    before = _restored(directory, arrays) if arrays else None
    with _client(scheduler) as client:
        state = sweep(objective, client=client, state=before, on_round=save, progress=progress)
    if state.complete and state.frontier is not None:
        directory.write_table(EXACT, pd.DataFrame(_labelled(objective, state.frontier)))
        directory.write_json("sweep.json", summary(state))
    return state


def run_sweep(
    study: Study,
    out: str | Path | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> tuple[RunDirectory, Sweep]:
    """Sweep a study's whole space into a directory.

    Args:
        scheduler: address of a Dask scheduler whose workers run the chunks; None: this machine's cores.
    Raises:
        ValueError: too large to enumerate, with how large and what would do; no feasible design; bad directory.
    """
    objective = build_objective(study)
    directory = open_directory(study, f"{study.name}-sweep", out, resume)
    with directory.lock():
        directory.write_text("study.toml", study.toml())
        state = swept(objective, directory, scheduler, resume, progress)
    if state.complete and state.frontier is None:
        raise ValueError(f"{study.name}: no feasible design in {state.total:,} trials; `ridgeline check` says why")
    return directory, state


def summary(state: Sweep) -> dict[str, Any]:
    """What a sweep did, JSON-able."""
    points = 0 if state.frontier is None else len(state.frontier["trial"])
    return {
        "trials": state.trials,
        "total_trials": state.total,
        "complete": state.complete,
        "points_priced": state.points,
        "seconds": round(state.seconds, 3),
        "points_per_s": round(state.points / max(state.seconds, 1e-9)),
        "frontier_points": points,
    }


def certify_run(run_directory: str | Path, exact_directory: RunDirectory) -> dict[str, Any]:
    """Compare a run with a finished sweep of the same study, and write the certificate into the run.

    Objectives are the study's with shape_loss added; over several GPUs or workloads every figure is the worst.
    Raises:
        ValueError: another study, or the sweep is not finished.
    """
    run = load_run(run_directory)
    exact_study = load_study(exact_directory.path / "study.toml")
    refuse_another_study(exact_study, run.study, f"--certify {run.path}", HOW_TO_SEARCH)
    objective = run.objective
    exact = exact_directory.read_table(EXACT)
    found = _found(run)
    reference = own_points(objective, reference_set(objective))
    cells = range(len(objective.cells))
    parts = [_certificate(objective, number, found, exact, reference) for number in cells]
    gains = [part.share_of_gain for part in parts if part.share_of_gain is not None]
    certificate = {
        "share_of_hypervolume": min(part.share_of_hypervolume for part in parts),
        "share_of_gain": min(gains) if gains else None,
        "epsilon": max(part.epsilon for part in parts),
        "designs_recovered": min(part.designs_recovered for part in parts),
        "designs_identical": min(part.designs_identical for part in parts),
        "exact_designs": int(exact["design"].nunique()),
        "sweep": exact_directory.read_json("sweep.json"),
    }
    with run.directory.lock():
        run.directory.write_json("run.json", {**run.directory.read_json("run.json"), "certificate": certificate})
    run.meta["certificate"] = certificate
    return certificate


def _found(run: Run) -> pd.DataFrame:
    """The frontier that a run's search kept, as its checkpoint holds it."""
    checkpoint = run.directory.read_arrays("checkpoint") or run.directory.read_arrays(CHECKPOINT)
    if checkpoint is None:
        raise ValueError(f"{run.path}: holds no checkpoint to certify")
    kept = {k.removeprefix("frontier_"): v for k, v in checkpoint.items() if k.startswith("frontier_")}
    return pd.DataFrame(_labelled(run.objective, kept))


def _certificate(
    objective: ServingObjective, number: int, found: pd.DataFrame, exact: pd.DataFrame, reference: pd.DataFrame
) -> Certificate:
    cell = objective.cells[number]
    base = reference[(reference["gpu"] == cell.gpu.name) & (reference["workload"] == cell.workload_name)]
    base = base[base["within_ttft"]]
    tables = [part[part["cell"] == number] for part in (found, exact)]
    ours, theirs, own = (_columns(part, objective.objectives) for part in (*tables, base))
    return certify(ours, theirs, own, objective.objectives)


def _columns(frame: pd.DataFrame, objectives: tuple[Objective, ...]) -> Table:
    return {name: frame[name].to_numpy() for name in ("design", *(o.name for o in objectives))}


def _labelled(objective: ServingObjective, frontier: Table) -> Table:
    """A frontier's table with the stable id of each point's design."""
    index = archive_index(objective, frontier)
    rows, inverse = np.unique(index, axis=0, return_inverse=True)
    return {**frontier, "design": design_ids(objective.space.decode(rows))[inverse.ravel()]}


def _client(scheduler: str | None) -> AbstractContextManager[Any]:
    if scheduler is None:
        return nullcontext()
    try:
        from distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port
        from distributed.comm.registry import get_backend
    except ImportError as error:
        raise ValueError("--scheduler needs Dask: pip install 'ridgeline[distributed]'") from error
    connect: Any = Client  # Dask is not typed
    try:
        scheme, location = parse_address(scheduler)
        get_backend(scheme)  # a client with a bad address hangs when it is thrown away
        parse_host_port(location)
        client: AbstractContextManager[Any] = connect(scheduler, timeout=30)
        return client
    except (OSError, ValueError) as error:  # ValueError: not an address
        raise ValueError(f"--scheduler {scheduler}: no Dask scheduler answers there: {error}") from error


def _saved(state: Sweep) -> dict[str, np.ndarray]:
    numbers = np.array([state.trials, state.total, state.points, state.seconds], dtype=float)
    return {"numbers": numbers, **{f"frontier_{k}": v for k, v in (state.frontier or {}).items()}}


def _restored(directory: RunDirectory, arrays: dict[str, np.ndarray]) -> Sweep:
    numbers = arrays.get("numbers", np.empty(0))
    if numbers.dtype.kind != "f" or numbers.shape != (4,) or not np.isfinite(numbers).all():
        raise ValueError(f"{directory.path / CHECKPOINT}.npz: not a checkpoint of a sweep; remove it to start anew")
    trials, total, points, seconds = numbers
    frontier = {k.removeprefix("frontier_"): v for k, v in arrays.items() if k.startswith("frontier_")}
    return Sweep(frontier or None, int(trials), int(total), int(points), float(seconds))


def certificate_text(certificate: dict[str, Any]) -> str:
    """One line a person reads."""
    gain = certificate["share_of_gain"]
    return (
        f"{certificate['share_of_hypervolume']:.2%} of the exact hypervolume, "
        f"{'no exact gain' if gain is None else f'{gain:.2%} of the exact gain over the reference'}, "
        f"epsilon {certificate['epsilon']:.4f}, {certificate['designs_recovered']:.0%} of "
        f"{certificate['exact_designs']} exact designs recovered within 1 %"
    )
