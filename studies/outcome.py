"""What a search or a sweep leaves behind, in one form, and how it becomes the tables of a run."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

from search.frontier import Scale, Table, loss_values
from search.objective import CONSTRAINTS, OBJECTIVES, ServingObjective
from search.state import SearchState
from search.sweep import Sweep, enumerated_points
from studies.check import advice, sample_space
from studies.plans import SERVING
from studies.store import RunDirectory, json_bytes, parquet_bytes
from studies.study import Study
from studies.sweep import summary
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

SWEEP_SPEED = 2.0  # points of a sweep in the time of a search's one: its batches hold neighbours, on every core
ADVICE_SAMPLES = 20_000  # random proposals that say what excludes most
_PACKAGES = ("ridgeline", "optuna", "numpy", "pandas", "plotly", "pyarrow", "moocore", "pydantic")


@dataclass(frozen=True)
class Outcome:
    """A finished search or sweep.

    Attributes:
        frontier: its points (see `search.scores.Scores.points`). trials: one row per trial, empty after a sweep.
        feasible: (n, outer axes) some feasible trials. record: what run.json says of the search itself.
    """

    frontier: Table
    trials: pd.DataFrame
    feasible: np.ndarray
    record: dict[str, Any]


def from_search(study: Study, objective: ServingObjective, state: SearchState) -> Outcome:
    """The outcome of a search.

    Raises:
        ValueError: no trial was feasible, with the limit that excludes most and the nearest design.
    """
    now = state.progress
    if state.frontier is None or not len(state.frontier["trial"]):
        outside = [(block[:, : CONSTRAINTS.index("plan")] > 0).any(axis=1) for block in state.trials.violations]
        raise ValueError(_nothing_feasible(study, objective, now.trials if all(map(np.all, outside)) else 0))
    rows, violations = np.concatenate(state.trials.rows), np.concatenate(state.trials.violations)
    record = {
        "sampler": state.sampler,
        "seconds": round(now.seconds, 3),
        "trials": now.trials,
        "feasible_share": now.feasible / max(now.trials, 1),
        "points_priced": len(state.memo) * state.scorer.points_per_trial,
        "stop_reason": state.stopped,
        "hypervolume_history": [[entry.trials, entry.hypervolume] for entry in state.history],
    }
    trials = pd.DataFrame(state.trials_table())
    return Outcome(state.frontier, trials, rows[(violations <= 0).all(axis=1)], record)


def from_sweep(study: Study, objective: ServingObjective, state: Sweep) -> Outcome:
    """The outcome of a sweep: exact, with no trials to list.

    Raises:
        ValueError: no design of the space is feasible, with the limit that excludes most and the nearest design.
    """
    if state.frontier is None or not len(state.frontier["trial"]):
        raise ValueError(_nothing_feasible(study, objective))
    shape = [study.space.shape[i] for i in study.space.outer]
    rows = np.random.default_rng(study.search.seed).integers(0, shape, (8 * CLOUD_DESIGNS, len(shape)))
    rows = rows[objective.feasible(rows)]
    record = {
        "sampler": "exact",
        "seconds": round(state.seconds, 3),
        "trials": state.trials,
        "feasible_share": state.points / (state.trials * objective.points_per_trial),
        "points_priced": state.points,
        "stop_reason": "exact" if state.complete else "interrupted",
        "hypervolume_history": [],
    }
    if state.complete:  # an enumeration certifies itself
        shares = ("share_of_hypervolume", "share_of_gain", "epsilon", "designs_recovered", "designs_identical")
        designs = len(np.unique(archive_index(objective, state.frontier), axis=0))
        record["certificate"] = {**dict.fromkeys(shares, 1.0), "exact_designs": designs, "sweep": summary(state)}
    return Outcome(state.frontier, pd.DataFrame(), rows, record)


def _nothing_feasible(study: Study, objective: ServingObjective, unpriced: int = 0) -> str:
    """Why: the limits of the space or of the loss, else the limits of [serving], unless no design got as far as them.

    Args:
        unpriced: trials, where none of them was inside the space and the loss limits.
    """
    sample = sample_space(study.space, objective, ADVICE_SAMPLES, study.search.seed)
    said = advice(study, sample)
    if not said and unpriced:
        said = f"no trial of {unpriced} was feasible; {sample.accurate / sample.proposals:.1%} of random designs are "
        said += "inside the space and the loss limits: raise search.trials"
    return f"{study.name}: {said or 'no design has a plan within the limits of [serving]'}"


def sweep_is_cheaper(study: Study, objective: ServingObjective) -> bool:
    """Whether enumerating the whole space takes no longer than the trials asked for."""
    return enumerated_points(objective) <= SWEEP_SPEED * study.search.trials * objective.points_per_trial


def write_results(
    directory: RunDirectory, study: Study, objective: ServingObjective, outcome: Outcome, command: str
) -> None:
    """Price the kept designs again and write every table, with run.json to vouch for them."""
    designs = _kept_designs(objective, outcome.frontier)
    cloud = _cloud(objective, outcome.feasible, study.search.seed)
    points = pd.concat([own_points(objective, designs), *cloud], ignore_index=True)
    reference = own_points(objective, reference_set(objective))
    both = pd.concat([points[points["kind"] == "own"], reference])
    scale = Scale.around(loss_values({o.name: both[o.name].to_numpy() for o in SERVING}, SERVING))
    table = designs_table(objective, designs, points, reference, scale)
    best = frontier_of(points, [OBJECTIVES[name] for name in objective.names])
    volumes = {
        "scale": {"ideal": list(scale.ideal), "nadir": list(scale.nadir)},
        "hypervolume": float(table["hypervolume"].max()),
        "reference_hypervolume": float(
            max(hypervolumes(part, scale).max() for _, part in reference.groupby(["recipe", "kv_format"]))
        ),
    }
    tables = {
        "trials": outcome.trials,
        "designs": table.sort_values("gain_hypervolume", ascending=False),
        "points": points,
        "reference": reference.drop(columns="kind"),
        "frontier": best,
    }
    files = {f"{name}.parquet": parquet_bytes(frame) for name, frame in tables.items()}
    files["frontier.csv"] = best.to_csv(index=False).encode()
    files["run.json"] = json_bytes({**described(study, objective, command), **outcome.record, **volumes})
    directory.write_together(files)


def _kept_designs(objective: ServingObjective, frontier: Table) -> DesignSet:
    """Designs of the frontier, those with most frontier points first, at most MAX_DESIGNS."""
    index, counts = np.unique(archive_index(objective, frontier), axis=0, return_counts=True)
    return design_set(objective, index[np.argsort(-counts, kind="stable")[:MAX_DESIGNS]])


def _cloud(objective: ServingObjective, feasible: np.ndarray, seed: int) -> Iterator[pd.DataFrame]:
    """Random dominated points of random feasible trials."""
    generator = np.random.default_rng(seed)
    plans = sum(cell.size for cell in objective.cells)
    most = int(np.clip(CLOUD_PRICED // plans, 8, CLOUD_DESIGNS))
    full, per_trial = objective.expand(generator.permutation(feasible)[:most])
    one_each = full[np.arange(0, len(full), per_trial) + generator.integers(0, per_trial, len(full) // per_trial)]
    one_each = one_each[objective.space.decode(one_each).feasible]
    if len(one_each):
        designs = design_set(objective, one_each)
        share = -(-CLOUD_POINTS // (len(designs.ids) * len(objective.cells)))
        points = own_points(objective, designs, cloud=share, seed=seed)
        yield points[points["kind"] == "cloud"]


def described(study: Study, objective: ServingObjective, command: str) -> dict[str, Any]:
    """What run.json says of the study and of the programs that ran it."""
    limit = objective.limits.max_ttft_s
    return {
        "name": study.name,
        "reference": study.reference_name,
        "command": command,
        "seed": study.search.seed,
        "versions": {"python": platform.python_version(), **dict(_versions())},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "objectives": list(objective.names),
        "interactivity_targets": objective.targets.tolist(),
        "max_ttft_s": None if np.isinf(limit) else limit,
        "worst_case": objective.worst_case,
        "reference_loss": float(objective.reference_loss.shape_loss),
        "cells": [
            {
                "gpu": cell.gpu.name,
                "engine": cell.gpu.engine.name,
                "workload": cell.workload_name,
                "isl": int(cell.workload.isl),
                "osl": int(cell.workload.osl),
                "cached": int(cell.workload.cached),
                "plans": cell.size,
                "gpus": sorted({int(g) for g in np.ravel(cell.deployments.replica_gpus)}),
                "weight": cell.weight,
            }
            for cell in objective.cells
        ],
        "axes": [{"name": axis.name, "values": list(axis.labels)} for axis in study.space.axes],
        "certificate": None,
    }


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            yield name, "not installed"
