"""A cell: one GPU with one workload, the plans to price there, and the limits that its points must keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cost_model import Accelerator, Prediction, predict
from cost_model.grid import gathered
from cost_model.memory import memory
from search.pools import matched
from spaces import Architecture, Deployment, Workload
from spaces.alignment import aligned
from spaces.deployment import FIELDS, MAX_BATCH, unchecked

AIM = 0.98  # share of a TTFT limit to aim at: what is interpolated misses by up to two percent


@dataclass(frozen=True)
class Limits:
    """What a point must keep: infinite or zero where a study sets no limit.

    Attributes:
        max_ttft_s, min_tokens_per_s_per_user, max_memory_bytes_per_gpu: of a deployment.
        tolerance_nats: shape_loss over the reference's. max_quant_nats: loss of the formats.
    """

    max_ttft_s: float = np.inf
    min_tokens_per_s_per_user: float = 0.0
    max_memory_bytes_per_gpu: float = np.inf
    tolerance_nats: float = 0.005
    max_quant_nats: float = 0.07


@dataclass(frozen=True)
class Cell:
    """One GPU with one workload.

    Attributes:
        deployments: (P,) plans; those whose batch is MAX_BATCH take as many sequences as memory holds and the limit of
            TTFT allows, those with prefill replicas are decode pools (`search.pools.disaggregated`).
        prefill: (Q,) plans that a prefill replica may have; None where every plan is aggregated.
        weight: what its result counts among several cells.
    """

    gpu: Accelerator
    workload: Workload
    workload_name: str
    deployments: Deployment
    prefill: Deployment | None = None
    weight: float = 1.0

    @property
    def usable_bytes(self) -> float:
        """Memory per GPU that the engine may fill."""
        return self.gpu.memory_bytes * self.gpu.engine.memory_fraction

    @property
    def size(self) -> int:
        """How many plans."""
        return len(np.asarray(self.deployments.batch))

    @cached_property
    def steps(self) -> tuple[np.ndarray, np.ndarray]:
        """(slow, fast) plan indices that differ only by one step of the batch; from memory's own batch, by any step."""
        batch, same = np.asarray(self.deployments.batch), self.layouts
        order = np.lexsort((batch, same))
        next_to = (same[order[1:]] == same[order[:-1]]) & (batch[order[:-1]] != MAX_BATCH)
        slow, fast = [order[1:][next_to]], [order[:-1][next_to]]
        for full in np.flatnonzero(batch == MAX_BATCH):
            others = np.flatnonzero((same == same[full]) & (batch != MAX_BATCH))
            slow.append(np.full(len(others), full))
            fast.append(others)
        return np.concatenate(slow), np.concatenate(fast)

    @cached_property
    def parts(self) -> list[np.ndarray]:
        """Plan indices that are priced together: batch stated, batch from memory, and the decode pools."""
        free = self._field("batch") == MAX_BATCH
        apart = self._field("prefill_replicas") > 0
        return [index for mask in (~free & ~apart, free & ~apart, apart) if len(index := np.flatnonzero(mask))]

    @cached_property
    def layouts(self) -> np.ndarray:
        """(P,) a number for each plan, equal where plans differ in nothing but their batch."""
        plans = np.stack([self._field(name).astype(float) for name in FIELDS if name != "batch"])
        return np.unique(plans, axis=1, return_inverse=True)[1].ravel()

    def _field(self, name: str) -> np.ndarray:
        return np.broadcast_to(np.asarray(getattr(self.deployments, name)), (self.size,))

    def plans(
        self, architecture: Architecture, recipe: Any, kv_format: Any, skew: Any, max_ttft_s: float
    ) -> list[Deployment]:
        """The plans of each of `parts`; decode pools with the prefill pool that matches each of the (n, 1) designs."""
        own = [self.deployments.take(index) for index in self.parts]
        if self.prefill is not None:
            designs = architecture, recipe, kv_format
            own[-1] = matched(own[-1], self.prefill, *designs, self.workload, self.gpu, skew, max_ttft_s)
        return own

    def price(
        self,
        architecture: Architecture,
        recipe: Any,
        kv_format: Any,
        skew: Any,
        max_ttft_s: float,
        explain: bool = True,
    ) -> tuple[Prediction, Deployment]:
        """Predictions (n, P) of (n,) designs under every plan, and the plans with fields that broadcast to (n, P)."""
        n = len(np.asarray(recipe))
        column = architecture.map(lambda value: np.broadcast_to(np.asarray(value), (n,))[:, None])
        codes = np.asarray(recipe)[:, None], np.asarray(kv_format)[:, None]
        plans = self.plans(column, *codes, skew, max_ttft_s)
        priced = [self._priced(column, *codes, plans[0], skew, explain)]
        batch = self._within_ttft(priced[0], column, *codes, max_ttft_s)
        if batch is not None:
            plans[1] = plans[1].having(batch=batch)
        priced += [self._priced(column, *codes, plan, skew, explain) for plan in plans[1:]]
        if len(priced) == 1:
            return priced[0], plans[0]
        order = np.argsort(np.concatenate(self.parts))
        if self.prefill is None and batch is None:
            return _joined(priced, order), self.deployments
        return _joined(priced, order), _beside(plans, [len(index) for index in self.parts], n, order)

    @cached_property
    def _ladders(self) -> np.ndarray | None:
        """(F, B) for each plan that fills memory, where among the stated ones its own batches stand, in rising order.

        Shorter ladders repeat their last step. None where no plan fills memory, or none has a stated batch beside it.
        """
        batch = self._field("batch")
        if len(self.parts) < 2 or batch[self.parts[0]].min() == MAX_BATCH or batch[self.parts[1]].max() != MAX_BATCH:
            return None
        stated = self.parts[0][np.argsort(batch[self.parts[0]], kind="stable")]
        steps = [np.flatnonzero(self.layouts[stated] == layout) for layout in self.layouts[self.parts[1]]]
        width = max(map(len, steps))
        if min(map(len, steps)) == 0:
            return None
        padded = np.array([np.pad(own, (0, width - len(own)), mode="edge") for own in steps])
        return np.asarray(np.searchsorted(self.parts[0], stated[padded]))

    def _within_ttft(
        self, stated: Prediction, column: Architecture, recipe: Any, kv_format: Any, max_ttft_s: float
    ) -> np.ndarray | None:
        """(n, F) batches of the plans that fill memory: fewer sequences where so many would wait too long for a token.

        Between two stated batches of which the larger is late, TTFT is taken to follow a straight line in logarithms;
        powers of two alone would decide which design a limit of TTFT favours. None where the limit binds no plan.
        """
        ladder, limit = self._ladders, AIM * max_ttft_s
        if ladder is None or not np.isfinite(limit):
            return None
        wait = stated.ttft_s[:, ladder]
        crossed = (wait[..., :-1] <= limit) & (wait[..., 1:] > limit)
        if not crossed.any():
            return None
        bound = crossed.any(axis=-1)
        last = crossed.shape[-1] - 1 - np.argmax(crossed[..., ::-1], axis=-1)
        sizes = np.log(self._field("batch")[self.parts[0]][ladder])
        below, above = (np.log(np.take_along_axis(wait, last[..., None] + i, axis=-1)[..., 0]) for i in (0, 1))
        small, large = (sizes[np.arange(len(ladder)), last + i] for i in (0, 1))
        share = np.where(bound, (np.log(limit) - below) / np.where(bound, above - below, 1.0), 0.0)
        plans = self.deployments.take(self.parts[1])
        ranks = np.asarray(plans.attention_dp) * plans.pp
        most = np.maximum(np.floor(np.exp(small + share * (large - small)) / ranks), 1.0) * ranks
        holds = memory(column, recipe, plans, self.workload, self.gpu, kv_format, product=True).largest_batch
        bound = bound & (most < holds)
        return np.asarray(np.where(bound, most, holds)) if bound.any() else None

    def _priced(
        self, column: Architecture, recipe: Any, kv_format: Any, plan: Deployment, skew: Any, explain: bool
    ) -> Prediction:
        """Predictions in which plans that cut a matrix through its quantisation blocks are not legal."""
        prediction = predict(column, recipe, plan, self.workload, self.gpu, kv_format, skew, explain)

        def whole(attention_tp: Any, ffn_tp: Any, kvp: Any) -> tuple[Any]:
            return (aligned(column, recipe, attention_tp, ffn_tp, kvp),)

        ((mask,),) = gathered(whole, True, (plan.attention_tp, plan.ffn_tp, plan.kvp))
        return replace(prediction, legal=prediction.legal & mask)


def _joined(parts: list[Prediction], order: np.ndarray) -> Prediction:
    """Predictions side by side along the plans, in the given order."""

    def beside(values: list[Any]) -> Any:
        return None if values[0] is None else np.concatenate(values, axis=-1)[..., order]

    names = [name for name in vars(parts[0]) if name != "breakdown"]
    breakdown = {part: beside([p.breakdown[part] for p in parts]) for part in parts[0].breakdown}
    return Prediction(**{name: beside([getattr(p, name) for p in parts]) for name in names}, breakdown=breakdown)


def _beside(plans: Sequence[Deployment], sizes: Sequence[int], n: int, order: np.ndarray) -> Deployment:
    """Plans side by side, every field (n, P)."""

    def beside(name: str) -> np.ndarray:
        fields = [np.broadcast_to(getattr(plan, name), (n, size)) for plan, size in zip(plans, sizes, strict=True)]
        return np.concatenate(fields, axis=1)[:, order]

    return unchecked({name: beside(name) for name in FIELDS})
