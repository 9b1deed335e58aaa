"""What is exported: one design of a run, the points of it that get launch files, and the record that reads back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cost_model import load_accelerator
from reports.launch import Point
from reports.launch_point import Server, comment
from reports.words import number, parameters, plan, seconds, shape
from spaces.architecture import FIELDS, Architecture
from spaces.config_file import Fields, read_object
from spaces.deployment import FIELDS as PLAN_FIELDS
from spaces.deployment import Deployment
from spaces.families import FAMILIES, export_family, to_config
from spaces.formats import kv_code, recipe_code
from studies.results import Run

ROLES = ("latency", "balanced", "throughput")
FORMAT, FORMAT_VERSION = "ridgeline-design", 1
_MEASURES = (
    "ttft_s",
    "ttft_median_s",
    "tpot_s",
    "e2e_s",
    "tokens_per_s_per_user",
    "tokens_per_s_per_gpu",
    "memory_bytes_per_gpu",
    "usd_per_million_tokens",
    "joules_per_token",
    "regime",
    "evidence",
    "error_low",
    "error_high",
    "gpus",
)


@dataclass(frozen=True)
class Design:
    """One design of a run, or one point of it, ready to be exported.

    Attributes:
        run, identifier: where it comes from, as asked. design: its id. point: the point asked for, None for a design.
        architecture, family, recipe, kv_format, config: the model; config is its Hugging Face configuration.
        row: its row of the designs table; None for a point of the reference or of the cloud.
        points: its own frontier (DataFrame). chosen: point rows that get launch files, by role.
    """

    run: Run
    identifier: str
    design: str
    point: str | None
    architecture: Architecture
    family: str
    recipe: str
    kv_format: str
    config: dict[str, Any]
    row: dict[str, Any] | None
    points: pd.DataFrame
    chosen: dict[str, dict[str, Any]]

    @property
    def shape(self) -> str:
        return shape(self.architecture.as_dict())


def find(run: Run, identifier: str, at: float | None = None) -> Design:
    """The design or point with this id.

    Args:
        at: tokens/s/user that the balanced point of a design must reach.
    Raises:
        ValueError: unknown id, or a shape that no published family carries.
    """
    described = run.describe(identifier)
    architecture = Architecture(**{name: int(described[name]) for name in FIELDS})
    config = to_config(architecture)
    design, recipe, kv_format = described["design"], described["recipe"], described["kv_format"]
    rows = run.designs[run.designs["design"] == design]
    row = dict(rows.iloc[0].to_dict()) if len(rows) else None
    point = None if "points" in described else identifier
    own = _own_points(run, design, recipe, kv_format)
    chosen = {"point": described} if point else choose(run, own, at)
    family = FAMILIES[int(export_family(architecture))]
    return Design(run, identifier, design, point, architecture, family, recipe, kv_format, config, row, own, chosen)


def _own_points(run: Run, design: str, recipe: str, kv_format: str) -> pd.DataFrame:
    points = run.points[run.points["kind"] == "own"] if "kind" in run.points else run.points
    for table in (points, run.reference):
        own = table[(table["design"] == design) & (table["recipe"] == recipe) & (table["kv_format"] == kv_format)]
        if len(own):
            return own
    return points.iloc[:0]


def choose(run: Run, own: pd.DataFrame, at: float | None = None) -> dict[str, dict[str, Any]]:
    """Three points of a design's own frontier in the study's weightiest cell: (role -> row).

    latency is the fastest for one user, throughput gives most tokens/s/GPU, balanced is the best at `at`, or else the
    farthest from the chord between the two in log-log.
    Raises:
        ValueError: the design has no point within the limit on the time to first token.
    """
    cell = max(run.meta["cells"], key=lambda cell: cell["weight"])
    same = (own["gpu"] == cell["gpu"]) & (own["engine"] == cell["engine"]) & (own["workload"] == cell["workload"])
    pool = own[same & own["within_ttft"]]
    if pool.empty:
        pool = own[own["within_ttft"]]
    if pool.empty:
        raise ValueError(f"{own['design'].iloc[0] if len(own) else run.path}: no point is within the study's limits")
    x, y = (np.log(pool[f"tokens_per_s_per_{who}"].to_numpy(dtype=float)) for who in ("user", "gpu"))
    fastest, most = int(np.argmax(x)), int(np.argmax(y))
    offset = (x[fastest] - x[most]) * (y - y[most]) - (y[fastest] - y[most]) * (x - x[most])
    balanced = int(np.argmax(offset))
    if at is not None and x[fastest] >= np.log(at):
        balanced = int(np.argmax(np.where(x >= np.log(at), y, -np.inf)))
    rows = pool.to_dict("records")
    return dict(zip(ROLES, (rows[fastest], rows[balanced], rows[most]), strict=True))


def folders(chosen: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Chosen points by the folder that holds their launch files: one that plays several roles has one folder."""
    result: dict[str, dict[str, Any]] = {}
    for role, row in chosen.items():
        if all(row["point"] != other["point"] for other in result.values()):
            result[role] = row
    return result


def folder_of(design: Design, role: str) -> str:
    point = design.chosen[role]["point"]
    return next(name for name, row in folders(design.chosen).items() if row["point"] == point)


def plan_of(row: dict[str, Any]) -> Deployment:
    """The single plan of a point's row."""
    return Deployment(**{n: float(row[n]) if n == "acceptance" else int(row[n]) for n in PLAN_FIELDS})


def launch_point(design: Design, role: str, row: dict[str, Any]) -> Point:
    """A chosen point as the launch files need it."""
    run, study = design.run, design.run.study
    found = [
        (i, target, named)
        for i, target in enumerate(study.targets)
        for named in study.workloads
        if (target.gpu.name, target.gpu.engine.name, named.name) == (row["gpu"], row["engine"], row["workload"])
    ]
    if not found:
        raise ValueError(f"{row['point']}: the study has no {row['gpu']} with {row['engine']} for {row['workload']!r}")
    index, target, named = found[0]
    device = load_accelerator(study.table["target"][index]["gpu"], engine="ideal").memory_bytes
    deployment = plan_of(row)
    server = Server(
        design.architecture,
        design.family,
        design.recipe,
        design.kv_format,
        deployment,
        named.workload,
        target.gpu,
        float(max(device, target.gpu.memory_bytes)),
    )
    return Point(server, deployment, row, study.serving.expert_skew, tuple(_head(design, role, row, run)))


def _head(design: Design, role: str, row: dict[str, Any], run: Run) -> list[str]:
    what = f"design {design.design}" + ("" if role == "point" else f", {role}")
    return [
        f"Ridgeline {version('ridgeline')}: {what}, point {row['point']} of run {run.name}",
        f"{design.family} {design.shape}; {design.recipe} weights, {design.kv_format} KV cache",
        f"{int(row['gpus'])} x {row['gpu']}: {plan(row)}{spare(row)}",
        f"predicted with {row['engine']} for {row['workload']}: {number(row['tokens_per_s_per_user'])} tokens/s/user, "
        f"{number(row['tokens_per_s_per_gpu'])} tokens/s/GPU, first token {seconds(row['ttft_s'])}",
    ]


def spare(row: dict[str, Any]) -> str:
    """Redundant experts of a plan, in words."""
    return f", {int(row['redundant_experts'])} redundant experts" if row["redundant_experts"] else ""


def origin(design: Design) -> str:
    """One line that says where a file comes from, fit for a comment."""
    where = f"Ridgeline {version('ridgeline')}: design {design.design} of run {design.run.name}"
    return comment(f"{where}, {parameters_text(design)}")


def parameters_text(design: Design) -> str:
    from cost_model.counts import parameters as count

    counts = count(design.architecture)
    text = f"{parameters(float(counts.total))} parameters"
    return text + (f", {parameters(float(counts.active))} active" if design.architecture.is_moe else "")


def record(design: Design, launched: dict[str, dict[str, str]]) -> dict[str, Any]:
    """design.json: everything known, and enough to read the architecture and every plan back.

    Args:
        launched: role -> engine -> file names or the reason of a refusal.
    """
    run = design.run
    rows: dict[Any, dict[Any, Any]] = {row["point"]: row for row in design.points.to_dict("records")}
    rows |= {row["point"]: row for row in design.chosen.values()}
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "ridgeline": version("ridgeline"),
        "study": run.name,
        "reference": run.reference_name,
        "design": design.design,
        "point": design.point,
        "family": design.family,
        "recipe": design.recipe,
        "kv_format": design.kv_format,
        "architecture": design.architecture.as_dict(),
        "measures": None if design.row is None else plain({k: v for k, v in design.row.items() if k not in FIELDS}),
        "cells": run.meta["cells"],
        "interactivity_targets": run.meta["interactivity_targets"],
        "chosen": {role: row["point"] for role, row in design.chosen.items()},
        "points": [_point_record(row) for row in rows.values()],
        "launch": launched,
        "run": {key: run.meta[key] for key in ("command", "seed", "versions", "trials", "finished") if key in run.meta},
        "caveat": "times are predictions of a cost model; loss is a proxy from published scaling laws",
    }


def _point_record(row: dict[Any, Any]) -> dict[str, Any]:
    where = {key: row[key] for key in ("point", "gpu", "engine", "workload")}
    return {**where, "plan": plan_of(row).as_dict(), "predicted": plain({k: row.get(k) for k in _MEASURES})}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON-able values: NumPy numbers become Python's, missing ones None."""
    result = {}
    for name, value in row.items():
        value = getattr(value, "item", lambda v=value: v)()
        result[name] = None if isinstance(value, float) and not np.isfinite(value) else value
    return result


@dataclass(frozen=True)
class Recorded:
    """A design.json, read back.

    Attributes:
        plans: point id -> its plan. values: the whole object.
    """

    architecture: Architecture
    family: str
    recipe: str
    kv_format: str
    plans: dict[str, Deployment]
    values: dict[str, Any]


def read_design(path: str | Path) -> Recorded:
    """Read a design.json that `export` wrote (or the folder that holds it).

    Raises:
        ValueError: unreadable, another format or version, or a field that no design or plan can have.
    """
    file = Path(path) / "design.json" if Path(path).is_dir() else Path(path)
    values = read_object(file)
    fields = Fields(values, str(file))
    if values.get("format") != FORMAT or values.get("format_version") != FORMAT_VERSION:
        raise fields.error("format", f"is not {FORMAT} {FORMAT_VERSION}: written by another program or version")
    recipe, kv_format = fields.word("recipe"), fields.word("kv_format")
    recipe_code(recipe or ""), kv_code(kv_format or "")
    architecture = Architecture(**_exactly(fields, "architecture", FIELDS))
    plans = {}
    for entry in values.get("points", []):
        one = Fields(entry, f"{file}: point {entry.get('point')!r}")
        plans[str(entry["point"])] = Deployment(**_exactly(one, "plan", PLAN_FIELDS))
    return Recorded(architecture, str(fields.word("family")), str(recipe), str(kv_format), plans, values)


def _exactly(fields: Fields, key: str, known: Iterable[str]) -> dict[str, Any]:
    table = fields.table(key)
    wrong = sorted(set(table) ^ set(known))
    if wrong:
        raise fields.error(f"{key}.{wrong[0]}", "is unknown" if wrong[0] in table else "is missing")
    return table
