"""How well and how fast the search finds exact frontiers: `python benchmarks/search.py [--json] [--quick]`.

Truth is a sweep's exact frontier over all recipes. Seconds are CPU seconds of one thread, since wall time is noisy on a
shared machine (sweeps and Dask workers: wall seconds); checking the truth is not charged. Medians over the seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # not this folder, where this file would hide the package `search`

import optuna  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table as RichTable  # noqa: E402

from benchmarks import command, duration, positive  # noqa: E402
from benchmarks.search_peers import PEERS  # noqa: E402
from benchmarks.search_problems import STANDARD, Problem, study, toy, worst_group_share  # noqa: E402
from benchmarks.toy import ToyScorer, ToySpace  # noqa: E402
from search.certify import certify  # noqa: E402
from search.explorer import Explorer  # noqa: E402
from search.frontier import loss_values  # noqa: E402
from search.loop import Stop, search  # noqa: E402
from search.state import SearchState  # noqa: E402
from search.sweep import sweep  # noqa: E402
from studies.study import available_presets  # noqa: E402

SHARES = (0.95, 0.99, 0.995)
TARGET = 0.99  # share at which speed is compared
TARGETS = {
    "trials to 95 %": 300,
    "trials to 99 %": 1500,
    "trials to 99.5 %": 5000,
    "share of gain": 0.99,
    "epsilon": 1.01,
    "designs recovered": 0.9,
    "seconds to 99 %": 5.0,
}
ENUMERABLE = 10_000_000  # presets with at most so many points are swept here


def one_search(
    problem: Problem, seed: int, trials: int, sampler: str = "frontier", until: float = 2.0
) -> dict[str, Any]:
    """What one search reached, and when; ends early at a share of `until`."""
    reached: dict[float, tuple[int, float]] = {}
    start, checking = time.process_time(), 0.0
    stop = Stop(trials=trials)

    def check(state: SearchState) -> None:
        nonlocal checking
        now = time.process_time()
        share = problem.share(loss_values(state.frontier, problem.scorer.objectives))  # type: ignore[arg-type]
        for level in SHARES:
            if share >= level:
                reached.setdefault(level, (state.progress.trials, now - start - checking))
        state.exhausted |= share >= until
        checking += time.process_time() - now

    state = search(problem.scorer, stop, sampler, seed, on_batch=check, progress=False)
    seconds = time.process_time() - start - checking
    assert state.frontier is not None
    found = problem.overall(state.frontier)
    certificate = certify(found, problem.exact, problem.reference, problem.scorer.objectives)
    return {
        **{f"trials to {level:.3g}": reached.get(level, (None, None))[0] for level in SHARES},
        f"seconds to {TARGET:.3g}": reached.get(TARGET, (None, None))[1],
        "trials": state.progress.trials,
        "seconds": seconds,
        "feasible": state.progress.feasible / state.progress.trials,
        "share": certificate.share_of_hypervolume,
        "worst group's share": worst_group_share(problem, state.frontier),
        "share of gain": certificate.share_of_gain,
        "epsilon": certificate.epsilon,
        "designs recovered": certificate.designs_recovered,
        "designs identical": certificate.designs_identical,
    }


def median(values: list[Any]) -> float | None:
    """Median where None counts as never; None where the median is never."""
    value = statistics.median(float("inf") if v is None else v for v in values)
    return None if value == float("inf") else value


def medians(runs: list[dict[str, Any]]) -> dict[str, float | None]:
    return {name: median([run[name] for run in runs]) for name in runs[0]}


def compared(problem: Problem, seeds: int, seconds: float) -> dict[str, Any]:
    """Seconds and evaluations to TARGET of Optuna's NSGA-II on designs, and of the peers on the flat problem."""
    rows: dict[str, Any] = {}
    on_designs = [one_search(problem, seed, 4000, "nsga2", TARGET) for seed in range(seeds)]
    rows["optuna nsga2 (designs)"] = medians(on_designs)
    for name, peer in PEERS.items():
        try:
            traces = [peer(problem, seed, seconds, SHARES, TARGET) for seed in range(seeds)]
        except ImportError:
            continue
        rows[name] = {
            **{f"trials to {s:.3g}": median([t.reached.get(s, (None, None))[0] for t in traces]) for s in SHARES},
            f"seconds to {TARGET:.3g}": median([t.reached.get(TARGET, (None, None))[1] for t in traces]),
            "trials": median([t.evaluations for t in traces]),
            "seconds": median([t.seconds for t in traces]),
            "share": median([t.share for t in traces]),
        }
    return rows


def throughput(trials: int) -> dict[str, float]:
    """Trials/s of the whole loop and proposals/s of the sampler over the last tenth of a search on the toy."""
    marks: list[tuple[int, float, float]] = []
    inside = 0.0
    rows: Callable[..., Any] = Explorer.rows

    def timed(*arguments: Any) -> Any:
        nonlocal inside
        start = time.process_time()
        result = rows(*arguments)
        inside += time.process_time() - start
        return result

    Explorer.rows = timed  # type: ignore[method-assign]
    try:
        search(
            ToyScorer(ToySpace()),
            Stop(trials=trials),
            on_batch=lambda s: marks.append((s.progress.trials, time.process_time(), inside)),
            progress=False,
        )
    finally:
        Explorer.rows = rows  # type: ignore[method-assign]
    first, last = marks[int(0.9 * len(marks))], marks[-1]
    count = last[0] - first[0]
    return {
        "trials": trials,
        "deployments per trial": ToyScorer(ToySpace()).points_per_trial,
        "trials/s at the end": count / (last[1] - first[1]),
        "trials/s overall": trials / (last[1] - marks[0][1]),
        "proposals/s at the end": count / (last[2] - first[2]),
    }


def dask_speedup() -> dict[str, float]:
    """Points/s of one and two Dask worker processes on a toy of 60 million points."""
    from distributed import Client, LocalCluster

    rates = {}
    for count in (1, 2):
        with (
            LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            sweep(ToyScorer(ToySpace(hidden_step=4096)), client=client, progress=False)  # import everything
            result = sweep(ToyScorer(ToySpace(hidden_step=768)), client=client, progress=False)
            rates[f"points/s, {count} workers"] = result.points / result.seconds
    return {**rates, "ratio": rates["points/s, 2 workers"] / rates["points/s, 1 workers"]}


def swept(problem: Problem) -> dict[str, Any]:
    result = problem.sweep
    return {
        "designs": math.prod(problem.scorer.space.shape),
        "points": result.points,
        "wall seconds": result.seconds,
        "points/s": result.points / result.seconds,
        "exact points": len(problem.exact["design"]),
        "exact designs": len(set(problem.exact["design"].tolist())),
    }


def report(options: argparse.Namespace) -> dict[str, Any]:
    say = Console(stderr=True).print
    seeds = range(options.seeds)
    result: dict[str, Any] = {"versions": versions(), "targets": TARGETS, "problems": {}}
    makers: dict[str, Callable[[], Problem]] = {"toy": lambda: toy(options.workers, options.quick)}
    if not options.quick:
        makers["standard"] = lambda: study(str(STANDARD), options.workers)
        makers |= {name: lambda name=name: study(name, options.workers) for name in small_presets()}  # type: ignore[misc]
    unknown = sorted(set(options.problems or ()) - set(makers))
    if unknown:
        raise ValueError(f"--problems: unknown problem {unknown[0]!r}; valid: {', '.join(makers)}")
    for name, make in makers.items():
        if options.problems and name not in options.problems:
            continue
        say(f"{name}: sweep")
        problem = make()
        entry: dict[str, Any] = {"sweep": swept(problem)}
        say(f"{name}: search")
        entry["frontier"] = medians([one_search(problem, seed, options.trials) for seed in seeds])
        if name in ("toy", "standard"):
            say(f"{name}: peers")
            entry |= compared(problem, options.peer_seeds, options.peer_seconds)
        result["problems"][name] = entry
    say("throughput")
    result["throughput"] = throughput(1000 if options.quick else 10_000)
    if options.dask:
        say("dask")
        result["dask"] = dask_speedup()
    return result


def small_presets() -> list[str]:
    """Presets whose points can be enumerated here."""
    from search.sweep import enumerated_points
    from studies.objective import build_objective
    from studies.study import load_study

    return [n for n in available_presets() if enumerated_points(build_objective(load_study(n))) <= ENUMERABLE]


def versions() -> dict[str, str]:
    found = {}
    for name in ("optuna", "pymoo", "moocore", "numpy", "distributed"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def show(result: dict[str, Any]) -> None:
    console = Console()
    for name, entry in result["problems"].items():
        sizes = ", ".join(f"{value:,.0f} {key}" for key, value in entry.pop("sweep").items())
        console.print(f"\n[bold]{name}[/bold]: {sizes}")
        figures = list(dict.fromkeys(key for row in entry.values() for key in row))
        table = RichTable("", *entry)
        for figure in figures:
            table.add_row(figure, *(_short(row[figure]) if figure in row else "" for row in entry.values()))
        console.print(table)
    for name in ("throughput", "dask"):
        if name in result:
            console.print(f"{name}: " + ", ".join(f"{key} {value:,.2f}" for key, value in result[name].items()))


def _short(value: float | None) -> str:
    return "never" if value is None else f"{value:.5g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a small toy only")
    parser.add_argument("--problems", nargs="*", help="only these: toy, standard, presets")
    parser.add_argument("--dask", action="store_true", help="also compare one and two Dask workers")
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--peer-seeds", type=positive, default=3)
    parser.add_argument("--trials", type=positive, default=5000)
    parser.add_argument("--workers", type=int, default=0, help="processes of a sweep; 0: one per core")
    parser.add_argument("--peer-seconds", type=duration, default=30.0, help="CPU seconds after which a peer has failed")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    result = report(options)
    if options.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    command(main)
