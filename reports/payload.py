"""What the page's script works on: the tables of a run as compact columns, at most MAX_POINTS of them.

Plain rounded numbers, each design's fields once, codes for words. What follows from others by definition
(tokens/s/user, GPUs, dollars, joules) is computed in the page.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cost_model.bounds import BOUNDS
from reports.accuracy import published_accuracy
from reports.detail import LOSS_PARTS, details, evidence_of_terms, loss_parts
from reports.roofline import OPERATIONS
from reports.trust import PARTS, errors_at
from reports.words import finite, label, records, rounded, shape
from spaces.architecture import FIELDS as SHAPE_FIELDS
from spaces.deployment import FIELDS as PLAN_FIELDS
from spaces.formats import RECIPE_ATTENTION, RECIPE_FFN, RECIPES

MAX_POINTS = 12_000
REFERENCE = "reference"
_MEASURES = (
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "tokens_per_s_per_gpu",
    "memory_bytes_per_gpu",
    "error_low",
    "error_high",
)
_PLAN = tuple(name for name in PLAN_FIELDS if name != "batch")
_TEXT = ("recipe", "kv_format")


def payload(run: Any, overlay: pd.DataFrame | None = None) -> dict[str, Any]:
    """Everything the page draws, JSON-able.

    Args:
        overlay: points of other models (see `overlay_points`).
    """
    reference = run.reference.assign(kind="own")
    others = [] if overlay is None else [overlay]
    models = set() if overlay is None else set(overlay["design"])
    points = _thinned(run, pd.concat([reference, *others, run.points], ignore_index=True), models)
    keys = points[["design", *_TEXT]].drop_duplicates(ignore_index=True)
    listed = run.designs[["design", *_TEXT]]
    keys = pd.concat([keys, listed]).drop_duplicates(ignore_index=True)
    number = {tuple(key): i for i, key in enumerate(keys.itertuples(index=False))}
    cells = [(c["gpu"], c["workload"]) for c in run.meta["cells"]]
    plans, plan_of = np.unique(points[list(_PLAN)].to_numpy(dtype=float), axis=0, return_inverse=True)
    regimes, regime_of = np.unique(points["regime"].to_numpy(dtype=str), return_inverse=True)
    evidence, evidence_of = np.unique(points["evidence"].to_numpy(dtype=str), return_inverse=True)
    design_of = [number[key] for key in points[["design", *_TEXT]].itertuples(index=False)]
    columns = {
        "design": design_of,
        "cell": [cells.index(key) for key in points[["gpu", "workload"]].itertuples(index=False, name=None)],
        "plan": plan_of.tolist(),
        "batch": points["batch"].astype(int).tolist(),
        "gpus": points["gpus"].astype(int).tolist(),
        "regime": regime_of.tolist(),
        "evidence": evidence_of.tolist(),
        "own": (points["kind"] == "own").astype(int).tolist(),
        "within_ttft": points["within_ttft"].astype(int).tolist(),
        "point": [text.rpartition("-")[2] for text in points["point"]],
        **{name: rounded(points[name]) for name in _MEASURES},
        **{f"share_{part}": rounded(points[f"{part}_s"] / points["tpot_s"], 3) for part in PARTS},
    }
    return {
        "operations": list(OPERATIONS),
        "bounds": list(BOUNDS),
        "detail": details(run, points),
        "loss_parts": list(LOSS_PARTS),
        "terms": _terms(run, keys, points),
        "accuracy": _accuracy(keys),
        "reference": run.reference_name,
        "targets": [float(t) for t in run.meta["interactivity_targets"]],
        "objectives": list(run.meta["objectives"]),
        "max_ttft_s": run.meta["max_ttft_s"],
        "cells": [_cell(run, cell) for cell in run.meta["cells"]],
        "parts": list(PARTS),
        "regimes": regimes.tolist(),
        "evidence": evidence.tolist(),
        "plan_fields": list(_PLAN),
        "plans": [[int(v) if v == int(v) else v for v in row] for row in plans.tolist()],
        "designs": _designs(run, keys, points, models),
        "labels": {name: label(name) for name in SHAPE_FIELDS},
        "points": columns,
        "run": str(run.path),
    }


def _cell(run: Any, cell: dict[str, Any]) -> dict[str, Any]:
    gpu = next(c.gpu for c in run.objective.cells if c.gpu.name == cell["gpu"])
    peak = {
        name: [float(gpu.format_flops[table[i]]) for table in (RECIPE_ATTENTION, RECIPE_FFN)]
        for i, name in enumerate(RECIPES)
    }
    facts = {"usd_per_gpu_hour": gpu.usd_per_gpu_hour, "tdp_w": gpu.tdp_w, "memory_bytes": gpu.memory_bytes}
    facts |= {"memory_bytes_per_s": gpu.memory_bytes_per_s, "peak_flops": peak}
    facts |= {"reserved_bytes": gpu.engine.reserved_bytes}
    return {**cell, **facts, "price_source": gpu.price_source}


def _accuracy(keys: pd.DataFrame) -> dict[str, list[str]]:
    """Published accuracy of every format used, as sentences."""
    used = [*keys["recipe"].unique(), *(f"kv:{name}" for name in keys["kv_format"].unique())]
    known = published_accuracy()
    return {
        name: [f"{d['model']}, {d['benchmark']}: {d['result']} ({d['source']})" for d in known[name]]
        for name in used
        if name in known
    }


def _terms(run: Any, keys: pd.DataFrame, points: pd.DataFrame) -> list[dict[str, list[dict[str, str]]]]:
    """Per cell: what each component of a token's time rests on, by formats and kind of model."""
    kinds = points.assign(moe=points["experts"].gt(0), mla=points["kv_lora_rank"].gt(0))
    kinds = kinds[["recipe", "kv_format", "moe", "mla"]].drop_duplicates()
    return [
        {
            f"{recipe}|{kv}|{int(moe)}|{int(mla)}": evidence_of_terms(cell.gpu, recipe, kv, moe, mla)
            for recipe, kv, moe, mla in kinds.itertuples(index=False, name=None)
        }
        for cell in run.objective.cells
    ]


def _thinned(run: Any, points: pd.DataFrame, models: set[str]) -> pd.DataFrame:
    """At most MAX_POINTS: those of the reference, other models and the frontier always, the rest by a fixed draw."""
    kept = points["design"].isin({REFERENCE, *models}) | points["point"].isin(set(run.frontier["point"]))
    best = _leading_designs(run)
    kept |= points["kind"].eq("own") & points["design"].isin(best)
    room = MAX_POINTS - int(kept.sum())
    others = np.flatnonzero(~kept)
    if room < len(others):
        others = np.random.default_rng(0).permutation(others)[: max(room, 0)]
    return points.iloc[np.sort(np.concatenate([np.flatnonzero(kept), others]))].reset_index(drop=True)


def _leading_designs(run: Any, most: int = 100) -> set[str]:
    """Designs whose whole own frontier is drawn however many there are."""
    order = run.designs.sort_values("gain_hypervolume", ascending=False, na_position="last")
    return set(order["design"].head(most))


def _designs(run: Any, keys: pd.DataFrame, points: pd.DataFrame, models: set[str]) -> list[dict[str, Any]]:
    """One entry per design under one recipe and KV format; `listed` ones are in the table."""
    fields, listed = (
        {(row["design"], row["recipe"], row["kv_format"]): row for row in records(table)}
        for table in (points.drop_duplicates(["design", *_TEXT]), run.designs)
    )
    targets = [float(t) for t in run.meta["interactivity_targets"]]
    errors = {target: errors_at(run, target) for target in targets}
    entries = []
    rows = [listed[key] if key in listed else fields[key] for key in keys.itertuples(index=False, name=None)]
    parts = loss_parts(run, pd.DataFrame(rows))
    for key, row, losses in zip(keys.itertuples(index=False, name=None), rows, parts, strict=True):
        values = {name: int(row[name]) for name in SHAPE_FIELDS}
        entry = {"id": key[0], "recipe": key[1], "kv_format": key[2], "shape": shape(values), "fields": values}
        entry |= {name: finite(row[name]) for name in ("shape_loss", "quant_loss")}
        entry |= {"loss_parts": rounded(losses, 4), "model": key[0] if key[0] in models else None}
        if key in listed:
            entry |= {name: finite(row[name]) for name in _JUDGED}
            entry["limits_touched"] = str(row["limits_touched"])
            entry["inside_envelope"] = bool(row["inside_envelope"])
            entry["gain"] = [finite(row[f"gain_at_{t:g}"]) for t in targets]
            entry["at"] = [finite(row[f"tokens_per_s_per_gpu_at_{t:g}"]) for t in targets]
            entry["error"] = [finite(errors[t].get(key, np.nan)) for t in targets]
            entry["listed"] = True
        entries.append(entry)
    return entries


_JUDGED = (
    "shape_loss_difference",
    "loss_sigma",
    "total_parameters",
    "active_parameters",
    "training_flops_ratio",
    "gain_hypervolume",
)
