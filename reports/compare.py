"""Runs side by side: what their studies differ in, then their frontiers, measured the same way where that is fair.

Runs of the same workload and objectives share one reference point, so their hypervolumes compare. Runs of different
workloads do not: they are shown as throughput at targets, without a hypervolume. Where only the GPU differs, what a
new shape gives and what the new GPU gives are separated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from reports.figures import figure
from reports.trust import errors_at
from reports.words import finite
from search.frontier import Scale, hypervolume, loss_values
from search.objective import OBJECTIVES

SERVING = ("tokens_per_s_per_user", "tokens_per_s_per_gpu")


def compare(runs: Sequence[Any], measured: pd.DataFrame | None = None) -> dict[str, Any]:
    """Compare two or more runs, JSON-able.

    Args:
        measured: points to lay over the curves (see `read_measured`).
    Returns:
        runs, differences (study keys that are not the same everywhere), throughput (one row per run, recipe and
        target), hypervolumes (None where workloads differ), split (shape and GPU gain, None unless only the target
        differs).
    Raises:
        ValueError: fewer than two runs.
    """
    if len(runs) < 2:
        raise ValueError("compare: needs at least two run directories")
    names = _names(runs)
    return {
        "runs": [
            {"name": n, "path": str(r.path), "reference": r.reference_name, "cells": r.meta["cells"]}
            for n, r in zip(names, runs, strict=True)
        ],
        "differences": differences(runs),
        "throughput": throughput(runs, names),
        "hypervolumes": hypervolumes(runs, names),
        "split": split_gains(runs, names),
        "measured": None if measured is None else measured.to_dict("records"),
    }


def _names(runs: Sequence[Any]) -> list[str]:
    names = [run.name for run in runs]
    return [name if names.count(name) == 1 else Path(run.path).name for name, run in zip(names, runs, strict=True)]


def differences(runs: Sequence[Any]) -> dict[str, list[Any]]:
    """Dotted study keys whose values are not the same in every run; None where a study does not have one."""
    flat = [_flat(run.study.table) for run in runs]
    keys = sorted({key for table_ in flat for key in table_})
    values = {key: [table_.get(key) for table_ in flat] for key in keys}
    return {key: row for key, row in values.items() if any(v != row[0] for v in row) and key != "name"}


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
        items = [(str(i), v) for i, v in enumerate(value)]
    else:
        return {prefix: value}
    return {
        key: v for name, part in items for key, v in _flat(part, f"{prefix}.{name}" if prefix else str(name)).items()
    }


def _workloads(run: Any) -> list[tuple[Any, ...]]:
    return sorted({(c["isl"], c["osl"], c["cached"]) for c in run.meta["cells"]})


def _same_workload(runs: Sequence[Any]) -> bool:
    first = runs[0]
    limits = {run.meta["max_ttft_s"] for run in runs}
    return len(limits) == 1 and all(
        _workloads(r) == _workloads(first) and r.meta["objectives"] == first.meta["objectives"] for r in runs
    )


def throughput(runs: Sequence[Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Best design of each run and recipe at every target that some run has."""
    rows = []
    for run, name in zip(runs, names, strict=True):
        for target in [float(t) for t in run.meta["interactivity_targets"]]:
            errors = errors_at(run, target)
            at, gain = f"tokens_per_s_per_gpu_at_{target:g}", f"gain_at_{target:g}"
            for recipe, part in run.designs.groupby("recipe"):
                reached = part.dropna(subset=[at])
                if reached.empty:
                    continue
                best = reached.loc[reached[at].astype(float).idxmax()]
                rows.append(
                    {
                        "run": name,
                        "recipe": recipe,
                        "kv_format": best["kv_format"],
                        "target": target,
                        "design": best["design"],
                        "shape": best["shape"],
                        "tokens_per_s_per_gpu": finite(best[at]),
                        "gain": finite(best[gain]),
                        "error": finite(errors.get((best["design"], recipe, best["kv_format"]), np.nan)),
                    }
                )
    return rows


def hypervolumes(runs: Sequence[Any], names: Sequence[str]) -> dict[str, Any] | None:
    """Hypervolume of every run's frontier in the serving objectives under one scale; None where workloads differ."""
    if not _same_workload(runs):
        return None
    axes = [OBJECTIVES[name] for name in SERVING]
    own = [run.points[(run.points["kind"] == "own") & run.points["within_ttft"]] for run in runs]
    losses = [loss_values({o.name: points[o.name].to_numpy() for o in axes}, axes) for points in own]
    references = [run.reference[run.reference["within_ttft"]] for run in runs]
    base = [loss_values({o.name: points[o.name].to_numpy() for o in axes}, axes) for points in references]
    scale = Scale.around(np.concatenate([*losses, *base]))
    return {
        "ideal": list(scale.ideal),
        "nadir": list(scale.nadir),
        "runs": [
            {"run": n, "hypervolume": hypervolume(v, scale), "reference_hypervolume": hypervolume(b, scale)}
            for n, v, b in zip(names, losses, base, strict=True)
        ],
    }


def split_gains(runs: Sequence[Any], names: Sequence[str]) -> list[dict[str, Any]] | None:
    """Where only the target differs: the reference's gain from the first run's GPU to another's, then the shape's."""
    changed = {key.split(".")[0] for key in differences(runs)}
    if not changed or not changed <= {"target", "search"} or len({r.reference_name for r in runs}) > 1:
        return None
    rows = []
    first = runs[0]
    for run, name in zip(runs[1:], names[1:], strict=True):
        shared = sorted(
            set(map(float, first.meta["interactivity_targets"])) & set(map(float, run.meta["interactivity_targets"]))
        )
        for target in shared:
            for recipe in sorted(set(first.designs["recipe"]) & set(run.designs["recipe"])):
                old, new = (_reference_and_best(r, recipe, target) for r in (first, run))
                if old is None or new is None:
                    continue
                rows.append(
                    {
                        "from": names[0],
                        "to": name,
                        "target": target,
                        "recipe": recipe,
                        "gpu_gain": new.reference / old.reference - 1,
                        "shape_gain": new.best / new.reference - 1,
                        "shape_error": finite(new.error),
                        "both": new.best / old.reference - 1,
                    }
                )
    return rows


class _Pair(NamedTuple):
    """tokens/s/GPU of the reference and of the best design, and the error of their ratio."""

    reference: float
    best: float
    error: float


def _reference_and_best(run: Any, recipe: str, target: float) -> _Pair | None:
    """Of one recipe at one target; the reference's throughput follows from the design's own gain."""
    part = run.designs[run.designs["recipe"] == recipe].dropna(subset=[f"gain_at_{target:g}"])
    if part.empty:
        return None
    row = part.loc[part[f"tokens_per_s_per_gpu_at_{target:g}"].astype(float).idxmax()]
    best = float(row[f"tokens_per_s_per_gpu_at_{target:g}"])
    error = errors_at(run, target).get((row["design"], recipe, row["kv_format"]), np.nan)
    return _Pair(best / (1 + float(row[f"gain_at_{target:g}"])), best, error)


_MEASURED = {
    SERVING[0]: (SERVING[0], "tok_s_per_user"),
    SERVING[1]: (SERVING[1], "output_tok_s_per_gpu"),
}
_LABELS = ("label", "model", "gpu", "n_gpus", "engine", "precision_weights", "concurrency_or_batch")


def read_measured(path: str | Path) -> pd.DataFrame:
    """Measured points of a CSV, rows without either rate left out.

    Columns: tokens_per_s_per_user (or tok_s_per_user) and tokens_per_s_per_gpu (or output_tok_s_per_gpu); label,
    model, gpu, n_gpus, engine, precision_weights, concurrency_or_batch name a point where they are there.
    Raises:
        ValueError: unreadable, a column is missing, or a rate that is not a positive number.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path}: not a readable CSV file: no such file")
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a readable CSV file: {error}") from error
    columns = {}
    for wanted, spellings in _MEASURED.items():
        found = next((name for name in spellings if name in rows), None)
        if found is None:
            raise ValueError(f"{path}: needs a column {' or '.join(spellings)}; it has {', '.join(map(str, rows))}")
        columns[wanted] = pd.to_numeric(rows[found], errors="coerce").where(rows[found].notna(), np.nan)
        broken = rows[found].notna() & ~((columns[wanted] > 0) & np.isfinite(columns[wanted]))
        if broken.any():
            raise ValueError(f"{path}: row {int(np.flatnonzero(broken)[0]) + 2}: {found} must be a number above 0")
    result = pd.DataFrame(columns)
    names = [name for name in _LABELS if name in rows]
    result["label"] = rows[names].astype(str).agg(", ".join, axis=1) if names else "measured"
    return result.dropna().reset_index(drop=True)


def overlay(run: Any, measured: pd.DataFrame) -> Any:
    """The run's figure with measured points on it."""
    chart = figure(run)
    chart.add_scatter(
        x=measured[SERVING[0]],
        y=measured[SERVING[1]],
        mode="markers",
        name="measured",
        text=measured["label"],
        marker={"symbol": "x", "size": 9, "color": "#009E73"},
    )
    return chart
