"""The seven guidelines of hardware-friendly design (G1-G7), each with what it is worth for one design, measured.

Not a lint: every line prices what would change if the guideline were followed better or not at all, under the
run's own workload, GPU and limits. The guidelines are those of "AI Model Co-Design" (NVIDIA, 2026-07-10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_model import kernels
from reports.linears import Linear, linears
from reports.mixing import step_of, variant
from reports.pricing import Served, serve
from reports.words import count, nats, percent
from search.cells import Cell
from search.objective import ServingObjective
from spaces.architecture import Architecture
from spaces.deployment import Deployment
from spaces.formats import FORMATS, KV_FORMATS, RECIPE_FFN, RECIPES, recipe_code

COMPUTE_BOUND_M = 256  # tokens per weight matrix at which current GPUs leave the memory-bound regime
ALIGNMENT = 256
TITLES = {
    "G1": "Near-square weight matrices",
    "G2": "Dimensions in multiples of 128, better 256, after sharding",
    "G3": "Fewer, larger operations: wider rather than deeper",
    "G4": "Low precision for the expensive operations",
    "G5": "Sparse MoE: widen expert parallelism for throughput",
    "G6": "A regular layer pattern that pipeline stages can cut evenly",
    "G7": "Attention and FFN parallelised apart",
}


@dataclass(frozen=True)
class Finding:
    """One guideline for one design.

    Attributes:
        followed: True, False, or None where it does not apply. state: what the design is.
        effect: what it is worth, in words. worth: the same as a fraction of throughput (positive: to be gained, or
            gained by following it), None where it does not apply or cannot be priced.
    """

    guideline: str
    followed: bool | None
    state: str
    effect: str
    worth: float | None

    @property
    def title(self) -> str:
        return TITLES[self.guideline]

    @property
    def exact(self) -> bool:
        """Whether the worth is counted, not predicted: layers that idle in uneven stages."""
        return self.guideline == "G6"


def guidelines(
    objective: ServingObjective,
    architecture: Architecture,
    recipe: str,
    kv_format: str,
    solved: str | None,
    align: int,
    cell: Cell | None = None,
    target: float | None = None,
) -> list[Finding]:
    """Check G1-G7 for one design at one interactivity target (default: the middle one it reaches).

    Args:
        solved, align: the dimension that keeps the parameters when another changes, and its step.
    Raises:
        ValueError: the design has no plan in this cell.
    """
    where = objective.cells[0] if cell is None else cell
    code, kv = recipe_code(recipe), KV_FORMATS.index(kv_format)
    served = serve(objective, [architecture], code, kv, where)
    at = _target(objective, served, target)
    plan = served.plan_at(0, at)
    if plan is None:
        raise ValueError(f"no plan of this design serves {where.workload_name} on {where.gpu.name} within the limits")
    deployment = where.deployments.take(np.array([plan]))
    batch = float(served.prediction.batch[0, plan])
    case = _Case(objective, architecture, code, kv, solved, align, where, served, at, plan, deployment, batch)
    return [square(case), aligned(case), wide(case), precise(case), sparse(case), regular(case), decoupled(case)]


@dataclass(frozen=True)
class _Case:
    objective: ServingObjective
    architecture: Architecture
    recipe: int
    kv: int
    solved: str | None
    align: int
    cell: Cell
    served: Served
    target: float
    plan: int
    deployment: Deployment
    batch: float

    @property
    def tokens(self) -> float:
        """Tokens that one attention rank decodes per step."""
        one = self.batch / float(np.ravel(self.deployment.attention_dp)[0]) / float(np.ravel(self.deployment.pp)[0])
        return max(float(np.ceil(one)), 1.0)

    def plan_value(self, name: str) -> int:
        return int(np.ravel(getattr(self.deployment, name))[0])

    @property
    def linear_share(self) -> float:
        parts = self.served.prediction.breakdown
        total = float(self.served.prediction.tpot_s[0, self.plan])
        return float(parts["attention_linear"][0, self.plan] + parts["ffn"][0, self.plan]) / total


def _target(objective: ServingObjective, served: Served, target: float | None) -> float:
    if target is not None:
        return target
    reached = objective.targets[~np.isnan(served.log_throughput[0])]
    return float(reached[len(reached) // 2]) if len(reached) else 0.0


def _rows(case: _Case) -> tuple[list[Linear], np.ndarray]:
    """Linears of the case's plan, and the tokens each sees."""
    matrices = linears(
        case.architecture,
        case.recipe,
        case.plan_value("attention_tp"),
        case.plan_value("kvp"),
        case.plan_value("ffn_tp"),
    )
    gathered = case.tokens * case.plan_value("attention_dp")
    a = case.architecture
    if a.is_moe:
        gathered = max(gathered * float(np.asarray(a.top_k)) / float(np.asarray(a.experts)), 1.0)
    return matrices, np.array(
        [case.tokens, case.tokens] + [gathered] * 2 if len(matrices) == 4 else [case.tokens] * 3 + [gathered] * 2
    )


def _seconds(case: _Case, matrices: Sequence[Linear], m: np.ndarray, n: np.ndarray, k: np.ndarray) -> np.ndarray:
    codes = np.array([matrix.code for matrix in matrices])
    return np.asarray(kernels.gemm(case.cell.gpu, m, n, k, codes, quantise_activations=False))


def square(case: _Case) -> Finding:
    """G1: time of each matrix against a square one of as many weights."""
    matrices, m = _rows(case)
    n, k = (np.array([getattr(matrix, name) for matrix in matrices], dtype=float) for name in "nk")
    actual, ideal = _seconds(case, matrices, m, n, k), _seconds(case, matrices, m, np.sqrt(n * k), np.sqrt(n * k))
    lost = float(actual.sum() / ideal.sum() - 1) * case.linear_share
    aspect = np.maximum(n, k) / np.minimum(n, k)
    worst = int(np.argmax(aspect))
    least = int(np.minimum(n, k).min())
    state = (
        f"most elongated: {matrices[worst].name}, {count(n[worst])} × {count(k[worst])} ({aspect[worst]:.1f} "
        f": 1); smallest side {count(least)}"
    )
    effect = (
        f"square matrices of as many weights would take {percent(abs(lost), sign=False)} of the token time "
        f"{'less' if lost > 0 else 'more'}"
    )
    return Finding("G1", bool(aspect[worst] <= 4 and least >= 1024), state, effect, lost)


def aligned(case: _Case) -> Finding:
    """G2: time per multiply-add of each shard against the shard rounded up to a multiple of 256."""
    matrices, m = _rows(case)
    n, k = (np.array([getattr(matrix, name) for matrix in matrices], dtype=float) for name in "nk")
    up = [np.ceil(value / ALIGNMENT) * ALIGNMENT for value in (n, k)]
    actual = _seconds(case, matrices, m, n, k)
    per_work = _seconds(case, matrices, m, *up) * (n * k) / (up[0] * up[1])
    lost = max(float(actual.sum() / per_work.sum() - 1), 0.0) * case.linear_share
    odd = [
        f"{matrix.name} {side} = {count(getattr(matrix, side))}"
        for matrix in matrices
        for side in "nk"
        if getattr(matrix, side) % 128
    ]
    loose = [x for matrix in matrices for x in (matrix.n, matrix.k) if x % ALIGNMENT]
    state = (
        f"off 128 after sharding: {', '.join(odd)}"
        if odd
        else ("every shard a multiple of 128, not all of 256" if loose else "every shard a multiple of 256")
    )
    return Finding("G2", not odd, state, f"misalignment costs {percent(lost, sign=False)} of the token time", lost)


def wide(case: _Case) -> Finding:
    """G3: the same parameters in a quarter fewer layers."""
    a, values = case.architecture, case.architecture.as_dict()
    layers = max(round(0.75 * values["layers"]), 1)
    # width grows so that layers x hidden^2 stays; the solved dimension takes up the rest
    hidden = round(values["hidden"] * np.sqrt(values["layers"] / layers) / 128) * 128
    changes = {
        "layers": layers,
        "hidden": int(hidden),
        "dense_layers": min(values["dense_layers"], layers),
        "full_attention_layers": min(values["full_attention_layers"], layers),
    }
    # an expert's width moves total and active parameters alike; the study's solved dimension would not
    solved, step = ("expert_ffn", 64) if values["experts"] else (case.solved, step_of(case.solved, case.align))
    other = variant(values, changes, solved, step, slack=0.03)
    overhead = float(
        case.served.prediction.breakdown["overhead"][0, case.plan] / case.served.prediction.tpot_s[0, case.plan]
    )
    ratio = values["hidden"] / values["layers"]
    state = f"hidden / layers = {ratio:.0f}; fixed overheads take {percent(overhead, sign=False)} of the token time"
    if other is None:
        return Finding("G3", bool(ratio >= 80), state, "no wider model of the same parameters", None)
    gain = _gain(case, [other])
    loss = (
        case.objective.losses(other, case.recipe, case.kv).shape_loss
        - case.objective.losses(a, case.recipe, case.kv).shape_loss
    )
    text = (
        f"{layers} layers of {count(hidden)}, same parameters: {percent(gain)} throughput, {nats(float(loss))} nats"
        if gain is not None
        else "the wider model does not reach the target"
    )
    return Finding("G3", bool(ratio >= 80), state, text, gain)


def precise(case: _Case) -> Finding:
    """G4: the best format that this GPU multiplies natively against bf16, same shape."""
    gpu = case.cell.gpu
    native = [r for r, name in enumerate(RECIPES) if gpu.native[RECIPE_FFN[r]] or FORMATS[RECIPE_FFN[r]] == "bf16"]
    served = serve(
        case.objective, [case.architecture] * len(native), np.array(native), case.kv, case.cell, targets=[case.target]
    )
    values = served.log_throughput[:, 0]
    plain = values[native.index(RECIPES.index("bf16"))]
    state = f"{RECIPES[case.recipe]} weights, {KV_FORMATS[case.kv]} KV cache"
    if np.isnan(values).all() or np.isnan(plain):
        return Finding("G4", case.recipe != RECIPES.index("bf16"), state, "bf16 does not reach this target", None)
    best = int(np.nanargmax(values))
    worth = float(np.expm1(values[best] - plain))
    own = float(np.expm1(values[native.index(case.recipe)] - plain)) if case.recipe in native else None
    text = f"{RECIPES[native[best]]} serves {percent(worth)} over bf16" + (
        f"; {RECIPES[case.recipe]} {percent(own)}" if own is not None and native[best] != case.recipe else ""
    )
    return Finding("G4", case.recipe != RECIPES.index("bf16"), state, text, worth)


def sparse(case: _Case) -> Finding:
    """G5: tokens per expert, and wide expert parallelism against none."""
    a = case.architecture
    if not a.is_moe:
        return Finding("G5", None, "dense model", "does not apply", None)
    experts, top_k = int(np.asarray(a.experts)), int(np.asarray(a.top_k))
    in_flight = case.tokens * case.plan_value("attention_dp")
    per_expert = in_flight * top_k / experts
    needed = COMPUTE_BOUND_M * experts / top_k
    state = (
        f"{per_expert:.1f} tokens per expert at EP{case.plan_value('ep')}; compute-bound from {count(needed)} "
        "tokens in flight"
    )
    ep = np.asarray(case.cell.deployments.ep)
    without, wide_ = (_most(case, mask) for mask in (ep == 1, ep > 1))
    if without is None or wide_ is None:
        return Finding("G5", None, state, "no plan with and without expert parallelism to compare", None)
    worth = wide_ / without - 1
    return Finding(
        "G5", bool(worth > 0), state, f"expert parallelism: {percent(worth)} maximum throughput over none", worth
    )


def regular(case: _Case) -> Finding:
    """G6: layers that idle because stages cannot be cut evenly."""
    layers = int(np.asarray(case.architecture.layers))
    idle = {pp: -(-layers // pp) * pp / layers - 1 for pp in (2, 4, 8)}
    even = [pp for pp, lost in idle.items() if lost == 0]
    state = (
        f"{layers} layers: cut evenly by PP {', '.join(map(str, even))}"
        if even
        else f"{layers} layers: cut evenly by none of PP 2, 4, 8"
    )
    lost = idle[4]
    text = (
        "; ".join(
            f"PP{pp} idles {percent(value / (1 + value), sign=False)} of the time"
            for pp, value in idle.items()
            if value
        )
        or "no stage idles"
    )
    return Finding("G6", 4 in even, state, text, lost)


def decoupled(case: _Case) -> Finding:
    """G7: all plans against those whose attention is sharded like the FFN."""
    d = case.cell.deployments
    coupled = (np.asarray(d.attention_dp) == 1) & (np.asarray(d.kvp) == 1)
    plan = (
        f"attention TP{case.plan_value('attention_tp')} DP{case.plan_value('attention_dp')}, FFN "
        f"TP{case.plan_value('ffn_tp')} EP{case.plan_value('ep')}"
    )
    tied = serve(
        case.objective, [case.architecture], case.recipe, case.kv, case.cell, coupled, [case.target]
    ).log_throughput[0, 0]
    free = serve(
        case.objective, [case.architecture], case.recipe, case.kv, case.cell, None, [case.target]
    ).log_throughput[0, 0]
    state = f"best plan at this target: {plan}"
    if np.isnan(tied) or np.isnan(free):
        return Finding("G7", None, state, "only decoupled plans reach this target", None)
    worth = float(np.expm1(free - tied))
    return Finding("G7", True, state, f"decoupling is worth {percent(worth)} throughput", worth)


def _gain(case: _Case, others: Sequence[Architecture]) -> float | None:
    """Throughput of the best of other designs over the case's own, at its target."""
    served = serve(case.objective, [case.architecture, *others], case.recipe, case.kv, case.cell, targets=[case.target])
    values = served.log_throughput[:, 0]
    return (
        None
        if np.isnan(values[0]) or np.isnan(values[1:]).all()
        else float(np.expm1(np.nanmax(values[1:]) - values[0]))
    )


def _most(case: _Case, mask: np.ndarray) -> float | None:
    """Highest throughput over the plans of a mask."""
    value = serve(
        case.objective,
        [case.architecture],
        case.recipe,
        case.kv,
        case.cell,
        np.broadcast_to(mask, case.served.eligible.shape[1:]),
    ).most_throughput[0]
    return None if np.isnan(value) else float(value)
