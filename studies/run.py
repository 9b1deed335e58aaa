"""Launch a study: search, checkpoint after every batch, and write the run directory."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd

from search.checkpoint import restored, saved
from search.frontier import Scale, Table, loss_values
from search.loop import Stop, search
from search.objective import OBJECTIVES, ServingObjective
from search.state import SearchState
from studies.objective import build_objective
from studies.plans import SERVING
from studies.results import Run
from studies.store import RunDirectory
from studies.study import Study, load_study
from studies.tables import (
    CLOUD_DESIGNS,
    CLOUD_POINTS,
    CLOUD_PRICED,
    MAX_DESIGNS,
    DesignSet,
    archive_index,
    design_set,
    designs_table,
    frontier_of,
    hypervolumes,
    own_points,
    reference_set,
)

CHECKPOINT = "checkpoint"
_PACKAGES = ("ridgeline", "optuna", "numpy", "pandas", "plotly", "pyarrow", "moocore", "pydantic")


def run(
    study: Study | str | Path,
    trials: int | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    command: str = "",
) -> Run:
    """Search a study's space and write its run directory.

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
    directory = _directory(study, out, resume)
    with directory.lock():
        objective = build_objective(study)
        arrays = directory.read_arrays(CHECKPOINT) if resume else None
        state = restored(objective, arrays) if arrays else None
        directory.write_text("study.toml", study.toml())
        state = search(
            objective,
            _stop(study),
            study.search.sampler,
            study.search.seed,
            state=state,
            on_batch=lambda now: directory.write_arrays(CHECKPOINT, saved(now)),
            progress=progress,
        )
        write_results(directory, study, objective, state, command)
    return Run(directory)


def _directory(study: Study, out: str | Path | None, resume: bool) -> RunDirectory:
    if not resume:
        return RunDirectory.create(study.name, out)
    if out is None:
        raise ValueError("--resume: name the run directory with --out")
    directory = RunDirectory.open(out)
    before = load_study(directory.path / "study.toml")
    ours, theirs = ({k: v for k, v in s.table.items() if k != "search"} for s in (study, before))
    if ours != theirs:
        changed = sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))
        raise ValueError(f"--resume {out}: holds another study; these differ: {', '.join(changed)}")
    return directory


def _stop(study: Study) -> Stop:
    plateau = study.search.plateau
    return Stop(
        trials=study.search.trials,
        seconds=study.search.seconds or np.inf,
        plateau_trials=plateau.trials if plateau else 0,
        plateau_gain=plateau.gain if plateau else 0.001,
    )


def write_results(
    directory: RunDirectory, study: Study, objective: ServingObjective, state: SearchState, command: str
) -> None:
    """Price the kept designs again and write every table, run.json last: it marks the run complete."""
    frontier = state.frontier
    if frontier is None or not len(frontier["trial"]):
        raise ValueError(_nothing_feasible(study, state))
    designs = _kept_designs(objective, frontier)
    points = pd.concat([own_points(objective, designs), _cloud(objective, state)], ignore_index=True)
    reference = own_points(objective, reference_set(objective))
    both = pd.concat([points[points["kind"] == "own"], reference])
    scale = Scale.around(loss_values({o.name: both[o.name].to_numpy() for o in SERVING}, SERVING))
    table = designs_table(objective, designs, points, reference, scale)
    best = frontier_of(points, [OBJECTIVES[name] for name in objective.names])
    directory.write_table("trials", pd.DataFrame(state.trials_table()))
    directory.write_table("designs", table.sort_values("gain_hypervolume", ascending=False))
    directory.write_table("points", points)
    directory.write_table("reference", reference.drop(columns="kind"))
    directory.write_table("frontier", best)
    directory.write_text("frontier.csv", best.to_csv(index=False))
    directory.write_json("run.json", _meta(study, objective, state, scale, table, reference, command))


def _kept_designs(objective: ServingObjective, frontier: Table) -> DesignSet:
    """Designs of the frontier, those with most frontier points first, at most MAX_DESIGNS."""
    index, counts = np.unique(archive_index(objective, frontier), axis=0, return_counts=True)
    return design_set(objective, index[np.argsort(-counts, kind="stable")[:MAX_DESIGNS]])


def _cloud(objective: ServingObjective, state: SearchState) -> pd.DataFrame:
    """Random dominated points of random feasible trials."""
    rows = np.concatenate(state.trials.rows)
    good = np.flatnonzero((np.concatenate(state.trials.violations) <= 0).all(axis=1))
    generator = np.random.default_rng(state.seed)
    plans = sum(len(np.asarray(cell.deployments.batch)) for cell in objective.cells)
    chosen = generator.permutation(good)[: int(np.clip(CLOUD_PRICED // plans, 8, CLOUD_DESIGNS))]
    full, per_trial = objective.expand(rows[chosen])
    one_each = full[np.arange(len(chosen)) * per_trial + generator.integers(0, per_trial, len(chosen))]
    one_each = one_each[objective.space.decode(one_each).feasible]
    designs = design_set(objective, one_each)
    share = -(-CLOUD_POINTS // max(len(designs.ids) * len(objective.cells), 1))
    points = own_points(objective, designs, cloud=share, seed=state.seed)
    return points[points["kind"] == "cloud"]


def _nothing_feasible(study: Study, state: SearchState) -> str:
    nearest = ", ".join(f"{name} by {value:.3g}" for name, value in state.nearest_miss().items())
    return (
        f"{study.name}: none of {state.progress.trials} trials is feasible; the nearest misses {nearest}. "
        f"`ridgeline check` says which limit excludes most"
    )


def _meta(
    study: Study,
    objective: ServingObjective,
    state: SearchState,
    scale: Scale,
    designs: pd.DataFrame,
    reference: pd.DataFrame,
    command: str,
) -> dict[str, Any]:
    now = state.progress
    return {
        "name": study.name,
        "reference": study.reference_name,
        "command": command,
        "seed": state.seed,
        "sampler": state.sampler,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(now.seconds, 3),
        "trials": now.trials,
        "feasible_share": now.feasible / max(now.trials, 1),
        "points_priced": len(state.memo) * objective.points_per_trial,
        "stop_reason": state.stopped,
        "objectives": list(objective.names),
        "interactivity_targets": objective.targets.tolist(),
        "max_ttft_s": None if np.isinf(objective.limits.max_ttft_s) else objective.limits.max_ttft_s,
        "worst_case": objective.worst_case,
        "scale": {"ideal": list(scale.ideal), "nadir": list(scale.nadir)},
        "hypervolume": float(designs["hypervolume"].max()),
        "reference_hypervolume": _reference_volume(objective, reference, scale),
        "hypervolume_history": [[entry.trials, entry.hypervolume] for entry in state.history],
        "reference_loss": float(objective.reference_loss.shape_loss),
        "cells": [
            {
                "gpu": cell.gpu.name,
                "engine": cell.gpu.engine.name,
                "workload": cell.workload_name,
                "isl": int(cell.workload.isl),
                "osl": int(cell.workload.osl),
                "cached": int(cell.workload.cached),
                "plans": len(np.asarray(cell.deployments.batch)),
                "gpus": sorted({int(g) for g in np.ravel(cell.deployments.replica_gpus)}),
                "weight": cell.weight,
            }
            for cell in objective.cells
        ],
        "axes": [{"name": axis.name, "values": list(axis.labels)} for axis in study.space.axes],
        "certificate": None,
    }


def _reference_volume(objective: ServingObjective, reference: pd.DataFrame, scale: Scale) -> float:
    return float(max(hypervolumes(part, scale).max() for _, part in reference.groupby(["recipe", "kv_format"])))
