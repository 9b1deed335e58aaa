"""What a search and a sweep ask of a study's objective is the same."""

import numpy as np

from studies.objective import build_objective
from studies.study import load_study


def test_a_sweep_keeps_the_points_of_a_search():
    objective = build_objective(load_study("8b-h200"))
    shape = [objective.space.shape[i] for i in objective.space.outer]
    rows = np.random.default_rng(0).integers(0, shape, (12, len(shape)))
    scores, points = objective.score(rows), objective.points(rows)
    assert scores.feasible.any() and not scores.feasible.all()
    assert points.keys() == scores.points.keys()
    for name, column in points.items():
        np.testing.assert_array_equal(column, scores.points[name], err_msg=name)
    assert set(points["trial"]) <= set(np.flatnonzero(scores.feasible))
