"""Published figures of whole deployments beside ours: `python benchmarks/published.py [CSV] [--json]`.

What others measured or simulated, with source, date and setting, is in published.toml; published_plans.py and
published_rows.py price the same settings. With the measured table of benchmarks/serving.py as CSV, the offline maxima
of MLPerf and TensorRT-LLM (batch solved from memory) and the rows with speculation (acceptance assumed, so that no
error is theirs alone) are scored as well: |predicted / measured - 1|, medians over rows and cells (model class x GPU).
Nothing here is fitted on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import command, published_plans, published_rows  # noqa: E402
from benchmarks.serving_rows import read_rows  # noqa: E402

TABLES = tomllib.loads((Path(__file__).parent / "published.toml").read_text(encoding="utf-8"))
CHECKS = {
    "all_to_all": published_plans.all_to_all,
    "helix": published_plans.helix,
    "disaggregation": published_plans.disaggregation,
    "palm": published_plans.palm,
    "production": published_plans.production,
}


def figures() -> list[dict[str, Any]]:
    return [row for name, check in CHECKS.items() for row in check(TABLES[name])]


def offline_score(rows: pd.DataFrame) -> dict[str, Any]:
    """Errors of output tokens/s/GPU per suite, its cells, and refusals by reason."""
    suites = {}
    for name, part in rows.groupby("suite"):
        done = part[part.error.notna()]
        cells: list[dict[str, Any]] = [
            {"model": model, "gpu": gpu, "rows": len(own), "bias": rounded(1.0 + own.error.median())}
            for (model, gpu), own in done.groupby(["model_shape", "gpu"])
        ]
        middle = float(done.error.abs().median())
        suites[str(name)] = {
            "rows": len(part),
            "priced": len(done),
            "median": rounded(middle),
            "median_of_cells": rounded(done.error.abs().groupby([done.model_class, done.gpu]).median().mean()),
            "bias": rounded(1.0 + done.error.median()),
            "met": middle <= TABLES["throughput"]["within"],
            "worst": sorted(cells, key=lambda cell: -abs(np.log(cell["bias"])))[:6],
            "refused": part.refused[part.refused != ""].value_counts().to_dict(),
        }
    return suites


def speculation_score(rows: pd.DataFrame) -> dict[str, Any]:
    """Errors of TPOT under the assumption, over all rows and per engine; what it rests on."""
    done = rows[rows.error.notna()]
    groups = {"all": done} | {str(name): part for name, part in done.groupby("engine")}
    return {
        "assumed": {key: TABLES["speculation"][key] for key in ("draft_tokens", "acceptance", "source")},
        "rows": len(rows),
        "priced": len(done),
        "engines": {
            name: {
                "rows": len(part),
                "median": rounded(part.error.abs().median()),
                "bias": rounded(1.0 + part.error.median()),
            }
            for name, part in groups.items()
            if len(part)
        },
    }


def rounded(value: Any) -> float:
    return round(float(value), 4)


def text(result: dict[str, Any]) -> str:
    lines = []
    for row in result["figures"]:
        verdict = {True: "met", False: "missed", None: "-"}[row["met"]]
        lines.append(f"{row['figure']:78} {row['published']:>10}  {row['ours']}  [{verdict}]")
        if row["why"]:
            lines.append(f"    {row['why']}")
    for name, suite in result.get("offline", {}).items():
        lines.append(
            f"{name} offline maxima: {suite['priced']} of {suite['rows']} rows, median error {suite['median']:.1%} "
            f"(target {TABLES['throughput']['within']:.0%}), bias {suite['bias']:.2f}; worst cells (ours over theirs):"
        )
        lines += [f"    {c['model']} {c['gpu']}: {c['bias']:.2f}, {c['rows']} rows" for c in suite["worst"]]
        lines += [f"    refused: {count:4} {reason}" for reason, count in suite["refused"].items()]
    if "speculation" in result:
        part = result["speculation"]
        assumed = f"{part['assumed']['draft_tokens']} drafts, acceptance {part['assumed']['acceptance']} (assumed)"
        lines.append(f"speculation, {part['priced']} of {part['rows']} rows, {assumed}: {part['assumed']['source']}")
        for name, own in part["engines"].items():
            lines.append(
                f"    {name}: {own['rows']} rows, TPOT median error {own['median']:.1%}, bias {own['bias']:.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="?")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"figures": figures()}
    if arguments.csv:
        rows = read_rows(arguments.csv)
        missing = [name for name in published_rows.NEEDED if name not in rows]
        if missing:
            raise ValueError(f"{arguments.csv}: column {missing[0]!r} is missing; published rows are told by it")
        result["figures"] += published_rows.gains(rows, TABLES["disaggregation"]["measured"])
        result["offline"] = offline_score(published_rows.offline(rows))
        result["speculation"] = speculation_score(published_rows.speculation(rows, TABLES["speculation"]))
    print(json.dumps(result, indent=1) if arguments.json else text(result))


if __name__ == "__main__":
    command(main)
