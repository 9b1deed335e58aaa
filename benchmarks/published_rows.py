"""What else the measured table tells: offline maxima and speculation, which the serving score leaves out since batch or
acceptance are unknown, and the gain of disaggregation between its best rows.

The batch is solved from memory. TensorRT-LLM's overviews name the plan; MLPerf names the GPUs only, so the best legal
plan stands for the submitter's search, weights in the narrowest format of the GPU's generation stand for those not
named, and the median of the task's answers stands for a missing mean length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.published_plans import near, row
from benchmarks.serving import chosen, priced
from benchmarks.serving_rows import NAMES, Batch, accelerator, architecture, batches, illegal, recipe, refusals
from cost_model import load_accelerator, predict
from spaces import Workload, enumerate_deployments

NEEDED = ("split", "tier", "source", "spec_decode", "osl_mean")  # columns beside those that every table has
NARROWEST = {"hopper": "fp8", "ada": "fp8", "cdna3": "fp8", "ampere": "int8", "cdna4": "mxfp4"}  # else nvfp4


def offline(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of both suites that can be priced: measured and predicted output tokens/s/GPU, and why others are not."""
    rows = rows[(rows.split == "context") & (rows.load_type == "offline-max") & rows.output_tok_s_per_gpu.gt(0)].copy()
    rows["suite"] = np.select(
        [rows.source.str.startswith("MLPerf"), rows.source.str.startswith("TensorRT-LLM")],
        ["MLPerf", "TensorRT-LLM"],
        "",
    )
    rows = rows[rows.suite != ""]
    _fill(rows, rows.suite == "MLPerf")
    rows["concurrency_or_batch"] = 1.0  # asked for is what memory holds
    rows["refused"] = refusals(rows)
    rows["ours"] = np.nan
    known = rows[(rows.refused == "") & (rows.suite == "TensorRT-LLM")]
    for batch in batches(known):
        rows.loc[batch.index[illegal(batch)], "refused"] = "plan is not legal for the model"
        rows.loc[batch.index, "ours"] = _filled(batch)
    same = ["model_shape", "gpu", "engine", "precision_weights", "release", "day", "input_tokens", "output_tokens"]
    unknown = rows[(rows.refused == "") & (rows.suite == "MLPerf")]
    for _, part in unknown.assign(most=np.minimum(unknown.n_gpus, 8)).groupby([*same, "most"]):
        rows.loc[part.index, "ours"] = _best_plan(part.iloc[0])
    rows.loc[rows.refused != "", "ours"] = np.nan
    rows.loc[(rows.refused == "") & rows.ours.isna(), "refused"] = "no plan fits"
    rows["error"] = rows.ours / rows.output_tok_s_per_gpu - 1.0
    return rows


def _fill(rows: pd.DataFrame, where: pd.Series) -> None:
    """What MLPerf leaves out, where it can be defended; plans are one GPU's until the best one is looked for."""
    lengths = rows.osl_mean.where(where).groupby(rows.model_shape).transform("median")
    rows["output_tokens"] = rows.output_tokens.fillna(rows.osl_mean).fillna(lengths)
    rows["osl_mean"] = rows.osl_mean.fillna(lengths)
    for name in ("attention_tp", "attention_dp", "ffn_tp", "expert_parallel", "pp"):
        rows.loc[where, name] = 1.0
    for gpu in rows.gpu[where & rows.precision_weights.isna()].unique():
        if gpu in NAMES["gpus"]:
            generation = load_accelerator(NAMES["gpus"][gpu]).generation
            chosen = where & rows.precision_weights.isna() & (rows.gpu == gpu)
            rows.loc[chosen, "precision_weights"] = NARROWEST.get(generation, "nvfp4")


def _filled(batch: Batch) -> np.ndarray:
    plan = replace(batch.deployment, batch=np.zeros_like(np.asarray(batch.deployment.batch)))
    p = predict(batch.architecture, batch.recipe, plan, batch.workload, batch.gpu, batch.kv_format)
    return np.where(np.broadcast_to(p.fits, len(batch.index)), p.tokens_per_s_per_gpu, np.nan)


def _best_plan(row: pd.Series) -> float:
    """Most output tokens/s/GPU of the legal plans of up to 8 GPUs that fit, every one filled to its memory."""
    a, gpu = architecture(row.model_shape), accelerator(row.gpu, NAMES["engines"][row.engine], row.release, row.day)
    chosen = recipe(row.model_shape, row.precision_weights)
    plans = enumerate_deployments([n for n in (1, 2, 4, 8) if n <= row.most], a, batches=(0,), pp=(1, 2, 4))
    load = Workload(row.input_tokens, row.output_tokens, 0, "offline")
    one = a.map(lambda value: np.asarray(value).reshape(1, 1))
    p = predict(one, chosen, plans, load, gpu, gpu.engine.default_kv_format(chosen))
    fits = np.broadcast_to(p.fits & p.legal, p.tokens_per_s_per_gpu.shape)
    return float(p.tokens_per_s_per_gpu[fits].max()) if fits.any() else np.nan


def speculation(rows: pd.DataFrame, table: dict[str, Any]) -> pd.DataFrame:
    """Rows with MTP under the assumed drafts and acceptance: measured and predicted seconds per token."""
    rows = rows[(rows.spec_decode == "mtp") & (rows.split != "context") & rows.tier.isin(["A", "B"])].copy()
    rows["refused"] = refusals(rows)
    rows["ours"] = np.nan
    for batch in batches(rows[rows.refused == ""]):
        rows.loc[batch.index[illegal(batch)], "refused"] = "plan is not legal for the model"
        drafts = np.full(len(batch.index), table["draft_tokens"])
        plan = replace(batch.deployment, draft_tokens=drafts, acceptance=table["acceptance"] + 0.0 * drafts)
        p = predict(batch.architecture, batch.recipe, plan, batch.workload, batch.gpu, batch.kv_format)
        rows.loc[batch.index, "ours"] = np.broadcast_to(p.tpot_s, len(batch.index))
    rows["error"] = (rows.ours / (rows.tpot_ms / 1e3) - 1.0).where(rows.refused == "")
    return rows


def gains(rows: pd.DataFrame, table: dict[str, Any]) -> list[dict[str, Any]]:
    """Best measured disaggregated row over the best aggregated one at as many tokens/s/user, and ours of those two.

    Rows of every split: the measured gain rests on no fit, while ours has seen some of the rows.
    """
    keep = (rows.model_shape == table["model"]) & (rows.precision_weights == table["format"])
    keep &= (rows.isl == table["isl"]) & (rows.osl == table["osl"]) & rows.gpu.isin(table["gpus"])
    rows = priced(chosen(rows[keep & rows.engine.isin(table["engines"])]))
    found = []
    for engine in table["engines"]:
        for target in table["interactivity"]:
            fast = rows[(rows.engine == engine) & (rows.tpot_ms <= 1e3 / target)].dropna(subset="output_tok_s_per_gpu")
            best = fast.sort_values("output_tok_s_per_gpu").drop_duplicates("mode", keep="last").set_index("mode")
            if not {"aggregated", "disaggregated"} <= set(best.index):
                continue
            together, apart = best.loc["aggregated"], best.loc["disaggregated"]
            measured = apart.output_tok_s_per_gpu / together.output_tok_s_per_gpu
            ours = apart.tokens_per_s_per_gpu / together.tokens_per_s_per_gpu
            refused = apart.refused or together.refused
            pair = f"{apart.output_tok_s_per_gpu:,.0f} of {apart.gpu} over {together.output_tok_s_per_gpu:,.0f}"
            figure = f"{table['figure']}, {engine}, at {target:g} tokens/s/user"
            met = None if refused else near(ours, measured, table["within"])
            found.append(row(figure, f"{measured:.2f}x ({pair})", refused or f"{ours:.2f}x", met, "", table))
    return found
