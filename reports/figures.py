"""Plotly figures of a run for notebooks and images: any two columns, the frontier recomputed for that pair."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from reports.overlay import overlay_points
from reports.words import label, plan, records, seconds, shape
from search.frontier import Objective, loss_values, nondominated
from search.objective import OBJECTIVES

ORANGE, INK, GREY = "#D55E00", "#1a2230", "#8d97a6"
SYMBOLS = ("square", "diamond", "triangle-up", "circle", "x")
OTHERS = ("#009E73", "#CC79A7", "#7A5195", "#56B4E9", "#6B7280")
AXES = {
    "tokens_per_s_per_user": "tokens/s/user",
    "tokens_per_s_per_gpu": "tokens/s/GPU",
    "ttft_s": "time to first token, s",
    "e2e_s": "end-to-end time, s",
    "usd_per_million_tokens": "$ per million output tokens",
    "joules_per_token": "joules per output token",
    "memory_bytes_per_gpu": "bytes per GPU",
    "shape_loss": "predicted loss of the shape, nats",
}


def figure(
    run: Any,
    x: str = "tokens_per_s_per_user",
    y: str = "tokens_per_s_per_gpu",
    colour: str | None = None,
    gpu: str | None = None,
    workload: str | None = None,
    overlay: Sequence[str | Path] = (),
) -> go.Figure:
    """The frontier of a run against the reference's own, in any pair of axes.

    Args:
        run: a Run. x, y: columns of the point tables that can be objectives. colour: any column of the points.
        gpu, workload: which cell; default the run's first. overlay: other models (see `overlay_points`).
    Raises:
        ValueError: unknown axis, colour, GPU, workload or model, or an axis this run has no values for.
    """
    axes = tuple(_objective(run, name) for name in (x, y))
    cell = _cell(run, gpu, workload)
    points, reference = (_of(table, cell) for table in (run.points, run.reference))
    if colour is not None and colour not in points:
        raise ValueError(f"colour = {colour!r}: not a column of the points; valid: {', '.join(map(str, points))}")
    result = go.Figure()
    for within, name in ((True, "other designs and plans"), (False, "over the TTFT limit")):
        result.add_trace(_cloud(points[points["within_ttft"] == within], x, y, colour, name, hollow=not within))
    for number, (recipe, part) in enumerate(points[points["kind"] == "own"].groupby("recipe")):
        dash = ("solid", "dot", "dash", "dashdot")[number % 4]
        result.add_trace(_curve(part, axes, f"best found, {recipe}", {"color": ORANGE, "width": 2.5, "dash": dash}))
    for symbol, (key, part) in zip(cycle(SYMBOLS), reference.groupby(["recipe", "kv_format"]), strict=False):
        name = f"{run.reference_name}, {key[0]}, KV {key[1]}"
        result.add_trace(_curve(part, axes, name, {"color": INK, "width": 2, "dash": "6px,4px"}, symbol))
    others = overlay_points(run, overlay)
    if others is not None:
        for number, (model, own) in enumerate(_of(others, cell).groupby("design", sort=False)):
            other = {"color": OTHERS[number % len(OTHERS)], "width": 2, "dash": "dot"}
            for symbol, (key, part) in zip(cycle(SYMBOLS), own.groupby(["recipe", "kv_format"]), strict=False):
                result.add_trace(_curve(part, axes, f"{model}, {key[0]}, KV {key[1]}", other, symbol))
    meta = run.meta
    limit = "" if meta["max_ttft_s"] is None else f", first token within {seconds(meta['max_ttft_s'])}"
    result.update_layout(
        title=f"{run.name}: {cell[1]} on {cell[0]}{limit}, against {run.reference_name}",
        xaxis_title=AXES[x],
        yaxis_title=AXES[y],
        template="plotly_white",
        hovermode="closest",
        legend={"orientation": "h", "y": -0.18},
    )
    return result


def write_images(run: Any, directory: Path, overlay: Sequence[str | Path] = ()) -> list[Path]:
    """PNG and SVG of the main chart of every cell (needs the `images` extra and a Chromium).

    Raises:
        ValueError: kaleido is not installed.
    """
    try:
        import kaleido  # noqa: F401
    except ImportError as error:
        raise ValueError("images need the 'images' extra: pip install 'ridgeline[images]'") from error
    written = []
    for cell in run.meta["cells"]:
        chart = figure(run, gpu=cell["gpu"], workload=cell["workload"], overlay=overlay)
        stem = f"frontier-{cell['gpu']}-{cell['workload']}".replace("/", "-")
        for suffix in ("png", "svg"):
            path = directory / f"{stem}.{suffix}"
            chart.write_image(path, width=1100, height=700, scale=2)
            written.append(path)
    return written


def _objective(run: Any, name: str) -> Objective:
    if name not in OBJECTIVES:
        raise ValueError(f"axis {name!r}: valid: {', '.join(OBJECTIVES)}")
    if run.points[name].isna().all():
        raise ValueError(f"axis {name!r}: this run has no values for it (no price or no power of the GPU)")
    return OBJECTIVES[name]


def _cell(run: Any, gpu: str | None, workload: str | None) -> tuple[str, str]:
    cells = [(cell["gpu"], cell["workload"]) for cell in run.meta["cells"]]
    for cell in cells:
        if gpu in (None, cell[0]) and workload in (None, cell[1]):
            return cell
    known = "; ".join(f"{w} on {g}" for g, w in cells)
    raise ValueError(f"gpu = {gpu!r}, workload = {workload!r}: not in this run; it has {known}")


def _of(table: pd.DataFrame, cell: tuple[str, str]) -> pd.DataFrame:
    return table[(table["gpu"] == cell[0]) & (table["workload"] == cell[1])]


def _hover(points: pd.DataFrame) -> list[str]:
    return [
        f"{shape(row)}<br>{row['recipe']}, KV {row['kv_format']}; {row['gpus']:.0f} GPUs, {plan(row)}, "
        f"batch {row['batch']:.0f}"
        for row in records(points)
    ]


def _cloud(points: pd.DataFrame, x: str, y: str, colour: str | None, name: str, hollow: bool) -> go.Scatter:
    marker: dict[str, Any] = {
        "size": 5,
        "opacity": 0.35,
        "color": GREY,
        "symbol": "circle-open" if hollow else "circle",
    }
    if colour is not None:
        values = points[colour]
        number = values.to_numpy() if values.dtype.kind in "iufb" else pd.factorize(values, sort=True)[0]
        marker |= {"color": number.astype(float), "colorscale": "Cividis", "opacity": 0.8, "showscale": not hollow}
        marker |= {"colorbar": {"title": label(colour)}}
    return go.Scatter(
        x=points[x], y=points[y], mode="markers", name=name, marker=marker, text=_hover(points), hoverinfo="text+x+y"
    )


def _curve(
    points: pd.DataFrame, axes: tuple[Objective, ...], name: str, line: dict[str, Any], symbol: str = "circle"
) -> go.Scatter:
    """The points within the TTFT limit that nothing among them beats in this pair of axes."""
    pool = points[points["within_ttft"]]
    if len(pool):
        losses = loss_values({o.name: pool[o.name].to_numpy() for o in axes}, axes)
        pool = pool[nondominated(np.ascontiguousarray(losses))].sort_values(axes[0].name)
    return go.Scatter(
        x=pool[axes[0].name],
        y=pool[axes[1].name],
        mode="lines+markers",
        name=name,
        line=line,
        marker={"size": 7, "symbol": symbol},
        text=_hover(pool),
        hoverinfo="text+x+y",
    )
