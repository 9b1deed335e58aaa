"""Dominance, hypervolume and epsilon against brute force and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from search.frontier import (
    REFERENCE,
    Objective,
    Scale,
    hypervolume,
    hypervolume_contributions,
    largest,
    loss_values,
    merge,
    multiplicative_epsilon,
    nondominated,
)

RATE = Objective("rate", maximise=True, logarithmic=True)
SECONDS = Objective("seconds", maximise=False, logarithmic=True)
LOSS = Objective("loss", maximise=False, logarithmic=False)

# small whole numbers: many ties and repeated rows
tied_losses = st.integers(1, 3).flatmap(
    lambda m: arrays(np.float64, st.tuples(st.integers(1, 12), st.just(m)), elements=st.integers(0, 4).map(float))
)


def brute_force(losses: np.ndarray) -> np.ndarray:
    """Row i stays unless another is no worse everywhere, and better somewhere or equal and earlier."""
    keep = np.ones(len(losses), dtype=bool)
    for i, row in enumerate(losses):
        for j, other in enumerate(losses):
            no_worse, better = (other <= row).all(), (other < row).any()
            keep[i] &= not (no_worse and (better or j < i))
    return keep


@settings(max_examples=25, deadline=None)
@given(tied_losses)
def test_nondominated_is_what_pairwise_comparison_leaves(losses: np.ndarray) -> None:
    before = losses.copy()
    assert (nondominated(losses) == brute_force(losses)).all()
    assert (losses == before).all()


@settings(max_examples=25, deadline=None)
@given(tied_losses, st.integers(0, 2**32 - 1))
def test_groups_do_not_dominate_each_other(losses: np.ndarray, seed: int) -> None:
    groups = np.random.default_rng(seed).integers(0, 3, len(losses))
    keep = nondominated(losses, groups)
    for group in range(3):
        own = groups == group
        assert (keep[own] == brute_force(losses[own])).all()


def test_one_point_and_none() -> None:
    assert nondominated(np.array([[3.0, 1.0]])).tolist() == [True]
    assert nondominated(np.zeros((0, 2))).tolist() == []
    assert nondominated(np.zeros((0, 2)), np.zeros(0)).tolist() == []
    assert hypervolume(np.zeros((0, 2)), Scale((0, 0), (1, 1))) == 0
    assert hypervolume_contributions(np.zeros((0, 2)), Scale((0, 0), (1, 1))).tolist() == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="1 are not finite"):
        nondominated(np.array([[1.0, 2.0], [bad, 1.0]]))
    with pytest.raises(ValueError, match="rate: 1 values are not finite"):
        RATE.loss_values([1.0, bad])


def test_ratios_need_positive_values() -> None:
    with pytest.raises(ValueError, match=r"seconds = 0.0: must be positive"):
        SECONDS.loss_values([0.0, 1.0])
    assert LOSS.loss_values([0.0, -1.0]).tolist() == [0.0, -1.0]


def test_loss_values_are_minimised() -> None:
    points = {"rate": np.array([1.0, np.e]), "loss": np.array([2.0, 3.0])}
    assert loss_values(points, (RATE, LOSS)).tolist() == [[0.0, 2.0], [-1.0, 3.0]]


@pytest.mark.parametrize("n", [1, 2, 10, 200])
def test_hypervolume_of_a_staircase(n: int) -> None:
    # points (i, n - 1 - i) against reference (n, n) leave n (n - 1) / 2 unit squares of n^2 uncovered
    i = np.arange(n, dtype=float)
    scale = Scale((0.0, 0.0), (n / REFERENCE, n / REFERENCE))  # the reference point lies at n
    expected = (n * n - n * (n - 1) / 2) * (REFERENCE / n) ** 2
    assert hypervolume(np.stack([i, n - 1 - i], axis=1), scale) == pytest.approx(expected)


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_hypervolume_of_one_point_is_its_box(objectives: int) -> None:
    scale = Scale((0.0,) * objectives, (1.0,) * objectives)
    point = np.full((1, objectives), 0.6)
    assert hypervolume(point, scale) == pytest.approx((REFERENCE - 0.6) ** objectives)
    assert hypervolume_contributions(point, scale) == pytest.approx([(REFERENCE - 0.6) ** objectives])


@settings(max_examples=25, deadline=None)
@given(tied_losses)
def test_a_contribution_is_what_the_hypervolume_loses(losses: np.ndarray) -> None:
    scale = Scale((0.0,) * losses.shape[1], (4.0,) * losses.shape[1])
    front = losses[nondominated(losses)]
    contributions = hypervolume_contributions(front, scale)
    for i in range(len(front)):
        lost = hypervolume(front, scale) - hypervolume(np.delete(front, i, axis=0), scale)
        assert contributions[i] == pytest.approx(lost, abs=1e-12)


def test_repeated_rows_contribute_nothing() -> None:
    scale = Scale((0.0,), (1.0,))
    assert hypervolume_contributions(np.array([[0.5], [0.5]]), scale).tolist() == [0.0, 0.0]
    scale = Scale((0.0, 0.0), (1.0, 1.0))
    assert hypervolume_contributions(np.array([[0.5, 0.5], [0.5, 0.5]]), scale).tolist() == [0.0, 0.0]


def test_scale_is_spanned_by_the_frontier_alone() -> None:
    losses = np.array([[0.0, 10.0], [2.0, 6.0], [50.0, 50.0]])
    assert Scale.around(losses) == Scale((0.0, 6.0), (2.0, 10.0))
    with pytest.raises(ValueError, match="no points"):
        Scale.around(np.zeros((0, 2)))


def test_an_objective_without_range_is_measured_in_its_own_unit() -> None:
    scale = Scale.around(np.array([[1.0, 7.0]]))
    assert hypervolume(np.array([[1.0, 7.0]]), scale) == pytest.approx(REFERENCE**2)
    assert hypervolume(np.array([[0.0, 7.0]]), scale) == pytest.approx((1 + REFERENCE) * REFERENCE)


def test_largest_keeps_the_rows_that_cover_most() -> None:
    losses = np.array([[0.0, 10.0], [4.9, 5.1], [5.0, 5.0], [5.1, 4.9], [10.0, 0.0]])
    assert largest(losses, 2).tolist() == [0, 4]
    assert largest(losses, 9).tolist() == [0, 1, 2, 3, 4]


def test_epsilon_is_the_factor_by_which_the_worst_point_is_missed() -> None:
    exact = {"rate": np.array([10.0, 100.0]), "seconds": np.array([1.0, 5.0])}
    assert multiplicative_epsilon(exact, exact, (RATE, SECONDS)) == 1
    slower = {"rate": exact["rate"] / 1.25, "seconds": exact["seconds"]}
    assert multiplicative_epsilon(slower, exact, (RATE, SECONDS)) == pytest.approx(1.25)
    first_only = {"rate": np.array([10.0]), "seconds": np.array([1.0])}
    assert multiplicative_epsilon(first_only, exact, (RATE, SECONDS)) == pytest.approx(10)
    assert multiplicative_epsilon(first_only, exact, (SECONDS,)) == pytest.approx(1)
    with pytest.raises(ValueError, match="at least one point"):
        multiplicative_epsilon({"rate": np.zeros(0)}, exact, (RATE,))


@settings(max_examples=25, deadline=None)
@given(tied_losses, st.integers(0, 2**32 - 1))
def test_merging_in_any_order_gives_the_same_frontier(losses: np.ndarray, seed: int) -> None:
    objectives = [Objective(f"o{i}", maximise=False, logarithmic=False) for i in range(losses.shape[1])]
    table = {o.name: losses[:, i] for i, o in enumerate(objectives)}
    order = np.random.default_rng(seed).permutation(len(losses))
    parts = [{name: column[part] for name, column in table.items()} for part in np.array_split(order, 3)]
    tree = merge([merge([parts[2], parts[0]], objectives), merge([parts[1]], objectives)], objectives)
    flat = merge([table], objectives)
    assert np.array_equal(
        np.unique(loss_values(tree, objectives), axis=0), np.unique(loss_values(flat, objectives), axis=0)
    )
    assert len(tree["o0"]) == len(flat["o0"])


def test_merge_keeps_a_frontier_per_group_and_every_column() -> None:
    table = {"loss": np.array([1.0, 2.0, 3.0]), "recipe": np.array([0, 1, 1]), "name": np.array(["a", "b", "c"])}
    assert merge([table], (LOSS,), "recipe")["name"].tolist() == ["a", "b"]
    assert merge([table], (LOSS,))["name"].tolist() == ["a"]
