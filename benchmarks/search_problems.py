"""What `benchmarks/search.py` searches: the toy, the standard space and the presets, each with its exact frontier.

Peers need the flat problem, where a deployment is one more variable: `flat` prices (design, deployment) pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.toy import ToyScorer, ToySpace
from cost_model import Prediction, predict
from search.frontier import Scale, Table, hypervolume, loss_values, merge, take
from search.objective import ServingObjective
from search.sweep import Sweep, sweep
from spaces.deployment import MAX_BATCH
from studies.objective import build_objective
from studies.study import load_study
from studies.tables import own_points, reference_set

STANDARD = Path(__file__).parent / "standard.toml"
Flat = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass
class Problem:
    """A scorer and the truth about it.

    Attributes:
        name: as reported. exact: the exact frontier with a `design` column, over all groups. sweep: how it was found.
        reference: points of the design that gains are measured from. flat_shape: sizes of the flat variables, the
            deployment last. flat: loss values and total violation (n,) of (n, variables) index rows.
    """

    name: str
    scorer: Any
    exact: Table
    sweep: Sweep
    reference: Table
    flat_shape: tuple[int, ...]
    flat: Flat

    def __post_init__(self) -> None:
        self._scale = Scale.around(loss_values(self.exact, self.scorer.objectives))
        self._volume = hypervolume(loss_values(self.exact, self.scorer.objectives), self._scale)

    def share(self, losses: np.ndarray) -> float:
        """Share of the exact hypervolume that (n, objectives) loss values cover."""
        return hypervolume(losses, self._scale) / self._volume

    def overall(self, points: Table) -> Table:
        """The frontier over all groups, with a `design` column."""
        return with_design(self.scorer, merge([points], self.scorer.objectives))


def with_design(scorer: Any, points: Table) -> Table:
    """Points with the number of their design on the grid."""
    if "design" in points:
        return points
    columns = tuple(points[f"axis_{axis.name}"] for axis in scorer.space.axes)
    return {**points, "design": np.ravel_multi_index(columns, scorer.space.shape)}


def toy(workers: int, small: bool = False) -> Problem:
    """Two million designs (26,000 where small) under 96 deployments, all axes outer."""
    space = ToySpace(hidden_step=1024, layer_step=16) if small else ToySpace()
    scorer = ToyScorer(space)
    result = sweep(scorer, workers)
    assert result.frontier is not None
    middle = scorer.space.shape[0] // 4, scorer.space.shape[1] // 2, 2, 2, 1, 1, 1, 1
    reference = scorer.score(np.array([middle])).points

    def flat(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        design = space.decode(rows[:, :-1])
        plan = rows[:, -1:]
        seconds, throughput, fits = scorer.price(design, scorer.tp[plan], scorer.batch[plan])
        losses = np.column_stack([np.log(seconds), -np.log(throughput), scorer.shape_loss(design)])
        return losses, np.where(design["feasible"], 0.0, 1.0) + np.where(fits[:, 0], 0.0, 1.0)

    shape = (*space.shape, len(scorer.tp))
    return Problem("toy", scorer, result.frontier, result, reference, shape, flat)


def study(name: str, workers: int) -> Problem:
    """A preset or a study file, under the real cost model."""
    objective = build_objective(load_study(name))
    result = sweep(objective, workers)
    assert result.frontier is not None
    exact = with_design(objective, merge([result.frontier], objective.objectives))
    frame = own_points(objective, reference_set(objective))
    reference = {o.name: frame[o.name].to_numpy() for o in objective.objectives}
    shape = (*objective.space.shape, objective.cells[0].size)
    return Problem(Path(name).stem, objective, exact, result, reference, shape, flat_objective(objective))


def flat_objective(objective: ServingObjective) -> Flat:
    """Pairs of the first cell, whose plans are aggregated.

    Those with a stated batch are priced in one call; a plan that fills memory within the limit of TTFT is priced with
    the batches beside it, which tell how far that is.
    """
    cell = objective.cells[0]
    batch = np.asarray(cell.deployments.batch)

    def priced(proposals: Any, rows: np.ndarray, plans: np.ndarray) -> tuple[Prediction, np.ndarray]:
        """(prediction, its columns) of the pairs of some rows with their plans, of which one fills memory or none."""
        if batch[plans[0]] != MAX_BATCH:
            pairs = rows[:, None]  # (n, 1): a column of pairs, not a product of designs and plans
            design = proposals.architecture.take(pairs), proposals.recipe[pairs]
            taken = cell.deployments.take(plans[:, None])
            one = predict(*design, taken, cell.workload, cell.gpu, proposals.kv_format[pairs], objective.skew)
            return one, np.zeros(len(rows), dtype=np.int64)
        ladder = np.flatnonzero(cell.layouts == cell.layouts[plans[0]])
        design = proposals.architecture.take(rows), proposals.recipe[rows], proposals.kv_format[rows]
        beside = replace(cell, deployments=cell.deployments.take(ladder))
        return objective.price(*design, beside), np.full(len(rows), np.flatnonzero(ladder == plans[0])[0])

    def flat(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        proposals = objective.space.decode(rows[:, :-1])
        loss = objective.losses(proposals.architecture, proposals.recipe, proposals.kv_format)
        violation = proposals.violation + objective.loss_excess(loss).clip(min=0).sum(axis=1)
        losses = np.zeros((len(rows), len(objective.objectives)))
        plans, admissible = rows[:, -1], violation <= 0
        full = batch[plans] == MAX_BATCH
        for own in (~full, *(plans == plan for plan in np.unique(plans[full]))):
            chosen = np.flatnonzero(own & admissible)
            if not len(chosen):
                continue
            prediction, columns = priced(proposals, chosen, plans[chosen])
            at = np.arange(len(chosen)), columns
            usable = objective.eligible(prediction) & objective.within_ttft(prediction)
            violation[chosen] = np.where(usable[at], 0.0, 1.0)
            shape_loss = np.asarray(loss.shape_loss)[chosen]
            for i, o in enumerate(objective.objectives):
                values = shape_loss if o.name == "shape_loss" else getattr(prediction, o.name)[at]
                losses[chosen, i] = o.loss_values(values)
        return losses, violation

    return flat


def worst_group_share(problem: Problem, points: Table) -> float:
    """Smallest share of the exact hypervolume over the groups (recipes, cells) that have frontiers of their own."""
    group_by, frontier = problem.scorer.group_by, problem.sweep.frontier
    if group_by is None or frontier is None:
        return problem.share(loss_values(points, problem.scorer.objectives))
    shares = []
    for group in np.unique(frontier[group_by]):
        own = [take(table, table[group_by] == group) for table in (frontier, points)]
        exact, ours = (loss_values(table, problem.scorer.objectives) for table in own)
        scale = Scale.around(exact)
        shares.append(hypervolume(ours, scale) / hypervolume(exact, scale))
    return min(shares)
