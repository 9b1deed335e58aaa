"""Where the time goes: `python -m benchmarks.speed_profile [--studies STUDY ...] [--seconds S] [--json]`.

Full predictions as `speed.py` makes them (at 525 and at 96 plans per batch) and chunks of the exact sweeps of studies,
one process, the innermost function of ours on the stack sampled at every millisecond of its CPU time.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks import command, duration, speed
from cost_model import load_accelerator, predict
from search import sweep
from spaces.formats import KV_FORMATS
from studies.objective import build_objective
from studies.study import load_study

ROOT = Path(__file__).resolve().parents[1]
STUDIES = (str(Path(__file__).parent / "standard.toml"), "moe-30b-gb200")
EVERY_S = 0.001
PARTS = {
    "GEMMs": ("gemm",),
    "attention": ("attention", "mla"),
    "experts and routing": ("experts", "routing"),
    "communication": ("collectives", "all_to_all", "exchange"),
    "small operations, assembly of layers": ("layer", "elementwise", "design"),
    "distinct keys and gathering": ("grid",),
    "passes: engine factors, stages": ("step",),
    "steady state": ("steady", "serving"),
    "memory, legality, parameter counts": ("memory", "deployment", "parameters", "architecture", "alignment"),
    "constants and format codes": ("constants", "formats", "accelerator"),
    "regime, error bands, results": ("regime", "evidence", "prediction"),
    "frontier": ("frontier",),
}
JUDGING = ("feasible", "_proposed")  # whatever runs inside these decodes and judges designs
PART_OF = {stem: part for part, stems in PARTS.items() for stem in stems}


def profile(work: Callable[[], int], seconds: float) -> dict[str, Any]:
    """Points per CPU second of `work`, which returns how many it priced, and the share of the time by part."""
    shares: Counter[str] = Counter()

    def sample(_: int, frame: FrameType | None) -> None:
        shares[part_of(frame)] += 1

    work()  # tables and memory
    before = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
    start, points = time.process_time(), 0
    while (spent := time.process_time() - start) < seconds:
        points += work()
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)
    total = sum(shares.values())
    return {"points_per_s": round(points / spent), "shares": {part: shares[part] / total for part in sorted(shares)}}


def part_of(frame: FrameType | None) -> str:
    """Which part the innermost function of ours on the stack belongs to."""
    part, inside = None, False
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if part is None and path.is_relative_to(ROOT):
            part = PART_OF.get(path.stem, "the rest")
        inside |= frame.f_code.co_name in JUDGING
        frame = frame.f_back
    return "decoding and judging designs" if inside else part or "the rest"


def predictions(plans: int | None, batches: int = 15) -> Callable[[], int]:
    """A call of `speed.py`, with other architectures each time."""
    gpu, deployment = load_accelerator("h200-sxm"), speed.plans(plans)
    kv = np.full((speed.ARCHITECTURES, 1), KV_FORMATS.index("fp8"))
    recipe = np.random.default_rng(0).choice(2, (speed.ARCHITECTURES, 1))
    designs = [speed.architectures(seed) for seed in range(batches)]
    turn = iter(range(10**9))

    def work() -> int:
        batch = designs[next(turn) % batches]
        return int(np.size(predict(batch, recipe, deployment, speed.WORKLOAD, gpu, kv).tpot_s))

    return work


def chunks(study: str) -> Callable[[], int]:
    """A random chunk of a sweep each time."""
    objective = build_objective(load_study(study))
    total, size = sweep.trial_count(objective), max(1, sweep.CHUNK_POINTS // objective.points_per_trial)
    starts = np.random.default_rng(0).permutation(-(-total // size)) * size
    turn = iter(range(10**9))

    def work() -> int:
        low = int(starts[next(turn) % len(starts)])
        return sweep.sweep_chunk(objective, low, min(low + size, total))[1]

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--studies", nargs="*", default=STUDIES, help="whose sweeps are profiled")
    parser.add_argument("--seconds", type=duration, default=10.0, help="of CPU time for each profile")
    options = parser.parse_args()
    tasks = {
        "predict, 64 x 525": predictions(None),
        "predict, 64 x 96": predictions(96),
        **{f"sweep, {Path(study).stem}": chunks(study) for study in options.studies},
    }
    result = {name: profile(work, options.seconds) for name, work in tasks.items()}
    if options.json:
        print(json.dumps(result))
        return
    for name, entry in result.items():
        print(f"{name}: {entry['points_per_s']:,} points per CPU second")
        for part, share in sorted(entry["shares"].items(), key=lambda item: -item[1]):
            print(f"  {share:6.1%}  {part}")


if __name__ == "__main__":
    command(main)
