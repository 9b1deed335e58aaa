"""The index grid of a design space: which axes a study spans around its reference, and which it solves.

Only legal values can be listed: widths are aligned, every KV head count divides some head count, and what a
structure needs is named by the study or comes from the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spaces import axes as ax
from spaces.architecture import Architecture
from spaces.axes import Axis
from spaces.budget import Budget, Solved, targets
from spaces.parameters import parameters

# range of a solved dimension that the study does not bound
_SOLVED_RANGE = {"ffn": (1, 2**17), "layers": (8, 128), "experts": (2, 512)}
_SIZES = {"ffn": ("dense",), "layers": ("dense", "moe"), "experts": ("moe",)}


class Grid:
    """Axes in index order, with the solved dimensions and the budget's targets.

    Attributes:
        axes, names, shape: structure and attention first, then budget targets, fields, recipe and KV format.
        structures: of "dense" and "moe", those that the study proposes.
        solved: the dimensions computed from the budget, in the order of budget.solve.
        amounts: budget name to a number or (min, max); targets: the same as values to aim at.
        inner, outer: positions of the axes swept inside each trial, and of those a trial fixes.
    """

    def __init__(
        self, reference: Architecture, table: Mapping[str, Any], budget: Budget, align: int, inner: Sequence[str]
    ) -> None:
        if isinstance(align, bool) or align < 1:
            raise ValueError(f"space.align = {align}: must be at least 1")
        for name in table:
            if name not in ax.AXIS_NAMES:
                raise ValueError(f"unknown key {name!r} in space; valid: {', '.join(ax.AXIS_NAMES)}")
        self.reference, self.budget, self.align = reference, budget, align
        self.structures = ax.choices(table, "structure", ax.STRUCTURES[int(reference.is_moe)])
        self.attentions = ax.choices(table, "attention", ax.ATTENTIONS[int(reference.is_mla)])
        self._check_needs(table)
        self._check_solve()
        self.solved = {name: self._solved(name, table) for name in budget.solve}
        self.amounts, self.targets = self._budgets()
        self.axes = tuple(self._axes(table))
        self.names = tuple(axis.name for axis in self.axes)
        self.shape = tuple(len(axis.values) for axis in self.axes)
        self._check_divisors()
        for name in inner:
            if name not in self.names:
                raise ValueError(f"space.inner = {name!r}: not an axis of this study; valid: {', '.join(self.names)}")
        self.inner = tuple(i for i, name in enumerate(self.names) if name in inner)
        self.outer = tuple(i for i, name in enumerate(self.names) if name not in inner)

    def column(self, index: np.ndarray, name: str, otherwise: Any) -> Any:
        """Values of an axis for every proposal, or what holds where the axis is not searched."""
        if name not in self.names:
            return otherwise
        position = self.names.index(name)
        return self.axes[position].values[index[:, position]]

    def groups(self, index: np.ndarray) -> list[tuple[bool, np.ndarray]]:
        """(is MoE, rows) of each structure among the proposals."""
        if len(self.structures) == 1:
            return [(self.structures[0] == "moe", np.arange(len(index)))]
        moe = self.column(index, "structure", None) == 1
        return [(kind, rows) for kind in (False, True) if len(rows := np.flatnonzero(moe == kind))]

    def canonical(self, index: np.ndarray) -> np.ndarray:
        """The same designs with every axis that does not concern them at index 0.

        A dense design has no experts to choose, an MLA design no KV heads, one without windows no share of full
        layers: proposals that differ only there are one design.
        """
        index = np.array(index)
        everywhere = np.ones(len(index), dtype=bool)

        def value(name: str) -> Any:
            return self.column(index, name, getattr(self.reference, name)) * everywhere

        moe = self.column(index, "structure", int("moe" in self.structures)) * everywhere == 1
        mla = self.column(index, "attention", int("mla" in self.attentions)) * everywhere == 1
        idle = dict.fromkeys((*ax.MOE_FIELDS, "active_parameters"), ~moe)
        idle |= dict.fromkeys(("kv_heads", "head_dim"), mla) | dict.fromkeys(ax.MLA_FIELDS, ~mla)
        idle |= dict.fromkeys((ax.SHARE, "full_attention_layers"), value("window") == 0)
        idle["ffn"] = moe & (value("dense_layers") == 0) & (value("moe_every") == 1)
        idle["shared_ffn"] = ~moe | (value("shared_experts") == 0)
        for position, name in enumerate(self.names):
            if name in idle:
                index[idle[name], position] = 0
        return index

    def _check_needs(self, table: Mapping[str, Any]) -> None:
        """What a proposed structure needs is named or the reference's; what none has is not named."""
        if {"full_attention_layers", ax.SHARE} <= set(table):
            raise ValueError(f"space.full_attention_layers and space.{ax.SHARE}: name one of them")
        other = bool(self.reference.is_mla)  # an MLA reference's KV heads say nothing about a GQA design's
        needs: tuple[tuple[str, tuple[str, ...], tuple[str, ...], bool], ...] = (
            ("dense", self.structures, ("ffn",), False),
            ("moe", self.structures, ("experts", "top_k", "expert_ffn"), False),
            ("gqa", self.attentions, ("kv_heads", "head_dim"), other),
            ("mla", self.attentions, ax.MLA_FIELDS[1:], False),
        )
        for kind, proposed, names, foreign in needs:
            for name in names if kind in proposed else ():
                if (foreign or getattr(self.reference, name) == 0) and name not in (*table, *self.budget.solve):
                    raise ValueError(f"space.{name}: name it; {kind} designs are proposed and the reference is not one")
        kinds = (
            ("moe", self.structures, ax.MOE_FIELDS, "structure"),
            ("mla", self.attentions, ax.MLA_FIELDS, "attention"),
        )
        for kind, proposed, own, axis in kinds:
            for name in own:
                if kind not in proposed and name in table:
                    raise ValueError(f"space.{name}: no {kind} design is proposed; add {kind!r} to space.{axis}")
        dense_layers = "dense_layers" in table and "moe" in self.structures
        if dense_layers and self.reference.ffn == 0 and "ffn" not in table:
            raise ValueError("space.ffn: name it; dense_layers are proposed and the reference has no dense FFN")

    def _check_solve(self) -> None:
        solve = self.budget.solve
        fits = {name for name in solve if set(_SIZES[name]) & set(self.structures)} == set(solve)
        if fits and all(any(kind in _SIZES[name] for name in solve) for kind in self.structures):
            return
        by_kind = {"dense": "'ffn', 'layers'", "moe": "'layers', 'experts', ['layers', 'experts']"}
        mixed = "'layers', ['layers', 'experts'], ['ffn', 'experts']"
        valid = mixed if len(self.structures) == 2 else by_kind[self.structures[0]]
        asked = repr(solve[0]) if len(solve) == 1 else list(solve)
        raise ValueError(f"budget.solve = {asked}: {' and '.join(self.structures)} designs need one of {valid}")

    def _solved(self, name: str, table: Mapping[str, Any]) -> Solved:
        if name not in table:
            return Solved(name, ax.default_step(name, self.align), *_SOLVED_RANGE[name])
        if not isinstance(table[name], Mapping):
            raise ValueError(
                f"space.{name} = {table[name]!r}: {name} is solved from the budget; bound it by a range "
                "{min, max, step}, or choose another budget.solve"
            )
        low, high, step = ax.span(name, table[name], self.align)
        return Solved(name, step, low, high)

    def _budgets(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        budget, own = self.budget, parameters(self.reference)
        if "moe" in self.structures and budget.active_parameters is None:
            raise ValueError(
                "budget.active_parameters: needed where MoE designs can be proposed; "
                'a number, a range {min, max}, or "reference"'
            )
        if len(self.structures) == 2 and budget.max_training_flops_ratio is None:
            raise ValueError("budget.max_training_flops_ratio: needed where dense and MoE designs compete; a number")
        amounts = {
            "total_parameters": budget.total_parameters or float(own.non_embedding_total),
            "active_parameters": budget.active_parameters or float(own.non_embedding_active),
        }
        return amounts, {name: targets(amount, budget.tolerance, name) for name, amount in amounts.items()}

    def _axes(self, table: Mapping[str, Any]) -> list[Axis]:
        spec = {"recipe": ["bf16"], "kv_format": ["bf16"], **table}
        kv_heads = ax.axis("kv_heads", spec.get("kv_heads", int(self.reference.kv_heads)), self.align).values
        steps = {"heads": ax.heads_step(kv_heads) if "gqa" in self.attentions else 0}
        kinds = [ax.axis(name, spec[name], self.align) for name in ax.KINDS if name in spec]
        aimed = [
            Axis(name, self.targets[name], ordered=True)
            for name in ("total_parameters", "active_parameters")
            if len(self.targets[name]) > 1
            and (name == "total_parameters" or self.budget.solve == ("layers", "experts"))
        ]
        names = [name for name in ax.AXIS_NAMES if name in spec and name not in (*ax.KINDS, *self.solved)]
        return kinds + aimed + [ax.axis(name, spec[name], self.align, steps.get(name, 0)) for name in names]

    def _check_divisors(self) -> None:
        """Every listed head count has a KV head count that divides it, and the other way round."""
        if "gqa" not in self.attentions:
            return
        searched = {axis.name: axis.values for axis in self.axes}
        heads, kv_heads = (
            searched.get(name, np.atleast_1d(getattr(self.reference, name))) for name in ("heads", "kv_heads")
        )
        divides = heads[:, None] % kv_heads == 0
        for name, values, usable, wanted, others in (
            ("heads", heads, divides.any(axis=1), "a multiple of one of kv_heads", kv_heads),
            ("kv_heads", kv_heads, divides.any(axis=0), "a divisor of one of heads", heads),
        ):
            if not usable.all():
                listed = ", ".join(map(str, others))
                raise ValueError(f"space.{name} = {values[~usable][0]}: must be {wanted} = {listed}")
