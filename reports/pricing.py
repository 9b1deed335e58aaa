"""Price a handful of designs again under a run's objective, for what the report explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cost_model import Prediction
from search.cells import Cell
from search.objective import ServingObjective
from search.scores import throughput_at_targets
from spaces.architecture import Architecture, stack
from spaces.workload import Workload

_CHUNK = 12_000  # points of one predict call: its temporaries stay in cache


@dataclass(frozen=True)
class Served:
    """How n designs serve in one cell, each under its best plans.

    Attributes:
        log_throughput: (n, targets) log of the best tokens/s/GPU at each target, NaN where unreached.
        most_throughput, most_interactivity: (n,) highest tokens/s/GPU and tokens/s/user, NaN where no plan is eligible.
        prediction, eligible: (n, plans).
    """

    log_throughput: np.ndarray
    most_throughput: np.ndarray
    most_interactivity: np.ndarray
    prediction: Prediction
    eligible: np.ndarray

    def plan_at(self, row: int, target: float) -> int | None:
        """Index of the plan of best throughput at no less than `target` tokens/s/user."""
        fast = self.eligible[row] & (self.prediction.tokens_per_s_per_user[row] >= target)
        return int(np.argmax(np.where(fast, self.prediction.tokens_per_s_per_gpu[row], -1.0))) if fast.any() else None

    def fastest(self, row: int) -> int:
        """Index of the eligible plan of highest tokens/s/user."""
        return int(np.argmax(np.where(self.eligible[row], self.prediction.tokens_per_s_per_user[row], -1.0)))

    def fullest(self, row: int) -> int:
        """Index of the eligible plan of highest tokens/s/GPU."""
        return int(np.argmax(np.where(self.eligible[row], self.prediction.tokens_per_s_per_gpu[row], -1.0)))

    def shares(self, row: int, plan: int) -> dict[str, float]:
        """Shares of the token time by component."""
        total = float(self.prediction.tpot_s[row, plan])
        return {name: float(seconds[row, plan]) / total for name, seconds in self.prediction.breakdown.items()}


def serve(
    objective: ServingObjective,
    architectures: Sequence[Architecture],
    recipe: Any,
    kv_format: Any,
    cell: Cell | None = None,
    plans: np.ndarray | None = None,
    targets: Sequence[float] | None = None,
) -> Served:
    """Price designs under every plan of a cell.

    Args:
        architectures: n single designs. recipe, kv_format: one code, or (n,) codes.
        cell: default the objective's first. plans: (plans,) bool, those allowed.
        targets: tokens/s/user, default the objective's own.
    """
    where = objective.cells[0] if cell is None else cell
    wanted = objective.targets if targets is None else np.asarray(targets, dtype=float)
    n = len(architectures)
    recipes, kv = (np.broadcast_to(np.asarray(code), (n,)) for code in (recipe, kv_format))
    p = objective.price(stack(list(architectures)), recipes, kv, where)
    eligible = objective.eligible(p) & objective.within_ttft(p)
    if plans is not None:
        eligible = eligible & plans
    rates = p.tokens_per_s_per_user, p.tokens_per_s_per_gpu
    values, shortfall = throughput_at_targets(*rates, eligible, wanted, where.steps)
    some = eligible.any(axis=1)
    reached = (shortfall <= 0) & some[:, None]
    throughput, interactivity = (
        np.where(some, np.where(eligible, value, 0.0).max(axis=1), np.nan)
        for value in (p.tokens_per_s_per_gpu, p.tokens_per_s_per_user)
    )
    return Served(np.where(reached, -values, np.nan), throughput, interactivity, p, eligible)


def log_gain(
    objective: ServingObjective, architectures: Sequence[Architecture], recipe: Any, kv_format: Any
) -> np.ndarray:
    """(n, targets) log of the gain over the reference under the same formats, cells combined as the study does.

    NaN where a design or the reference does not reach a target in some cell.
    """
    plans = max(cell.size for cell in objective.cells)
    step = max(2, _CHUNK // plans)
    if len(architectures) > step:
        starts = range(0, len(architectures), step)
        r, k = (np.broadcast_to(np.asarray(code), (len(architectures),)) for code in (recipe, kv_format))
        rows = [slice(start, start + step) for start in starts]
        return np.concatenate([log_gain(objective, architectures[part], r[part], k[part]) for part in rows])
    everyone = [objective.space.reference, *architectures]
    recipes, kv = (
        np.concatenate([np.atleast_1d(code)[:1], np.broadcast_to(np.asarray(code), (len(architectures),))])
        for code in (recipe, kv_format)
    )
    parts = np.stack([serve(objective, everyone, recipes, kv, cell).log_throughput for cell in objective.cells])
    gains = parts[:, 1:] - parts[:, :1]
    if objective.worst_case:
        return np.asarray(gains.min(axis=0))
    weights = np.array([cell.weight for cell in objective.cells])
    return np.asarray(np.tensordot(weights / weights.sum(), gains, axes=1))


def with_workload(cell: Cell, **lengths: Any) -> Cell:
    """The same GPUs and plans under another workload."""
    workload = cell.workload
    fields = {name: getattr(workload, name) for name in ("isl", "osl", "cached", "load")}
    return replace(cell, workload=Workload(**{**fields, **lengths}))
