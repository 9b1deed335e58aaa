"""Serving errors on GPUs that an engine was not fitted on: `benchmarks/elsewhere.py CSV [--json] [--engines ...]`.

For every engine and GPU of the measured table the engine is refitted on calibration rows of its other GPUs, and all
rows of that GPU (tier A and B, no speculation, both splits: the fit has seen none) are scored as `serving.py` does.
What a user of a GPU without measured deployments may expect; two processes take six minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import command, positive  # noqa: E402
from benchmarks.calibrate_engines import ENGINES, FITTED, fitted, fitting, write  # noqa: E402
from benchmarks.serving import chosen, priced, scored, summary  # noqa: E402
from benchmarks.serving_report import TARGETS, bias  # noqa: E402
from benchmarks.serving_rows import NAMES, read_rows, refusals  # noqa: E402

FIGURES = ("tpot_median", "tpot_p90", "ttft_median", "throughput_median", "rank_correlation")


def left_out(rows: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    """Scored rows of a pair (engine, GPU as the table names it), by a fit on the engine's other GPUs."""
    engine, gpu = pair
    ours = rows.engine.map(NAMES["engines"]) == engine
    train = fitting(rows[ours & (rows.gpu != gpu)], engine)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{engine}.toml"
        shutil.copy(ENGINES / path.name, path)
        write(path, fitted(engine, train, quiet=True), "left out", len(train), [])
        done = scored(priced(rows[ours & (rows.gpu == gpu)], {name: str(path) for name in NAMES["engines"]}))
    return done[done.refused == ""]


def pairs(rows: pd.DataFrame, engines: Sequence[str]) -> list[tuple[str, str]]:
    """(engine, GPU) pairs that have rows, of engines with other GPUs to be fitted on."""
    found = sorted(set(zip(rows.engine.map(NAMES["engines"]), rows.gpu, strict=True)))
    return [(engine, gpu) for engine, gpu in found if engine in engines and sum(e == engine for e, _ in found) > 1]


def report(done: dict[tuple[str, str], pd.DataFrame]) -> dict[str, Any]:
    rows = pd.concat(done.values())
    lines = [
        {
            "engine": engine,
            "gpu": NAMES["gpus"][gpu],
            "rows": len(own),
            **summary(own),
            "bias": bias(own, "tpot_median"),
        }
        for (engine, gpu), own in sorted(done.items())
    ]
    return {"overall": {"rows": len(rows), **summary(rows)}, "targets": TARGETS["elsewhere"], "pairs": lines}


def text(result: dict[str, Any]) -> str:
    head = f"{'engine, GPU left out':28}{'rows':>7}" + "".join(f"{name.replace('_', ' '):>19}" for name in FIGURES)
    titled = [(f"{one['engine']} {one['gpu']}", one) for one in result["pairs"]]
    lines = [head + f"{'bias':>7}"]
    for title, one in [("overall, cells averaged", result["overall"]), *titled]:
        shown = "".join(f"{'-' if one[name] is None else format(one[name], '.3f'):>19}" for name in FIGURES)
        lines.append(f"{title:28}{one['rows']:>7}{shown}" + f"{one.get('bias') or '':>7}")
    asked = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in result["targets"].items())
    return "\n".join([*lines, f"targets: {asked}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--engines", nargs="+", choices=FITTED, default=FITTED)
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    table = read_rows(arguments.csv)
    if "split" not in table:
        raise ValueError(f"{arguments.csv}: column 'split' is missing: it tells which rows may be fitted")
    rows = chosen(table[table.split.isin(["calibration", "validation"])])
    rows = rows[refusals(rows) == ""]
    wanted = pairs(rows, arguments.engines)
    if not wanted:
        raise ValueError(f"{arguments.csv}: no engine of {', '.join(arguments.engines)} has rows of two GPUs")
    done = {}
    with ProcessPoolExecutor(arguments.jobs) as pool:
        waiting = {pool.submit(partial(left_out, rows), pair): pair for pair in wanted}
        for number, future in enumerate(as_completed(waiting), 1):
            done[waiting[future]] = future.result()
            print(f"{number} of {len(wanted)}: {' '.join(waiting[future])}", file=sys.stderr, flush=True)
    result = report(done)
    print(json.dumps(result, indent=1) if arguments.json else text(result))


if __name__ == "__main__":
    command(main)
