"""Kernel errors on groups not used in the fit: `python benchmarks/kernels.py DATA_DIR [--json] [--ops gemm ...]`.

Prints one line per operation, GPU, format and backend: groups, rows, the median over groups of each group's median
error, p90 over rows, the share inside the 80 % band, and issue 4's target (x1.3 on B300 and GB300, x1.5 for vLLM and
SGLang). DATA_DIR may hold any subset of the measured files, .csv or .csv.gz. An operation joins by one `Op` in
`cost_model/fit/ops.py` (convention: the docstring of `cost_model/fit/common.py`); nothing here changes.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import command  # noqa: E402
from benchmarks.calibrate import read_groups  # noqa: E402
from cost_model.accelerator import Accelerator, load_accelerator  # noqa: E402
from cost_model.fit.calibrate import ENGINE_OF  # noqa: E402
from cost_model.fit.common import Op, errors, load, partitions, select  # noqa: E402
from cost_model.fit.ops import chosen  # noqa: E402

STRICT = ("h100-sxm", "h200-sxm", "b200-sxm", "gb200-nvl72")
WIDER = {"b300-sxm": 1.3, "gb300-nvl72": 1.3}


def score(op: Op, directory: Path) -> list[dict[str, Any]]:
    """Errors of one operation, per line of the table, on rows whose group no fit has seen."""
    rows = load(op, directory)
    if rows is None:
        return []
    fitted = read_groups().get(op.name, {})
    lines = []
    for (name, gpu, form, backend), own in partitions(rows, "op", "gpu", "format", "backend"):
        own = select(own, ~np.isin(own["group"], fitted.get(f"{gpu}|{backend}|{form}", [])))
        if not len(own["seconds"]):
            continue
        predicted = op.predict(accelerator(gpu, ENGINE_OF.get(backend, backend)), own)
        inside = within_band(predicted, own, gpu, backend)
        line = {"op": name, "gpu": gpu, "format": form, "backend": backend}
        line |= errors(predicted, own["seconds"], own["group"]) | {"in_band": inside}
        lines.append(line | {"target": target(op, line)})
    return lines


@cache
def accelerator(gpu: str, engine: str) -> Accelerator:
    return load_accelerator(gpu, engine=engine)


def within_band(predicted: np.ndarray, rows: dict[str, np.ndarray], gpu: str, backend: str) -> float:
    """Share of rows whose measured time lies in the entry's [error_low, error_high] x predicted."""
    calibration = accelerator(gpu, ENGINE_OF.get(backend, backend)).calibration
    inside = np.zeros(len(predicted), dtype=bool)
    for operation, key in set(zip(rows["calibrated"].tolist(), rows["key"].tolist(), strict=True)):
        fit = calibration.fit(operation, key)
        own = (rows["calibrated"] == operation) & (rows["key"] == key)
        ratio = rows["seconds"] / predicted
        inside |= own & (ratio >= fit["error_low"]) & (ratio <= fit["error_high"])
    return round(float(inside.mean()), 3)


def target(op: Op, line: dict[str, Any]) -> list[float] | None:
    """(median, p90) that issue 4 asks of this line, or None where it names none."""
    asked = op.target(line["op"], line["format"])
    scale = 1.0 if line["gpu"] in STRICT else WIDER.get(line["gpu"], 0.0)
    if asked is None or not scale:
        return None
    scale *= 1.0 if line["backend"] == "trtllm" else 1.5
    return [round(value * scale, 4) for value in asked]


def missed(line: dict[str, Any]) -> bool:
    return line["target"] is not None and (line["median"] > line["target"][0] or line["p90"] > line["target"][1])


def show(lines: list[dict[str, Any]]) -> None:
    head = f"{'op':32}{'gpu':13}{'format':11}{'backend':9}{'groups':>7}{'rows':>7}{'median':>8}{'p90':>8}{'in band':>9}"
    print(head + "   target")
    for line in lines:
        asked = line["target"]
        goal = "" if asked is None else f"{asked[0]:.1%} / {asked[1]:.1%}" + ("  MISSED" if missed(line) else "")
        print(
            f"{line['op']:32}{line['gpu']:13}{line['format']:11}{line['backend']:9}{line['groups']:7}{line['rows']:7}"
            f"{line['median']:8.1%}{line['p90']:8.1%}{line['in_band']:9.1%}   {goal}"
        )
    asked = [line for line in lines if line["target"] is not None]
    print(f"{sum(map(missed, asked))} of {len(asked)} targets missed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ops", nargs="+", metavar="OP")
    arguments = parser.parse_args()
    lines = [line for op in chosen(arguments.ops) for line in score(op, arguments.data)]
    if not lines:
        raise ValueError(f"{arguments.data}: holds no measured file of these operations (gemm.csv, moe.csv ...)")
    if arguments.json:
        print(json.dumps(lines, indent=1))
    else:
        show(lines)


if __name__ == "__main__":
    command(main)
