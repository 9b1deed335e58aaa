"""What a design's gain buys at the same service: more tokens per GPU, cheaper or faster tokens, or longer prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.blocks import gain_cell
from reports.html import Safe, tag
from reports.html import table as html_table
from reports.lead import Lead
from reports.pricing import Served, serve, with_workload
from reports.words import count, number
from search.cells import Cell
from search.objective import ServingObjective
from spaces.architecture import Architecture
from studies.plans import own_frontier

_FACTORS: Sequence[float] = (1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)


@dataclass(frozen=True)
class Bought:
    """One gain over the reference at one interactivity target, spent in four ways; each None where it cannot be.

    Attributes:
        throughput: fraction more tokens/s/GPU. usd: $ per million tokens of (design, reference).
        speed: fraction more tokens/s/user at the reference's throughput. prompt: tokens that a prompt may have.
    """

    target: float
    throughput: float
    usd: tuple[float, float] | None
    speed: float | None
    prompt: int | None


def bought(
    objective: ServingObjective, design: Architecture, recipe: int, kv: int, cell: Cell | None = None
) -> list[Bought]:
    """What the gain buys at every target that both reach, in one cell (default the first)."""
    where = objective.cells[0] if cell is None else cell
    served = serve(objective, [objective.space.reference, design], recipe, kv, where)
    result = []
    for target, (theirs, ours) in zip(objective.targets, served.log_throughput.T, strict=True):
        if np.isnan(theirs) or np.isnan(ours):
            continue
        price = where.gpu.usd_per_gpu_hour
        usd = None if price is None else tuple(price / 3600 * 1e6 / float(np.exp(v)) for v in (ours, theirs))
        # below its fullest plan's speed the reference is faster than asked: its own speed is what to beat
        speeds = [_speed_at(served, row, float(theirs)) for row in (1, 0)]
        factor = longer_context(objective, design, recipe, kv, float(target), where)
        result.append(
            Bought(
                float(target),
                float(np.expm1(ours - theirs)),
                usd,  # type: ignore[arg-type]
                None if speeds[0] is None or speeds[1] is None else speeds[0] / speeds[1] - 1,
                None if factor is None else int(where.workload.isl * factor),
            )
        )
    return result


def _speed_at(served: Served, row: int, log_throughput: float) -> float | None:
    """tokens/s/user of a row's frontier at a throughput, straight lines in logarithms; None above its highest."""
    _, plans = own_frontier(served.prediction, served.eligible & (np.arange(len(served.eligible)) == row)[:, None])
    speed, throughput = (
        np.log(values[row, plans])
        for values in (served.prediction.tokens_per_s_per_user, served.prediction.tokens_per_s_per_gpu)
    )
    if not len(plans) or log_throughput > throughput[0] + 1e-9:
        return None
    return float(np.exp(np.interp(-log_throughput, -throughput, speed)))  # slowest and fullest first


def longer_context(
    objective: ServingObjective, design: Architecture, recipe: int, kv: int, target: float, cell: Cell
) -> float | None:
    """By what factor prompts may grow until the design serves only what the reference serves; None if it never does."""
    base = serve(objective, [objective.space.reference], recipe, kv, cell, targets=[target]).log_throughput[0, 0]
    if np.isnan(base):
        return None
    best = None
    for factor in _FACTORS:
        longer = with_workload(cell, isl=int(cell.workload.isl * factor), cached=int(cell.workload.cached * factor))
        value = serve(objective, [design], recipe, kv, longer, targets=[target]).log_throughput[0, 0]
        if np.isnan(value) or value < base:
            break
        best = factor
    return best


def bought_block(run: Any, found: Lead, rows: list[Bought]) -> Safe | None:
    """The table of what the chosen design's gain buys."""
    if not rows:
        return None
    cell = run.objective.cells[0]
    errors = dict(zip(map(float, run.meta["interactivity_targets"]), found.chosen_errors, strict=True))
    cells = []
    for b in rows:
        error = errors.get(b.target)
        usd = "no price" if b.usd is None else f"${number(b.usd[0])} instead of ${number(b.usd[1])}"
        prompt = "–" if b.prompt is None else f"{count(b.prompt)} instead of {count(cell.workload.isl)}"
        cells.append([f"{b.target:g}", gain_cell(b.throughput, error), usd, gain_cell(b.speed, error), prompt])
    heads = ["tokens/s/user", "tokens/s/GPU", "or $ per million tokens", "or tokens/s/user", "or prompt tokens"]
    return tag(
        "div",
        tag("h3", "What the gain buys at the same service"),
        tag(
            "p",
            f"{cell.workload_name} on {cell.gpu.name}: spent on throughput at the same speed, on price, on speed at "
            "the reference's throughput, or on prompts so long that the design serves what the reference serves. "
            "Grey: within model error.",
        ),
        html_table(heads, cells, "What the gain buys", numeric=range(len(heads))),
        class_="block full",
    )
