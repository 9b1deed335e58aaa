"""A small analytic stand-in for the real design space and cost model, for search tests and benchmarks.

It has the structure of the real problem and none of its data: a width solved from a parameter budget, ordered and
categorical axes, tile padding, expert activation, a memory limit, deployments of widely different value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from search.frontier import Objective, Table, nondominated
from search.scores import Scores, throughput_at_targets

OBJECTIVES = (
    Objective("tokens_per_s_per_user", maximise=True, logarithmic=True),
    Objective("tokens_per_s_per_gpu", maximise=True, logarithmic=True),
    Objective("shape_loss", maximise=False, logarithmic=False),
)
TARGETS = np.array([25.0, 75.0, 250.0])
PARAMETERS, TOLERANCE, HEAD_DIM, CONTEXT, ALIGN = 100e9, 0.02, 128, 8192, 64
BYTES_PER_S, FLOPS, LINK_BYTES_PER_S, MEMORY_BYTES = 4.2e12, 0.7e15, 0.35e12, 0.9 * 141e9
KERNEL_SECONDS, LINK_SECONDS = 8e-6, 6e-6
# what a recipe (bf16, fp8, nvfp4) and a KV format (bf16, fp8) change
WEIGHT_BYTES, SPEEDUP, QUANT_LOSS = (
    np.array([2.0, 1.0, 0.5625]),
    np.array([1.0, 1.9, 3.4]),
    np.array([0.0, 0.004, 0.03]),
)
KV_BYTES, KV_LOSS = np.array([2.0, 1.0]), np.array([0.0, 0.002])


class ToyAxis(NamedTuple):
    name: str
    values: np.ndarray
    ordered: bool

    @property
    def labels(self) -> tuple:
        return tuple(self.values.tolist())


class ToySpace:
    """Mixture-of-experts models of 100 B parameters; `inner` names the axes swept inside a trial."""

    def __init__(self, inner: tuple[str, ...] = (), hidden_step: int = 256, layer_step: int = 2) -> None:
        self.axes = (
            ToyAxis("hidden", np.arange(2048, 16385, hidden_step), True),
            ToyAxis("layers", np.arange(32, 97, layer_step), True),
            ToyAxis("kv_heads", np.array([2, 4, 8]), True),
            ToyAxis("experts", np.array([8, 16, 32, 64, 128]), True),
            ToyAxis("top_k", np.array([2, 4, 8]), True),
            ToyAxis("attention_ratio", np.array([0.5, 1.0, 1.5, 2.0]), True),  # heads * head_dim / hidden
            ToyAxis("recipe", np.array(["bf16", "fp8", "nvfp4"]), False),
            ToyAxis("kv_format", np.array(["bf16", "fp8"]), False),
        )
        self.shape = tuple(len(axis.values) for axis in self.axes)
        self.inner = tuple(i for i, axis in enumerate(self.axes) if axis.name in inner)
        self.outer = tuple(i for i, axis in enumerate(self.axes) if axis.name not in inner)

    def decode(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Dimensions of (n, axes) indices as (n,) arrays, with `feasible`: the budget's band holds an aligned width."""
        design = {axis.name: indices[:, i] for i, axis in enumerate(self.axes)}
        for i, axis in enumerate(self.axes[:6]):
            design[axis.name] = axis.values[indices[:, i]].astype(float)
        hidden, layers = design["hidden"], design["layers"]
        attention = 2 * layers * hidden * (design["attention_ratio"] * hidden + design["kv_heads"] * HEAD_DIM)
        per_width = 3 * layers * design["experts"] * hidden
        width = np.maximum(1, np.round((PARAMETERS - attention) / per_width / ALIGN)) * ALIGN
        design.update(attention=attention, expert_width=width)
        design["feasible"] = np.abs((attention + per_width * width) / PARAMETERS - 1) <= TOLERANCE
        return design


class ToyScorer:
    """Prices every deployment (tensor parallelism x batch) of every inner design of a trial."""

    objectives = OBJECTIVES
    constraint_names = ("budget", "target_25", "target_75", "target_250")
    group_by = None

    def __init__(self, space: ToySpace, batches: int = 24, objectives: tuple[Objective, ...] = OBJECTIVES) -> None:
        self.space, self.objectives = space, objectives
        self.value_names = ["throughput_at_25", "throughput_at_75", "throughput_at_250"]
        self.with_loss = OBJECTIVES[2] in objectives
        if self.with_loss:
            self.value_names.append("shape_loss")
        self.tp = np.repeat([1.0, 2.0, 4.0, 8.0], batches)
        self.batch = np.tile(np.geomspace(1, 1024, batches).round(), 4)
        inner_shape = [space.shape[i] for i in space.inner]
        self.inner = np.array(list(np.ndindex(*inner_shape)), dtype=np.int64).reshape(
            -1 if inner_shape else 1, len(inner_shape)
        )

    def designs(self, indices: np.ndarray) -> np.ndarray:
        """(n * inner designs, axes) indices of every design of (n, outer) trials."""
        full = np.empty((len(indices), len(self.inner), len(self.space.axes)), dtype=np.int64)
        full[:, :, list(self.space.outer)] = indices[:, None, :]
        full[:, :, list(self.space.inner)] = self.inner[None]
        return full.reshape(-1, len(self.space.axes))

    def feasible(self, indices: np.ndarray) -> np.ndarray:
        return self.space.decode(self.designs(indices))["feasible"].reshape(len(indices), -1).any(axis=1)

    def canonical(self, indices: np.ndarray) -> np.ndarray:
        return indices

    @property
    def points_per_trial(self) -> int:
        return len(self.inner) * len(self.tp)

    def price(
        self, design: dict[str, np.ndarray], tp: np.ndarray, batch: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Seconds per decode step, throughput per GPU and whether memory holds it, each (n, deployments).

        Args:
            design: (n,) dimensions. tp, batch: (deployments,), or (n, 1) for one deployment per design.
        """
        column = {name: value[:, None] for name, value in design.items()}
        weight = WEIGHT_BYTES[design["recipe"]][:, None]
        flops = (FLOPS * SPEEDUP[design["recipe"]])[:, None]
        experts, top_k, layers, hidden = (column[k] for k in ("experts", "top_k", "layers", "hidden"))
        padded = np.ceil(column["expert_width"] / (tp * ALIGN)) * ALIGN
        one_expert = 3 * layers * hidden * padded
        visited = experts * -np.expm1(batch * np.log1p(-top_k / experts * (1 - 1e-9)))
        kv = KV_BYTES[design["kv_format"]][:, None] * 2 * HEAD_DIM * CONTEXT * layers
        kv_bytes = kv * np.maximum(column["kv_heads"] / tp, 1) * batch
        read = weight * (column["attention"] / tp + visited * one_expert) + kv_bytes
        math = 2 * batch * (column["attention"] / tp + top_k * one_expert) / flops
        link = np.where(tp > 1, 2 * layers * (LINK_SECONDS + 2 * batch * hidden * 2 / LINK_BYTES_PER_S), 0.0)
        seconds = np.maximum(read / BYTES_PER_S, math) + link + layers * KERNEL_SECONDS
        fits = weight * (column["attention"] / tp + experts * one_expert) + kv_bytes <= MEMORY_BYTES
        return seconds, batch / seconds / tp, fits

    def shape_loss(self, design: dict[str, np.ndarray]) -> np.ndarray:
        visited = design["top_k"] * design["expert_width"]
        active = design["attention"] + 3 * design["layers"] * design["hidden"] * visited
        aspect = np.log(design["hidden"] / design["layers"] / 90)
        shape = 1.7 + 300 / active**0.28 + 0.012 * aspect**2
        heads = 0.02 / design["kv_heads"] - 0.004 * np.log2(design["experts"])
        return shape + heads + QUANT_LOSS[design["recipe"]] + KV_LOSS[design["kv_format"]]

    def score(self, indices: np.ndarray) -> Scores:
        full = self.designs(indices)
        design = self.space.decode(full)
        seconds, throughput, fits = self.price(design, self.tp, self.batch)
        interactivity = 1 / seconds
        eligible = fits & design["feasible"][:, None]
        loss = self.shape_loss(design)
        n, inner = len(indices), len(full) // len(indices)
        values, shortfall = throughput_at_targets(
            interactivity.reshape(n, -1), throughput.reshape(n, -1), eligible.reshape(n, -1), TARGETS
        )
        if self.with_loss:
            best = np.where(eligible.any(axis=1), loss, loss + 1.0).reshape(n, inner).min(axis=1)
            values = np.column_stack([values, best])
        budget = np.where(eligible.reshape(n, -1).any(axis=1), 0.0, 1.0)
        points = self.frontier_points(full, interactivity, throughput, loss, eligible, inner)
        return Scores(values, np.column_stack([budget, shortfall]), points)

    def points(self, indices: np.ndarray) -> Table:
        return self.score(indices).points

    def frontier_points(self, full, interactivity, throughput, loss, eligible, inner) -> dict[str, np.ndarray]:
        row, deployment = np.nonzero(eligible)
        columns = [-np.log(interactivity[row, deployment]), -np.log(throughput[row, deployment])]
        if self.with_loss:
            columns.append(loss[row])
        keep = nondominated(np.column_stack(columns))
        row, deployment = row[keep], deployment[keep]
        return {
            "trial": row // inner,
            "design": np.ravel_multi_index(tuple(full[row].T), self.space.shape),
            "deployment": deployment,
            "tokens_per_s_per_user": interactivity[row, deployment],
            "tokens_per_s_per_gpu": throughput[row, deployment],
            "shape_loss": loss[row],
        }
