"""What a study asks of a design: its best plans under every legal deployment, and the loss it must hold.

One call scores a batch of trials. Each trial fixes the outer axes; every combination of inner axes is decoded,
judged (budget, envelope, accuracy), and the admissible designs are priced under all plans of all cells. A cell is one
GPU with one workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cost_model import Prediction
from cost_model.quality import PredictedLoss, predicted_loss
from search.cells import Cell, Limits
from search.frontier import Objective, Table, concatenate, minimised, nondominated, take
from search.scores import Scores, throughput_at_targets
from spaces import Architecture, Deployment, DesignSpace
from spaces.design_space import Proposals

OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("tokens_per_s_per_user", maximise=True, logarithmic=True),
        Objective("tokens_per_s_per_gpu", maximise=True, logarithmic=True),
        Objective("ttft_s", maximise=False, logarithmic=True),
        Objective("e2e_s", maximise=False, logarithmic=True),
        Objective("shape_loss", maximise=False, logarithmic=False),
        Objective("usd_per_million_tokens", maximise=False, logarithmic=True),
        Objective("joules_per_token", maximise=False, logarithmic=True),
        Objective("memory_bytes_per_gpu", maximise=False, logarithmic=True),
    )
}
SERVING = ("tokens_per_s_per_user", "tokens_per_s_per_gpu")
_CHUNK = 200_000  # points of one predict call: its fixed cost is a twentieth then, and its temporaries a few MB
CONSTRAINTS = ("space", "shape_loss", "quant_loss", "plan")


class _Batch(NamedTuple):
    """Designs of some trials: index rows, how many each trial has, what they are, and which may be priced."""

    full: np.ndarray
    per_trial: int
    proposals: Proposals
    shape_loss: np.ndarray
    violations: np.ndarray
    admissible: np.ndarray


class ServingObjective:
    """Scores trials of a design space; satisfies `search.scores.Scorer`.

    Args:
        space: the designs. cells: where they serve. objectives: names from OBJECTIVES, two or three.
        targets: tokens/s/user at which throughput is compared. limits: see `Limits`.
        train_tokens, quantised: of the loss model. skew: popularity of experts.
        worst_case: a design counts as its worst cell against the reference there, else as the weighted mean.
    Raises:
        ValueError: an objective that a cell cannot give (no price, no TDP), or a reference that serves nowhere.
    """

    group_by = "group"
    constraint_names = CONSTRAINTS

    def __init__(
        self,
        space: DesignSpace,
        cells: Sequence[Cell],
        objectives: Sequence[str],
        targets: Sequence[float],
        limits: Limits,
        train_tokens: float = 15e12,
        quantised: str = "ptq",
        skew: str = "power_law_1.2",
        worst_case: bool = False,
    ) -> None:
        self.space, self.cells, self.limits = space, tuple(cells), limits
        self.names = tuple(objectives)
        # shape_loss always competes: a faster shape must not hide one that predicts better
        kept = dict.fromkeys((*self.names, "shape_loss"))
        self.objectives = tuple(OBJECTIVES[name] for name in kept)
        self.targets = np.array(targets, dtype=float)
        self.train_tokens, self.quantised, self.skew = train_tokens, quantised, skew
        self.worst_case = worst_case
        for cell in self.cells:
            if "usd_per_million_tokens" in self.names and cell.gpu.usd_per_gpu_hour is None:
                raise ValueError(
                    f"objective usd_per_million_tokens: {cell.gpu.name} has no price; set usd_per_gpu_hour"
                )
            if "joules_per_token" in self.names and cell.gpu.tdp_w is None:
                raise ValueError(f"objective joules_per_token: {cell.gpu.name} has no published TDP")
        self.reference_loss = self.losses(space.reference, 0, 0)
        self._baseline = self._reference_values()

    @property
    def value_names(self) -> tuple[str, ...]:
        """What Optuna minimises: -log throughput at each target if both serving objectives are asked, and the rest."""
        if set(SERVING) <= set(self.names):
            rest = tuple(name for name in self.names if name not in SERVING)
            return (*(f"throughput_at_{target:g}" for target in self.targets), *rest)
        return self.names

    @property
    def points_per_trial(self) -> int:
        """(design, deployment) points that one trial prices: inner designs x plans of all cells."""
        inner = math.prod(self.space.shape[position] for position in self.space.inner)
        return inner * sum(cell.size for cell in self.cells)

    def losses(self, architecture: Architecture, recipe: Any, kv_format: Any) -> PredictedLoss:
        """Predicted loss of designs under the study's training tokens and kind of quantisation."""
        return predicted_loss(architecture, recipe, kv_format, self.train_tokens, self.quantised)

    def price(
        self, architecture: Architecture, recipe: Any, kv_format: Any, cell: Cell, explain: bool = True
    ) -> Prediction:
        """(n, P) predictions of (n,) designs under every plan of a cell (`explain`: see `predict`)."""
        return cell.price(architecture, recipe, kv_format, self.skew, self.limits.max_ttft_s, explain)[0]

    def priced(
        self, architecture: Architecture, recipe: Any, kv_format: Any, cell: Cell
    ) -> tuple[Prediction, Deployment]:
        """`price`, and the plans themselves (prefill pools are matched to each design)."""
        return cell.price(architecture, recipe, kv_format, self.skew, self.limits.max_ttft_s)

    def eligible(self, prediction: Prediction) -> np.ndarray:
        """(n, P) bool: legal, fitting, and within every limit of the study except TTFT."""
        return np.asarray(
            prediction.legal
            & prediction.fits
            & (prediction.tokens_per_s_per_user >= self.limits.min_tokens_per_s_per_user)
            & (prediction.memory_bytes_per_gpu <= self.limits.max_memory_bytes_per_gpu)
        )

    def within_ttft(self, prediction: Prediction) -> np.ndarray:
        return np.asarray(prediction.ttft_s <= self.limits.max_ttft_s)

    def at_targets(self, prediction: Prediction, eligible: np.ndarray, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
        """-log throughput and log shortfall (n, targets) of a cell's designs (see `throughput_at_targets`)."""
        rates = prediction.tokens_per_s_per_user, prediction.tokens_per_s_per_gpu
        return throughput_at_targets(*rates, eligible, self.targets, cell.steps)

    def feasible(self, indices: np.ndarray) -> np.ndarray:
        """(n,) bool: outer rows with at least one design inside budget, envelope and loss limits; prices nothing."""
        full, per_trial = self.expand(np.asarray(indices))
        proposals = self.space.decode(full)
        good = np.array(proposals.feasible)
        rows = np.flatnonzero(good)
        part = proposals.architecture.take(rows), proposals.recipe[rows], proposals.kv_format[rows]
        good[rows] = (self.loss_excess(self.losses(*part)) <= 0).all(axis=1)
        return np.asarray(good.reshape(-1, per_trial).any(axis=1))

    def loss_excess(self, loss: PredictedLoss) -> np.ndarray:
        """(n, 2) by how much designs exceed the limits of shape_loss and quant_loss."""
        limits = self.reference_loss.shape_loss + self.limits.tolerance_nats, self.limits.max_quant_nats
        return np.stack([_excess(loss.shape_loss, limits[0]), _excess(loss.quant_loss, limits[1])], axis=1)

    def canonical(self, rows: np.ndarray) -> np.ndarray:
        """Outer rows with axes that do not concern a design at index 0: equal rows are the same trial."""
        full = np.zeros((len(rows), len(self.space.shape)), dtype=np.int64)
        full[:, list(self.space.outer)] = rows
        return self.space.canonical(full)[:, list(self.space.outer)]

    def expand(self, indices: np.ndarray) -> tuple[np.ndarray, int]:
        """Full index rows of outer rows, every combination of inner axes in turn, and how many each has."""
        sizes = tuple(self.space.shape[position] for position in self.space.inner)
        inner = np.array(list(np.ndindex(sizes)), dtype=np.int64).reshape(math.prod(sizes), len(sizes))
        full = np.zeros((len(indices), len(inner), len(self.space.shape)), dtype=np.int64)
        full[:, :, list(self.space.outer)] = indices[:, None, :]
        full[:, :, list(self.space.inner)] = inner[None]
        return full.reshape(-1, full.shape[-1]), len(inner)

    def score(self, indices: np.ndarray) -> Scores:
        """Scores of (n, outer axes) indices (see `search.scores.Scores`)."""
        batch = self._proposed(np.asarray(indices))
        violations, shape_loss, tables = batch.violations, batch.shape_loss, []
        rows = batch.admissible
        values = np.zeros((len(self.cells), len(rows), len(self.value_names)))
        missing = np.zeros((len(self.cells), len(rows)))
        for part, number, prediction, eligible in self._priced_parts(batch):
            cell = self.cells[number]
            values[number, part] = self._cell_values(prediction, eligible, shape_loss[rows[part]], cell)
            missing[number, part] = self._shortfall(prediction, eligible, cell)
            tables.append(self._cell_points(batch, rows[part], number, prediction, eligible))
        # designs that are not priced count as the reference, worsened by what they miss: finite, and last by constraint
        folded = np.add.outer(violations.sum(axis=1), self._baseline)
        folded[rows], violations[rows, 3] = self._folded(values), missing.max(axis=0)
        return Scores(*self._best(folded, violations, batch.per_trial), self._frontier(batch, tables))

    def points(self, indices: np.ndarray) -> Table:
        """`score(indices).points`, without the values that only a search needs."""
        batch = self._proposed(np.asarray(indices))
        tables = [
            self._cell_points(batch, batch.admissible[part], number, prediction, eligible)
            for part, number, prediction, eligible in self._priced_parts(batch)
        ]
        return self._frontier(batch, tables)

    def _proposed(self, indices: np.ndarray) -> _Batch:
        """Every inner design of the trials, and which of them may be priced."""
        full, per_trial = self.expand(indices)
        proposals = self.space.decode(full)
        loss = self.losses(proposals.architecture, proposals.recipe, proposals.kv_format)
        violations = np.zeros((len(full), len(CONSTRAINTS)))
        violations[:, 0] = proposals.violation
        violations[:, 1:3] = self.loss_excess(loss)
        admissible = np.flatnonzero((violations <= 0).all(axis=1))
        return _Batch(full, per_trial, proposals, np.asarray(loss.shape_loss), violations, admissible)

    def _priced_parts(self, batch: _Batch) -> Iterator[tuple[slice, int, Prediction, np.ndarray]]:
        """(part of the admissible designs, number of the cell, prediction, eligible) of every part in every cell."""
        proposals, step = batch.proposals, max(1, _CHUNK // max(cell.size for cell in self.cells))
        for start in range(0, len(batch.admissible), step):
            part = slice(start, start + step)
            rows = batch.admissible[part]
            designs = proposals.architecture.take(rows), proposals.recipe[rows], proposals.kv_format[rows]
            for number, cell in enumerate(self.cells):
                prediction = self.price(*designs, cell, explain=False)
                yield part, number, prediction, self.eligible(prediction) & self.within_ttft(prediction)

    def _cell_points(
        self, batch: _Batch, designs: np.ndarray, number: int, prediction: Prediction, eligible: np.ndarray
    ) -> Table:
        """Points of one cell that no other of the same recipe dominates; `row` says of which design."""
        flat = np.flatnonzero(eligible)
        rows, plans = np.divmod(flat, eligible.shape[1])
        rows = designs[rows]
        table: Table = {"row": rows, "cell": np.full(len(rows), number), "deployment": plans}
        for name in (objective.name for objective in self.objectives):
            values = batch.shape_loss[rows] if name == "shape_loss" else np.take(getattr(prediction, name), flat)
            table[name] = np.asarray(values, dtype=float)
        return take(table, nondominated(minimised(table, self.objectives), np.asarray(batch.proposals.recipe)[rows]))

    def _best(self, values: np.ndarray, violations: np.ndarray, per_trial: int) -> tuple[np.ndarray, np.ndarray]:
        """(values, violations) of trials: the best value over the inner designs that miss least, and the least miss."""
        shaped = values.reshape(-1, per_trial, values.shape[1])
        missed = violations.reshape(-1, per_trial, violations.shape[1])
        total = missed.clip(min=0).sum(axis=2)
        best = np.where((total == total.min(axis=1, keepdims=True))[:, :, None], shaped, np.inf).min(axis=1)
        return best, np.take_along_axis(missed, total.argmin(axis=1)[:, None, None], axis=1)[:, 0]

    def _frontier(self, batch: _Batch, tables: list[Table]) -> Table:
        """The points of all cells and parts that nothing in their group dominates, described."""
        points = concatenate(tables) if tables else self._no_points()
        row = points.pop("row")
        points["trial"] = row // batch.per_trial
        points["group"] = points["cell"] * 1000 + np.asarray(batch.proposals.recipe)[row]
        for position, axis in enumerate(self.space.axes):
            points[f"axis_{axis.name}"] = batch.full[row, position]
        return take(points, nondominated(minimised(points, self.objectives), points["group"]))

    def _no_points(self) -> Table:
        whole = {name: np.zeros(0, dtype=np.int64) for name in ("row", "cell", "deployment")}
        return {**whole, **{objective.name: np.zeros(0) for objective in self.objectives}}

    def _folded(self, values: np.ndarray) -> np.ndarray:
        """(n, values) of (cells, n, values): the worst cell against the reference there, or the weighted mean."""
        if self.worst_case:
            relative = values - self._cell_baselines[:, None, :]
            return np.asarray(relative.max(axis=0) + self._baseline)
        weights = np.array([cell.weight for cell in self.cells])
        return np.tensordot(weights / weights.sum(), values, axes=1)

    def _cell_values(
        self, prediction: Prediction, eligible: np.ndarray, shape_loss: np.ndarray, cell: Cell
    ) -> np.ndarray:
        """(n, values) of one cell, as named by `value_names`."""
        columns = []
        if set(SERVING) <= set(self.names):
            columns += list(self.at_targets(prediction, eligible, cell)[0].T)
        pool = eligible | ~eligible.any(axis=1, keepdims=True)
        for objective in (OBJECTIVES[name] for name in self.names if name in self.value_names):
            if objective.name == "shape_loss":
                columns.append(shape_loss)
            else:
                losses = objective.loss_values(getattr(prediction, objective.name))
                columns.append(np.where(pool, losses, np.inf).min(axis=1))
        return np.stack(columns, axis=-1)

    def _shortfall(self, prediction: Prediction, eligible: np.ndarray, cell: Cell) -> np.ndarray:
        """(n,) by how much (in logs) the nearest legal plan misses memory or limits; 0 where some plan is eligible."""
        limits, p = self.limits, prediction
        usable = p.memory_bytes_per_gpu / min(cell.usable_bytes, limits.max_memory_bytes_per_gpu)
        miss = np.maximum(np.log(usable), 0)
        if limits.max_ttft_s < np.inf:
            miss = miss + np.maximum(np.log(p.ttft_s / limits.max_ttft_s), 0)
        if limits.min_tokens_per_s_per_user > 0:
            miss = miss + np.maximum(np.log(limits.min_tokens_per_s_per_user / p.tokens_per_s_per_user), 0)
        miss = np.where(p.legal, np.maximum(miss, 1e-3), 100.0)
        return np.where(eligible.any(axis=1), 0.0, miss.min(axis=1))

    def _reference_values(self) -> np.ndarray:
        """(values,) of the reference under its best listed recipe and KV format; also kept per cell.

        Raises:
            ValueError: the reference has no eligible plan in some cell.
        """
        recipes, kv_formats = self.formats
        n = len(recipes)
        reference = self.space.reference.map(lambda value: np.broadcast_to(np.asarray(value), (n,)))
        shape_loss = np.full(n, float(self.reference_loss.shape_loss))
        baselines = []
        for cell in self.cells:
            prediction = self.price(reference, recipes, kv_formats, cell)
            eligible = self.eligible(prediction) & self.within_ttft(prediction)
            if not eligible.any():
                raise ValueError(self._nowhere(prediction, cell))
            baselines.append(
                self._cell_values(prediction, eligible, shape_loss, cell)[eligible.any(axis=1)].min(axis=0)
            )
        self._cell_baselines = np.stack(baselines)
        weights = np.array([cell.weight for cell in self.cells])
        return np.tensordot(weights / weights.sum(), self._cell_baselines, axes=1)

    @property
    def formats(self) -> tuple[np.ndarray, np.ndarray]:
        """Every (recipe, KV format) pair of the space, as two code arrays."""
        values = {axis.name: axis.values for axis in self.space.axes}
        recipes, kv = np.meshgrid(values["recipe"], values["kv_format"], indexing="ij")
        return recipes.ravel(), kv.ravel()

    def _nowhere(self, p: Prediction, cell: Cell) -> str:
        where = f"the reference has no plan for {cell.workload_name} on {cell.gpu.name}"
        if not np.any(p.legal):
            return f"{where}: no legal plan on these GPU counts"
        need = float(np.min(np.where(p.legal, p.memory_bytes_per_gpu, np.inf)))
        have = cell.usable_bytes
        if not np.any(p.legal & p.fits):
            lean = f"{need / 1e9:.1f} GB per GPU of {have / 1e9:.1f} GB usable"
            return f"{where}: the leanest plan needs {lean}; allow more GPUs"
        within = p.legal & p.fits
        ttft = float(np.min(np.where(within, p.ttft_s, np.inf)))
        speed = float(np.max(np.where(within, p.tokens_per_s_per_user, 0.0)))
        return (
            f"{where} within the limits: the fastest first token takes {ttft:.2f} s (max_ttft_s = "
            f"{self.limits.max_ttft_s:g}), the highest rate is {speed:.1f} tokens/s/user "
            f"(min_tokens_per_s_per_user = {self.limits.min_tokens_per_s_per_user:g})"
        )


def _excess(value: Any, limit: Any) -> np.ndarray:
    """By how much a value exceeds its limit; rounding at the limit itself is no excess."""
    miss = np.asarray(value) - limit
    return np.asarray(np.where(miss > 1e-12, miss, np.minimum(miss, 0.0)))
