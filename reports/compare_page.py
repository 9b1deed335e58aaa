"""A comparison as one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd

from reports.blocks import gain_cell
from reports.compare import SERVING, compare
from reports.figures import INK, SYMBOLS
from reports.html import Safe, join, script_json, table, tag
from reports.page import plotly_script
from reports.words import finite, number, percent
from studies.store import RunDirectory

_HERE = Path(__file__).parent
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#6B7280")


def write_comparison(runs: Sequence[Any], out: str | Path, measured: pd.DataFrame | None = None) -> Path:
    """compare.html in a folder.

    Raises:
        ValueError: fewer than two runs, or the folder cannot be written.
    """
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
    head = join(
        [
            Safe('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", title),
            Safe('<link rel="icon" href="data:,">'),
            tag("style", Safe((_HERE / "page.css").read_text(encoding="utf-8"))),
        ]
    )
    top = tag(
        "header",
        tag(
            "div",
            tag("p", "Ridgeline comparison", class_="eyebrow"),
            tag("h1", title),
            tag("p", "Loss is a proxy from published scaling laws; serving figures are predictions.", class_="sub"),
            class_="wrap",
        ),
        class_="top",
    )
    script = Safe(
        "const data = JSON.parse(document.getElementById('data').textContent); Plotly.newPlot('chart', "
        "data.traces, data.layout, {responsive: true, displaylogo: false, displayModeBar: false}).then(() => "
        "{ document.documentElement.dataset.ready = 1; });"
    )
    body = join(
        [
            top,
            tag("main", *parts, class_="wrap"),
            tag("script", script_json(_chart(runs, names, measured)), type="application/json", id="data"),
            tag("script", plotly_script()),
            tag("script", script),
        ]
    )
    return "<!DOCTYPE html>\n" + Safe(f'<html lang="en"><head>{head}</head><body>{body}</body></html>\n')


def _section(title: str, intro: str, *body: Any) -> Safe:
    return tag("section", tag("div", tag("h2", title), tag("p", intro), class_="section-head"), *body)


def _difference_section(result: dict[str, Any], names: list[str]) -> Safe:
    rows = [[key, *("–" if v is None else str(v) for v in row)] for key, row in result["differences"].items()]
    if not rows:
        return _section(
            "What differs", "Nothing: the studies are the same but for their seed or their search's outcome."
        )
    return _section(
        "What differs",
        "Keys of the study files that are not the same.",
        table(["key", *names], rows, "Differences of the studies"),
    )


def _split_section(rows: list[dict[str, Any]]) -> Safe:
    cells = [
        [
            f"{r['from']} to {r['to']}",
            r["recipe"],
            f"{r['target']:g}",
            percent(r["gpu_gain"]),
            gain_cell(r["shape_gain"], r["shape_error"]),
            percent(r["both"]),
        ]
        for r in rows
    ]
    return _section(
        "The GPU's gain and the shape's",
        "Only the target differs: the reference on the new GPU against the old one, then the best new "
        "shape against the reference on the same GPU.",
        table(["runs", "recipe", "tokens/s/user", "GPU", "shape", "both"], cells, "Gains split", numeric=[2, 3, 4, 5]),
    )


def _volume_section(volumes: dict[str, Any]) -> Safe:
    cells = [[r["run"], number(r["hypervolume"], 4), number(r["reference_hypervolume"], 4)] for r in volumes["runs"]]
    return _section(
        "Hypervolume",
        "Same workload, limits and objectives, so one reference point measures all.",
        table(["run", "frontier", "its reference"], cells, "Hypervolumes", numeric=[1, 2]),
    )


def _throughput_section(result: dict[str, Any]) -> Safe:
    cells = [
        [
            f"{r['target']:g}",
            r["run"],
            f"{r['recipe']}, KV {r['kv_format']}",
            r["shape"],
            number(r["tokens_per_s_per_gpu"], 4),
            gain_cell(r["gain"], r["error"]),
        ]
        for r in sorted(result["throughput"], key=lambda r: (r["target"], r["recipe"], r["run"]))
    ]
    return _section(
        "Throughput at targets",
        "Best design of each run and recipe; gains are over that run's own reference. Grey: within model error.",
        table(
            ["tokens/s/user", "run", "formats", "design", "tokens/s/GPU", "gain"],
            cells,
            "Throughput at targets",
            numeric=[0, 4, 5],
        ),
    )


def _chart_section(result: dict[str, Any]) -> Safe:
    note = (
        "One colour per run, one marker per recipe; dashed: the reference's own."
        if result["hypervolumes"]
        else "Workloads or limits differ: the curves share axes, not a task. No hypervolume is given."
    )
    return _section(
        "Frontiers",
        note,
        tag(
            "div",
            tag("div", id="chart", role="group", aria_label="Frontiers of the runs; the tables hold the same data"),
            class_="plot-side",
        ),
    )


def _chart(runs: Sequence[Any], names: list[str], measured: pd.DataFrame | None) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    for number_, (run, name) in enumerate(zip(runs, names, strict=True)):
        colour = _COLOURS[number_ % len(_COLOURS)]
        symbols = dict(zip(sorted(run.designs["recipe"].unique()), cycle(SYMBOLS), strict=False))
        for (recipe, gpu, workload), part in run.frontier.groupby(["recipe", "gpu", "workload"]):
            where = f", {gpu}, {workload}" if len(run.meta["cells"]) > 1 else ""
            line = {"color": colour, "width": 2.5}
            traces.append(_line(part, f"{name}, {recipe}{where}", line, symbols.get(recipe, "circle")))
        for (recipe, kv, _, _), part in run.reference[run.reference["within_ttft"]].groupby(
            ["recipe", "kv_format", "gpu", "workload"]
        ):
            traces.append(
                _line(
                    part,
                    f"{run.reference_name} in {name}, {recipe}, KV {kv}",
                    {"color": colour, "width": 1.5, "dash": "6px,4px"},
                    symbols.get(recipe, "circle"),
                    visible="legendonly" if recipe != sorted(run.designs["recipe"])[-1] else True,
                )
            )
    if measured is not None:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "measured",
                "x": [finite(v) for v in measured[SERVING[0]]],
                "y": [finite(v) for v in measured[SERVING[1]]],
                "text": [str(v).replace("<", "&lt;") for v in measured["label"]],
                "marker": {"symbol": "star", "size": 11, "color": INK},
            }
        )
    layout = {
        "height": 560,
        "margin": {"l": 64, "r": 20, "t": 10, "b": 50},
        "hovermode": "closest",
        "xaxis": {"title": {"text": "tokens/s/user"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "tokens/s/GPU"}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": -0.16},
    }
    return {"traces": traces, "layout": layout}


def _line(points: pd.DataFrame, name: str, line: dict[str, Any], symbol: str, visible: Any = True) -> dict[str, Any]:
    ordered = points.sort_values(SERVING[0])
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name.replace("<", "&lt;"),
        "x": [finite(v) for v in ordered[SERVING[0]]],
        "y": [finite(v) for v in ordered[SERVING[1]]],
        "line": line,
        "marker": {"size": 7, "symbol": symbol},
        "visible": visible,
    }
