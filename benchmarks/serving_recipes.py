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
    poll_steps, batch_wait_steps, fused_experts, mla_splits_kv
                                       constants of `Engine`
    untold                             why the row does not tell what ran: it is refused

`source` names the file that a line was read from, 2026-12, in the history of github.com/SemiAnalysisAI/InferenceX
(benchmarks/, and its master configs, for the dates), NVIDIA/srt-slurm and ai-dynamo/dynamo, all Apache-2.0.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

PATH = Path(__file__).parent / "serving_recipes.csv"
NUMBERS = ("slots", "prefill_chunk", "prefill_batch", "poll_steps", "batch_wait_steps")
SWITCHES = ("fused_experts", "mla_splits_kv")
ENGINE = ("poll_steps", "batch_wait_steps", *SWITCHES)
DECODE = ("attention_tp", "attention_dp", "ffn_tp", "expert_parallel")
PREFILL = ("prefill_attention_tp", "prefill_attention_dp", "prefill_ffn_tp", "prefill_ep")
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
    "users": "concurrency_or_batch",
}


@cache
def recipes() -> pd.DataFrame:
    return pd.read_csv(PATH, dtype=str, keep_default_na=False)


def launched(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows as their recipes launched them; settings that no recipe names are NaN."""
    unknown = pd.Series(np.nan, rows.index)
    columns = {name: np.full(len(rows), np.nan) for name in (*NUMBERS, *SWITCHES)}
    columns |= {name: rows.get(name, unknown).to_numpy(dtype=float, copy=True) for name in (*DECODE, *PREFILL)}
    columns["precision_kv"] = rows.get("precision_kv", unknown).to_numpy(dtype=object, copy=True)
    columns["untold"] = np.full(len(rows), "", dtype=object)
    known = rows.get("source_group", unknown).astype(str).str.contains("InferenceX").to_numpy()
    if known.any():
        text = {name: _text(rows[column]) for name, column in MATCHED.items()}
        for name, ranks in (
            ("decode_dp", "attention_dp"),
            ("decode_ep", "expert_parallel"),
            ("prefill_dp", "prefill_attention_dp"),
        ):
            text[name] = _text(pd.Series(columns[ranks] > 1))
        for name, (tp, dp, *_) in (("decode_gpus", DECODE), ("prefill_gpus", PREFILL)):
            text[name] = _text(pd.Series(columns[tp] * columns[dp]))
        named = pd.notna(columns["precision_kv"])
        for recipe in recipes().to_dict("records"):
            mask = known & _dated(rows.day.to_numpy(), recipe["since"], recipe["until"])
            for name, values in text.items():
                mask &= _listed(values, recipe[name])
            _set(columns, mask, named, recipe)
    return rows.assign(**columns)


def engine_settings(row: dict[str, Any]) -> dict[str, Any]:
    """Constants of `Engine` that the recipe of a row sets."""
    found = {name: row[name] for name in ENGINE if not np.isnan(row[name])}
    return {name: bool(value) if name in SWITCHES else float(value) for name, value in found.items()}


def _set(columns: dict[str, np.ndarray], mask: np.ndarray, named: np.ndarray, recipe: dict[str, str]) -> None:
    """Write what a recipe sets into the masked rows; `named`: rows that name their KV format."""
    for name in NUMBERS:
        if recipe[name]:
            columns[name][mask] = float(recipe[name])
    for name in SWITCHES:
        if recipe[name]:
            columns[name][mask] = recipe[name] == "true"
    if recipe["untold"]:
        columns["untold"][mask] = recipe["untold"]
    if recipe["kv_format"]:
        columns["precision_kv"][mask & ~named] = recipe["kv_format"]
    for tp, dp, ffn_tp, ep in (DECODE, PREFILL):
        gpus = columns[tp] * columns[dp]
        for wide, rest in ((dp, tp), (ep, ffn_tp)):
            if recipe[wide]:
                ranks = gpus[mask] if recipe[wide] == "all" else float(recipe[wide])
                columns[wide][mask], columns[rest][mask] = ranks, gpus[mask] / ranks


def _text(values: pd.Series) -> np.ndarray:
    """Cells as the recipe file writes them: whole numbers without a point, truth in lower case."""
    if values.dtype == bool:
        return np.where(values, "true", "false")
    write = "{:g}".format if pd.api.types.is_numeric_dtype(values) else str
    return np.array([write(value) for value in values])


def _listed(values: np.ndarray, wanted: str) -> Any:
    """Whether each value is one of those that a cell lists, or of "16.." not below; an empty cell takes any."""
    if wanted.endswith(".."):
        return values.astype(float) >= float(wanted[:-2])
    return np.isin(values, wanted.split(" ")) if wanted else True


def _dated(days: np.ndarray, since: str, until: str) -> Any:
    """Undated rows are of any day but those before a change."""
    return ((days >= since) | (days == "")) & (((days < until) & (days != "")) if until else True)
