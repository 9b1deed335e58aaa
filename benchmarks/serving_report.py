"""Targets of the serving benchmark, which of them are missed and where, and its text form."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.serving_rows import NAMES
from cost_model.engine import load_engine

# issue 5: at most (errors), at least (rank correlation, coverage)
TARGETS = {
    "calibrated": {
        "tpot_median": 0.08,
        "tpot_p90": 0.30,
        "ttft_median": 0.30,
        "throughput_median": 0.10,
        "rank_correlation": 0.97,
    },
    "elsewhere": {
        "tpot_median": 0.18,
        "tpot_p90": 0.50,
        "ttft_median": 0.45,
        "throughput_median": 0.20,
        "rank_correlation": 0.93,
    },
    "disaggregated": {"throughput_median": 0.20},
}
COVERAGE = 0.95
CELL = ["model_class", "gpu", "engine", "mode"]
SERIES = ["model_shape", "gpu", "engine", "precision_weights", "isl", "osl", "mode"]  # plans of one are ranked


def calibrated(rows: pd.DataFrame) -> np.ndarray:
    """(rows,) whether the row's engine was fitted on rows of its GPU."""
    return np.array([_fitted_on(engine, gpu) for engine, gpu in zip(rows.engine, rows.gpu, strict=True)])


@cache
def _fitted_on(engine: str, gpu: str) -> bool:
    if engine not in NAMES["engines"] or gpu not in NAMES["gpus"]:
        return False
    return NAMES["gpus"][gpu] in load_engine(NAMES["engines"][engine]).fit.get("gpus", [])


def missed(result: dict[str, Any], rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Each missed target with the cells that miss it by most and the sign of their bias, or, of ranks, the series."""
    found = []
    for where, targets in TARGETS.items():
        for name, limit in targets.items():
            value = result[where][name]
            if value is None or (value >= limit if name == "rank_correlation" else value <= limit):
                continue
            found.append(
                {
                    "where": where,
                    "figure": name,
                    "value": value,
                    "target": limit,
                    "cells": [] if name == "rank_correlation" else _worst(result, rows, where, name),
                    "series": _worst_series(result, rows, where) if name == "rank_correlation" else [],
                }
            )
    if result["coverage_of_supported"] < COVERAGE:
        found.append(
            {
                "where": "overall",
                "figure": "coverage",
                "value": result["coverage_of_supported"],
                "target": COVERAGE,
                "cells": [],
                "series": [],
            }
        )
    return found


def _worst_series(result: dict[str, Any], rows: pd.DataFrame, where: str) -> list[dict[str, Any]]:
    """The five that cost most, each with its biases and the mean of the others (None where there are none)."""
    lines = pd.DataFrame(result["series"])
    lines = lines[calibrated(lines) == (where == "calibrated")]
    worst = lines.nsmallest(5, "ours")
    shown = worst.round(3).to_dict("records")
    for at, one in zip(worst.index, shown, strict=True):
        others = lines.ours.drop(at)
        one["without"] = round(float(others.mean()), 3) if len(others) else None
        own = _rows_of(rows, one, SERIES)
        one |= {"tpot_bias": bias(own, "tpot"), "ttft_bias": bias(own, "ttft")}
    return shown


def _worst(result: dict[str, Any], rows: pd.DataFrame, where: str, name: str) -> list[dict[str, Any]]:
    cells = [
        cell
        for cell in result["groups"]
        if cell[name] is not None
        and (
            cell["mode"] == "disaggregated"
            if where == "disaggregated"
            else cell["calibrated"] == (where == "calibrated")
        )
    ]
    cells.sort(key=lambda cell: cell[name], reverse=True)
    shown = []
    for cell in cells[:5]:
        own = _rows_of(rows, cell, CELL)
        shown.append({key: cell[key] for key in (*CELL, "rows", name)} | {"bias": bias(own, name)})
    return shown


def _rows_of(rows: pd.DataFrame, line: dict[str, Any], keys: list[str]) -> pd.DataFrame:
    """The priced rows of a cell or a series."""
    return rows[(rows.refused == "") & np.logical_and.reduce([rows[key] == line[key] for key in keys])]


def bias(rows: pd.DataFrame, name: str) -> float | None:
    """Median of predicted / measured of the quantity that a figure is about."""
    pairs = {
        "ttft": rows.ttft_s / (rows.ttft_ms / 1e3),
        "throughput": rows.tokens_per_s_per_gpu / rows.output_tok_s_per_gpu,
    }
    ratio = pairs.get(name.split("_")[0], rows.tpot_s / (rows.tpot_ms / 1e3)).to_numpy(dtype=float)
    return round(float(np.nanmedian(ratio)), 3) if np.any(np.isfinite(ratio)) else None


def text(result: dict[str, Any]) -> str:
    """The result as a table."""
    names = ("rows", "tpot_median", "tpot_p90", "ttft_median", "throughput_median", "rank_correlation", "rank_baseline")
    lines = [f"{'':52}" + "".join(f"{name.replace('_', ' '):>18}" for name in names)]
    for where in ("overall", "calibrated", "elsewhere", "disaggregated"):
        lines.append(f"{where:52}" + "".join(_cell(result[where][name], name) for name in names))
    for cell in result["groups"]:
        title = f"{cell['model_class']} {cell['gpu']} {cell['engine']} {cell['mode']}" + (
            " *" if cell["calibrated"] else ""
        )
        lines.append(f"{title:52}" + "".join(_cell(cell[name], name) for name in names))
    lines += ["* the engine was fitted on rows of this GPU", "", "refused:"]
    lines += [f"  {count:6} {reason}" for reason, count in result["refused"].items()]
    ours, best = (_cell(result["rank_of_repeats"][name], "rank").strip() for name in ("ours_over_days", "best_of_days"))
    lines.append(
        f"rank with the days of a configuration averaged: {ours}; "
        f"of their means with single days, which no model blind to the day can beat: {best}"
    )
    lines.append(f"coverage of supported families: {result['coverage_of_supported']:.1%}")
    lines += ["", "missed targets:"]
    for miss in result["missed"]:
        lines.append(f"  {miss['where']} {miss['figure']}: {miss['value']:.3f}, target {miss['target']:.2f}")
        for cell in miss["cells"]:
            title = f"{cell['model_class']} {cell['gpu']} {cell['engine']} {cell['mode']}"
            lines.append(
                f"      {title}: {cell[miss['figure']]:.3f}, predicted / measured {cell['bias']}, {cell['rows']} rows"
            )
        for one in miss["series"]:
            title = f"{one['model_shape']} {one['gpu']} {one['engine']} {one['precision_weights']}"
            without = "" if one["without"] is None else f"; without it {one['without']:.3f}"
            lines.append(
                f"      {title} {one['isl']:g}/{one['osl']:g} {one['mode']}: {one['ours']:.3f} (means of its days "
                f"{one['repeats']:.3f}; half of its {one['rows']} rows within {one['middle_half']:.1%}; predicted / "
                f"measured TPOT {one['tpot_bias']}, TTFT {one['ttft_bias'] or '-'}){without}"
            )
    for name, peer in result.get("peer", {}).items():
        lines += ["", f"{name} on the same rows: {peer}"]
    return "\n".join(lines)


def _cell(value: Any, name: str) -> str:
    if value is None:
        return f"{'-':>18}"
    return f"{value:>18}" if name == "rows" else f"{value:>18.3f}" if "rank" in name else f"{value:>17.1%} "
