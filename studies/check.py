"""What `ridgeline check` says before anything runs: how large, how feasible, how long, and what excludes most."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cost_model.counts import kv_bytes_per_sequence
from search.objective import ServingObjective
from search.sweep import trial_count
from spaces.design_space import DesignSpace, Proposals
from spaces.formats import KV_FORMATS, RECIPES
from spaces.parameters import parameters
from studies.objective import build_objective
from studies.study import Study

SAMPLES = 100_000
_CHUNK = 8192
_BATCH = 64  # trials that a search scores in one call
_DRAWN = 8192  # random trials, of which the feasible ones are priced to estimate times
_PIECE_POINTS = 200_000  # points of the piece of a sweep that is timed


@dataclass
class Sample:
    """Random proposals of a space, summed up.

    Attributes:
        proposals: how many. feasible: legal, in budget and envelope. accurate: of those, within both loss limits.
        excluded: limit to the share of all proposals outside it (loss limits: outside among the feasible).
        nearest: index row (axes,) of the proposal with the least violation; violation: its sum, 0 if feasible.
    """

    proposals: int = 0
    feasible: int = 0
    accurate: int = 0
    excluded: dict[str, float] = field(default_factory=dict)
    nearest: np.ndarray | None = None
    violation: float = np.inf


def check(
    study: Study, samples: int = SAMPLES, seed: int = 0, build: Callable[[Study], ServingObjective] = build_objective
) -> dict[str, Any]:
    """Everything worth knowing before a run, as plain JSON values.

    Args:
        samples: random proposals to decode. build: makes the study's objective.
    Returns:
        axes, designs, plans, points_per_trial, share_legal_in_budget, share_within_accuracy, excluded_by, advice
        (None, or why nothing is feasible and what is nearest), reference, estimates.
    """
    problem, objective = None, None
    try:
        objective = build(study)
    except ValueError as error:
        problem = str(error)
    sample = sample_space(study.space, objective, samples, seed)
    report: dict[str, Any] = {
        "study": study.name,
        "axes": _axes(study.space),
        "designs": study.space.size,
        "share_legal_in_budget": sample.feasible / sample.proposals,
        "share_within_accuracy": sample.accurate / sample.proposals,
        "excluded_by": sample.excluded,
        "advice": problem or advice(study, sample),
        "reference": _reference(study, objective),
    }
    if objective is None:
        return report
    plans = {f"{cell.gpu.name} {cell.workload_name}": len(cell.deployments.batch) for cell in objective.cells}
    inner = int(np.prod([study.space.shape[i] for i in study.space.inner], dtype=int))
    points = sum(plans.values())
    report |= {"plans": plans, "points_per_trial": inner * points}
    return report | {"estimates": _estimates(study, objective, sample, points, inner, seed)}


def sample_space(space: DesignSpace, objective: ServingObjective | None, samples: int, seed: int) -> Sample:
    """Decode random proposals in chunks and sum up what becomes of them."""
    generator = np.random.default_rng(seed)
    sample, counts = Sample(), dict[str, float]()
    while sample.proposals < samples:
        index = space.random_index(min(_CHUNK, samples - sample.proposals), generator)
        proposals = space.decode(index)
        sample.proposals += len(index)
        sample.feasible += int(proposals.feasible.sum())
        best = int(np.argmin(proposals.violation))
        if proposals.violation[best] < sample.violation:
            sample.nearest, sample.violation = index[best], float(proposals.violation[best])
        for name, share in space.exclusions(index).items():
            counts[name] = counts.get(name, 0.0) + share * len(index)
        if objective is not None:
            accurate, missed = _accurate(objective, proposals)
            sample.accurate += accurate
            for name, count in missed.items():
                counts[name] = counts.get(name, 0.0) + count
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    sample.excluded = {name: count / sample.proposals for name, count in ordered if count}
    return sample


def _accurate(objective: ServingObjective, proposals: Proposals) -> tuple[int, dict[str, int]]:
    """How many feasible proposals keep both loss limits, and how many miss each."""
    rows = np.flatnonzero(proposals.feasible)
    if not len(rows):
        return 0, {}
    architecture = proposals.architecture.take(rows)
    loss = objective.losses(architecture, proposals.recipe[rows], proposals.kv_format[rows])
    limits = objective.limits
    shape = loss.shape_loss > objective.reference_loss.shape_loss + limits.tolerance_nats
    quant = np.broadcast_to(loss.quant_loss > limits.max_quant_nats, shape.shape)
    return int((~shape & ~quant).sum()), {"shape_loss": int(shape.sum()), "quant_loss": int(quant.sum())}


def advice(study: Study, sample: Sample) -> str | None:
    """Why nothing is feasible and what is nearest, in words; None where something is."""
    if sample.accurate or (sample.feasible and not {"shape_loss", "quant_loss"} & set(sample.excluded)):
        return None
    most, share = next(iter(sample.excluded.items()))
    said = f"nothing in {sample.proposals:,} proposals is feasible; {most} excludes most of them ({share:.1%})"
    if sample.feasible:
        return (
            f"{said}; every design in budget and envelope is outside the loss limits: raise accuracy.tolerance_nats "
            f"(now {study.accuracy.tolerance_nats:g}) or accuracy.max_quant_nats (now {study.accuracy.quant_limit:g}), "
            "or the budget"
        )
    assert sample.nearest is not None
    space, row = study.space, sample.nearest
    design = ", ".join(f"{axis.name} = {axis.labels[i]}" for axis, i in zip(space.axes, row, strict=True))
    misses = "; ".join(_miss(name, *miss) for name, miss in space.misses(row).items())
    return f"{said}. The nearest design ({design}) misses {misses}"


def _miss(name: str, value: float, low: float | None, high: float | None) -> str:
    if high == 0:
        return name
    bound = f"at least {low:.4g}" if low is not None and value < low else f"at most {high:.4g}"
    return f"{name}: {value:.4g}, allowed {bound}"


def _axes(space: DesignSpace) -> list[dict[str, Any]]:
    return [
        {
            "name": axis.name,
            "values": len(axis.values),
            "first": axis.labels[0],
            "last": axis.labels[-1],
            "inner": position in space.inner,
        }
        for position, axis in enumerate(space.axes)
    ]


def _reference(study: Study, objective: ServingObjective | None) -> dict[str, Any]:
    """The reference's own numbers: counts, loss, and what it serves under each format."""
    counts = parameters(study.reference)
    longest = max(int(w.workload.cached + w.workload.isl + w.workload.osl) for w in study.workloads)
    report: dict[str, Any] = {
        "name": study.reference_name,
        **{name: int(value) for name, value in vars(counts).items()},
        "kv_bytes_per_sequence": float(kv_bytes_per_sequence(study.reference, "bf16", longest)),
        "kv_context": longest,
    }
    if objective is None:
        return report
    report["shape_loss"] = float(objective.reference_loss.shape_loss)
    report["serving"] = [row for cell in objective.cells for row in _served(study, objective, cell)]
    return report


def _served(study: Study, objective: ServingObjective, cell: Any) -> list[dict[str, Any]]:
    """The reference in one cell, a row per recipe and KV format; null where no plan keeps the limits."""
    recipes, kv_formats = objective.formats
    reference = objective.space.reference.map(lambda value: np.broadcast_to(np.asarray(value), recipes.shape))
    prediction = objective.price(reference, recipes, kv_formats, cell)
    eligible = objective.eligible(prediction) & objective.within_ttft(prediction)
    loss = objective.losses(reference, recipes, kv_formats)
    rows = []
    for i in range(len(recipes)):
        keep = eligible[i]
        user, gpu = prediction.tokens_per_s_per_user[i][keep], prediction.tokens_per_s_per_gpu[i][keep]
        rows.append(
            {
                "gpu": cell.gpu.name,
                "workload": cell.workload_name,
                "recipe": RECIPES[recipes[i]],
                "kv_format": KV_FORMATS[kv_formats[i]],
                "quant_loss": float(np.broadcast_to(loss.quant_loss, recipes.shape)[i]),
                "plans": int(keep.sum()),
                "best_tokens_per_s_per_user": float(user.max()) if len(user) else None,
                "best_tokens_per_s_per_gpu": float(gpu.max()) if len(gpu) else None,
                "best_ttft_s": float(prediction.ttft_s[i][keep].min()) if len(user) else None,
                "tokens_per_s_per_gpu_at": {
                    f"{target:g}": float(gpu[user >= target].max()) if (user >= target).any() else None
                    for target in study.search.interactivity_targets
                },
            }
        )
    return rows


def _estimates(
    study: Study, objective: ServingObjective, sample: Sample, points: int, inner: int, seed: int
) -> dict[str, Any]:
    """Seconds of a run and of a sweep on one core, from a batch of a search and a piece of a sweep that are timed.

    A sweep's neighbours have more in common than the random trials of the piece: it takes rather less.
    """
    drawn = study.space.random_index(_DRAWN, np.random.default_rng(seed))[:, list(study.space.outer)]
    feasible, judge_s = _timed(objective.feasible, drawn)
    rows = drawn[feasible] if feasible.any() else drawn[:1]
    objective.score(rows[:1])  # the first call loads tables
    batch, piece = rows[:_BATCH], rows[: max(1, _PIECE_POINTS // (inner * points))]
    batch_s, piece_s = _timed(objective.score, batch)[1], _timed(objective.points, piece)[1]
    every_s = judge_s / len(drawn) + float(feasible.mean()) * piece_s / len(piece)
    return {
        "points_per_s": len(piece) * inner * points / piece_s,
        "run_seconds": study.search.trials * batch_s / len(batch),  # if every proposal is priced
        "sweep_points": study.space.size * sample.accurate / sample.proposals * points,
        "sweep_seconds": trial_count(objective) * every_s,
    }


def _timed(function: Callable[[np.ndarray], Any], rows: np.ndarray) -> tuple[Any, float]:
    before = time.perf_counter()
    result = function(rows)
    return result, time.perf_counter() - before
