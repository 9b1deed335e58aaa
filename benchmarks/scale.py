"""Memory and time of a study of 100,000 trials and of a sweep of 10^8 points, each in a process of its own.

    python -m benchmarks.scale [--trials 100000] [--points 100000000] [--json]

Both run the command line's own code on the standard benchmark space (benchmarks/standard.toml) with fewer plans, and
write their run directories. What must hold: the peak resident memory of all processes together stays below 4 GB.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import ridgeline
from benchmarks import positive
from search.sweep import enumerated_points
from studies.objective import build_objective
from studies.resume import Checkpoints
from studies.study import Study, load_study
from studies.sweep import run_sweep

STANDARD = Path(__file__).parent / "standard.toml"
LIMIT_BYTES = 4e9
# few plans per trial, so that the trials and not the pricing are what is measured
STUDY: dict[str, Any] = {"target.0.gpus": [1], "serving.batches": [1, 32, 256]}
STUDY |= {"search.objectives": ["tokens_per_s_per_user", "tokens_per_s_per_gpu"]}
SAMPLE_SECONDS = 0.2


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children; pages they share after a fork count once (PSS)."""
    total = 0
    for process in [pid, *children(pid)]:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:  # ended while we looked
            continue
        total += next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total


def children(pid: int) -> list[int]:
    try:
        own = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return own + [grandchild for child in own for grandchild in children(child)]


def measured(target: Any, *arguments: Any) -> dict[str, Any]:
    """What a function returned, run in a forked process, with seconds and peak memory."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sending.send(target(*arguments)))
    start, peak = time.monotonic(), 0

    def watch() -> None:
        nonlocal peak
        while process.exitcode is None:
            peak = max(peak, resident_bytes(process.pid or 0))
            time.sleep(SAMPLE_SECONDS)

    process.start()
    watcher = threading.Thread(target=watch)
    watcher.start()
    sending.close()
    try:
        result = receiving.recv()
    except EOFError:
        result = {}
    process.join()
    watcher.join()
    seconds = time.monotonic() - start
    return {**result, "exit_code": process.exitcode, "seconds": round(seconds, 1), "peak_gb": round(peak / 1e9, 3)}


def study_of(trials: int) -> dict[str, Any]:
    """Search for so many trials, resume from the checkpoint, and write the report."""
    study = load_study(STANDARD, **STUDY, **{"search.trials": trials})
    with tempfile.TemporaryDirectory() as folder:
        run = ridgeline.run(study, out=Path(folder) / "run", progress=False)
        ridgeline.write_report(run)
        start = time.monotonic()
        state = Checkpoints(run.directory).read(run.objective)
        assert state is not None
        return {
            "trials": run.meta["trials"],
            "points_priced": run.meta["points_priced"],
            "search_seconds": run.meta["seconds"],
            "restore_seconds": round(time.monotonic() - start, 1),
            "checkpoint_mb": round((run.path / "checkpoint.npz").stat().st_size / 1e6, 1),
            "directory_mb": round(sum(path.stat().st_size for path in run.path.iterdir()) / 1e6, 1),
        }


def sweep_of(points: int) -> dict[str, Any]:
    """Enumerate the standard space under so many batches that about so many points are priced."""
    study = sized(points)
    with tempfile.TemporaryDirectory() as folder:
        _, state = run_sweep(study, Path(folder) / "run", progress=False)
        assert state.frontier is not None
        found = {"points": state.points, "trials": state.trials, "frontier_points": len(state.frontier["trial"])}
        return {**found, "points_per_s": round(state.points / state.seconds)}


def sized(points: int) -> Study:
    """The standard study with as many batches as make about so many points."""
    for count in range(2, 65):
        batches = np.unique(np.geomspace(1, 2048, count).round().astype(int)).tolist()
        study = load_study(STANDARD, **{"serving.batches": batches})
        if enumerated_points(build_objective(study)) >= points:
            return study
    raise ValueError(f"--points {points}: more than the standard space holds with 64 batches")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=positive, default=100_000)
    parser.add_argument("--points", type=positive, default=100_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = {"study": measured(study_of, options.trials), "sweep": measured(sweep_of, options.points)}
    print(json.dumps(result) if options.json else "\n".join(f"{name}: {line}" for name, line in result.items()))
    limit = max(line["peak_gb"] for line in result.values()) * 1e9
    sys.exit(limit > LIMIT_BYTES or any(line["exit_code"] for line in result.values()))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
