"""Refit the engines' constants: `python benchmarks/calibrate_engines.py CSV [--engines vllm ...] [--out DIR]`.

Reads measured serving rows (the schema of benchmarks/serving.py), uses those with split = calibration, tier A or B and
no speculation, and rewrites cost_model/engines/<engine>.toml: constants of the engine, refined per GPU generation, per
GPU and per release, with source, rows, errors on the fitted rows, and date. Settings that are not fitted stay as they
are. Run it after benchmarks/calibrate.py: factors are relative to the kernels' constants.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import command  # noqa: E402
from benchmarks.serving_rows import (  # noqa: E402
    NAMES,
    Batch,
    batches,
    illegal,
    read_rows,
    refusals,
    reported,
    slots,
)
from cost_model.design import Design  # noqa: E402
from cost_model.engine import Engine, load_engine  # noqa: E402
from cost_model.fit.calibrate import locked  # noqa: E402
from cost_model.fit.engines import RELEASE_SPREAD, SPREAD, Case, drift, drifted, fit, trial_engine  # noqa: E402
from cost_model.kernels.routing import skew_code  # noqa: E402
from spaces.formats import RECIPE_ATTENTION, RECIPE_FFN, kv_code, recipe_code  # noqa: E402

ENGINES = ROOT / "cost_model" / "engines"
FITTED = ("trtllm", "vllm", "sglang")
UNDATED = "2026-03"  # rows without a date name versions of that spring
FORERUNNER = {"blackwell-ultra": "blackwell"}  # same kernels: the earlier generation is the prior of the later
SKEW = "power_law_1.2"  # the default of `predict`


def release(row: Any) -> tuple[str, str]:
    """(version as the engine file names it, date): releases are told apart by version, or by day without one."""
    version = re.search(r"atom|tensorrtllm-runtime:[\d.]+\d|\d+\.\d+\.\d+(rc\d+)?", row.release)
    day = row.day or UNDATED
    return (version.group(0), day) if version else ("", day)


def capped(rows: pd.DataFrame) -> pd.Series:
    """Aggregated rows whose users waited longer than they were served: an unpublished limit on running sequences."""
    served = rows.output_tokens * rows.tpot_ms
    return (rows["mode"] == "aggregated") & (rows.osl > 1) & (rows.ttft_ms > served)


def fitting(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows of the measured table that an engine is fitted on.

    Raises:
        ValueError: the table does not tell them.
    """
    missing = [column for column in ("split", "tier", "spec_decode") if column not in rows]
    if missing:
        raise ValueError(f"column {missing[0]!r} is missing: it tells which rows may be fitted")
    rows = rows[(rows.split == "calibration") & rows.tier.isin(["A", "B"]) & (rows.spec_decode == "none")]
    rows = rows[(rows.engine.map(NAMES["engines"]) == name) & (refusals(rows) == "") & ~capped(rows)]
    for batch in batches(rows, by=()):
        rows = rows.drop(batch.index[illegal(batch)])
    return rows


def cases(rows: pd.DataFrame, releases: list[str]) -> dict[str, list[Case]]:
    """Fit cases by GPU. A configuration that was measured again and again counts as the root of its repetitions."""
    same = [
        "model_shape",
        "gpu",
        "precision_weights",
        "isl",
        "osl",
        "concurrency_or_batch",
        "attention_tp",
        "attention_dp",
    ]
    same += ["expert_parallel", "mode", "label", "decode_workers", "prefill_workers"]
    rows = rows.assign(weight=1 / np.sqrt(rows.groupby(same, dropna=False).id.transform("size")))
    found: dict[str, list[Case]] = {}
    for batch in batches(rows, by=()):
        found.setdefault(batch.gpu.name, []).append(case(batch, rows.loc[batch.index], releases))
    return found


def case(batch: Batch, rows: pd.DataFrame, releases: list[str]) -> Case:
    design = Design(
        batch.architecture,
        RECIPE_ATTENTION[recipe_code(batch.recipe)],
        RECIPE_FFN[recipe_code(batch.recipe)],
        kv_code(batch.kv_format),
        batch.gpu,
        skew_code(SKEW),
        True,
    )
    plan, held = batch.deployment, slots(batch)
    ranks = np.asarray(plan.attention_dp) * plan.pp
    replicas = np.where(
        plan.disaggregated, plan.decode_replicas, np.maximum(rows.n_gpus.to_numpy() // plan.replica_gpus, 1)
    )
    closed = (rows["load"] == "closed-loop").to_numpy() & (rows.osl > 1).to_numpy()
    measured = rows.get("throughput_origin", pd.Series("", rows.index)).fillna("").str.startswith("measured").to_numpy()
    rate = (rows.output_tok_s_per_gpu * rows.n_gpus / rows.output_tokens).to_numpy() / reported(rows)
    return Case(
        design=design,
        plan=plan.having(batch=held),
        workload=batch.workload,
        sequences=np.ceil(held / ranks),
        waiting=np.asarray(plan.batch) / held - 1.0,
        median=(rows.latency_stat == "median").to_numpy(),
        ranks=ranks * replicas,
        release=np.array([releases.index(label) for label in rows.label]),
        weight=rows.weight.to_numpy(),
        measured={
            "tpot": (rows.tpot_ms / 1e3).where(rows.osl > 1).to_numpy(),
            "ttft": (rows.ttft_ms / 1e3).to_numpy(),
            # closed loops say little more than TPOT and TTFT do; static and disaggregated rows say it themselves
            "throughput": np.where(measured & (rows.osl > 1) & (~closed | rows.disaggregated), rate, np.nan),
        },
        settings=batch.settings,
        kernels_alone=[],
    )


def fitted(name: str, rows: pd.DataFrame, quiet: bool = False) -> dict[str, Any]:
    """The fitted tables of one engine file; unless `quiet`, each GPU's are printed as they are found."""
    rows = rows.copy()
    rows["version"], rows["since"] = zip(*[release(row) for row in rows.itertuples()], strict=True)
    rows["label"] = rows.version.where(rows.version != "", rows.since)
    since = rows.groupby("label").since.min().to_dict()
    releases = sorted(since)
    by_gpu = cases(rows, releases)
    parent = base(name)
    everything = fit([case for group in by_gpu.values() for case in group], parent, releases)
    tables: dict[str, Any] = {**plain(everything), "generation": {}, "gpu": {}}
    dated = {
        label: {"version": label if label in set(rows.version) else "", "date": since[label], "gpu": {}}
        for label in releases
    }
    generations = sorted({group[0].design.gpu.generation for group in by_gpu.values()})
    shares: dict[str, dict[str, Any]] = {}
    for generation in generations:
        own = {gpu: group for gpu, group in by_gpu.items() if group[0].design.gpu.generation == generation}
        before = shares.get(FORERUNNER.get(generation, ""), everything)
        cases_of_all = [case for group in own.values() for case in group]
        shares[generation] = shared = fit(cases_of_all, child(parent, before), releases)
        tables["generation"][generation] = plain(shared)
        moved = drift(shared)
        for gpu, group in own.items():
            above = child(parent, shared)
            found = fit(group, above, releases, moved)
            tables["gpu"][gpu] = plain(found) | {"fit": record(group, above, found, releases)}
            last = max(since[label] for label in found["releases"])  # software moves on for all GPUs of a generation
            newer = {label: by for label, by in moved.items() if since[label] > last}
            for label, values in drifted(found, newer).items():
                dated[label]["gpu"][gpu] = rounded(values)
            if not quiet:
                print(name, gpu, tables["gpu"][gpu], flush=True)
    tables["release"] = [row for row in dated.values() if row["gpu"]]
    return tables


def base(name: str) -> Engine:
    """The engine before any fit: every factor 1, no overhead."""
    neutral = {name: 1.0 for name in SPREAD if name.endswith("factor")} | {"release_factor": 1.0}
    neutral |= {name: 0.0 for name in SPREAD if name.endswith("_s")}
    start = {"step_overhead_s": 2e-4, "prefill_overhead_s": 1e-3, "first_token_s": 1e-2}
    ones = np.ones(len(load_engine(name).linear_factor))
    return replace(load_engine(name), **{**neutral, **start, "linear_factor": ones, "experts_factor": ones})


def child(parent: Engine, found: dict[str, Any]) -> Engine:
    """The parent with the constants of a fit, of its typical release."""
    one = trial_engine(parent, found, [], np.zeros(1, dtype=int))
    return replace(one, **{name: float(getattr(one, name)[0]) for name in RELEASE_SPREAD})


def record(group: list[Case], parent: Engine, found: dict[str, Any], releases: list[str]) -> dict[str, Any]:
    """Rows and TPOT errors on the fitted rows."""
    errors = []
    for case in group:
        predicted = case.predicted(trial_engine(parent, found, releases, case.release))["tpot"]
        errors.append(np.abs(predicted / case.measured["tpot"] - 1))
    error = np.concatenate(errors)
    rows, error = len(error), error[np.isfinite(error)]
    if not len(error):
        return {"rows": rows}
    return {
        "rows": rows,
        "tpot_median": round(float(np.median(error)), 4),
        "tpot_p90": round(float(np.quantile(error, 0.9)), 4),
    }


def plain(found: dict[str, Any]) -> dict[str, Any]:
    return rounded({name: value for name, value in found.items() if name != "releases"})


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Four digits; what a bound holds at 0 but for rounding is 0."""
    return {k: rounded(v) if isinstance(v, dict) else float(f"{round(float(v), 12):.4g}") for k, v in values.items()}


def write(path: Path, tables: dict[str, Any], source: str, rows: int, gpus: list[str]) -> None:
    """Replace the fitted tables of an engine file, leaving its settings."""
    import tomli_w

    with locked(path.parent):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        settings = {key: value for key, value in data.items() if key not in ("generation", "gpu", "release", "fit")}
        fit_record = {"source": source, "rows": rows, "gpus": gpus, "date": date.today().isoformat()}
        path.write_text(tomli_w.dumps({**settings, **tables, "fit": fit_record}), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--engines", nargs="+", choices=FITTED, default=FITTED)
    parser.add_argument("--out", type=Path, default=ENGINES)
    parser.add_argument("--source", default="measured serving rows, split = calibration")
    arguments = parser.parse_args()
    rows = read_rows(arguments.csv)
    for name in arguments.engines:
        own = fitting(rows, name)
        gpus = sorted({NAMES["gpus"][gpu] for gpu in own.gpu})
        write(arguments.out / f"{name}.toml", fitted(name, own), arguments.source, len(own), gpus)


if __name__ == "__main__":
    command(main)
