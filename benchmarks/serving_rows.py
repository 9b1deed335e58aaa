"""Measured serving rows as inputs of `predict`: names, formats, plans, lengths, and why a row is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.serving_recipes import ENGINE, PREFILL, engine_settings, launched
from cost_model.accelerator import Accelerator, load_accelerator
from cost_model.memory import memory
from spaces.architecture import Architecture
from spaces.deployment import Deployment, legal
from spaces.formats import RECIPES
from spaces.huggingface import load_architecture
from spaces.workload import Workload

NAMES = tomllib.loads((Path(__file__).parent / "serving_names.toml").read_text(encoding="utf-8"))
LOADS = {
    "closed-loop": "closed-loop",
    "open-loop": "closed-loop",
    "static-batch": "static",
    "offline-max": "offline",
    "poisson-slo": "closed-loop",
    "poisson-slo-tight": "closed-loop",
}
OPTIONAL = ("disagg", "tpot_ms", "ttft_ms", "output_tok_s_per_gpu", "n_gpus", "prefill_workers", "decode_workers")
# tokens/s that a closed-loop run reports over users / (TTFT + TPOT): a run of ten rounds fills and drains. Medians of
# the calibration rows whose latencies are means (168 and 121; their quartiles lie within 0.01)
REPORTED = {"aggregated": 0.977, "disaggregated": 0.961}
NUMBERS = ("isl", "osl", "concurrency_or_batch")
MEAN_LENGTHS = ("isl_mean", "osl_mean")
PLAN = ("attention_tp", "attention_dp", "ffn_tp", "expert_parallel", "pp")


@dataclass
class Batch:
    """Rows that one call prices: same architecture, formats, GPU, engine release and load.

    Attributes:
        index: of the rows in the table. deployment, workload: (rows,) arrays.
        most: (rows,) sequences that one replica was launched to run at once; inf: not told.
        settings: constants of the engine that the launch set.
    """

    index: np.ndarray
    architecture: Architecture
    recipe: str
    kv_format: str
    gpu: Accelerator
    deployment: Deployment
    workload: Workload
    most: np.ndarray
    settings: dict[str, Any]
    key: dict[str, Any] = field(default_factory=dict)


def read_rows(path: Path) -> pd.DataFrame:
    """The measured table with what scoring adds: seconds, load, model class, mode, the day of the engine.

    Raises:
        ValueError: unreadable, a column is missing, or a number is none or negative.
    """
    try:
        rows = pd.read_csv(path, low_memory=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a readable CSV file: {error}") from error
    needed = {"model_shape", "gpu", "engine", "precision_weights", "load_type", "date", *NUMBERS, *PLAN}
    missing = sorted(needed - set(rows.columns))
    if missing:
        raise ValueError(f"{path}: column {missing[0]!r} is missing; it has {', '.join(map(str, rows.columns))}")
    for name in (name for name in (*NUMBERS, *PLAN, *PREFILL, *MEAN_LENGTHS, *OPTIONAL) if name in rows):
        values = pd.to_numeric(rows[name], errors="coerce")
        wrong = rows[name].notna() & ~(np.isfinite(values) & (values >= 0))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"{path}: row {row + 2}: {name} = {rows[name].tolist()[row]!r}: must be a number of at least 0"
            )
    for name in OPTIONAL:
        if name not in rows:
            rows[name] = np.nan
    rows["input_tokens"] = rows.get("isl_mean", rows.isl).fillna(rows.isl)
    rows["output_tokens"] = rows.get("osl_mean", rows.osl).fillna(rows.osl)
    rows["disaggregated"] = rows.disagg.fillna(0) > 0
    rows["load"] = rows.load_type.map(LOADS).fillna("")
    rows["mode"] = np.where(
        rows.disaggregated, "disaggregated", np.where(rows.load == "closed-loop", "aggregated", rows.load)
    )
    rows["model_class"] = [model_class(name) for name in rows.model_shape]
    rows["day"] = rows.date.astype(str).str.slice(0, 10).where(rows.date.notna(), "")
    rows["day"] = rows.day.str.replace(r"^(\d{4})/.*", r"\1", regex=True)
    rows["release"] = rows.get("framework_version", pd.Series("", rows.index)).fillna("").astype(str)
    rows["release"] = rows.release.where(rows.engine != "atom", "atom " + rows.release)
    return launched(rows)


def model_class(name: str) -> str:
    """dense, moe or mla-moe; "" for a model that is refused."""
    if name not in NAMES["models"]:
        return ""
    a = architecture(name)
    return "mla-moe" if a.is_mla else "moe" if a.is_moe else "dense"


@cache
def architecture(name: str) -> Architecture:
    entry = NAMES["models"][name]
    if "same" in entry:
        return architecture(entry["same"])
    shape = entry["architecture"]
    return load_architecture(shape) if isinstance(shape, str) else Architecture(**shape)


def recipe(name: str, precision: str) -> str | None:
    """The recipe of a checkpoint, or None where the row's weight format means nothing to us."""
    entry = NAMES["models"][name]
    entry = NAMES["models"][entry["same"]] if "same" in entry else entry
    plain = NAMES["precisions"].get(precision)
    found = entry.get("recipes", {}).get(plain, plain)
    return found if found in RECIPES else None


def refusals(rows: pd.DataFrame) -> pd.Series:
    """(rows,) why a row is not priced, "" where it is."""
    reason = pd.Series("", index=rows.index)

    def refuse(mask: Any, words: Any) -> None:
        reason.loc[(reason == "") & mask] = words if isinstance(words, str) else words[(reason == "") & mask]

    for kind, column in (("model", "model_shape"), ("gpu", "gpu")):
        known, why = NAMES[f"{kind}s"], NAMES[f"refused_{kind}s"]
        refuse(rows[column].isin(list(why)), rows[column].map(lambda n, w=why: f"{n}: {w.get(n)}"))
        refuse(~rows[column].isin(list(known)), rows[column].map(lambda n, k=kind: f"unmapped {k} name {n!r}"))
    refuse(~rows.engine.isin(list(NAMES["engines"])), rows.engine.map(lambda n: f"unmapped engine name {n!r}"))
    refuse(rows.untold != "", rows.untold)
    refuse(rows["load"] == "", "load type is not modelled")
    refuse(rows[["attention_tp", "ffn_tp", "concurrency_or_batch"]].isna().any(axis=1), "plan or batch unknown")
    refuse(rows[["input_tokens", "output_tokens"]].isna().any(axis=1), "lengths unknown")
    unknown = [
        not r and recipe(m, str(p)) is None
        for r, m, p in zip(reason, rows.model_shape, rows.precision_weights, strict=True)
    ]
    refuse(np.array(unknown), rows.precision_weights.map(lambda p: f"weight format {p!r}"))
    return reason


def deployment(rows: pd.DataFrame) -> Deployment:
    """Plans of the rows, per decode replica; sequences are spread over the replicas."""

    def whole(name: str, default: int) -> np.ndarray:
        return rows[name].fillna(default).to_numpy(dtype=np.int64)

    tp, dp, ffn_tp, ep, pp = (whole(name, 1) for name in PLAN)
    architecture_experts = np.array([architecture(name).experts for name in rows.model_shape])
    spare = np.where(architecture_experts > 0, -architecture_experts % ep, 0)
    split = rows.disaggregated.to_numpy()
    workers = np.where(split, whole("decode_workers", 1), 1)
    # aggregated rows on more GPUs than one replica uses are several replicas behind a router
    replica = tp * dp * pp
    copies = np.maximum(whole("n_gpus", 1) // np.maximum(replica, 1), 1)
    replicas = np.where(split, workers, copies)
    batch = np.maximum(-(-whole("concurrency_or_batch", 1) // replicas), dp * pp)
    pool = {
        f"prefill_{ours}": np.where(split, whole(f"prefill_{theirs}", 1), 0)
        for ours, theirs in (("attention_tp", "attention_tp"), ("attention_dp", "attention_dp"), ("ffn_tp", "ffn_tp"))
    }
    pool |= {"prefill_ep": np.where(split, whole("prefill_ep", 1), 0), "prefill_pp": np.where(split, 1, 0)}
    return Deployment(
        attention_tp=tp,
        attention_dp=dp,
        ffn_tp=ffn_tp,
        ep=ep,
        pp=pp,
        redundant_experts=spare,
        batch=batch,
        prefill_chunk=whole("prefill_chunk", 0),
        prefill_batch=whole("prefill_batch", 0),
        prefill_replicas=np.where(split, whole("prefill_workers", 1), 0),
        decode_replicas=np.where(split, workers, 0),
        **pool,
    )


def batches(
    rows: pd.DataFrame, by: tuple[str, ...] = ("release", "day"), engines: Mapping[str, str] = NAMES["engines"]
) -> Iterator[Batch]:
    """The rows (none refused) in groups that one call of `predict` prices, split by the columns `by` as well.

    Args:
        engines: engine name or file that prices the rows of each engine.
    """
    columns = ["model_shape", "gpu", "engine", "precision_weights", "load", "disaggregated", *ENGINE, *by]
    kv = rows.precision_kv.fillna("").replace("fp16", "bf16").astype(str)
    for key, part in rows.assign(kv=kv).groupby([*columns, "kv"], dropna=False):
        named = dict(zip([*columns, "kv"], key, strict=True))
        gpu = accelerator(named["gpu"], engines[named["engine"]], named.get("release", ""), named.get("day", ""))
        settings = engine_settings(named)
        gpu = replace(gpu, engine=replace(gpu.engine, **settings))
        chosen = recipe(named["model_shape"], str(named["precision_weights"])) or ""
        yield Batch(
            part.index.to_numpy(),
            architecture(named["model_shape"]),
            chosen,
            named["kv"] or gpu.engine.default_kv_format(chosen),
            gpu,
            deployment(part),
            Workload(part.input_tokens.to_numpy(), part.output_tokens.to_numpy(), 0, named["load"]),
            part.slots.fillna(np.inf).to_numpy(),
            settings,
            named,
        )


@cache
def accelerator(gpu: str, engine: str, release: str, day: str) -> Accelerator:
    """A row's GPU under an engine of ours: its release of that version, or nearest to that day where it names none."""
    asked = f":{release}" * bool(release) + f"@{day}" * bool(release and day) + f":{day}" * bool(day and not release)
    return load_accelerator(NAMES["gpus"][gpu], engine=engine + asked)


def slots(batch: Batch) -> np.ndarray:
    """(rows,) sequences that run at once: the users asked for, or as many as memory or the launch allows; others wait.

    Engines admit a sequence when its prompt fits and evict where that was too hopeful, so that memory holds answers
    that are half written on average.
    """
    plan, asked = batch.deployment, batch.workload
    half = Workload(asked.isl, np.maximum(asked.osl / 2, 1), asked.cached, asked.load)
    plain = replace(plan, prefill_chunk=0)  # a launch's longest pass is a ceiling, not what it sets memory aside for
    held = memory(batch.architecture, batch.recipe, plain, half, batch.gpu, batch.kv_format)
    ranks = np.asarray(plan.attention_dp) * plan.pp
    fits = np.where(plan.disaggregated, np.inf, np.maximum(held.largest_batch, ranks))
    return np.minimum(np.minimum(plan.batch, fits), np.maximum(batch.most, ranks)).astype(np.int64)


def reported(rows: pd.DataFrame) -> np.ndarray:
    """(rows,) throughput that a run reports over that of its steady state; predictions are steady states."""
    closed = rows.load_type == "closed-loop"
    return rows["mode"].map(REPORTED).where(closed).fillna(1.0).to_numpy()


def illegal(batch: Batch) -> np.ndarray:
    """(rows,) plans that our rules exclude."""
    mask, _ = legal(batch.architecture, batch.deployment)
    return ~np.broadcast_to(mask, batch.index.shape)
