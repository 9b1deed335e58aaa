"""Kill `ridgeline run` and `ridgeline sweep` with SIGKILL at random moments, resume them, and compare.

    python -m benchmarks.kill --kills 50 [--seed 0] [--json]

Each victim is a fork of this process that runs the command line; it is killed after a random share of the time the
unbroken run took, resumed, perhaps killed again, and at last left to finish. What must hold: every checkpoint found
after a kill can be read; no trial of a checkpoint is priced again; trials, designs and frontier are those of the
unbroken run; no process is left behind.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import ridgeline
import search.sweep
from benchmarks import positive
from search.objective import ServingObjective
from studies.store import RunDirectory

SMALL = ["--set", "target.0.gpus=[1]", "--set", "serving.batches=[1,16]"]
# the seed and the budget of every run; the whole space has 6,450 trials
STUDIES = {
    "run frontier": ["run", "8b-h200", *SMALL, "--trials", "320", "--seed", "3"],
    "run nsga2": ["run", "8b-h200", *SMALL, "--trials", "320", "--seed", "3", "--sampler", "nsga2"],
    "sweep": ["sweep", "8b-h200", *SMALL],
}
CHUNK_POINTS = 2_000  # small rounds, so that a short sweep has many checkpoints
MOST_KILLS = 3  # of one run
CONTEXT = multiprocessing.get_context("fork")  # imports are done once


def victim(arguments: list[str], log: Path) -> None:
    """Run the command line in this process; `log` gets the rows that it prices."""
    os.setsid()
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    errors = os.open(log.with_suffix(".err"), os.O_WRONLY | os.O_CREAT)
    os.dup2(errors, 2)
    score, rows_file = ServingObjective.score, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def logged(self: ServingObjective, indices: np.ndarray) -> Any:
        os.write(rows_file, np.ascontiguousarray(indices, dtype=np.int64).tobytes())
        return score(self, indices)

    ServingObjective.score = logged  # type: ignore[method-assign]
    search.sweep.CHUNK_POINTS = CHUNK_POINTS
    sys.argv = ["ridgeline", *arguments, "--json"]
    ridgeline.main()


def started(arguments: list[str], log: Path) -> Any:
    process = CONTEXT.Process(target=victim, args=(arguments, log))
    process.start()
    return process


def priced(log: Path, axes: int) -> list[bytes]:
    data = log.read_bytes() if log.exists() else b""
    return [data[i : i + 8 * axes] for i in range(0, len(data), 8 * axes)]


def members(session: int) -> list[int]:
    """Processes of a session, alive."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:  # ended while we looked
            continue
        if int(of_session) == session and state != "Z":
            found.append(int(entry.name))
    return found


def left_behind(session: int, patience: float = 10.0) -> int:
    """Processes of a killed victim's session that have not ended by themselves; they are ended here."""
    deadline = time.monotonic() + patience
    while (alive := members(session)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    return len(alive)


def checkpoint_rows(out: Path, shape: tuple[int, ...]) -> list[bytes]:
    """Index rows of the trials that a killed run has saved, in order; fails where the checkpoint cannot be read."""
    directory = RunDirectory(out)
    arrays = directory.read_arrays("checkpoint")
    if arrays is not None:
        return [row.tobytes() for row in np.ascontiguousarray(arrays["rows"], dtype=np.int64)]
    arrays = directory.read_arrays("sweep")
    done = 0 if arrays is None else int(arrays["numbers"][0])
    return [row.tobytes() for row in np.stack(np.unravel_index(np.arange(done), shape), axis=1)]


def results(out: Path) -> dict[str, pd.DataFrame]:
    names = ("frontier", "designs", "trials", "points", "exact")
    frames = {name: pd.read_parquet(path) for name in names if (path := out / f"{name}.parquet").exists()}
    return {name: frame.drop(columns="seconds", errors="ignore") for name, frame in frames.items()}


def same(one: dict[str, pd.DataFrame], other: dict[str, pd.DataFrame]) -> bool:
    return one.keys() == other.keys() and all(one[name].equals(other[name]) for name in one)


def broken(
    arguments: list[str], folder: Path, seconds: float, rng: np.random.Generator, budget: int, shape: tuple[int, ...]
) -> dict[str, Any]:
    """One run killed up to `budget` times, then finished: what was found after each kill, and its results."""
    out = folder / "run"
    record: dict[str, Any] = {"kills": 0, "moments": [], "saved": [], "lost": [], "paid_twice": 0, "orphans": 0}
    saved: set[bytes] = set()
    for attempt in range(budget + 1):
        log = folder / f"{attempt}.rows"
        command = [*arguments, "--out", str(out)] + (["--resume"] if (out / "study.toml").exists() else [])
        process = started(command, log)
        if attempt < budget:
            delay = float(rng.uniform(0, seconds))
            process.join(delay)
            finished = process.exitcode is not None
            process.kill()
        process.join()
        rows = priced(log, len(shape))
        record["paid_twice"] += len(saved & set(rows)) + len(rows) - len(set(rows))
        if attempt == budget or finished:
            record["error"] = log.with_suffix(".err").read_text()[-500:] if process.exitcode else ""
            break
        record["orphans"] += left_behind(process.pid)
        known = checkpoint_rows(out, shape)
        record["kills"] += 1
        record["moments"].append(round(delay / seconds, 3))
        record["saved"].append(len(known))
        record["lost"].append(len(set(rows) - set(known)))
        saved = set(known)
    return {**record, "results": results(out)}


def campaign(kind: str, kills: int, seed: int) -> Iterator[dict[str, Any]]:
    """Runs of one kind, broken until so many kills have struck; `same` says whether results are the unbroken run's."""
    arguments = STUDIES[kind]
    rng = np.random.default_rng([seed, *kind.encode()])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "unbroken"
        folder.mkdir()
        start = time.monotonic()
        process = started([*arguments, "--out", str(folder / "run")], folder / "rows")
        process.join()
        seconds = time.monotonic() - start
        if process.exitcode:
            raise RuntimeError((folder / "rows.err").read_text())
        study = ridgeline.load_study(folder / "run" / "study.toml")
        shape = tuple(study.space.shape[i] for i in study.space.outer)
        expected = results(folder / "run")
        struck = 0
        while struck < kills:
            folder = Path(temporary) / str(struck)
            folder.mkdir()
            budget = min(int(rng.integers(1, MOST_KILLS + 1)), kills - struck)
            record = broken(arguments, folder, seconds, rng, budget, shape)
            struck += max(record["kills"], 1)
            found = record.pop("results")
            yield {"kind": kind, **record, "same": same(found, expected)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=positive, default=50, help="of each kind of run")
    parser.add_argument("--kind", choices=STUDIES, action="append", help="default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    records = []
    for kind in options.kind or STUDIES:
        for record in campaign(kind, options.kills, options.seed):
            records.append(record)
            if not options.json:
                print(record, flush=True)
    failures = [r for r in records if not r["same"] or r["paid_twice"] or r["orphans"] or r["error"]]
    summary = {
        "kills": sum(r["kills"] for r in records),
        "runs": len(records),
        "same": sum(r["same"] for r in records),
        "paid_twice": sum(r["paid_twice"] for r in records),
        "orphans": sum(r["orphans"] for r in records),
        "most_trials_lost": max(max(r["lost"], default=0) for r in records),
        "failures": failures,
    }
    print(json.dumps(summary) if options.json else summary)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
