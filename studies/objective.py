"""From a study to what its search asks of a design: cells of GPU and workload, their plans, limits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from search.cells import Cell, Limits
from search.objective import ServingObjective
from search.pools import disaggregated
from spaces import Architecture, Deployment, enumerate_deployments
from spaces.deployment import MAX_BATCH, concatenated, legal, powers_of_two
from studies.schema import Serving
from studies.study import Study, Target

_SAMPLE = 400  # random designs that decide which plans anyone can use
LARGEST_BATCH = 2048


def build_objective(study: Study) -> ServingObjective:
    """The objective of a study, with every plan that some design of its space may use.

    Raises:
        ValueError: the reference has no plan within the limits, or a price that an objective needs is unknown.
    """
    serving, search, accuracy = study.serving, study.search, study.accuracy
    cells = [
        Cell(target.gpu, named.workload, named.name, *plans, target.weight * named.weight)
        for target in study.targets
        for plans in [usable_plans(study, target)]
        for named in study.workloads
    ]
    limits = Limits(
        max_ttft_s=serving.max_ttft_s or np.inf,
        min_tokens_per_s_per_user=serving.min_tokens_per_s_per_user or 0.0,
        max_memory_bytes_per_gpu=serving.max_memory_bytes_per_gpu or np.inf,
        tolerance_nats=accuracy.tolerance_nats,
        max_quant_nats=accuracy.quant_limit,
    )
    return ServingObjective(
        study.space,
        cells,
        search.objectives,
        search.interactivity_targets,
        limits,
        train_tokens=accuracy.train_tokens,
        quantised=accuracy.quantised,
        skew=serving.expert_skew,
        worst_case=search.combine == "worst" and len(study.targets) > 1,
    )


def usable_plans(study: Study, target: Target) -> tuple[Deployment, Deployment | None]:
    """Plans of a target's GPU counts in the study's modes, and those of a prefill replica where it disaggregates.

    Plans legal for neither the reference nor any design of a random sample are left out.
    """
    space = study.space
    designs = space.decode(space.random_index(_SAMPLE, np.random.default_rng(0))).architecture
    moe = bool(np.any(designs.is_moe) or space.reference.is_moe)

    def usable(plans: Deployment) -> Deployment:
        allowed = np.any(legal(designs.column(), plans)[0], axis=0) | legal(space.reference, plans)[0]
        if not allowed.any():
            raise ValueError(
                f"{target.gpu.name}: none of {len(allowed)} plans is legal for the reference or any design sampled; "
                "state other gpus, or other pp, kvp or batches of [serving]"
            )
        return plans.take(allowed)

    return _plans(study.serving, target, moe, usable)


def plans_of(study: Study, target: Target, architecture: Architecture) -> tuple[Deployment, Deployment | None]:
    """The same for one architecture from outside the space: every plan that is legal for it.

    Raises:
        ValueError: no plan is.
    """

    def usable(plans: Deployment) -> Deployment:
        allowed = np.asarray(legal(architecture, plans)[0])
        if not allowed.any():
            raise ValueError(f"{target.gpu.name}: none of {len(allowed)} plans is legal for it")
        return plans.take(allowed)

    return _plans(study.serving, target, bool(architecture.is_moe), usable)


def _plans(
    serving: Serving, target: Target, moe: bool, usable: Callable[[Deployment], Deployment]
) -> tuple[Deployment, Deployment | None]:
    batches = [MAX_BATCH, *powers_of_two(LARGEST_BATCH)] if serving.batches is None else serving.batches
    plans = usable(
        enumerate_deployments(
            target.gpus,
            batches=batches,
            kvp=serving.kvp,
            pp=serving.pp,
            redundant_experts=serving.redundant_experts,
            draft_tokens=serving.draft_tokens,
            acceptance=serving.acceptance,
            moe=moe,
        )
    )
    if "disaggregated" not in serving.modes:
        return plans, None
    pool = usable(enumerate_deployments(target.gpus, batches=[MAX_BATCH], pp=serving.pp, moe=moe))
    stated = plans.take(np.asarray(plans.batch) != MAX_BATCH)  # memory's own batch would need each design's own rate
    if not len(np.asarray(stated.batch)):
        raise ValueError(f"serving.batches = {serving.batches}: disaggregated serving needs batches above 0")
    apart = disaggregated(stated)
    return (concatenated([plans, apart]) if "aggregated" in serving.modes else apart), pool
