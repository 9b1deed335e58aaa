"""The space a study searches: decode from grid indices to designs, judged by legality, budget and envelope.

Decoding is constructive: one dimension (two where experts pair with another) is solved from the budget, so that
proposals land inside it instead of being rejected. Everything is vectorised over proposals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from spaces import families
from spaces.architecture import FIELDS, Architecture, canonical, unchecked
from spaces.budget import Budget, band_of
from spaces.decode import Designs, decode_rows
from spaces.envelope import Check, envelope, envelope_checks, widened
from spaces.formats import K_MULTIPLE, RECIPE_ATTENTION, RECIPE_FFN
from spaces.grid import Grid
from spaces.parameters import Parameters, layer_parameters, parameters

_SAMPLE = 1024  # proposals that stand for the space where it judges itself


@dataclass(frozen=True)
class Proposals:
    """Decoded designs; every array has one entry per proposal (read-only where nothing varies).

    Attributes:
        architecture: fields of shape (n,). recipe, kv_format: codes into RECIPES and KV_FORMATS.
        feasible: inside budget and envelope, legal, exportable where asked.
        reason: index into the space's `reasons` of what a proposal misses by most; 0 = feasible.
        violation: sum of relative distances outside the rejecting limits, 0 where feasible.
        limits_touched: (n, limits), at or within 2 % of a bound of `limit_names` that this space can move.
        training_flops_ratio: training matrix FLOPs per token relative to the reference's.
        total_parameters, active_parameters: non-embedding.
    """

    architecture: Architecture
    recipe: np.ndarray
    kv_format: np.ndarray
    feasible: np.ndarray
    reason: np.ndarray
    violation: np.ndarray
    limits_touched: np.ndarray
    training_flops_ratio: np.ndarray
    total_parameters: np.ndarray
    active_parameters: np.ndarray


class DesignSpace:
    """Axes around a reference; `decode` turns (n, axes) indices into n designs.

    Args:
        reference: the design whose values unnamed axes keep.
        table: axis name to a value, a list, or a range {min, max, step} (see spaces/axes.py). Naming a solved
            dimension with a range bounds it.
        budget: what a design may hold. align: multiple of every proposed width.
        inner: names of axes swept exhaustively inside each trial.
        limits: overrides of the envelope. exportable: exclude shapes that no export family can write.
        train_tokens: for the limit on tokens per active parameter.
    Attributes:
        axes, names, shape, size, inner, outer: of the index grid. limit_names: columns of `limits_touched`.
        reasons: messages by reason code.
    Raises:
        ValueError: naming the key, its value and what is valid.
    """

    def __init__(
        self,
        reference: Architecture,
        table: Mapping[str, Any],
        budget: Budget,
        align: int = 128,
        inner: Sequence[str] = (),
        limits: Mapping[str, Any] | None = None,
        exportable: bool = True,
        train_tokens: float = 15e12,
    ) -> None:
        self.reference = canonical(reference.map(lambda value: np.asarray(value, dtype=np.int64)))
        self.budget, self.exportable, self.train_tokens = budget, exportable, train_tokens
        self.grid = Grid(self.reference, table, budget, align, inner)
        self.axes, self.names, self.shape = self.grid.axes, self.grid.names, self.grid.shape
        self.inner, self.outer = self.grid.inner, self.grid.outer
        self.size = int(np.prod(np.array(self.shape, dtype=object)))
        counts, layer = parameters(self.reference), layer_parameters(self.reference)
        self._reference_flops = counts.non_embedding_active + self.reference.vocab * self.reference.hidden
        stated = envelope(limits)
        self.limits = widened(stated, envelope_checks(stated, self.reference, counts, layer, train_tokens))
        self.limit_names = tuple(self.limits)
        messages = self._messages()
        self.reasons = ("feasible", *messages.values())
        self._code = {name: code for code, name in enumerate(messages, 1)}
        sample = self._sample()
        self._refuse_coarse_steps(sample)
        self._moved = self._moved_limits(sample)

    def decode(self, index: Any) -> Proposals:
        """Designs at (n, axes) indices.

        Raises:
            ValueError: wrong shape, or an index outside the grid.
        """
        index = np.asarray(index)
        if index.ndim != 2 or index.shape[1] != len(self.axes) or index.dtype.kind not in "iu":
            raise ValueError(f"index of shape {index.shape}: needs whole numbers (n, {len(self.axes)}), one per axis")
        if index.size and ((index < 0).any() or (index >= np.array(self.shape)).any()):
            raise ValueError(f"index outside the grid of shape {self.shape}")
        parts = [(rows, self._judge(decode_rows(self.grid, index[rows], moe))) for moe, rows in self.grid.groups(index)]
        return parts[0][1] if len(parts) == 1 else _merged(len(index), parts)

    def random_index(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """(count, axes) indices, uniform on the grid."""
        return generator.integers(0, self.shape, size=(count, len(self.axes)))

    def canonical(self, index: np.ndarray) -> np.ndarray:
        """The same designs with every axis that does not concern them at index 0 (see Grid.canonical)."""
        return self.grid.canonical(index)

    def exclusions(self, index: np.ndarray) -> dict[str, float]:
        """Share of the proposals (n, axes) that lie outside each rejecting limit, largest first."""
        outside: dict[str, float] = {}
        for moe, rows in self.grid.groups(index):
            for check in self._checks(decode_rows(self.grid, index[rows], moe)):
                if check.rejects:
                    count = np.broadcast_to(check.outside(), (len(rows),)).sum()
                    outside[check.name] = outside.get(check.name, 0.0) + float(count)
        return {name: n / len(index) for name, n in sorted(outside.items(), key=lambda item: -item[1]) if n}

    def misses(self, row: np.ndarray) -> dict[str, tuple[float, float | None, float | None]]:
        """(value, min, max) of every rejecting limit that the one design at indices (axes,) lies outside."""

        def number(value: Any) -> float | None:
            return None if value is None else float(np.ravel(value)[0])

        index = np.asarray(row)[None, :]
        designs = decode_rows(self.grid, index, self.grid.groups(index)[0][0])
        return {
            check.name: (float(np.ravel(check.value)[0]), number(check.low), number(check.high))
            for check in self._checks(designs)
            if check.rejects and np.any(check.outside())
        }

    def _checks(self, designs: Designs) -> Iterator[Check]:
        """Legality, budget and envelope of designs, as named checks."""
        a, n = designs.architecture, designs.parameters
        yield Check("heads_per_kv_head", a.heads % a.kv_heads > 0, None, 0, True)
        yield Check("routing", a.top_k, None, np.maximum(a.experts, 1), True)
        yield Check("dense_layers", a.dense_layers, None, np.maximum(a.layers - 1, 1), True)
        yield Check("alignment", _misaligned(a, designs.recipe), None, 0, True)
        if self.exportable:
            yield Check("export_family", ~families.exportable(a), None, 0, True)
        yield self._budget_check("total_parameters", n.non_embedding_total, designs.total_target)
        if self.budget.active_parameters is not None:
            yield self._budget_check("active_parameters", n.non_embedding_active, designs.active_target)
        if self.budget.max_training_flops_ratio is not None:
            yield Check("training_flops_ratio", self._flops(a, n), None, self.budget.max_training_flops_ratio, True)
        yield from envelope_checks(self.limits, a, n, designs.layer, self.train_tokens)

    def _budget_check(self, name: str, value: Any, target: Any) -> Check:
        """Around the target of each proposal where the budget is a searched range, else the stated range."""
        tolerance = self.budget.tolerance
        low, high = band_of(self.grid.amounts[name])
        if low == high:
            return Check(name, value, low * (1 - tolerance), high * (1 + tolerance), True)
        if name not in self.names or target is None:
            return Check(name, value, low, high, True)
        return Check(
            name, value, np.maximum(target * (1 - tolerance), low), np.minimum(target * (1 + tolerance), high), True
        )

    def _flops(self, a: Architecture, n: Parameters) -> Any:
        """Matrix FLOPs per training token, 6 x (active parameters + LM head), relative to the reference's."""
        return (n.non_embedding_active + a.vocab * a.hidden) / self._reference_flops

    def _judge(self, designs: Designs) -> Proposals:
        rows = designs.rows
        worst, violation = np.zeros(rows), np.zeros(rows)
        reason = np.zeros(rows, dtype=np.int64)
        touched = np.zeros((len(self.limit_names), rows), dtype=bool)
        for check in self._checks(designs):
            if check.rejects and np.any(check.outside()):
                miss = check.miss()
                violation += miss
                reason = np.where(miss > worst, self._code[check.name], reason)
                worst = np.maximum(worst, miss)
            if check.name in self._moved:
                touched[self.limit_names.index(check.name)] = check.touched()

        def each(value: Any) -> np.ndarray:
            return np.broadcast_to(np.asarray(value), (rows,))

        a, n = designs.architecture, designs.parameters
        return Proposals(
            architecture=a.map(each),
            recipe=each(designs.recipe),
            kv_format=each(designs.kv_format),
            feasible=violation == 0,
            reason=reason,
            violation=violation,
            limits_touched=touched.T,
            training_flops_ratio=each(self._flops(a, n)),
            total_parameters=each(n.non_embedding_total),
            active_parameters=each(n.non_embedding_active),
        )

    def _messages(self) -> dict[str, str]:
        """What each check that can reject a design says."""

        def budget(name: str) -> str:
            low, high = band_of(self.grid.amounts[name])
            band = f"{low:.4g} +- {self.budget.tolerance:.2%}" if low == high else f"{low:.4g} to {high:.4g}"
            return f"{name}: non-embedding parameters must be {band}"

        return {
            "heads_per_kv_head": "heads_per_kv_head: kv_heads must divide heads",
            "routing": "routing: top_k must be at most experts",
            "dense_layers": "dense_layers: at least one layer must be MoE",
            "alignment": "alignment: widths must be multiples of what the recipe's formats need",
            "export_family": "export_family: no export family has this shape; space.exportable = false allows it",
            "total_parameters": budget("total_parameters"),
            "active_parameters": budget("active_parameters"),
            "training_flops_ratio": f"training_flops_ratio: at most {self.budget.max_training_flops_ratio} allowed",
            **{name: limit.message for name, limit in self.limits.items() if limit.action == "reject"},
        }

    def _sample(self) -> list[Designs]:
        """Random designs of each structure that stand for the space."""
        index = self.random_index(_SAMPLE, np.random.default_rng(0))
        return [decode_rows(self.grid, index[rows], moe) for moe, rows in self.grid.groups(index)]

    def _moved_limits(self, sample: list[Designs]) -> set[str]:
        """Limits whose quantity differs between designs of this space: the others say nothing about a choice."""
        seen: dict[str, set[float]] = {name: set() for name in self.limits}
        for designs in sample:
            for check in envelope_checks(
                self.limits, designs.architecture, designs.parameters, designs.layer, self.train_tokens
            ):
                value, concerns = np.broadcast_arrays(check.value, check.concerns)
                seen[check.name].update(np.unique(value[concerns]).tolist())
        return {name for name, values in seen.items() if len(values) > 1}

    def _refuse_coarse_steps(self, sample: list[Designs]) -> None:
        """One step of a solved dimension must fit into the band, at least for half of the proposals."""
        band = 2 * self.budget.tolerance
        for designs in sample:
            for name, steps in designs.steps.items():
                share, step = float(np.median(steps)), self.grid.solved[name].step
                if share > band:
                    finer = f"a step of at most {int(step * band / share)} (space.{name}.step, or align), or "
                    raise ValueError(
                        f"budget.solve = {name!r}: one step of {step} changes the parameters by {share:.1%}, more than "
                        f"the band of {band:.1%}; use {finer * (step * band >= share)}budget.tolerance of at least "
                        f"{np.ceil(share * 500) / 1000:g}"
                    )


def _misaligned(a: Architecture, recipe: Any) -> Any:
    """Reduction widths that are no multiple of what the recipe's formats need, before sharding."""
    attention, ffn = K_MULTIPLE[RECIPE_ATTENTION[recipe]], K_MULTIPLE[RECIPE_FFN[recipe]]
    by_attention = (a.hidden, a.heads * a.value_dim, a.q_lora_rank, a.kv_lora_rank)
    by_ffn = (a.hidden, a.ffn, a.expert_ffn, a.shared_width)
    wrong: Any = np.False_
    for multiple, widths in ((attention, by_attention), (ffn, by_ffn)):
        for width in widths:
            wrong = wrong | (width % multiple > 0)
    return wrong


def _merged(count: int, parts: list[tuple[np.ndarray, Proposals]]) -> Proposals:
    """Proposals of several structures put back in the order of their rows."""

    def scatter(values: list[np.ndarray]) -> np.ndarray:
        result = np.empty((count, *values[0].shape[1:]), dtype=np.result_type(*values))
        for (rows, _), value in zip(parts, values, strict=True):
            result[rows] = value
        return result

    architecture = unchecked({n: scatter([getattr(part.architecture, n) for _, part in parts]) for n in FIELDS})
    rest = [field.name for field in fields(Proposals) if field.name != "architecture"]
    return Proposals(architecture, **{name: scatter([getattr(part, name) for _, part in parts]) for name in rest})
