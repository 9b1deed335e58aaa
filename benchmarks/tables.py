"""Rewrite the generated tables of README.md and benchmarks/README.md, and the serving errors that every report shows
(reports/serving_accuracy.toml): `python benchmarks/tables.py RESULTS_DIR`.

RESULTS_DIR holds what the benchmarks print with --json: kernels.json, shape_gain.json, serving.json, elsewhere.json,
published.json, speed.json, profile.json, search.json, page.json, kill.json, scale.json (see `make bench`). A table
stands between `<!-- name: begin -->` and `<!-- name: end -->`; tables whose result is not there stay as they are.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.serving_report import COVERAGE, TARGETS  # noqa: E402
from benchmarks.serving_rows import NAMES  # noqa: E402

SERVING_ACCURACY = ROOT / "reports" / "serving_accuracy.toml"
PAGES = (ROOT / "README.md", ROOT / "benchmarks" / "README.md")
GPUS = ("h100-sxm", "h200-sxm", "b200-sxm", "gb200-nvl72", "b300-sxm", "gb300-nvl72", "a100-sxm", "l40s")
SHORT = ("h100-sxm", "h200-sxm", "b200-sxm", "gb200-nvl72")
MAIN = ("gemm", "prefill attention", "decode attention", "MLA decode", "experts power_law_1.2", "all-reduce graph")
SERVING = {
    "tpot_median": ("TPOT, median error", True),
    "tpot_p90": ("TPOT, 90 % error", True),
    "ttft_median": ("TTFT, median error", True),
    "throughput_median": ("tokens/s/GPU, median error", True),
    "rank_correlation": ("rank correlation across plans", False),
}
Rows = Iterable[Iterable[str]]


def markdown(head: Iterable[str], rows: Rows) -> str:
    names = list(head)
    lines = [names, ["---"] + ["---:"] * (len(names) - 1), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def correlation(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def kernels(lines: list[dict[str, Any]]) -> str:
    """Per operation: groups of shapes, medians over lines of the median and 90 % errors, share in band, targets met."""
    rows = []
    for name in dict.fromkeys(line["op"] for line in lines):
        own = [line for line in lines if line["op"] == name]
        asked = [line for line in own if line["target"] is not None]
        met = sum(line["median"] <= line["target"][0] and line["p90"] <= line["target"][1] for line in asked)
        totals = (sum(line[key] for line in own) for key in ("groups", "rows"))
        middle = (percent(float(np.median([line[key] for line in own]))) for key in ("median", "p90", "in_band"))
        rows.append([name, *(f"{total:,}" for total in totals), *middle, f"{met} of {len(asked)}" if asked else "-"])
    return markdown(("operation", "groups", "rows", "median error", "90 % error", "in band", "targets met"), rows)


def kernels_by_gpu(lines: list[dict[str, Any]], gpus: tuple[str, ...] = GPUS) -> str:
    """Median over formats of each operation's median error, per GPU, of TensorRT-LLM's kernels."""
    own = [line for line in lines if line["backend"] in ("trtllm", "nccl")]
    rows = []
    for name in dict.fromkeys(line["op"] for line in own):
        errors = [[line["median"] for line in own if (line["op"], line["gpu"]) == (name, gpu)] for gpu in gpus]
        if any(errors):
            rows.append([name, *(percent(float(np.median(values)) if values else None) for values in errors)])
    return markdown(("operation", *gpus), rows)


def shape_gain(lines: list[dict[str, Any]]) -> str:
    def row(line: dict[str, Any]) -> list[str]:
        pairs = [f"{line['pairs']:,}", percent(line["median"]), percent(line["p80"])]
        return [f"{line['gpu']} {line['backend']} {line['format']}", *pairs, percent(line["sign_right"])]

    pooled = [line for line in lines if line["gpu"] not in GPUS]
    of_a_gpu = [line for line in lines if line["gpu"] in GPUS]
    ordered = sorted(of_a_gpu, key=lambda line: (GPUS.index(line["gpu"]), line["backend"], line["format"]))
    every = [[f"pooled: {line['gpu']}", *row(line)[1:]] for line in pooled]
    header = ("GPU, engine, format", "pairs", "median error", "80 % error", "sign right")
    return markdown(header, [*every, *map(row, ordered)])


def serving(result: dict[str, Any]) -> str:
    parts = [(name, result[name]) for name in ("overall", "disaggregated")]
    targets = TARGETS["calibrated"]
    rows = [
        [
            what,
            *(percent(part[key]) if share else correlation(part[key]) for _, part in parts),
            _target(targets[key], share),
        ]
        for key, (what, share) in SERVING.items()
    ]
    baseline = (correlation(part["rank_baseline"]) for _, part in parts)
    rows.append(["rank correlation of concurrency alone", *baseline, "-"])
    rows.append(
        ["coverage of supported families", percent(result["coverage_of_supported"]), "-", _target(COVERAGE, True)]
    )
    counts = (result["overall"]["priced"], result["disaggregated"]["rows"])
    head = (f"{name}, {count:,} rows" for (name, _), count in zip(parts, counts, strict=True))
    return markdown(("validation rows", *head, "target"), rows)


def elsewhere(result: dict[str, Any]) -> str:
    """Errors per engine and GPU that its fit left out, their average over cells first."""
    targets = result["targets"]
    lines = [("all, cells averaged", result["overall"])]
    lines += [(f"{one['engine']}, {one['gpu']}", one) for one in result["pairs"]]

    def figures(one: dict[str, Any]) -> list[str]:
        return [percent(one[key]) if share else correlation(one[key]) for key, (_, share) in SERVING.items()]

    rows = [[title, f"{one['rows']:,}", *figures(one)] for title, one in lines]
    rows.insert(1, ["target", "", *(_target(targets[key], share) for key, (_, share) in SERVING.items())])
    return markdown(("engine, GPU left out of its fit", "rows", *(what for what, _ in SERVING.values())), rows)


def serving_accuracy(result: dict[str, Any]) -> dict[str, Any]:
    """The serving errors overall, and per model class, GPU (as accelerators/ names it), engine and mode."""
    cells = [
        {
            "model_class": cell["model_class"],
            "gpu": NAMES["gpus"][cell["gpu"]],
            "engine": NAMES["engines"][cell["engine"]],
            "mode": cell["mode"],
            # an engine without a file of its own is priced as its relative
            **({"measured_on": cell["engine"]} if NAMES["engines"][cell["engine"]] != cell["engine"] else {}),
            **known(cell),
        }
        for cell in result["groups"]
        if any(cell[key] is not None for key in SERVING)
    ]
    return {"overall": known({**result["overall"], "rows": result["overall"]["priced"]}), "cell": cells}


def known(figures: dict[str, Any]) -> dict[str, Any]:
    """Rows and errors, less those that they do not give."""
    return {key: figures[key] for key in ("rows", *SERVING) if figures[key] is not None}


def accuracy_file(results: Path) -> str:
    """reports/serving_accuracy.toml anew: what has no result stays as it is."""
    found = tomllib.loads(SERVING_ACCURACY.read_text(encoding="utf-8"))
    if (served := load_result(results, "serving")) is not None:
        found |= serving_accuracy(served)
    if (left_out := load_result(results, "elsewhere")) is not None:
        found["elsewhere"] = known(left_out["overall"])
    comment = (
        "# Errors of predicted serving on published deployments that no fit has seen, from benchmarks/serving.py, and\n"
        "# ([elsewhere]) on GPUs that were left out of the engine's fit, from benchmarks/elsewhere.py. Written by\n"
        "# benchmarks/tables.py. Fractions: median and 90th percentile of |predicted / measured - 1|;\n"
        "# rank_correlation: Spearman's of TPOT across plans and loads of one deployment series.\n\n"
    )
    return comment + tomli_w.dumps({name: found[name] for name in ("overall", "elsewhere", "cell") if name in found})


def load_result(results: Path, name: str) -> Any:
    """What a benchmark printed; None without it, or where it was stopped and left an empty file."""
    path = results / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() and path.stat().st_size else None


def published(result: dict[str, Any]) -> str:
    """One line per figure, then the offline maxima and speculation of the measured table."""
    verdict = {True: "met", False: "missed", None: "-"}
    rows = [[one["figure"], one["published"], one["ours"], verdict[one["met"]]] for one in result["figures"]]
    for name, suite in result["offline"].items():
        what = f"{name} offline maxima, batch from memory: median error of {suite['priced']} rows of {suite['rows']}"
        rows.append([what, "25 %", f"{percent(suite['median'])}, bias {suite['bias']:.2f}", verdict[suite["met"]]])
    for name, own in result["speculation"]["engines"].items():
        what = f"speculation (acceptance assumed), {name}: median TPOT error of {own['rows']} rows"
        rows.append([what, "-", f"{percent(own['median'])}, bias {own['bias']:.2f}", "-"])
    return markdown(("figure", "published", "ours", ""), rows)


def _target(value: float, share: bool) -> str:
    return f"{100 * value:.0f} %" if share else f"{value:.2f}"


def speed(result: dict[str, Any]) -> str:
    plans = result["plans"]
    rows = [[f"ridgeline, 64 architectures x {plans} plans", f"{result['points_per_s']:,} points/s"]]
    rows.append(["ridgeline, one at a time", f"{result['predictions_per_s']:,} predictions/s"])
    rows += [[name, f"{rate:,.2f} architectures/s"] for name, rate in result["peers"].items()]
    return markdown(("one core, CPU time", "rate"), rows)


def profile(result: dict[str, Any]) -> str:
    """Points per CPU second, and the share of each part in it, largest on average first."""
    shares = [entry["shares"] for entry in result.values()]
    parts = sorted({part for own in shares for part in own}, key=lambda part: -sum(own.get(part, 0) for own in shares))
    rows = [["points per CPU second", *(f"{entry['points_per_s']:,}" for entry in result.values())]]
    rows += [[part, *(percent(own.get(part, 0.0)) for own in shares)] for part in parts]
    return markdown(("", *result), rows)


def search(result: dict[str, Any]) -> str:
    parts = []
    for name, entry in result["problems"].items():
        space = entry["sweep"]
        searches = {key: value for key, value in entry.items() if key != "sweep"}
        figures = list(dict.fromkeys(key for row in searches.values() for key in row))
        rows = [[figure, *(_short(row, figure) for row in searches.values())] for figure in figures]
        text = f"*{name}*: {space['points']:,} points, swept at {space['points/s']:,.0f} points/s"
        parts.append(f"{text}\n\n{markdown(('', *searches), rows)}")
    loop = result["throughput"]
    parts.append(
        f"The loop at {loop['trials']:,} trials: {loop['trials/s at the end']:,.0f} trials/s, "
        f"{loop['proposals/s at the end']:,.0f} proposals/s. "
        + "Versions: "
        + ", ".join(f"{name} {number}" for name, number in result["versions"].items())
        + "."
    )
    return "\n\n".join(parts)


def _short(row: dict[str, Any], figure: str) -> str:
    return "" if figure not in row else "never" if row[figure] is None else f"{row[figure]:.4g}"


def kill(result: dict[str, Any]) -> str:
    names = {
        "kills": "kills",
        "runs": "runs",
        "same": "runs whose trials, designs and frontier equal the unbroken run's",
        "paid_twice": "trials priced twice",
        "orphans": "processes left behind",
        "most_trials_lost": "most trials lost since the last checkpoint",
    }
    return markdown(("SIGKILL at random moments", ""), [[text, f"{result[key]:,}"] for key, text in names.items()])


def scale(result: dict[str, Any]) -> str:
    study, swept = result["study"], result["sweep"]
    rows = [
        [f"study of {study['trials']:,} trials", f"{study['seconds']:.0f} s", f"{study['peak_gb']:.2f} GB"],
        [
            f"sweep of {swept['points'] / 1e6:.0f} million points",
            f"{swept['seconds']:.0f} s",
            f"{swept['peak_gb']:.2f} GB",
        ],
    ]
    return markdown(("", "time", "peak memory, all processes"), rows)


def page(result: dict[str, Any]) -> str:
    names, values = [what.rpartition(", ") for what in result], result.values()
    return markdown(
        ("report of 8b-h200 in headless Chromium", ""),
        [[what, f"{value:.2f} {unit}"] for (what, _, unit), value in zip(names, values, strict=True)],
    )


def versions(_: Any) -> str:
    found = []
    for name in ("numpy", "optuna", "moocore", "pandas", "pymoo", "scipy"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return f"Python {sys.version_info.major}.{sys.version_info.minor}, " + ", ".join(found)


# table -> (result it shows, how)
TABLES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "versions": ("speed", versions),
    "kernels": ("kernels", kernels),
    "kernels by gpu": ("kernels", kernels_by_gpu),
    "kernels in short": ("kernels", lambda lines: kernels_by_gpu([l for l in lines if l["op"] in MAIN], SHORT)),
    "shape gain": ("shape_gain", shape_gain),
    "serving": ("serving", serving),
    "elsewhere": ("elsewhere", elsewhere),
    "published": ("published", published),
    "speed": ("speed", speed),
    "profile": ("profile", profile),
    "search": ("search", search),
    "page": ("page", page),
    "kill": ("kill", kill),
    "scale": ("scale", scale),
}


def rewritten(text: str, results: Path) -> str:
    """The page with every table whose result exists made anew.

    Raises:
        ValueError: a table of the page is unknown.
    """

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            raise ValueError(f"unknown table {name!r}; valid: {', '.join(TABLES)}")
        source, make = TABLES[name]
        printed = load_result(results, source)
        return match[0] if printed is None else f"<!-- {name}: begin -->\n{make(printed)}\n<!-- {name}: end -->"

    return re.sub(r"<!-- (?P<name>[\w ]+): begin -->\n.*?<!-- (?P=name): end -->", table, text, flags=re.S)


def main() -> None:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    results = Path(sys.argv[1])
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    SERVING_ACCURACY.write_text(accuracy_file(results), encoding="utf-8")


if __name__ == "__main__":
    main()
