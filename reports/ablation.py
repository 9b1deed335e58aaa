"""What moved the frontier: each axis's share of a design's gain over the reference.

Every mixture of the reference's and the design's values is priced at the reference's parameters (the dimension that
the study solves from the budget is solved again for each), so no step gains by being smaller. An axis's share is its
Shapley value: its mean effect over all orders in which the axes could be changed, so that shares add up to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Any

import numpy as np

from reports.mixing import SLACK, size, step_of, variant
from reports.pricing import log_gain
from reports.words import label
from search.objective import ServingObjective
from spaces.architecture import FIELDS, Architecture
from spaces.formats import kv_code, recipe_code

MOST_GROUPS = 8  # 256 mixtures; beyond, the axes that change least are taken together
# fields that mean nothing without one another move together
_TOGETHER = (
    ("heads", "head_dim"),
    ("experts", "top_k", "expert_ffn", "moe_every", "dense_layers", "shared_experts", "shared_ffn"),
    ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    ("window", "full_attention_layers"),
)


@dataclass(frozen=True)
class Change:
    """One axis, or axes that only make sense together, and what changing them did.

    Attributes:
        fields: their names. before, after: values. gain: (targets,) log throughput, NaN where unreached.
        loss: nats of shape_loss.
    """

    fields: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    gain: np.ndarray
    loss: float

    @property
    def text(self) -> str:
        return " with ".join(
            f"{label(name)} {before:,} → {after:,}"
            for name, before, after in zip(self.fields, self.before, self.after, strict=True)
        )


@dataclass(frozen=True)
class Ablation:
    """Changes from the reference to a design, largest first; `rounding` is what solving in whole steps leaves over.

    Attributes:
        total: (targets,) log gain of the design over the reference. solved: the dimension that keeps the parameters.
    """

    changes: tuple[Change, ...]
    total: np.ndarray
    solved: str | None


def ablation(
    objective: ServingObjective, design: Architecture, recipe: str, kv_format: str, solve: Sequence[str], align: int
) -> Ablation:
    """Attribute a design's gain to its axes.

    Args:
        solve: names of the dimensions that the study solves from the budget. align: step of a solved width.
    """
    reference = objective.space.reference
    old, new = reference.as_dict(), design.as_dict()
    solved = next((name for name in solve if new[name] or old[name]), None)
    changed = [name for name in FIELDS if old[name] != new[name] and name != solved]
    groups = _grouped(changed)
    mixer = _Mixer(old, new, solved, align)
    groups = _feasible_groups(groups, mixer)
    n = len(groups)
    subsets = [frozenset(s) for size in range(n + 1) for s in combinations(range(n), size)]
    designs = [mixer.mixture(_fields(groups, s)) or design for s in subsets]
    designs[0], designs[-1] = reference, design
    codes = recipe_code(recipe), kv_code(kv_format)
    values = log_gain(objective, designs, *codes)
    losses = np.array([float(objective.losses(d, *codes).shape_loss) for d in designs])
    index = {subset: i for i, subset in enumerate(subsets)}
    changes = []
    for number, group in enumerate(groups):
        gain, loss = _shapley(number, n, index, values), _shapley(number, n, index, losses[:, None])
        changes.append(Change(group, tuple(old[f] for f in group), tuple(new[f] for f in group), gain, float(loss[0])))
    total = values[-1] - values[0] if n else np.zeros(values.shape[1])
    ordered = sorted(changes, key=lambda change: -float(np.nansum(np.abs(change.gain))))
    return Ablation(tuple(ordered), total, solved)


def _shapley(player: int, n: int, index: dict[frozenset[int], int], values: np.ndarray) -> np.ndarray:
    """Mean effect of one player over all orders; columns with an unreached mixture are NaN."""
    share = np.zeros(values.shape[1])
    for subset, i in index.items():
        if player not in subset:
            weight = factorial(len(subset)) * factorial(n - len(subset) - 1) / factorial(n)
            share = share + weight * (values[index[subset | {player}]] - values[i])
    return share


def _grouped(changed: list[str]) -> list[tuple[str, ...]]:
    groups: list[tuple[str, ...]] = []
    rest = list(changed)
    for family in _TOGETHER[2:]:
        members = tuple(name for name in rest if name in family)
        if members:
            groups.append(members)
            rest = [name for name in rest if name not in members]
    return [*groups, *((name,) for name in rest)]


def _fields(groups: Sequence[tuple[str, ...]], subset: frozenset[int]) -> frozenset[str]:
    return frozenset(name for number in subset for name in groups[number])


def _feasible_groups(groups: list[tuple[str, ...]], mixer: _Mixer) -> list[tuple[str, ...]]:
    """Join groups until every mixture of them is a model of the budget's size."""
    while len(groups) > 1:
        n = len(groups)
        broken = [
            frozenset(s)
            for size in range(1, n)
            for s in combinations(range(n), size)
            if mixer.mixture(_fields(groups, frozenset(s))) is None
        ]
        if not broken and n <= MOST_GROUPS:
            return groups
        # the pair that most broken mixtures tear apart
        pairs = list(combinations(range(n), 2))
        torn = [sum((a in s) != (b in s) for s in broken) for a, b in pairs]
        a, b = pairs[int(np.argmax(torn))]
        groups = [g for i, g in enumerate(groups) if i not in (a, b)] + [groups[a] + groups[b]]
    return groups


class _Mixer:
    """Mixtures of two designs' fields at the first one's parameters."""

    def __init__(self, old: dict[str, Any], new: dict[str, Any], solved: str | None, align: int) -> None:
        self.old, self.new, self.solved = old, new, solved
        self.step = step_of(solved, align)
        self.slack = max(abs(size(new) / size(old) - 1), SLACK)

    def mixture(self, fields: frozenset[str]) -> Architecture | None:
        """The reference with some of the design's fields; None where no such model has the parameters."""
        return variant(self.old, {name: self.new[name] for name in fields}, self.solved, self.step, slack=self.slack)
