"""The exact frontier of a space small enough to enumerate, in chunks, on this machine or on a Dask cluster.

A chunk is a run of consecutive trials; a worker reduces it to its frontier, and frontiers merge as a tree: pieces of a
chunk where they were priced, a round of chunks, one per worker, here. Only frontiers are ever kept: memory stays flat.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from search.frontier import Table, merge
from search.parameters import grid_rows
from search.scores import Scorer
from search.terminal import postponed_interrupt, progress_bar

CHUNK_POINTS = 2_000_000  # points of a chunk: about a second of work, far more than sending it costs
PIECE_POINTS = 400_000  # points scored and reduced in one call
MOST_POINTS = 20_000_000_000  # a few hours on two cores
SAMPLE = 1024  # most random trials that estimate the feasible share
AHEAD = 3  # chunks that wait for each worker, so that none is ever idle


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
        closing(chunks_in_order(pool, size, scorer, bounds(now.trials, total, chunk))) as chunks,
    ):
        while not interrupt.requested and (done := list(islice(chunks, size))):
            now = Sweep(
                merged(scorer, [now.frontier, *(frontier for _, frontier, _ in done)]),
                done[-1][0],
                total,
                now.points + sum(points for _, _, points in done),
                time.monotonic() - start,
            )
            if on_round:
                on_round(now)
            show(now.trials, f"{now.points:,} points, {now.points / now.seconds:,.0f}/s")
    return now


def chunks_in_order(
    pool: Any, size: int, scorer: Scorer, ranges: Iterable[tuple[int, int]]
) -> Generator[tuple[int, Table | None, int], None, None]:
    """(end of the range, frontier, number of points) of each range, in order, while later ones are being priced."""
    waiting: deque[tuple[int, Future[Any] | _Later]] = deque()
    try:
        for low, high in ranges:
            waiting.append((high, pool.submit(sweep_chunk, scorer, low, high)))
            if len(waiting) > (AHEAD + 1) * size:
                end, future = waiting.popleft()
                yield end, *future.result()
        while waiting:
            end, future = waiting.popleft()
            yield end, *future.result()
    finally:
        for _, future in waiting:
            future.cancel()


def sweep_chunk(scorer: Scorer, low: int, high: int) -> tuple[Table | None, int]:
    """Frontier and number of points of trials low .. high - 1, scored in pieces."""
    shape = [scorer.space.shape[i] for i in scorer.space.outer]
    rows = grid_rows(shape, np.arange(low, high))
    rows = rows[(scorer.canonical(rows) == rows).all(axis=1)]  # others repeat a trial of this space
    rows = rows[scorer.feasible(rows)] if len(rows) else rows
    piece = max(1, PIECE_POINTS // scorer.points_per_trial)
    frontier: Table | None = None
    for start in range(0, len(rows), piece):
        frontier = merged(scorer, [frontier, scorer.points(rows[start : start + piece])])
    if frontier is not None:
        frontier["trial"] = np.zeros_like(frontier["trial"])  # rows of pieces mean nothing outside them
    return frontier, len(rows) * scorer.points_per_trial


def merged(scorer: Scorer, frontiers: list[Table | None]) -> Table | None:
    known = [frontier for frontier in frontiers if frontier is not None]
    return merge(known, scorer.objectives, scorer.group_by) if known else None


def bounds(first: int, total: int, chunk: int) -> Iterator[tuple[int, int]]:
    for low in range(first, total, chunk):
        yield low, min(low + chunk, total)


class _Later:
    """A future of this process: worked on when the result is wanted."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.result = partial(function, *arguments)

    def cancel(self) -> None:
        """Nothing has begun."""


class _Here:
    """This process, as an executor."""

    submit = _Later


@contextmanager
def executor(workers: int, client: Any) -> Iterator[tuple[Any, int]]:
    """Something with `submit`, and how many chunks it works on at a time.

    Raises:
        ValueError: the cluster has no worker. ChildProcessError: those who priced chunks are lost.
    """
    if client is not None:
        with _dask(client) as cluster:
            yield cluster
        return
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        yield _Here(), 1
        return
    try:
        with ProcessPoolExecutor(workers, initializer=obey_parent) as pool:
            yield pool, workers
    except BrokenExecutor as error:
        raise _lost("one of its processes was killed, for lack of memory perhaps") from error


@contextmanager
def _dask(client: Any) -> Iterator[tuple[Executor, int]]:
    from distributed import KilledWorker
    from distributed.client import ClosedClientError

    threads = sum(client.nthreads().values())
    if not threads:
        raise ValueError("the Dask scheduler has no worker; start some: dask worker ADDRESS --nthreads 1")
    pool: Executor = client.get_executor()
    try:
        yield pool, threads
    except KilledWorker as error:
        raise _lost("a chunk cost several Dask workers their lives, for lack of memory perhaps") from error
    except (CancelledError, ClosedClientError) as error:  # the second: the client has given it up
        raise _lost("the Dask scheduler is gone") from error


def _lost(why: str) -> ChildProcessError:
    return ChildProcessError(f"the sweep stopped: {why}; what is in its last checkpoint is kept, go on with --resume")


def obey_parent() -> None:
    """Leave Ctrl-C, which reaches the whole process group, to the process that started this worker, and end when that
    does, even by SIGKILL: a worker without it would wait for chunks for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

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
