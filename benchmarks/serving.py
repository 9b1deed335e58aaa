"""Serving errors on measured deployments: `python benchmarks/serving.py CSV [--json] [--peer aiconfigurator]`.

Scores rows of tier A and B without speculative decoding of one split (default: validation; a file without that column
is scored whole). Errors are |predicted / measured - 1|: TPOT; TTFT against the row's own statistic (mean or median);
output tokens/s/GPU on rows whose throughput was measured. Medians and p90 are taken per cell (model class x GPU x
engine x mode) and averaged over cells. Rank correlation is Spearman's of TPOT within (model, GPU, engine, format,
lengths, mode), over groups of at least 5 rows and 2 plans, beside the ranking by concurrency alone. A row is refused
with its reason, never guessed. `calibrated` tells cells whose (GPU, engine) has calibration rows from the others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import command, serving_report  # noqa: E402
from benchmarks.serving_report import CELL, SERIES  # noqa: E402
from benchmarks.serving_rows import NAMES, batches, illegal, read_rows, refusals, reported, slots  # noqa: E402
from cost_model.prediction import predict  # noqa: E402

PLAN = [
    "attention_tp",
    "attention_dp",
    "ffn_tp",
    "expert_parallel",
    "pp",
    "n_gpus",
    "prefill_workers",
    "decode_workers",
]


def priced(rows: pd.DataFrame, engines: Mapping[str, str] = NAMES["engines"]) -> pd.DataFrame:
    """Rows with `tpot_s`, `ttft_s` (of the row's statistic) and `tokens_per_s_per_gpu`, or why not in `refused`.

    Args:
        engines: engine name or file that prices the rows of each engine.
    """
    rows = rows.copy()
    rows["refused"] = refusals(rows)
    columns = ["tpot_s", "ttft_s", "tokens_per_s_per_gpu"]
    rows[columns] = np.nan
    for batch in batches(rows[rows.refused == ""], engines=engines):
        wrong = illegal(batch)
        rows.loc[batch.index[wrong], "refused"] = "plan is not legal for the model"
        rows.loc[batch.index, columns] = np.stack(price(batch, rows.loc[batch.index]), axis=1)
    rows.loc[rows.refused != "", columns] = np.nan
    return rows


def price(batch: Any, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(TPOT, TTFT, output tokens/s/GPU) of the rows; users beyond what memory holds wait for a slot."""
    plan = batch.deployment
    held = slots(batch)
    p = predict(batch.architecture, batch.recipe, plan.having(batch=held), batch.workload, batch.gpu, batch.kv_format)
    wait = (np.asarray(plan.batch) / held - 1.0) * p.e2e_s
    median = (rows.get("latency_stat", pd.Series("", rows.index)) == "median").to_numpy()
    shape = len(rows)
    return (
        np.broadcast_to(p.tpot_s, shape),
        np.broadcast_to(np.where(median, p.ttft_median_s, p.ttft_s) + wait, shape),
        np.broadcast_to(p.tokens_per_s_per_gpu, shape) * reported(rows),
    )


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """Relative errors beside each priced row: tpot, ttft, throughput (NaN where the row did not measure it)."""
    rows = rows.copy()
    answers = rows.osl > 1
    rows["tpot"] = (rows.tpot_s / (rows.tpot_ms / 1e3) - 1).abs().where(answers)
    rows["ttft"] = (rows.ttft_s / (rows.ttft_ms / 1e3) - 1).abs()
    origin = rows.get("throughput_origin", pd.Series("", rows.index)).fillna("")
    measured = origin.str.startswith("measured") & answers
    rows["throughput"] = (rows.tokens_per_s_per_gpu / rows.output_tok_s_per_gpu - 1).abs().where(measured)
    return rows


def summary(rows: pd.DataFrame) -> dict[str, Any]:
    """Medians and p90 per cell, averaged over cells; fractions."""
    cells = rows.groupby(CELL)
    ranks = rank_correlations(rows)
    figures = {
        "tpot_median": cells.tpot.median(),
        "tpot_p90": cells.tpot.quantile(0.9),
        "ttft_median": cells.ttft.median(),
        "throughput_median": cells.throughput.median(),
    }
    means = {name: _mean(values) for name, values in figures.items()}
    return means | {
        "rank_correlation": _mean(ranks.ours),
        "rank_baseline": _mean(ranks.concurrency),
        "rank_groups": len(ranks),
    }


def rank_correlations(rows: pd.DataFrame, least: int = 5) -> pd.DataFrame:
    """Spearman correlations with measured TPOT within each series of `least` rows and two plans.

    Returns:
        a line per series, by SERIES: `rows`, `plans`; the correlation of `ours`, of `concurrency` alone and of
        `repeats`, the measured means of each configuration over its days, which no model blind to the day can beat;
        `middle_half`, how far the quartiles of measured TPOT lie apart (upper over lower - 1).
    """
    lines = []
    for key, part in rows[rows.tpot.notna()].groupby(SERIES):
        plans = len(part[PLAN].drop_duplicates())
        if len(part) < least or plans < 2 or part.tpot_ms.nunique() < 2:
            continue
        means = part.groupby([*PLAN, "concurrency_or_batch"], dropna=False).tpot_ms.transform("mean")
        guesses = {"ours": part.tpot_s, "concurrency": part.concurrency_or_batch, "repeats": means}
        low, high = part.tpot_ms.quantile([0.25, 0.75])
        lines.append(
            dict(zip(SERIES, key, strict=True))
            | {"rows": len(part), "plans": plans, "middle_half": high / low - 1}
            | {name: _spearman(guess, part.tpot_ms) for name, guess in guesses.items()}
        )
    return pd.DataFrame(lines, columns=[*SERIES, "rows", "plans", "middle_half", "ours", "concurrency", "repeats"])


def _spearman(guess: pd.Series, measured: pd.Series) -> float:
    ranks = guess.rank()
    return float(np.corrcoef(ranks, measured.rank())[0, 1]) if ranks.nunique() > 1 else 0.0


def rank_of_repeats(rows: pd.DataFrame, ranks: pd.DataFrame) -> dict[str, float | None]:
    """What repetitions do to the rank: ours over means of each configuration's days, and the mean of `repeats`."""
    same = rows.groupby([*SERIES, *PLAN, "concurrency_or_batch"], dropna=False)
    over_days = same[["tpot", "tpot_s", "tpot_ms"]].mean().reset_index()
    return {"ours_over_days": _mean(rank_correlations(over_days).ours), "best_of_days": _mean(ranks.repeats)}


def _mean(values: np.ndarray | pd.Series) -> float | None:
    values = np.asarray(values, dtype=float)
    return round(float(np.nanmean(values)), 4) if np.any(np.isfinite(values)) else None


def chosen(rows: pd.DataFrame, split: str | None = None) -> pd.DataFrame:
    """Rows to score: tier A and B, no speculation, of the split if one is named."""
    keep = rows.get("tier", pd.Series("A", rows.index)).isin(["A", "B"])
    keep &= rows.get("spec_decode", pd.Series("none", rows.index)).fillna("none") == "none"
    if split is not None:
        keep &= rows.split == split
    return rows[keep]


def split_of(rows: pd.DataFrame, asked: str | None) -> str | None:
    """The split to score: the one asked for, else validation, else (a table without it) none.

    Raises:
        ValueError: the table has no such split.
    """
    splits = sorted(rows.split.dropna().unique()) if "split" in rows else []
    if asked is not None and asked not in splits:
        raise ValueError(f"--split {asked!r}: the table has {', '.join(splits) or 'no splits'}")
    return asked or ("validation" if "validation" in splits else None)


def report(rows: pd.DataFrame) -> dict[str, Any]:
    """The whole result: overall, per cell, refusals by reason, and targets with the causes of those missed."""
    done = rows[rows.refused == ""]
    kinds = {
        "calibrated": done.calibrated,
        "elsewhere": ~done.calibrated,
        "disaggregated": done["mode"] == "disaggregated",
    }
    reasons = rows.refused[rows.refused != ""].value_counts().to_dict()
    groups = []
    for key, part in done.groupby(CELL):
        cell = dict(zip(CELL, map(str, key), strict=True)) | {
            "rows": len(part),
            "calibrated": bool(part.calibrated.iloc[0]),
        }
        groups.append(cell | summary(part))
    ranks = rank_correlations(done)
    supported = rows[~rows.refused.str.contains("not modelled|no accelerator file|mixed cluster")]
    return {
        "overall": {"rows": len(rows), "priced": len(done), **summary(done)},
        **{name: {"rows": int(mask.sum()), **summary(done[mask])} for name, mask in kinds.items()},
        "rank_of_repeats": rank_of_repeats(done, ranks),
        "coverage_of_supported": round(float((supported.refused == "").mean()), 4),
        "groups": groups,
        "series": ranks.round(4).to_dict("records"),
        "refused": {str(reason): int(count) for reason, count in reasons.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--split", help="of the table's column; validation, or all rows of a table without it")
    parser.add_argument("--peer", choices=["aiconfigurator"])
    arguments = parser.parse_args()
    table = read_rows(arguments.csv)
    rows = scored(priced(chosen(table, split_of(table, arguments.split))))
    rows["calibrated"] = serving_report.calibrated(rows)
    result = report(rows)
    result["missed"] = serving_report.missed(result, rows)
    if arguments.peer:
        from benchmarks import serving_peer

        result["peer"] = {arguments.peer: serving_peer.score(rows, summary, scored)}
    print(json.dumps(result, indent=1) if arguments.json else serving_report.text(result))


if __name__ == "__main__":
    command(main)
