"""The tables of a run: designs, their own frontiers, the reference's, and a decimated cloud.

A search keeps only where its frontier points lie on the grid; everything else about them is priced again here,
so that a table and a fresh `ridgeline predict` agree by construction.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cost_model.counts import parameters
from cost_model.quality import difference_sigma
from search.cells import Cell
from search.frontier import Scale, Table, hypervolume, loss_values, nondominated
from search.objective import ServingObjective
from spaces.architecture import FIELDS, Architecture, stack
from spaces.design_space import Proposals
from spaces.formats import KV_FORMATS, RECIPES
from studies.plans import SERVING, gather, own_frontier

MAX_DESIGNS = 300  # designs that get their own curve
CLOUD_DESIGNS = 200  # priced designs that stand for the dominated ones
CLOUD_PRICED = 400_000  # points priced for the cloud at most
CLOUD_POINTS = 4000
REFERENCE = "reference"


@dataclass(frozen=True)
class DesignSet:
    """(n,) designs by stable id.

    Attributes:
        limits: names of the envelope's limits that each design touches. flops_ratio: training FLOPs per token
            relative to the reference.
    """

    ids: np.ndarray
    architecture: Architecture
    recipe: np.ndarray
    kv_format: np.ndarray
    limits: np.ndarray
    flops_ratio: np.ndarray

    def take(self, index: Any) -> DesignSet:
        rest = (self.recipe, self.kv_format, self.limits, self.flops_ratio)
        return DesignSet(self.ids[index], self.architecture.take(index), *(value[index] for value in rest))


def design_id(architecture: Architecture, recipe: int, kv_format: int) -> str:
    """Eight hex digits of one design's fields and formats: the same in every run and study."""
    text = json.dumps([architecture.as_dict(), RECIPES[recipe], KV_FORMATS[kv_format]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def design_ids(proposals: Proposals) -> np.ndarray:
    """(n,) ids of decoded designs."""
    p = proposals
    rows = range(len(p.recipe))
    return np.array([design_id(p.architecture.take(i), int(p.recipe[i]), int(p.kv_format[i])) for i in rows], dtype=str)


def design_set(objective: ServingObjective, index: np.ndarray) -> DesignSet:
    """Designs at (n, axes) grid indices, each once."""
    p = objective.space.decode(index)
    ids = design_ids(p)
    names = np.array(objective.space.limit_names)
    limits = np.array([", ".join(names[row]) for row in p.limits_touched], dtype=str)
    once = np.sort(np.unique(ids, return_index=True)[1])
    return DesignSet(ids, p.architecture, p.recipe, p.kv_format, limits, p.training_flops_ratio).take(once)


def reference_set(objective: ServingObjective) -> DesignSet:
    """The reference under every recipe and KV format of the study."""
    recipe, kv = objective.formats
    architecture = stack([objective.space.reference] * len(recipe))
    n = len(recipe)
    return DesignSet(np.array([REFERENCE] * n), architecture, recipe, kv, np.array([""] * n), np.ones(n))


def archive_index(objective: ServingObjective, archive: Table) -> np.ndarray:
    """(points, axes) grid indices of an archive's points."""
    return np.stack([archive[f"axis_{axis.name}"] for axis in objective.space.axes], axis=1)


def own_points(objective: ServingObjective, designs: DesignSet, cloud: int = 0, seed: int = 0) -> pd.DataFrame:
    """Every design's own frontier in every cell, and `cloud` random plans it dominates.

    Returns:
        One row per point with the columns of the run's point tables; `kind` is own or cloud.
    """
    generator = np.random.default_rng(seed)
    frames = []
    for cell in objective.cells:
        step = max(1, 200_000 // cell.size)
        for start in range(0, len(designs.ids), step):
            part = designs.take(slice(start, start + step))
            frames += _cell_points(objective, cell, part, cloud, generator)
    return _numbered(pd.concat(frames, ignore_index=True))


def _cell_points(
    objective: ServingObjective, cell: Cell, designs: DesignSet, cloud: int, generator: np.random.Generator
) -> list[pd.DataFrame]:
    prediction, deployments = objective.priced(designs.architecture, designs.recipe, designs.kv_format, cell)
    eligible = objective.eligible(prediction)
    rows, plans = own_frontier(prediction, eligible)
    picks = [("own", rows, plans)]
    if cloud:
        taken = np.zeros_like(eligible)
        taken[rows, plans] = True
        others = np.argwhere(eligible & ~taken)
        chosen = others[generator.permutation(len(others))[: cloud * len(designs.ids)]]
        picks.append(("cloud", chosen[:, 0], chosen[:, 1]))
    loss = objective.losses(designs.architecture, designs.recipe, designs.kv_format)
    frames = []
    for kind, rows, plans in picks:
        if not len(rows):
            continue
        frame = gather(prediction, rows, plans, deployments)
        frame.insert(0, "design", designs.ids[rows])
        described = {
            "engine": cell.gpu.engine.name,
            "gpu": cell.gpu.name,
            "workload": cell.workload_name,
            "recipe": np.array(RECIPES)[np.asarray(designs.recipe)[rows]],
            "kv_format": np.array(KV_FORMATS)[np.asarray(designs.kv_format)[rows]],
            "shape_loss": np.broadcast_to(loss.shape_loss, len(designs.ids))[rows],
            "quant_loss": np.broadcast_to(loss.quant_loss, len(designs.ids))[rows],
            "within_ttft": frame["ttft_s"].to_numpy() <= objective.limits.max_ttft_s,
            "kind": kind,
        }
        fields = {name: np.broadcast_to(getattr(designs.architecture, name), len(designs.ids))[rows] for name in FIELDS}
        frames.append(pd.concat([frame, pd.DataFrame({**described, **fields}, index=frame.index)], axis=1))
    return frames


def _numbered(points: pd.DataFrame) -> pd.DataFrame:
    """Point ids: design, then a number that counts its points in the order of the table."""
    points = points.reset_index(drop=True)
    number = points.groupby("design").cumcount()
    width = max(2, len(str(int(number.max())))) if len(points) else 2
    points.insert(0, "point", points["design"] + "-" + number.astype(str).str.zfill(width))
    return points


def frontier_of(points: pd.DataFrame, objectives: Sequence[Any]) -> pd.DataFrame:
    """Points within the TTFT limit that nothing of the same GPU, workload and recipe beats.

    `overall` marks those that nothing of any recipe beats. Empty where every point misses the limit.
    """
    pool = points[points["within_ttft"] & (points["kind"] == "own")]
    if pool.empty:
        return pool.assign(overall=pd.Series(dtype=bool)).drop(columns="kind")
    losses = loss_values({o.name: pool[o.name].to_numpy() for o in objectives}, objectives)
    overall = nondominated(losses, pool.groupby(["gpu", "workload"]).ngroup().to_numpy())
    kept = pool.assign(overall=overall)[
        nondominated(losses, pool.groupby(["gpu", "workload", "recipe"]).ngroup().to_numpy())
    ]
    return kept.drop(columns="kind").sort_values(list(o.name for o in objectives)).reset_index(drop=True)


def shape_text(row: Any) -> str:
    """A design in a few characters, e.g. 4096x32 h32/8 f14336 or 2048x48 h32/4 e128/8x768."""
    heads = f"mla{row['kv_lora_rank']}" if row["kv_lora_rank"] else f"{row['kv_heads']}"
    text = f"{row['hidden']}x{row['layers']} h{row['heads']}/{heads}"
    if row["experts"]:
        shared = f"+{row['shared_experts']}" if row["shared_experts"] else ""
        return f"{text} e{row['experts']}/{row['top_k']}{shared}x{row['expert_ffn']}"
    return f"{text} f{row['ffn']}"


def throughput_at(objective: ServingObjective, designs: DesignSet, cell: Cell) -> np.ndarray:
    """(designs, targets) best tokens/s/GPU of a cell at each interactivity target; NaN where it is not reached."""
    prediction = objective.price(designs.architecture, designs.recipe, designs.kv_format, cell)
    eligible = objective.eligible(prediction) & objective.within_ttft(prediction)
    values, shortfall = objective.at_targets(prediction, eligible, cell)
    return np.where((shortfall <= 0) & eligible.any(axis=1)[:, None], np.exp(-values), np.nan)


def designs_table(
    objective: ServingObjective, designs: DesignSet, points: pd.DataFrame, reference: pd.DataFrame, scale: Scale
) -> pd.DataFrame:
    """One row per design: fields, loss, limits, its own hypervolume, and its gain over the reference at each target.

    Gains compare with the reference under the same recipe and KV format, so that a gain of shape is not one of
    format. Over several cells a design counts as its worst cell (worst case) or its weighted geometric mean.
    """
    table = pd.DataFrame({name: np.asarray(getattr(designs.architecture, name)) for name in FIELDS})
    table.insert(0, "design", designs.ids)
    table["recipe"] = np.array(RECIPES)[designs.recipe]
    table["kv_format"] = np.array(KV_FORMATS)[designs.kv_format]
    judged = _judged(objective, designs)
    table = pd.concat([table, pd.DataFrame(judged)], axis=1)
    table["shape"] = [shape_text(row) for row in table.to_dict("records")]
    own = points[points["kind"] == "own"]
    table["hypervolume"] = hypervolumes(own, scale).reindex(table["design"]).fillna(0.0).to_numpy()
    formats = list(zip(table["recipe"], table["kv_format"], strict=True))
    volumes = {
        key: hypervolumes(part, scale).get(REFERENCE, 0.0) for key, part in reference.groupby(["recipe", "kv_format"])
    }
    base = np.array([volumes.get(key, 0.0) for key in formats])
    table["gain_hypervolume"] = np.where(base > 0, table["hypervolume"] / np.where(base > 0, base, 1.0) - 1, np.nan)
    at, gain = _at_targets(objective, designs)
    for column, target in enumerate(objective.targets):
        table[f"tokens_per_s_per_gpu_at_{target:g}"] = at[:, column]
        table[f"gain_at_{target:g}"] = gain[:, column]
    return table


def _judged(objective: ServingObjective, designs: DesignSet) -> dict[str, Any]:
    """Loss, counts and limits of designs, as columns."""
    loss = objective.losses(designs.architecture, designs.recipe, designs.kv_format)
    counts = parameters(designs.architecture)
    return {
        "total_parameters": counts.total,
        "active_parameters": counts.active,
        "non_embedding_total": counts.non_embedding_total,
        "non_embedding_active": counts.non_embedding_active,
        "shape_loss": loss.shape_loss,
        "shape_loss_difference": loss.shape_loss - objective.reference_loss.shape_loss,
        "quant_loss": np.broadcast_to(loss.quant_loss, len(designs.ids)),
        "loss_sigma": np.broadcast_to(difference_sigma(loss, objective.reference_loss), len(designs.ids)),
        "inside_envelope": np.broadcast_to(loss.inside_envelope, len(designs.ids)),
        "limits_touched": designs.limits,
        "training_flops_ratio": designs.flops_ratio,
    }


def hypervolumes(points: pd.DataFrame, scale: Scale) -> pd.Series:
    """Hypervolume of each design's points in the serving objectives, mean over cells."""
    volumes = {}
    for design, part in points[points["within_ttft"]].groupby("design"):
        per_cell = [
            hypervolume(loss_values({o.name: cell[o.name].to_numpy() for o in SERVING}, SERVING), scale)
            for _, cell in part.groupby(["gpu", "workload"])
        ]
        volumes[design] = float(np.mean(per_cell))
    return pd.Series(volumes, dtype=float)


def _at_targets(objective: ServingObjective, designs: DesignSet) -> tuple[np.ndarray, np.ndarray]:
    """(throughput, gain) of each design at each target over the cells of the study, (designs, targets) each."""
    reference = reference_set(objective)
    row = {key: i for i, key in enumerate(zip(reference.recipe.tolist(), reference.kv_format.tolist(), strict=True))}
    same_formats = [row[key] for key in zip(designs.recipe.tolist(), designs.kv_format.tolist(), strict=True)]
    ours = np.log([throughput_at(objective, designs, cell) for cell in objective.cells])
    theirs = np.log([throughput_at(objective, reference, cell)[same_formats] for cell in objective.cells])
    if objective.worst_case:
        return np.exp(ours.min(axis=0)), np.expm1((ours - theirs).min(axis=0))
    weights = np.array([cell.weight for cell in objective.cells])
    weights = (weights / weights.sum())[:, None, None]
    return np.exp((weights * ours).sum(axis=0)), np.expm1((weights * (ours - theirs)).sum(axis=0))
