"""Other published models beside a run's own designs: priced under the study's GPUs, workloads and formats."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cost_model.counts import parameters as counted
from reports.blocks import section
from reports.html import Safe, join, table, tag
from reports.payload import REFERENCE
from reports.trust import points_at
from reports.words import nats, number, parameters, percent, records
from search.cells import Cell
from spaces.architecture import FIELDS, Architecture, stack
from spaces.formats import RECIPES
from spaces.huggingface import load_architecture
from studies.objective import plans_of
from studies.tables import DesignSet, own_points


def overlay_points(run: Any, models: Sequence[str | Path]) -> pd.DataFrame | None:
    """Each model's own frontier in every cell of a run, under every recipe and KV format of the study.

    Its plans are its own: those legal for it on the study's GPU counts. Parameters and loss are not held.

    Args:
        models: bundled names or paths to config.json files.
    Returns:
        Rows like the run's reference table, `design` being the model's name; None without models.
    Raises:
        ValueError: unknown model, one listed twice, or one that no plan of the study can serve.
    """
    names = [model_name(model) for model in models]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--overlay: {name!r} is listed twice")
    tables = [_priced(run, name, load_architecture(model)) for name, model in zip(names, models, strict=True)]
    return pd.concat(tables, ignore_index=True) if tables else None


def overlay_section(run: Any, overlay: pd.DataFrame) -> Safe:
    """The models' throughput at the targets beside the reference's, one row per model and formats."""
    targets = [float(t) for t in run.meta["interactivity_targets"]]
    theirs = {target: _throughput(run.reference, target) for target in targets}
    ours = {target: _throughput(overlay, target) for target in targets}
    rows = []
    for (name, recipe, kv), part in overlay.groupby(["design", "recipe", "kv_format"], sort=False):
        one = records(part.head(1))[0]
        count = counted(Architecture(**{field: int(one[field]) for field in FIELDS}))
        active = f", {parameters(float(count.active))} active" if one["experts"] else ""
        cells = [_beside(ours[t].get((name, recipe, kv)), theirs[t].get((REFERENCE, recipe, kv))) for t in targets]
        loss = nats(one["shape_loss"] - run.meta["reference_loss"])
        rows.append(
            [tag("strong", name), f"{recipe}, KV {kv}", f"{parameters(float(count.total))}{active}", *cells, loss]
        )
    heads = ["model", "formats", "parameters", *(f"tokens/s/GPU at {t:g}" for t in targets), "Δ loss, nats"]
    return section(
        "models",
        "Other models",
        f"Published models under the same GPUs, workloads, limits and formats, each under its own best deployment, "
        f"beside {run.reference_name}. Neither their parameters nor their loss is held: this is no ranking of shapes.",
        table(heads, rows, "Other models at the interactivity targets", numeric=range(3, len(heads))),
    )


def _throughput(points: pd.DataFrame, target: float) -> dict[Any, float]:
    """Best tokens/s/GPU by design and formats, of the cell that serves it worst; reached in every cell or absent."""
    best = points_at(points, target)
    cells = len(points[["gpu", "workload"]].drop_duplicates())
    grouped = best.groupby(["design", "recipe", "kv_format"])["tokens_per_s_per_gpu"]
    return {key: float(values.min()) for key, values in grouped if len(values) == cells}


def _beside(value: float | None, reference: float | None) -> Any:
    if value is None:
        return tag("span", "–", class_="noise", title="no plan that fast")
    note = None if reference is None else tag("small", f"{percent(value / reference - 1)} over the reference")
    return join([number(value, 4), note])


def model_name(model: str | Path) -> str:
    """What a model is called in the page: its bundled name, or the folder or file that holds its config."""
    path = Path(model)
    return (
        path.parent.resolve().name if path.name == "config.json" else path.stem if path.suffix == ".json" else path.name
    )


def _priced(run: Any, name: str, architecture: Architecture) -> pd.DataFrame:
    objective = copy.copy(run.objective)
    try:
        objective.cells = tuple(_own_plans(run, cell, architecture) for cell in run.objective.cells)
    except ValueError as error:
        raise ValueError(f"--overlay {name}: {error}") from error
    recipe, kv = objective.formats
    fits = np.array([bool(architecture.is_moe) or not RECIPES[code].endswith("-experts") for code in recipe])
    n = int(fits.sum())
    designs = DesignSet(
        np.array([name] * n), stack([architecture] * n), recipe[fits], kv[fits], np.array([""] * n), np.ones(n)
    )
    try:
        points = own_points(objective, designs)
    except ValueError as error:  # no point at all
        raise ValueError(_nowhere(run, name)) from error
    if points.empty:
        raise ValueError(_nowhere(run, name))
    return points


def _nowhere(run: Any, name: str) -> str:
    where = "; ".join(f"{c['workload']} on {c['gpus']} x {c['gpu']}" for c in run.meta["cells"])
    return f"--overlay {name}: no plan fits within the study's limits ({where})"


def _own_plans(run: Any, cell: Cell, architecture: Architecture) -> Cell:
    target = next(t for t in run.study.targets if t.gpu is cell.gpu)
    deployments, prefill = plans_of(run.study, target, architecture)
    return replace(cell, deployments=deployments, prefill=prefill)
