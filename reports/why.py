"""Why the chosen design wins: what alignment, formats, loss tolerance and context are worth, priced again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cost_model import Accelerator
from reports.mixing import step_of, variant
from reports.pricing import Served, log_gain, serve, with_workload
from reports.trust import format_error, share_error
from search.cells import Cell
from search.objective import ServingObjective
from spaces.architecture import Architecture
from spaces.formats import FORMATS, KV_FORMATS, RECIPE_FFN, RECIPES

ALIGNMENTS = (64, 128, 256, 512)
TOLERANCES = (0.0, 0.005, 0.01, 0.02)
LONG_CONTEXT = 65_536
SHORT_CONTEXT = 1_024
_SAMPLED = 600  # most random designs that the tolerance table adds to the search's own ...
_POINTS = 120_000  # ... and most points priced for it
_COMPONENTS = {
    "attention_linear": "attention linears",
    "attention_core": "attention core",
    "ffn": "FFN",
    "communication": "communication",
    "head": "LM head",
    "overhead": "overhead",
}


def by_alignment(
    objective: ServingObjective, base: Architecture, recipe: int, kv: int, solved: str | None
) -> dict[int, np.ndarray]:
    """Gain (log, per target) over the reference of the base's neighbours whose widths are exactly so aligned.

    Hidden size moves to the nearest odd multiples of the alignment on both sides, the solved width follows in the
    same steps; the best neighbour counts. An alignment that no neighbour has is absent.
    """
    values = base.as_dict()
    groups: dict[int, list[Architecture]] = {}
    for align in ALIGNMENTS:
        nearest = round(values["hidden"] / align)
        multiples = [m for m in range(nearest - 3, nearest + 4) if m > 0 and (m % 2 or align == ALIGNMENTS[-1])]
        multiples = sorted(multiples, key=lambda m, a=align: abs(m * a - values["hidden"]))[:4]  # type: ignore[misc]
        found = [variant(values, {"hidden": m * align}, solved, step_of(solved, align)) for m in multiples]
        kept = [a for a in found if a is not None and np.all(abs(float(a.hidden) / values["hidden"] - 1) <= 0.15)]
        if kept:
            groups[align] = kept
    everyone = [a for group in groups.values() for a in group]
    if not everyone:
        return {}
    gains = log_gain(objective, everyone, recipe, kv)
    result, start = {}, 0
    for align, group in groups.items():
        part = gains[start : start + len(group)]
        result[align] = np.array([np.nan if np.isnan(column).all() else np.nanmax(column) for column in part.T])
        start += len(group)
    return result


@dataclass(frozen=True)
class FormatGain:
    """One recipe on one shape: fastest at batch 1, and highest throughput, each over bf16 on the same shape.

    Attributes:
        errors: by which the two gains may be off (see `format_error`), None where there is no gain.
    """

    recipe: str
    at_batch_1: float | None
    at_most_throughput: float | None
    quant_loss: float
    errors: tuple[float | None, float | None]


def by_format(objective: ServingObjective, base: Architecture, kv: int, cell: Cell | None = None) -> list[FormatGain]:
    """Gain of every recipe that the GPU multiplies natively, same shape and KV format, over bf16."""
    where = objective.cells[0] if cell is None else cell
    gpu = where.gpu
    codes = [
        r
        for r, name in enumerate(RECIPES)
        if name == "bf16" or gpu.native[RECIPE_FFN[r]] or FORMATS[RECIPE_FFN[r]] == "int4"
        if base.is_moe or not name.endswith("-experts")
    ]
    batch = np.asarray(where.deployments.batch)
    # formats are compared on equal GPUs: the smallest replica on which all of them fit
    sizes = np.broadcast_to(np.asarray(where.deployments.replica_gpus), batch.shape)
    for count in np.unique(sizes):
        one = serve(objective, [base] * len(codes), np.array(codes), kv, where, (batch == 1) & (sizes == count))
        if not np.isnan(one.most_interactivity).any():
            break
    most = serve(objective, [base] * len(codes), np.array(codes), kv, where)
    plain = codes.index(RECIPES.index("bf16"))
    losses = [float(objective.losses(base, code, kv).quant_loss) for code in codes]
    return [
        FormatGain(
            RECIPES[code],
            _ratio(one.most_interactivity[i], one.most_interactivity[plain]),
            _ratio(most.most_throughput[i], most.most_throughput[plain]),
            losses[i],
            (
                _format_error(base, one, (i, plain), Served.fastest, gpu, RECIPES[code]),
                _format_error(base, most, (i, plain), Served.fullest, gpu, RECIPES[code]),
            ),
        )
        for i, code in enumerate(codes)
    ]


def _format_error(
    base: Architecture,
    served: Served,
    rows: tuple[int, int],
    plan: Callable[[Served, int], int],
    gpu: Accelerator,
    recipe: str,
) -> float | None:
    if not all(served.eligible[row].any() for row in rows):
        return None
    ours, theirs = (served.shares(row, plan(served, row)) for row in rows)
    return format_error(ours, theirs, gpu, recipe, bool(base.is_moe))


def _ratio(value: float, base: float) -> float | None:
    return None if np.isnan(value) or np.isnan(base) else float(value / base - 1)


def by_tolerance(run: Any, recipe: str, kv_format: str, seed: int = 0) -> dict[float, np.ndarray]:
    """Best gain (fraction, per target) of one recipe's designs at each allowed excess of shape_loss.

    Designs: those of the run, and a random sample of the space whose loss is within the largest tolerance. The
    search looked no further than its own tolerance, so beyond it the numbers are lower bounds.
    """
    objective: ServingObjective = run.objective
    rows = run.designs[(run.designs["recipe"] == recipe) & (run.designs["kv_format"] == kv_format)]
    excess = [rows["shape_loss_difference"].to_numpy(dtype=float)]
    gains = [np.log1p(np.stack([rows[f"gain_at_{t:g}"].to_numpy(dtype=float) for t in objective.targets], axis=1))]
    sampled, more = _sample(objective, recipe, kv_format, seed)
    if sampled:
        codes = RECIPES.index(recipe), KV_FORMATS.index(kv_format)
        gains.append(log_gain(objective, sampled, *codes))
        excess.append(more)
    loss, gain = np.concatenate(excess), np.concatenate(gains)
    result = {}
    for tolerance in TOLERANCES:
        inside = gain[loss <= tolerance + 1e-9]
        best = [np.nan if not len(c) or np.isnan(c).all() else np.nanmax(c) for c in inside.T] if len(inside) else []
        result[tolerance] = np.expm1(np.array(best)) if best else np.full(len(objective.targets), np.nan)
    return result


def _sample(
    objective: ServingObjective, recipe: str, kv_format: str, seed: int
) -> tuple[list[Architecture], np.ndarray]:
    """Random feasible designs of the space within the largest tolerance, and their excess of shape_loss."""
    space, generator = objective.space, np.random.default_rng(seed)
    proposals = space.decode(space.random_index(20 * _SAMPLED, generator))
    loss = objective.losses(proposals.architecture, proposals.recipe, proposals.kv_format).shape_loss
    excess = np.asarray(loss) - float(objective.reference_loss.shape_loss)
    plans = sum(cell.size for cell in objective.cells)
    most = min(_SAMPLED, _POINTS // plans)
    good = np.flatnonzero(proposals.feasible & (excess <= TOLERANCES[-1]))[:most]
    return [proposals.architecture.take(i) for i in good], excess[good]


@dataclass(frozen=True)
class Quadrant:
    """One corner of context x service: what a design does there and what its time goes to.

    Attributes:
        value: tokens/s/GPU (throughput) or tokens/s/user (latency); None where nothing fits.
        parts: shares of the token time, largest first. regime: in words.
        error: by which a ratio of two designs may be off there (see `difference_error`).
    """

    context: int
    latency: bool
    value: float | None
    parts: tuple[tuple[str, float], ...]
    regime: str
    error: float | None


def quadrants(
    objective: ServingObjective, design: Architecture, recipe: int, kv: int, cell: Cell | None = None
) -> list[Quadrant]:
    """The guide's 2x2: short and long context, for most throughput and for least latency."""
    from cost_model.regime import REGIMES

    unlimited = unlimited_ttft(objective)
    result = []
    for context in (SHORT_CONTEXT, LONG_CONTEXT):
        where = with_workload(objective.cells[0] if cell is None else cell, isl=context, osl=1_024, cached=0)
        served = serve(unlimited, [design], recipe, kv, where)
        for latency in (False, True):
            measure = served.prediction.tokens_per_s_per_user if latency else served.prediction.tokens_per_s_per_gpu
            if not served.eligible.any():
                result.append(Quadrant(context, latency, None, (), "no plan fits", None))
                continue
            at = served.fastest(0) if latency else served.fullest(0)
            parts = served.shares(0, at)
            kind = bool(design.is_moe), bool(design.is_mla)
            error = share_error(parts, where.gpu, RECIPES[recipe], KV_FORMATS[kv], *kind)
            ordered = tuple(sorted(((_COMPONENTS[n], s) for n, s in parts.items()), key=lambda item: -item[1]))
            words = REGIMES[int(served.prediction.regime[0, at])].split(":")[0]
            result.append(Quadrant(context, latency, float(measure[0, at]), ordered, words, error))
    return result


def unlimited_ttft(objective: ServingObjective) -> ServingObjective:
    """The same objective without its limit on the first token (a prompt of 64k tokens may not meet it)."""
    import copy

    other = copy.copy(objective)
    other.limits = replace(objective.limits, max_ttft_s=np.inf, min_tokens_per_s_per_user=0.0)
    return other
