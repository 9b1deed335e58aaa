"""Every legal plan of a design on a GPU, and the plans nothing beats: a design's own frontier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from cost_model import Accelerator, Prediction, predict
from search.frontier import Objective, loss_values, nondominated
from spaces import Architecture, Deployment, Workload, enumerate_deployments
from spaces.deployment import FIELDS as PLAN_FIELDS

SERVING = (
    Objective("tokens_per_s_per_user", maximise=True, logarithmic=True),
    Objective("tokens_per_s_per_gpu", maximise=True, logarithmic=True),
)


def own_frontier(
    prediction: Prediction, eligible: np.ndarray, objectives: Sequence[Objective] = SERVING
) -> tuple[np.ndarray, np.ndarray]:
    """Points of (designs, plans) predictions that no other plan of the same design beats.

    Args:
        prediction: of shape (designs, plans). eligible: (designs, plans) bool: legal, fitting, within limits.
    Returns:
        (design rows, plan indices) of the kept points, designs in order, fastest to the user last.
    """
    rows, plans = np.nonzero(eligible)
    values = {o.name: np.asarray(getattr(prediction, o.name))[rows, plans] for o in objectives}
    keep = nondominated(loss_values(values, objectives), rows) if len(rows) else np.zeros(0, dtype=bool)
    order = np.lexsort((values[objectives[0].name][keep], rows[keep]))
    return rows[keep][order], plans[keep][order]


def gather(prediction: Prediction, rows: np.ndarray, plans: np.ndarray, deployments: Deployment) -> pd.DataFrame:
    """One row per picked point: plan fields (batch as actually in flight), then every predict field."""
    shape = np.shape(prediction.tpot_s)
    flat = np.ravel_multi_index((rows, plans), shape)
    table = {name: _broadcast(getattr(deployments, name), shape)[flat] for name in PLAN_FIELDS}
    return pd.DataFrame({**table, **{name: column[flat] for name, column in prediction.as_columns().items()}})


def _broadcast(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(np.asarray(value), shape).ravel()


def plan_frontier(
    architecture: Architecture,
    recipe: Any,
    kv_format: Any,
    workload: Workload,
    gpu: Accelerator,
    gpus: Sequence[int],
    skew: str = "power_law_1.2",
) -> pd.DataFrame:
    """Price every legal plan of one design and keep its frontier, slowest to the user first.

    Raises:
        ValueError: no plan fits, with the smallest need and the memory there is.
    """
    deployments = enumerate_deployments(gpus, architecture)
    one = architecture.map(lambda value: np.asarray(value).reshape(1, 1))
    prediction = predict(one, recipe, deployments, workload, gpu, kv_format, skew)
    eligible = np.asarray(prediction.legal & prediction.fits)
    if not eligible.any():
        need = float(np.min(np.where(prediction.legal, prediction.memory_bytes_per_gpu, np.inf)))
        raise ValueError(
            f"no plan on {min(gpus)} to {max(gpus)} x {gpu.name} fits: the leanest needs {need / 1e9:.1f} GB of "
            f"{gpu.memory_bytes * gpu.engine.memory_fraction / 1e9:.1f} GB usable per GPU; use more GPUs, a smaller "
            "format, or a shorter context"
        )
    return gather(prediction, *own_frontier(prediction, eligible), deployments)
