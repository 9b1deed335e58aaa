"""Runs side by side: what their studies differ in, then their frontiers, measured the same way where that is fair.

Runs of the same workload and objectives share one reference point, so their hypervolumes compare. Runs of different
workloads do not: they are shown as throughput at targets, without a hypervolume. Where only the GPU differs, what a
new shape gives and what the new GPU gives are separated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from plotly.offline import get_plotlyjs

from reports.figures import ORANGE, figure
from reports.html import Safe, join, script_json, table, tag
from reports.payload import finite
from reports.words import number, percent
from search.frontier import Scale, hypervolume, loss_values
from search.objective import OBJECTIVES

_HERE = Path(__file__).parent
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#6B7280")
_SERVING = ("tokens_per_s_per_user", "tokens_per_s_per_gpu")


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
        "runs": [{"name": n, "path": str(r.path), "reference": r.reference_name, "cells": r.meta["cells"]} for n, r in zip(names, runs, strict=True)],
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
        items = value.items()
    elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
        items = [(str(i), v) for i, v in enumerate(value)]
    else:
        return {prefix: value}
    return {key: v for name, part in items for key, v in _flat(part, f"{prefix}.{name}" if prefix else str(name)).items()}


def _workloads(run: Any) -> list[tuple[Any, ...]]:
    return sorted({(c["isl"], c["osl"], c["cached"]) for c in run.meta["cells"]})


def _same_workload(runs: Sequence[Any]) -> bool:
    first = runs[0]
    limits = {run.meta["max_ttft_s"] for run in runs}
    return len(limits) == 1 and all(_workloads(r) == _workloads(first) and r.meta["objectives"] == first.meta["objectives"] for r in runs)


def throughput(runs: Sequence[Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Best design of each run and recipe at every target that some run has."""
    rows = []
    for run, name in zip(runs, names, strict=True):
        for target in [float(t) for t in run.meta["interactivity_targets"]]:
            at, gain = f"tokens_per_s_per_gpu_at_{target:g}", f"gain_at_{target:g}"
            for recipe, part in run.designs.groupby("recipe"):
                reached = part.dropna(subset=[at])
                if reached.empty:
                    continue
                best = reached.loc[reached[at].astype(float).idxmax()]
                rows.append({"run": name, "recipe": recipe, "kv_format": best["kv_format"], "target": target, "design": best["design"], "shape": best["shape"], "tokens_per_s_per_gpu": finite(best[at]), "gain": finite(best[gain])})
    return rows


def hypervolumes(runs: Sequence[Any], names: Sequence[str]) -> dict[str, Any] | None:
    """Hypervolume of every run's frontier in the serving objectives under one scale; None where workloads differ."""
    if not _same_workload(runs):
        return None
    axes = [OBJECTIVES[name] for name in _SERVING]
    own = [run.points[(run.points["kind"] == "own") & run.points["within_ttft"]] for run in runs]
    losses = [loss_values({o.name: points[o.name].to_numpy() for o in axes}, axes) for points in own]
    references = [run.reference[run.reference["within_ttft"]] for run in runs]
    base = [loss_values({o.name: points[o.name].to_numpy() for o in axes}, axes) for points in references]
    scale = Scale.around(np.concatenate([*losses, *base]))
    return {
        "ideal": list(scale.ideal),
        "nadir": list(scale.nadir),
        "runs": [{"run": n, "hypervolume": hypervolume(v, scale), "reference_hypervolume": hypervolume(b, scale)} for n, v, b in zip(names, losses, base, strict=True)],
    }


def split_gains(runs: Sequence[Any], names: Sequence[str]) -> list[dict[str, Any]] | None:
    """Where only the target differs: the reference's gain from the first run's GPU to each other's, and the shape's on top."""
    changed = {key.split(".")[0] for key in differences(runs)}
    if not changed or not changed <= {"target", "search"} or len({r.reference_name for r in runs}) > 1:
        return None
    rows = []
    first = runs[0]
    for run, name in zip(runs[1:], names[1:], strict=True):
        shared = sorted(set(map(float, first.meta["interactivity_targets"])) & set(map(float, run.meta["interactivity_targets"])))
        for target in shared:
            for recipe in sorted(set(first.designs["recipe"]) & set(run.designs["recipe"])):
                old, new = (_reference_and_best(r, recipe, target) for r in (first, run))
                if old is None or new is None:
                    continue
                rows.append({"from": names[0], "to": name, "target": target, "recipe": recipe, "gpu_gain": new[0] / old[0] - 1, "shape_gain": new[1] / new[0] - 1, "both": new[1] / old[0] - 1})
    return rows


def _reference_and_best(run: Any, recipe: str, target: float) -> tuple[float, float] | None:
    """(reference, best design) tokens/s/GPU under one recipe: the reference's follows from the best design's own gain."""
    part = run.designs[run.designs["recipe"] == recipe].dropna(subset=[f"gain_at_{target:g}"])
    if part.empty:
        return None
    row = part.loc[part[f"tokens_per_s_per_gpu_at_{target:g}"].astype(float).idxmax()]
    best = float(row[f"tokens_per_s_per_gpu_at_{target:g}"])
    return best / (1 + float(row[f"gain_at_{target:g}"])), best


_MEASURED = {
    _SERVING[0]: (_SERVING[0], "tok_s_per_user"),
    _SERVING[1]: (_SERVING[1], "output_tok_s_per_gpu"),
}
_LABELS = ("label", "model", "gpu", "n_gpus", "engine", "precision_weights", "concurrency_or_batch")


def read_measured(path: str | Path) -> pd.DataFrame:
    """Measured points of a CSV, rows without either rate left out.

    Columns: tokens_per_s_per_user (or tok_s_per_user) and tokens_per_s_per_gpu (or output_tok_s_per_gpu); label,
    model, gpu, n_gpus, engine, precision_weights, concurrency_or_batch name a point where they are there.
    Raises:
        ValueError: unreadable, a column is missing, or a rate that is not a positive number.
    """
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
        broken = rows[found].notna() & ~(columns[wanted] > 0)
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
        x=measured[_SERVING[0]], y=measured[_SERVING[1]], mode="markers", name="measured", text=measured["label"],
        marker={"symbol": "x", "size": 9, "color": "#009E73"},
    )
    return chart


def write_comparison(runs: Sequence[Any], out: str | Path, measured: pd.DataFrame | None = None) -> Path:
    """compare.html in a folder.

    Raises:
        ValueError: fewer than two runs, or the folder cannot be written.
    """
    from studies.store import RunDirectory

    text = comparison_page(runs, compare(runs, measured), measured)
    path = Path(out)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {path}: cannot be made: {error.strerror}") from error
    return RunDirectory(path).write_text("compare.html", text)


def comparison_page(runs: Sequence[Any], result: dict[str, Any], measured: pd.DataFrame | None) -> str:
    """The comparison as one self-contained page."""
    names = [row["name"] for row in result["runs"]]
    parts = [_difference_section(result, names)]
    if result["split"]:
        parts.append(_split_section(result["split"]))
    if result["hypervolumes"]:
        parts.append(_volume_section(result["hypervolumes"]))
    parts += [_chart_section(result), _throughput_section(result)]
    title = " against ".join(names)
    head = join([Safe('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'), tag("title", title), Safe('<link rel="icon" href="data:,">'), tag("style", Safe((_HERE / "page.css").read_text(encoding="utf-8")))])
    top = tag("header", tag("div", tag("p", "Ridgeline comparison", class_="eyebrow"), tag("h1", title), tag("p", "Loss is a proxy from published scaling laws; serving figures are predictions.", class_="sub"), class_="wrap"), class_="top")
    script = Safe("const data = JSON.parse(document.getElementById('data').textContent); Plotly.newPlot('chart', data.traces, data.layout, {responsive: true, displaylogo: false}).then(() => { document.documentElement.dataset.ready = 1; });")
    body = join([top, tag("main", *parts, class_="wrap"), tag("script", script_json(_chart(runs, names, measured)), type="application/json", id="data"), tag("script", Safe(get_plotlyjs())), tag("script", script)])
    return "<!DOCTYPE html>\n" + Safe(f'<html lang="en"><head>{head}</head><body>{body}</body></html>\n')


def _section(title: str, intro: str, *body: Any) -> Safe:
    return tag("section", tag("div", tag("h2", title), tag("p", intro), class_="section-head"), *body)


def _difference_section(result: dict[str, Any], names: list[str]) -> Safe:
    rows = [[key, *("–" if v is None else str(v) for v in row)] for key, row in result["differences"].items()]
    if not rows:
        return _section("What differs", "Nothing: the studies are the same but for their seed or their search's outcome.")
    return _section("What differs", "Keys of the study files that are not the same.", table(["key", *names], rows, "Differences of the studies"))


def _split_section(rows: list[dict[str, Any]]) -> Safe:
    cells = [[f"{r['from']} to {r['to']}", r["recipe"], f"{r['target']:g}", percent(r["gpu_gain"]), percent(r["shape_gain"]), percent(r["both"])] for r in rows]
    return _section("The GPU's gain and the shape's", "Only the target differs: the reference on the new GPU against the old one, then the best new shape against the reference on the same GPU.", table(["runs", "recipe", "tokens/s/user", "GPU", "shape", "both"], cells, "Gains split", numeric=[2, 3, 4, 5]))


def _volume_section(volumes: dict[str, Any]) -> Safe:
    cells = [[r["run"], number(r["hypervolume"], 4), number(r["reference_hypervolume"], 4)] for r in volumes["runs"]]
    return _section("Hypervolume", "Same workload, limits and objectives, so one reference point measures all.", table(["run", "frontier", "its reference"], cells, "Hypervolumes", numeric=[1, 2]))


def _throughput_section(result: dict[str, Any]) -> Safe:
    cells = [[f"{r['target']:g}", r["run"], f"{r['recipe']}, KV {r['kv_format']}", r["shape"], number(r["tokens_per_s_per_gpu"], 4), "–" if r["gain"] is None else percent(r["gain"])] for r in sorted(result["throughput"], key=lambda r: (r["target"], r["recipe"], r["run"]))]
    return _section("Throughput at targets", "Best design of each run and recipe; gains are over that run's own reference.", table(["tokens/s/user", "run", "formats", "design", "tokens/s/GPU", "gain"], cells, "Throughput at targets", numeric=[0, 4, 5]))


def _chart_section(result: dict[str, Any]) -> Safe:
    note = "One curve per run and recipe; dashed: the reference's own." if result["hypervolumes"] else "Workloads or limits differ: the curves share axes, not a task. No hypervolume is given."
    return _section("Frontiers", note, tag("div", tag("div", id="chart", role="img", aria_label="Frontiers of the runs; the tables hold the same data"), class_="plot-side"))


def _chart(runs: Sequence[Any], names: list[str], measured: pd.DataFrame | None) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    for number_, (run, name) in enumerate(zip(runs, names, strict=True)):
        colour = _COLOURS[number_ % len(_COLOURS)]
        for (recipe, gpu, workload), part in run.frontier.groupby(["recipe", "gpu", "workload"]):
            where = f", {gpu}, {workload}" if len(run.meta["cells"]) > 1 else ""
            traces.append(_line(part, f"{name}, {recipe}{where}", {"color": colour, "width": 2.5}))
        for (recipe, kv, gpu, workload), part in run.reference[run.reference["within_ttft"]].groupby(["recipe", "kv_format", "gpu", "workload"]):
            traces.append(_line(part, f"{run.reference_name} in {name}, {recipe}, KV {kv}", {"color": colour, "width": 1.5, "dash": "6px,4px"}, visible="legendonly" if recipe != sorted(run.designs["recipe"])[-1] else True))
    if measured is not None:
        traces.append({"type": "scatter", "mode": "markers", "name": "measured", "x": [finite(v) for v in measured[_SERVING[0]]], "y": [finite(v) for v in measured[_SERVING[1]]], "text": [str(v).replace("<", "&lt;") for v in measured["label"]], "marker": {"symbol": "x", "size": 9, "color": ORANGE}})
    layout = {"height": 560, "margin": {"l": 64, "r": 20, "t": 10, "b": 50}, "hovermode": "closest", "xaxis": {"title": {"text": "tokens/s/user"}, "rangemode": "tozero"}, "yaxis": {"title": {"text": "tokens/s/GPU"}, "rangemode": "tozero"}, "legend": {"orientation": "h", "y": -0.16}}
    return {"traces": traces, "layout": layout}


def _line(points: pd.DataFrame, name: str, line: dict[str, Any], visible: Any = True) -> dict[str, Any]:
    ordered = points.sort_values(_SERVING[0])
    return {"type": "scatter", "mode": "lines+markers", "name": name.replace("<", "&lt;"), "x": [finite(v) for v in ordered[_SERVING[0]]], "y": [finite(v) for v in ordered[_SERVING[1]]], "line": line, "marker": {"size": 6}, "visible": visible}
