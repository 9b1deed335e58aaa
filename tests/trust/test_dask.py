"""A Dask worker that is killed in the middle of a sweep: its chunks are done again and the frontier is exact."""

import os
import signal
import threading

import numpy as np
import pytest

from benchmarks.toy import OBJECTIVES, ToyScorer, ToySpace
from search.frontier import loss_values
from search.sweep import sweep

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'ridgeline[distributed]'")


def test_a_killed_worker_costs_time_only(monkeypatch):
    monkeypatch.setattr("search.sweep.CHUNK_POINTS", 40_000)  # a second of work in some thirty chunks
    scorer = ToyScorer(ToySpace(("recipe",), hidden_step=1024, layer_step=16), batches=4)
    exact = sweep(scorer, workers=1)
    rounds, killed = [], []
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))

        def kill() -> None:
            os.kill(victim, signal.SIGKILL)
            killed.append(len(rounds))

        def after(now) -> None:
            if not rounds:  # the next round has begun when it strikes
                threading.Timer(0.05, kill).start()
            rounds.append(now.trials)

        found = sweep(scorer, client=client, on_round=after)
        assert victim not in client.run(os.getpid).values()
    assert killed and killed[0] < len(rounds)  # it struck while chunks were out
    assert found.complete and found.points == exact.points
    losses = [np.unique(loss_values(table, OBJECTIVES), axis=0) for table in (found.frontier, exact.frontier)]
    assert np.array_equal(*losses)
