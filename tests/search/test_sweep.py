"""Sweeps: exact, resumable, the same on several workers; and what certifying a search says."""

from __future__ import annotations

import multiprocessing
import os
import signal

import numpy as np
import pytest

from benchmarks.toy import OBJECTIVES, ToyScorer, ToySpace
from search.certify import certify
from search.frontier import Objective, Table, loss_values
from search.sweep import Sweep, sweep

RATE = Objective("rate", maximise=True, logarithmic=True)
LOSS = Objective("loss", maximise=False, logarithmic=False)


def tiny(inner: tuple[str, ...] = ("experts", "top_k")) -> ToyScorer:
    return ToyScorer(ToySpace(inner, hidden_step=4096, layer_step=32), batches=4)


def whole(scorer: ToyScorer) -> Table:
    """The frontier of every design, scored in one call."""
    shape = [scorer.space.shape[i] for i in scorer.space.outer]
    return scorer.score(np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)).points


def equal(one: Table | None, other: Table | None) -> bool:
    assert one is not None
    assert other is not None
    losses = [np.unique(loss_values(table, OBJECTIVES), axis=0) for table in (one, other)]
    return np.array_equal(*losses)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search.sweep.CHUNK_POINTS", 10_000)
    monkeypatch.setattr("search.sweep.PIECE_POINTS", 3_000)


@pytest.mark.parametrize("inner", [(), ("recipe",), ("experts", "top_k")])
def test_is_the_frontier_of_every_design(inner: tuple[str, ...]) -> None:
    scorer = tiny(inner)
    result = sweep(scorer, workers=1)
    assert result.complete
    assert equal(result.frontier, whole(scorer))


def test_counts_the_points_of_feasible_trials() -> None:
    scorer = tiny()
    shape = [scorer.space.shape[i] for i in scorer.space.outer]
    rows = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
    result = sweep(scorer, workers=1)
    assert result.total == len(rows) == result.trials
    assert result.points == scorer.feasible(rows).sum() * scorer.points_per_trial


def test_two_processes_give_the_same() -> None:
    assert equal(sweep(tiny(), workers=2).frontier, sweep(tiny(), workers=1).frontier)


def test_resumes_where_it_was_interrupted() -> None:
    rounds: list[Sweep] = []

    def press(now: Sweep) -> None:
        rounds.append(now)
        signal.raise_signal(signal.SIGINT)

    part = sweep(tiny(), workers=1, on_round=press)
    assert len(rounds) == 1
    assert 0 < part.trials < part.total
    assert not part.complete
    rest = sweep(tiny(), workers=1, state=part)
    assert rest.complete
    assert rest.points == sweep(tiny(), workers=1).points
    assert equal(rest.frontier, whole(tiny()))
    with pytest.raises(ValueError, match="another space"):
        sweep(tiny(("recipe",)), workers=1, state=part)


def test_ctrl_c_reaches_every_process_and_still_ends_in_order() -> None:
    rounds: list[Sweep] = []

    def press(now: Sweep) -> None:
        rounds.append(now)
        if len(rounds) == 1:
            for child in multiprocessing.active_children():
                os.kill(child.pid or 0, signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    part = sweep(tiny(), workers=2, on_round=press)
    assert not part.complete
    assert part is rounds[0]
    assert equal(sweep(tiny(), workers=2, state=part).frontier, whole(tiny()))


def test_runs_on_a_dask_cluster() -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert equal(sweep(tiny(), client=client).frontier, whole(tiny()))


def test_designs_that_repeat_others_are_left_out() -> None:
    class Folded(ToyScorer):
        def canonical(self, indices: np.ndarray) -> np.ndarray:
            indices = indices.copy()
            indices[:, 2] = 0  # as if KV heads did not matter
            return indices

    folded = Folded(ToySpace((), hidden_step=4096, layer_step=32), batches=4)
    assert sweep(folded, workers=1).points < sweep(tiny(()), workers=1).points / 2


def test_says_how_large_a_space_is_and_what_would_do() -> None:
    scorer = ToyScorer(ToySpace())
    too_large = r"about 1\.\d+e\+08 points \(2\.03e\+06 designs\), more than the 1e\+07"
    with pytest.raises(ValueError, match=too_large) as error:
        sweep(scorer, most_points=10_000_000)
    assert "hidden 57 -> 8, layers 33 -> 9" in str(error.value)
    assert "ridgeline run" in str(error.value)
    with pytest.raises(ValueError, match="fix some of its axes"):
        sweep(scorer, most_points=10)


def frontier(rates: list[float], losses: list[float], designs: list[int]) -> Table:
    return {"rate": np.array(rates), "loss": np.array(losses), "design": np.array(designs)}


EXACT = frontier([100.0, 50.0, 50.5], [3.0, 2.0, 2.5], [7, 8, 7])
REFERENCE = frontier([50.0], [3.0], [0])


def test_the_exact_frontier_certifies_itself() -> None:
    for reference in (REFERENCE, frontier([60.0], [2.9], [0])):
        result = certify(EXACT, EXACT, reference, (RATE, LOSS))
        assert (result.share_of_hypervolume, result.share_of_gain, result.epsilon) == (1, 1, 1)
        assert (result.designs_recovered, result.designs_identical) == (1, 1)


def test_a_gain_of_nothing_has_no_share() -> None:
    assert certify(EXACT, EXACT, EXACT, (RATE, LOSS)).share_of_gain is None


def test_the_reference_alone_has_no_gain() -> None:
    found = frontier([50.0], [3.0], [0])
    result = certify(found, EXACT, REFERENCE, (RATE, LOSS))
    assert result.share_of_gain == 0
    # in unit coordinates the exact points are (0, 1), (1, 0) and (c, 0.5), the reference (1, 1)
    c = np.log(100 / 50.5) / np.log(2)
    exact_volume = 1.1 * 0.1 + (1.1 - c) * 0.5 + 0.1 * 0.5
    assert result.share_of_hypervolume == pytest.approx(0.1 * 0.1 / exact_volume)
    assert result.epsilon == 2  # half the rate of the fastest
    assert (result.designs_recovered, result.designs_identical) == (0, 0)


def test_a_design_is_recovered_where_all_its_points_are_matched_closely() -> None:
    near = frontier([100 / 1.009, 50 / 1.009], [3.009, 2.009], [1, 2])  # loss range 1: within 0.01
    result = certify(near, EXACT, REFERENCE, (RATE, LOSS))
    assert result.designs_recovered == 0.5  # design 7's point at 50.5 is only served by a loss of 3
    assert result.designs_identical == 0
    far = frontier([100 / 1.011, 50 / 1.011], [3.0, 2.0], [1, 2])
    assert certify(far, EXACT, REFERENCE, (RATE, LOSS)).designs_recovered == 0


def test_an_empty_table_is_named() -> None:
    empty = frontier([], [], [])
    with pytest.raises(ValueError, match="the found frontier holds no point"):
        certify(empty, EXACT, REFERENCE, (RATE, LOSS))
