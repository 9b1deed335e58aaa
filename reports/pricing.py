"""Price a handful of designs again under a run's objective: throughput at the interactivity targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from search.objective import ServingObjective
from search.scores import throughput_at_targets
from spaces.architecture import Architecture, stack


def log_throughput(
    objective: ServingObjective,
    architectures: Sequence[Architecture],
    recipe: Any,
    kv_format: Any,
    targets: Sequence[float] | None = None,
) -> np.ndarray:
    """(n, targets) mean over cells of log tokens/s/GPU at each target; NaN where a cell does not reach it.

    Args:
        architectures: n single designs. recipe, kv_format: one code, or (n,) codes.
        targets: tokens/s/user, default the objective's own.
    """
    n = len(architectures)
    batch = stack(list(architectures))
    codes = [np.broadcast_to(np.asarray(code), (n,)) for code in (recipe, kv_format)]
    wanted = objective.targets if targets is None else np.asarray(targets, dtype=float)
    total: Any = np.zeros((n, len(wanted)))
    weights = np.array([cell.weight for cell in objective.cells])
    for cell, weight in zip(objective.cells, weights / weights.sum(), strict=True):
        prediction = objective.price(batch, *codes, cell)
        eligible = objective.eligible(prediction) & objective.within_ttft(prediction)
        values, shortfall = throughput_at_targets(
            prediction.tokens_per_s_per_user, prediction.tokens_per_s_per_gpu, eligible, wanted
        )
        reached = (shortfall <= 0) & eligible.any(axis=1)[:, None]
        total = total + weight * np.where(reached, -values, np.nan)
    return np.asarray(total)
