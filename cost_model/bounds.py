"""What a token's time is bound by: math, memory, network, or latency.

Each bound is found by asking what the same prediction costs with a resource for free. The seconds of a component that
remain with all of them free are latency (launches, fixed costs, the host); the rest is shared between math, memory
and network in proportion to the fourth power of what each costs alone, so that a roofline's larger side gets it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.prediction import predict
from cost_model.step import COMPONENTS
from spaces.architecture import Architecture
from spaces.deployment import Deployment
from spaces.workload import Workload

BOUNDS = ("math", "memory", "network", "latency")
_FREE = 1e4  # times faster


def breakdown_by_bound(
    architecture: Architecture,
    recipe: Any,
    deployment: Deployment,
    workload: Workload,
    gpu: Accelerator,
    kv_format: Any = "bf16",
    skew: Any = "power_law_1.2",
) -> dict[str, dict[str, Any]]:
    """Seconds per output token by component and bound; sums to the prediction's tpot_s.

    Takes the arguments of `predict` and costs five of its calls: meant for chosen designs, not for a search.
    """

    def seconds(*free: str) -> dict[str, Any]:
        return _mean_pass(architecture, recipe, deployment, workload, _with_free(gpu, free), kv_format, skew)

    actual = predict(architecture, recipe, deployment, workload, gpu, kv_format, skew).breakdown
    resources = BOUNDS[:3]
    floor = seconds(*resources)
    alone = {name: seconds(*(other for other in resources if other != name)) for name in resources}
    result = {}
    for part in COMPONENTS:
        latency = np.minimum(floor[part], actual[part])
        weight = {name: np.maximum(alone[name][part] - floor[part], 0.0) ** 4 for name in resources}
        total = sum(weight.values())
        share = (actual[part] - latency) / np.where(total > 0, total, 1.0)
        split = {name: weight[name] * share for name in resources}
        result[part] = {**split, "latency": actual[part] - sum(split.values())}
    return result


def _mean_pass(*arguments: Any) -> dict[str, Any]:
    return predict(*arguments).breakdown


def _with_free(gpu: Accelerator, free: tuple[str, ...]) -> Accelerator:
    changes: dict[str, Any] = {}
    if "math" in free:
        changes["peak_flops"] = {name: value * _FREE for name, value in gpu.peak_flops.items()}
    if "memory" in free:
        changes["memory_bytes_per_s"] = gpu.memory_bytes_per_s * _FREE
    if "network" in free:
        changes |= {name: getattr(gpu, name) * _FREE for name in ("link_bytes_per_s", "nic_bytes_per_s")}
    return replace(gpu, **changes)


def totals(by_component: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Seconds per output token by bound alone."""
    return {bound: sum(parts[bound] for parts in by_component.values()) for bound in BOUNDS}
