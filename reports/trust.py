"""How far to trust a difference: what of the model's error two designs share, and what they do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from cost_model import Accelerator, kernels
from cost_model.constants import EXTRAPOLATED_WIDENING
from spaces.formats import FORMATS, RECIPE_ATTENTION, RECIPE_FFN, RECIPES

PARTS = ("attention_linear", "attention_core", "ffn", "communication", "head", "overhead")


def points_at(points: pd.DataFrame, target: float) -> pd.DataFrame:
    """The point of highest throughput of each design, in each cell, at no less than `target` tokens/s/user."""
    fast = points[points["within_ttft"] & (points["tokens_per_s_per_user"] >= target)]
    best = fast.groupby(["design", "recipe", "kv_format", "gpu", "workload"])["tokens_per_s_per_gpu"].idxmax()
    return fast.loc[best]


def difference_error(points: pd.DataFrame, gpus: Mapping[str, Accelerator]) -> np.ndarray:
    """(n,) fraction by which the ratio of two designs' times may be off, 80 % of the time.

    Components err independently: sqrt(sum (s e)^2) over shares s of the token time. e of linears is the error of a
    ratio of two GEMM shapes as measured on pairs kept out of the fit (`kernels.difference_error`); of attention cores,
    experts and the rest sqrt(2) of half the kernel's own band, since two designs err there each for itself. A constant
    borrowed from another GPU is wrong for both alike: its widening cancels and is taken out.

    Args:
        points: rows of a run's point tables. gpus: by name.
    """
    shares = np.stack([points[f"{part}_s"].to_numpy(dtype=float) for part in PARTS], axis=1)
    shares = shares / points["tpot_s"].to_numpy(dtype=float)[:, None]
    names = ("gpu", "recipe", "kv_format", "experts", "kv_lora_rank")
    kinds = list(points[list(names)].itertuples(index=False, name=None))
    known = {kind: _component_errors(gpus[kind[0]], *kind[1:]) for kind in set(kinds)}
    errors = np.array([known[kind] for kind in kinds]).reshape(-1, len(PARTS))
    return np.asarray(np.sqrt(((shares * errors) ** 2).sum(axis=1)))


def share_error(
    shares: Mapping[str, float], gpu: Accelerator, recipe: str, kv_format: str, moe: bool, mla: bool
) -> float:
    """`difference_error` of one point, from the shares of its token time by component."""
    errors = _component_errors(gpu, recipe, kv_format, moe, mla)
    return float(np.sqrt(sum((shares[part] * error) ** 2 for part, error in zip(PARTS, errors, strict=True))))


def format_error(
    shares: Mapping[str, float], base: Mapping[str, float], gpu: Accelerator, recipe: str, moe: bool
) -> float:
    """Fraction by which the ratio of one shape's times in a recipe and in bf16 may be off, 80 % of the time.

    The same shape runs the same attention core, collectives and head in both, wrong alike; only linears and experts
    that run another kernel err each for itself, by half their own band.

    Args:
        shares: of the token time in the recipe. base: in bf16.
    """
    formats = [FORMATS[table[RECIPES.index(recipe)]] for table in (RECIPE_ATTENTION, RECIPE_FFN)]
    total = 0.0
    for part, name in zip(("attention_linear", "ffn"), formats, strict=True):
        if name != "bf16":
            operation = "experts" if moe and part == "ffn" else "gemm"
            ours, theirs = (_half_band(gpu, operation, key) for key in (name, "bf16"))
            total += (shares[part] * ours) ** 2 + (base[part] * theirs) ** 2
    return float(np.expm1(np.sqrt(total)))


def _half_band(gpu: Accelerator, operation: str, key: str) -> float:
    low, high, _ = kernels.error_band(gpu, operation, key)
    return 0.5 * float(np.log(high / low))


def _component_errors(gpu: Accelerator, recipe: str, kv_format: str, moe: int, mla: int) -> tuple[float, ...]:
    """Error of a ratio of two designs' seconds in each of PARTS."""
    attention, ffn = (FORMATS[table[RECIPES.index(recipe)]] for table in (RECIPE_ATTENTION, RECIPE_FFN))
    other = _own_error(gpu, "gemm", "bf16")
    return (
        kernels.difference_error(gpu, attention),
        _own_error(gpu, "mla_decode" if mla else "attention_decode", kv_format),
        _own_error(gpu, "experts", ffn) if moe else kernels.difference_error(gpu, ffn),
        other,
        other,
        other,
    )


def _own_error(gpu: Accelerator, operation: str, key: str) -> float:
    low, high, evidence = kernels.error_band(gpu, operation, key)
    half = 0.5 * np.log(high / low)
    return float(np.expm1(np.sqrt(2.0) * (half / EXTRAPOLATED_WIDENING if evidence == "extrapolated" else half)))


def errors_at(run: Any, target: float) -> dict[tuple[str, str, str], float]:
    """Error of a difference at each design's best own point for a target: (design, recipe, KV format) -> fraction.

    Over several cells the largest counts.
    """
    best = points_at(run.points[run.points["kind"] == "own"], target)
    errors: dict[tuple[str, str, str], float] = {}
    keys = best[["design", "recipe", "kv_format"]].itertuples(index=False, name=None)
    for key, error in zip(keys, difference_error(best, gpus_of(run)), strict=True):
        errors[key] = max(float(error), errors.get(key, 0.0))
    return errors


def gpus_of(run: Any) -> dict[str, Accelerator]:
    """The GPUs of a run by name."""
    return {cell.gpu.name: cell.gpu for cell in run.objective.cells}


def within_error(gain: float | None, error: float | None) -> bool:
    """Whether a gain is no larger than the model's error of a difference."""
    return gain is not None and error is not None and bool(abs(np.log1p(gain)) <= np.log1p(error))


def calibration_rows(gpu: Any) -> list[dict[str, Any]]:
    """Fit records of every kernel constant this GPU and engine use, measured ones first."""
    rows = []
    for op, keys in gpu.calibration.entries.items():
        for key, entry in keys.items():
            fit = entry.get("fit", {})
            rows.append({"operation": op, "key": key, **fit})
    return sorted(rows, key=lambda row: (row.get("evidence") != "measured", row["operation"], row["key"]))
