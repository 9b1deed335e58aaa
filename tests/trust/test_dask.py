"""Workers of a sweep that are killed: the frontier is exact all the same, or one message says what happened."""

import os
import signal
import threading

import numpy as np
import pytest

from benchmarks.toy import OBJECTIVES, ToyScorer, ToySpace
from search.frontier import loss_values
from search.sweep import sweep
from tests.trust import bad_files
from tests.trust.test_bad_input import call

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'ridgeline[distributed]'")


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as running:
        yield running


def test_a_killed_worker_costs_time_only(monkeypatch, cluster):
    monkeypatch.setattr("search.sweep.CHUNK_POINTS", 40_000)  # a second of work in some thirty chunks
    scorer = ToyScorer(ToySpace(("recipe",), hidden_step=1024, layer_step=16), batches=4)
    exact = sweep(scorer, workers=1)
    rounds, killed = [], []
    with distributed.Client(cluster) as client:
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


class Deadly(ToyScorer):
    """Takes the process down that prices with it."""

    def score(self, indices):
        os.kill(os.getpid(), signal.SIGKILL)


DEADLY = Deadly(ToySpace(("recipe",), hidden_step=1024, layer_step=16), batches=4)


def test_a_chunk_that_kills_its_process_ends_a_sweep_with_one_message():
    with pytest.raises(ChildProcessError, match=r"one of its processes was killed.* go on with --resume"):
        sweep(DEADLY, workers=2)


def test_a_chunk_that_kills_every_dask_worker_ends_a_sweep_with_one_message(capsys, tmp_path, monkeypatch, cluster):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(bad_files.STUDY)
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)  # the first death is one too many
    monkeypatch.setattr("studies.sweep.build_objective", lambda study: DEADLY)
    code, out, err = call(capsys, f"sweep small.toml --scheduler {cluster.scheduler_address} --out out")
    assert code == 2 and out == ""
    assert "error: the sweep stopped: a chunk cost several Dask workers their lives" in err


def test_a_cluster_without_workers_and_one_that_goes_away(monkeypatch):
    monkeypatch.setattr("search.sweep.CHUNK_POINTS", 40_000)
    scorer = ToyScorer(ToySpace(("recipe",), hidden_step=1024, layer_step=16), batches=4)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty,
        distributed.Client(empty) as client,
    ):
        with pytest.raises(ValueError, match="the Dask scheduler has no worker; start some"):
            sweep(scorer, client=client)
        empty.scale(1)
        client.wait_for_workers(1)
        with pytest.raises(ChildProcessError, match="the Dask scheduler is gone"):
            sweep(scorer, client=client, on_round=lambda now: empty.close())
