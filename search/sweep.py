"""The exact frontier of a space small enough to enumerate, in chunks, on this machine or on a Dask cluster.

A chunk is a run of consecutive trials; a worker reduces it to its frontier, and frontiers merge as a tree: pieces of a
chunk where they were priced, chunks of a round here. Only frontiers are ever kept, so memory stays flat.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from search.frontier import Table, merge
from search.parameters import grid_rows
from search.scores import Scorer
from search.terminal import postponed_interrupt, progress_bar

CHUNK_POINTS = 2_000_000  # points of a chunk: about a second of work, far more than sending it costs
PIECE_POINTS = 100_000  # points scored and reduced in one call
MOST_POINTS = 20_000_000_000  # a few hours on two cores
SAMPLE = 1024  # most random trials that estimate the feasible share
ROUND = 4  # chunks in flight per worker


@dataclass(frozen=True)
class Sweep:
    """An enumeration, finished or not.

    Attributes:
        frontier: exact frontier of the trials so far; None before the first feasible one.
        trials: number of trials enumerated, from the first. total: trials of the space.
        points: points priced (of feasible trials). seconds: time spent.
    """

    frontier: Table | None
    trials: int
    total: int
    points: int
    seconds: float

    @property
    def complete(self) -> bool:
        return self.trials == self.total


def sweep(
    scorer: Scorer,
    workers: int = 0,
    client: Any = None,
    state: Sweep | None = None,
    on_round: Callable[[Sweep], None] | None = None,
    most_points: int = MOST_POINTS,
    progress: bool | None = None,
) -> Sweep:
    """Enumerate every trial of a space; Ctrl-C ends after the round in hand, to be resumed from `state`.

    Args:
        workers: processes on this machine; 0: one per core, 1: this process. client: a distributed.Client, whose
            cluster then runs the chunks. state: where an earlier sweep of the same scorer stopped.
        on_round: called after each round of chunks, to save a checkpoint.

    Raises:
        ValueError: the space is too large, or `state` belongs to another space.
    """
    total = trial_count(scorer)
    refuse_if_too_large(scorer, most_points)
    now = state or Sweep(None, 0, total, 0, 0.0)
    if now.total != total:
        raise ValueError(f"the sweep to resume has {now.total} trials, this space has {total}: another space")
    chunk = max(1, CHUNK_POINTS // scorer.points_per_trial)
    start = time.monotonic() - now.seconds
    with (
        executor(workers, client) as (pool, size),
        progress_bar("sweep", total, progress) as show,
        postponed_interrupt() as interrupt,
    ):
        for bounds in rounds(now.trials, total, chunk, ROUND * size):
            chunks = list(pool.map(sweep_chunk, *zip(*((scorer, low, high) for low, high in bounds), strict=True)))
            now = Sweep(
                merged(scorer, [now.frontier, *(frontier for frontier, _ in chunks)]),
                bounds[-1][1],
                total,
                now.points + sum(points for _, points in chunks),
                time.monotonic() - start,
            )
            if on_round:
                on_round(now)
            show(now.trials, f"{now.points:,} points, {now.points / now.seconds:,.0f}/s")
            if interrupt.requested:
                break
    return now


def sweep_chunk(scorer: Scorer, low: int, high: int) -> tuple[Table | None, int]:
    """Frontier and number of points of trials low .. high - 1, scored in pieces."""
    shape = [scorer.space.shape[i] for i in scorer.space.outer]
    rows = grid_rows(shape, np.arange(low, high))
    rows = rows[(scorer.canonical(rows) == rows).all(axis=1)]  # others repeat a trial of this space
    rows = rows[scorer.feasible(rows)] if len(rows) else rows
    piece = max(1, PIECE_POINTS // scorer.points_per_trial)
    frontier: Table | None = None
    for start in range(0, len(rows), piece):
        frontier = merged(scorer, [frontier, scorer.score(rows[start : start + piece]).points])
    if frontier is not None:
        frontier["trial"] = np.zeros_like(frontier["trial"])  # rows of pieces mean nothing outside them
    return frontier, len(rows) * scorer.points_per_trial


def merged(scorer: Scorer, frontiers: list[Table | None]) -> Table | None:
    known = [frontier for frontier in frontiers if frontier is not None]
    return merge(known, scorer.objectives, scorer.group_by) if known else None


def rounds(first: int, total: int, chunk: int, count: int) -> Iterator[list[tuple[int, int]]]:
    """Bounds (low, high) of the chunks of each round."""
    for low in range(first, total, chunk * count):
        yield [(start, min(start + chunk, total)) for start in range(low, min(low + chunk * count, total), chunk)]


class _Here:
    """This process, as an executor."""

    map = staticmethod(map)


@contextmanager
def executor(workers: int, client: Any) -> Iterator[tuple[Any, int]]:
    """Something with `map`, and how many chunks it works on at a time."""
    if client is not None:
        pool: Executor = client.get_executor()
        yield pool, sum(client.nthreads().values())
        return
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        yield _Here(), 1
        return
    with ProcessPoolExecutor(workers, initializer=end_with_parent) as pool:
        yield pool, workers


def end_with_parent() -> None:
    """End this worker when the process that started it does, even by SIGKILL: it would wait for chunks for ever."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def trial_count(scorer: Scorer) -> int:
    return math.prod(scorer.space.shape[i] for i in scorer.space.outer)


def enumerated_points(scorer: Scorer) -> float:
    """About how many points a sweep prices, from a sample of trials; an infeasible trial counts as one."""
    shape = [scorer.space.shape[i] for i in scorer.space.outer]
    count = max(1, min(SAMPLE, PIECE_POINTS // scorer.points_per_trial))
    rows = np.random.default_rng(0).integers(0, shape, (count, len(shape)))
    return trial_count(scorer) * (1 + float(np.mean(scorer.feasible(rows))) * scorer.points_per_trial)


def refuse_if_too_large(scorer: Scorer, most_points: int) -> None:
    """Say how large a space is that cannot be enumerated, and what would make it enumerable.

    Raises:
        ValueError: the space holds more than `most_points` points.
    """
    points = enumerated_points(scorer)
    if points <= most_points:
        return
    sizes = {axis.name: len(axis.values) for axis in scorer.space.axes}
    thinned = {axis.name: len(axis.values) for axis in scorer.space.axes if axis.ordered}
    left = points
    while left > most_points and thinned and max(thinned.values()) > 2:
        longest = max(thinned, key=lambda name: thinned[name])
        left /= thinned[longest]
        thinned[longest] = (thinned[longest] + 1) // 2  # every second value
        left *= thinned[longest]
    fewer = ", ".join(f"{name} {sizes[name]} -> {count}" for name, count in thinned.items() if count < sizes[name])
    how = f"values per axis such as {fewer} would do" if left <= most_points else "fix some of its axes"
    raise ValueError(
        f"the space holds about {points:.3g} points ({math.prod(sizes.values()):.3g} designs), more than the "
        f"{most_points:.3g} that can be enumerated; {how}, or search it with `ridgeline run`"
    )
