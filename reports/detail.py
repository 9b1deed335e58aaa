"""What the panel shows of a point beyond its row: bounds of each component, roofline, memory, evidence of each term."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cost_model import Accelerator
from cost_model.bounds import BOUNDS, breakdown_by_bound
from cost_model.memory import memory
from reports.roofline import OPERATIONS, roofline
from reports.trust import PARTS, difference_error
from reports.words import count, listed, percent, rounded
from search.cells import Cell
from spaces.architecture import FIELDS as SHAPE_FIELDS
from spaces.architecture import unchecked as architecture
from spaces.deployment import FIELDS as PLAN_FIELDS
from spaces.deployment import unchecked as deployment
from spaces.formats import FORMATS, KV_FORMATS, RECIPE_ATTENTION, RECIPE_FFN, RECIPES

_MEMORY = ("weights", "kv_cache", "activations")
_FORMS = {
    "attention_linear": "general principle: tiles and waves under a roofline",
    "attention_core": "general principle: cache bytes and tiles under a roofline",
    "ffn": "general principle: tiles, waves and visited experts under a roofline",
    "communication": "vendor-specific: the collectives of the GPU's own library",
    "head": "general principle: tiles and waves under a roofline",
    "overhead": "vendor-specific: what the serving engine adds",
}


def details(run: Any, points: pd.DataFrame) -> dict[str, Any]:
    """Columns over the points on a design's own frontier: `of` holds their row numbers in `points`.

    bound_<component>_<bound>: share of the time per output token. intensity_<k>, flops_<k>: see `roofline`.
    memory_<part>: bytes per GPU. difference_error: fraction by which the ratio to another design may be off. Columns
    that are zero everywhere are left out; null where a point has none.
    """
    columns: dict[str, list[Any]] = {"of": []}
    parts = []
    for cell in run.objective.cells:
        own = points[
            points["gpu"].eq(cell.gpu.name) & points["workload"].eq(cell.workload_name) & points["kind"].eq("own")
        ]
        if len(own):
            columns["of"] += own.index.tolist()
            parts.append(_numbers(own, cell, run.objective.skew))
    for name in parts[0] if parts else ():
        values = np.concatenate([part[name] for part in parts])
        if np.any(np.nan_to_num(values)):
            columns[name] = [None if np.isnan(v) else n for v, n in zip(values, rounded(values, 3), strict=True)]
    return columns


def _numbers(own: pd.DataFrame, cell: Cell, skew: str) -> dict[str, np.ndarray]:
    """Columns of points of one cell, (n,) each."""
    designs = architecture({name: own[name].to_numpy() for name in SHAPE_FIELDS})
    plans = deployment({name: own[name].to_numpy() for name in PLAN_FIELDS})
    recipe = np.array([RECIPES.index(name) for name in own["recipe"]])
    kv = np.array([KV_FORMATS.index(name) for name in own["kv_format"]])
    context = float(cell.workload.cached) + float(cell.workload.isl) + float(cell.workload.osl) / 2
    result = {}
    bounds = breakdown_by_bound(designs, recipe, plans, cell.workload, cell.gpu, kv, skew)
    for part in PARTS:
        for bound in BOUNDS:
            share = np.broadcast_to(bounds[part][bound] / own["tpot_s"].to_numpy(), len(own))
            result[f"bound_{part}_{bound}"] = np.where(share < 0.0005, 0.0, share)
    for name, (intensity, rate) in roofline(own, cell.gpu, context, skew).items():
        number = OPERATIONS.index(name)
        result |= {f"intensity_{number}": intensity, f"flops_{number}": rate}
    result["difference_error"] = difference_error(own, {cell.gpu.name: cell.gpu})
    held = memory(designs, recipe, plans, cell.workload, cell.gpu, kv)
    return result | {f"memory_{name}": np.broadcast_to(getattr(held, name), len(own)) for name in _MEMORY}


def evidence_of_terms(gpu: Accelerator, recipe: str, kv_format: str, moe: bool, mla: bool) -> list[dict[str, str]]:
    """Per component: what its form rests on, and what its constants rest on (measured, or extrapolated and why)."""
    attention, ffn = (FORMATS[table[RECIPES.index(recipe)]] for table in (RECIPE_ATTENTION, RECIPE_FFN))
    used = {
        "attention_linear": ("gemm", attention),
        "attention_core": ("mla_decode" if mla else "attention_decode", kv_format),
        "ffn": ("experts" if moe else "gemm", ffn),
        "communication": ("all_reduce", "graph"),
        "head": ("gemm", "bf16"),
    }
    said = {part: _constants(gpu.calibration.fit(*key)) for part, key in used.items()}
    if moe and "experts_fused" in gpu.calibration.entries:
        fused = _constants(gpu.calibration.fit("experts_fused", ffn))
        said["ffn"] = f"grouped kernels {said['ffn']}; fused ones {fused}"
    said["overhead"] = _engine(gpu)
    return [{"part": part, "form": _FORMS[part], "constants": said[part]} for part in PARTS]


def _constants(fit: dict[str, Any]) -> str:
    if fit["evidence"] != "measured":
        return f"{fit['evidence']}: {fit['source'] or 'assumed'}"
    if "median_error" not in fit:
        return f"measured: {fit['source']}"
    error, rows = percent(fit["median_error"], sign=False), count(fit["rows"])
    return f"measured: median error {error} on {rows} rows kept out of the fit"


def _engine(gpu: Accelerator) -> str:
    fit = gpu.engine.fit
    if "rows" not in fit or "gpus" not in fit:
        return "extrapolated: documented defaults of the engine"
    if gpu.name in fit["gpus"]:
        return f"measured: fitted on {count(fit['rows'])} served deployments of this GPU"
    return f"extrapolated: fitted on served deployments of {listed(fit['gpus'])}"


LOSS_PARTS = ("size", "width_ratio", "depth", "kv_heads", "formats", "kv_format")


def loss_parts(run: Any, designs: pd.DataFrame) -> np.ndarray:
    """(n, parts) nats by which each of (n,) designs differs from the reference; shape parts and format parts apart.

    The first four add up to the difference of shape_loss, the last two to quant_loss.
    """
    shapes = architecture({name: designs[name].to_numpy() for name in SHAPE_FIELDS})
    recipe = np.array([RECIPES.index(name) for name in designs["recipe"]])
    kv = np.array([KV_FORMATS.index(name) for name in designs["kv_format"]])
    ours = run.objective.losses(shapes, recipe, kv).terms
    theirs = run.objective.reference_loss.terms
    excess = [(terms["width_ratio_factor"] - 1) * terms["base"] for terms in (ours, theirs)]
    parts = (
        ours["base"] - theirs["base"],
        excess[0] - excess[1],
        ours["delta_shape"] - theirs["delta_shape"],
        ours["delta_kv"] - theirs["delta_kv"],
        ours["delta_format"],
        ours["delta_kv_format"],
    )
    return np.stack([np.broadcast_to(part, len(designs)) for part in parts], axis=1)
