"""How measured runs were launched, where their rows do not say: settings of InferenceX's published recipes.

`serving_recipes.csv` holds one recipe a line. Its columns up to `users` say which rows it launched: a cell lists the
values that match (empty: any), dates run from `since` up to, not including, `until`, and users are a list or "16..".
The others are what the recipe sets, later lines over earlier ones:

    kv_format                          where the row names none
    attention_dp, expert_parallel, prefill_attention_dp, prefill_ep
                                       ranks of the decode and prefill workers, "all" of their GPUs or a number: how
                                       they ran, where rows tell otherwise
    slots                              sequences that one replica runs at once; more users than that wait
    prefill_chunk, prefill_batch       prompt tokens of one pass, and prompts of one pass of a prefill pool, per rank
    poll_steps, batch_wait_steps, fused_experts
                                       constants of `Engine`

Read 2026-12 from the history of github.com/SemiAnalysisAI/InferenceX (benchmarks/, and its master configs, for the
dates) and of github.com/NVIDIA/srt-slurm (recipes/), both Apache-2.0.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

PATH = Path(__file__).parent / "serving_recipes.csv"
NUMBERS = ("slots", "prefill_chunk", "prefill_batch", "poll_steps", "batch_wait_steps")
ENGINE = ("poll_steps", "batch_wait_steps", "fused_experts")
PLAN = tuple(
    f"{side}{name}"
    for side, ep in (("", "expert_parallel"), ("prefill_", "ep"))
    for name in ("attention_tp", "attention_dp", "ffn_tp", ep)
)
MATCHED = {
    "engine": "engine",
    "gpu": "gpu",
    "model": "model_shape",
    "precision": "precision_weights",
    "mode": "mode",
    "isl": "isl",
    "osl": "osl",
    "prefill_workers": "prefill_workers",
    "decode_workers": "decode_workers",
}


@cache
def recipes() -> pd.DataFrame:
    return pd.read_csv(PATH, dtype=str, keep_default_na=False)


def launched(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows as their recipes launched them; settings that no recipe names are NaN."""
    rows = rows.copy()
    for name in (*NUMBERS, "fused_experts"):
        rows[name] = np.nan
    rows["precision_kv"] = rows.get("precision_kv", pd.Series(np.nan, rows.index)).astype(object)
    for name in PLAN:
        rows[name] = rows.get(name, pd.Series(np.nan, rows.index)).astype(float)
    known = rows.get("source_group", pd.Series("", rows.index)).astype(str).str.contains("InferenceX").to_numpy()
    if not known.any():
        return rows
    text = {name: _text(rows[column]) for name, column in MATCHED.items()}
    gpus = rows.attention_tp * rows.attention_dp
    text |= {"decode_gpus": _text(gpus), "decode_dp": _text(rows.attention_dp > 1)}
    text["prefill_gpus"] = _text(rows.prefill_attention_tp * rows.prefill_attention_dp)
    given = rows.precision_kv.notna().to_numpy()
    for recipe in recipes().to_dict("records"):
        mask = known & _dated(rows.day, recipe["since"], recipe["until"])
        mask = mask & _counted(rows.concurrency_or_batch, recipe["users"])
        for name, values in text.items():
            if recipe[name]:
                mask = mask & np.isin(values, recipe[name].split(" "))
        if mask.any():
            _set(rows, mask, given, recipe)
    return rows


def engine_settings(row: dict[str, Any]) -> dict[str, Any]:
    """Constants of `Engine` that the recipe of a row sets."""
    found = {name: row[name] for name in ENGINE if not np.isnan(row[name])}
    return {name: bool(value) if name == "fused_experts" else float(value) for name, value in found.items()}


def _set(rows: pd.DataFrame, mask: np.ndarray, given: np.ndarray, recipe: dict[str, str]) -> None:
    for name in NUMBERS:
        if recipe[name]:
            rows.loc[mask, name] = float(recipe[name])
    if recipe["fused_experts"]:
        rows.loc[mask, "fused_experts"] = float(recipe["fused_experts"] == "true")
    if recipe["kv_format"]:
        rows.loc[mask & ~given, "precision_kv"] = recipe["kv_format"]
    for side, ep in (("", "expert_parallel"), ("prefill_", "prefill_ep")):
        _set_plan(rows, mask, side, ep, recipe)


def _set_plan(rows: pd.DataFrame, mask: np.ndarray, side: str, ep: str, recipe: dict[str, str]) -> None:
    """Attention-DP and expert-parallel ranks of the decode ("") or prefill workers, of as many GPUs as before."""
    tp, dp, ffn_tp = f"{side}attention_tp", f"{side}attention_dp", f"{side}ffn_tp"
    gpus = rows[tp] * rows[dp]
    for name, rest in ((dp, tp), (ep, ffn_tp)):
        if recipe[name]:
            wide = gpus if recipe[name] == "all" else pd.Series(float(recipe[name]), rows.index)
            rows.loc[mask, name], rows.loc[mask, rest] = wide[mask], (gpus / wide)[mask]


def _text(values: pd.Series) -> np.ndarray:
    """Cells as the recipe file writes them: whole numbers without a point, truth in lower case."""
    if values.dtype == bool:
        return np.where(values, "true", "false")
    if pd.api.types.is_numeric_dtype(values):
        return np.array([f"{value:g}" for value in values])
    return values.astype(str).to_numpy()


def _dated(days: pd.Series, since: str, until: str) -> np.ndarray:
    """Undated rows are of any day but those before a change."""
    mask = np.ones(len(days), dtype=bool)
    if since:
        mask &= ((days >= since) | (days == "")).to_numpy()
    if until:
        mask &= ((days < until) & (days != "")).to_numpy()
    return mask


def _counted(users: pd.Series, wanted: str) -> np.ndarray:
    if wanted.endswith(".."):
        return (users >= float(wanted[:-2])).to_numpy()
    return np.isin(_text(users), wanted.split(" ")) if wanted else np.ones(len(users), dtype=bool)
