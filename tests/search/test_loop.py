"""The loop: what it finds, when it stops, and that a resumed search is the uninterrupted one."""

from __future__ import annotations

import io
import signal
from typing import Any

import numpy as np
import optuna
import pytest

from benchmarks.toy import OBJECTIVES, ToyScorer, ToySpace
from search.checkpoint import restored, saved
from search.frontier import Scale, hypervolume, loss_values, merge
from search.loop import SAMPLERS, Stop, search
from search.scores import Scores
from search.state import SearchState
from search.sweep import sweep

optuna.logging.set_verbosity(optuna.logging.WARNING)


class CountingScorer(ToyScorer):
    """Keeps every row that was priced."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.priced: list[bytes] = []

    def score(self, indices: np.ndarray) -> Scores:
        self.priced += [row.tobytes() for row in indices]
        return super().score(indices)


def small(inner: tuple[str, ...] = ("recipe",), **options: Any) -> CountingScorer:
    return CountingScorer(ToySpace(inner, hidden_step=2048, layer_step=16), batches=6, **options)


def tiny() -> CountingScorer:
    return CountingScorer(ToySpace(("experts", "top_k", "recipe"), hidden_step=4096, layer_step=32), batches=4)


def through_a_file(state: SearchState) -> SearchState:
    buffer = io.BytesIO()
    np.savez(buffer, **saved(state))  # type: ignore[arg-type]
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as arrays:
        return restored(state.scorer, dict(arrays))


def same(one: SearchState, other: SearchState) -> bool:
    tables = [(one.trials_table(), other.trials_table()), (one.frontier or {}, other.frontier or {})]
    return all(np.array_equal(a[name], b[name]) for a, b in tables for name in a if name != "seconds")


def test_finds_the_exact_frontier_and_more_of_it_than_random_search() -> None:
    scorer = small()
    exact = loss_values(sweep(scorer, workers=1).frontier, OBJECTIVES)  # type: ignore[arg-type]
    scale = Scale.around(exact)

    def share(sampler: str) -> float:
        state = search(scorer, Stop(trials=300), sampler)
        return hypervolume(loss_values(state.frontier, OBJECTIVES), scale) / hypervolume(exact, scale)  # type: ignore[arg-type]

    found = share("frontier")
    assert found > 0.98
    assert 1 - found < 0.5 * (1 - share("random"))


def test_keeps_every_point_that_no_other_beats() -> None:
    scorer = small()
    state = search(scorer, Stop(trials=192))
    rows = np.concatenate(state.trials.rows)
    brute = merge([scorer.score(row[None]).points for row in rows], OBJECTIVES)
    assert np.array_equal(
        np.unique(loss_values(brute, OBJECTIVES), axis=0),
        np.unique(loss_values(state.frontier, OBJECTIVES), axis=0),  # type: ignore[arg-type]
    )
    designs = scorer.designs(rows).reshape(len(rows), len(scorer.inner), -1)
    point = {name: column[0] for name, column in state.frontier.items()}  # type: ignore[union-attr]
    assert point["design"] in np.ravel_multi_index(tuple(designs[point["trial"]].T), scorer.space.shape)


def test_records_trials_for_optuna() -> None:
    state = search(small(), Stop(trials=100), batch=32)
    trials = state.study.get_trials(deepcopy=False)
    table = state.trials_table()
    assert [trial.number for trial in trials] == table["number"].tolist() == list(range(100))
    assert trials[70].values == [table[f"value_{name}"][70] for name in state.scorer.value_names]
    assert trials[70].constraints == {n: table[f"violation_{n}"][70] for n in state.scorer.constraint_names}
    assert table["feasible"].sum() == state.progress.feasible
    assert (np.diff(table["seconds"]) >= 0).all()
    assert len(state.study.best_trials) > 0


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_seed_decides_and_resuming_changes_nothing(sampler: str) -> None:
    trials = {"tpe": 24, "qmc": 16, "nsga2": 120}.get(sampler, 64)  # TPE learns from 10 trials, NSGA-II from 50
    whole = search(small(), Stop(trials=trials), sampler, seed=5, batch=8)
    broken = search(small(), Stop(trials=trials // 16 * 8), sampler, seed=5, batch=8)
    assert same(whole, search(small(), Stop(trials=trials), state=through_a_file(broken)))
    if sampler != "qmc":  # QMC has one sequence; its seed draws only the first trials
        assert not same(whole, search(small(), Stop(trials=trials), sampler, seed=6, batch=8))


def test_resuming_within_a_batch_changes_nothing() -> None:
    whole = search(small(), Stop(trials=200), batch=64)
    broken = search(small(), Stop(trials=75), batch=64)
    again = search(small(), Stop(trials=200), state=through_a_file(broken))
    assert same(whole, again)
    assert whole.history[-1].hypervolume == again.history[-1].hypervolume


def test_a_checkpoint_of_another_study_is_refused() -> None:
    arrays = saved(search(small(), Stop(trials=10)))
    with pytest.raises(ValueError, match="belongs to another study"):
        restored(small(inner=("recipe", "kv_format")), arrays)


@pytest.mark.parametrize("sampler", ["frontier", "random"])
def test_no_design_is_priced_twice(sampler: str) -> None:
    scorer = tiny()
    state = search(scorer, Stop(trials=300), sampler, batch=50)
    assert len(scorer.priced) == len(set(scorer.priced))
    state = search(scorer, Stop(trials=400), state=through_a_file(state))
    assert len(scorer.priced) == len(set(scorer.priced)) == len(state.memo)


def test_ends_when_no_design_is_left() -> None:
    scorer = tiny()
    state = search(scorer, Stop(trials=100_000), batch=50)
    assert state.stopped == "exhausted"
    rows = np.stack(np.unravel_index(np.arange(state.trials_possible), [4, 3, 3, 4, 2]), axis=1)
    assert {row.tobytes() for row in rows[scorer.feasible(rows)]} == set(scorer.priced)


def test_a_space_without_outer_axes_is_one_trial() -> None:
    names = tuple(axis.name for axis in ToySpace().axes)
    scorer = CountingScorer(ToySpace(names, hidden_step=4096, layer_step=32), batches=2)
    state = search(scorer, Stop(trials=100))
    assert (state.stopped, len(scorer.priced), state.progress.trials) == ("exhausted", 1, 1)
    assert np.array_equal(state.frontier["design"], sweep(scorer, workers=1).frontier["design"])  # type: ignore[index]


def test_ends_at_seconds_and_on_a_plateau() -> None:
    assert search(tiny(), Stop(trials=10_000, seconds=0.0)).progress.trials == 0
    state = search(small(), Stop(trials=10_000, plateau_trials=100, plateau_gain=0.5), batch=20)
    assert state.stopped == "plateau"
    before = next(entry for entry in reversed(state.history) if entry.trials <= state.progress.trials - 100)
    assert state.progress.hypervolume < 2 * before.hypervolume


def test_ctrl_c_finishes_the_batch() -> None:
    before = signal.getsignal(signal.SIGINT)

    def press(state: SearchState) -> None:
        if state.progress.trials == 60:
            signal.raise_signal(signal.SIGINT)

    state = search(small(), Stop(trials=200), batch=20, on_batch=press)
    assert (state.stopped, state.progress.trials) == ("interrupted", 60)
    assert signal.getsignal(signal.SIGINT) is before
    assert same(search(small(), Stop(trials=200), batch=20), search(small(), Stop(trials=200), state=state))


def test_a_second_ctrl_c_interrupts() -> None:
    def press_twice(state: SearchState) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        search(small(), Stop(trials=200), batch=20, on_batch=press_twice)


def test_a_space_without_a_feasible_design_says_what_it_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.toy.MEMORY_BYTES", 1e6)
    for sampler in ("frontier", "nsga2"):
        state = search(small(), Stop(trials=64), sampler)
        assert state.progress.feasible == 0
        assert state.progress.hypervolume == 0
        assert len(state.frontier["trial"]) == 0  # type: ignore[index]
        assert state.nearest_miss() == {"budget": 1.0}
        assert search(small(), Stop(trials=80), state=through_a_file(state)).progress.trials == 80


def test_a_value_that_is_no_number_names_its_trial() -> None:
    class Broken(CountingScorer):
        def score(self, indices: np.ndarray) -> Scores:
            scores = super().score(indices)
            scores.values[3, 0] = np.nan
            return scores

    with pytest.raises(ValueError, match=r"trial \{'hidden': \d+.*not all finite"):
        search(Broken(ToySpace(("recipe",)), batches=4), Stop(trials=10))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="sampler = 'best'; valid: frontier, nsga2, tpe, random, qmc"):
        search(small(), Stop(trials=10), "best")
    with pytest.raises(ValueError, match="trials = 0: must be at least 1"):
        Stop(trials=0)
    with pytest.raises(ValueError, match="seconds = nan"):
        Stop(seconds=float("nan"))


def test_points_of_each_group_are_kept() -> None:
    scorer = small(("kv_format",))
    scorer.group_by = "recipe_code"
    plain = scorer.frontier_points

    def with_recipe(*arguments: Any) -> dict[str, np.ndarray]:
        points = plain(*arguments)
        points["recipe_code"] = np.unravel_index(points["design"], scorer.space.shape)[6]
        return points

    scorer.frontier_points = with_recipe  # type: ignore[method-assign]
    state = search(scorer, Stop(trials=128))
    assert np.unique(state.frontier["recipe_code"]).tolist() == [0, 1, 2]  # type: ignore[index]
    assert set(np.concatenate(state.trials.points)[:, 1]) == {0.0, 1.0, 2.0}


def test_is_silent_where_no_progress_is_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    search(tiny(), Stop(trials=100), progress=False)
    assert capfd.readouterr() == ("", "")
    search(tiny(), Stop(trials=100), progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "100/100" in err
    assert "feasible, hypervolume" in err
