"""How a model is laid over GPUs: the parallel plan, the batch, and which plans are legal for which model.

Attention and FFN are parallelised apart (guideline G7 of the co-design guide): one replica is `pp` pipeline
stages, and each stage's GPUs are used once as attention_tp x attention_dp x kvp and once as ffn_tp x ep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from spaces.architecture import Architecture

MAX_BATCH = 0  # `batch` = 0 in an array (None for one plan): as many sequences as memory holds


@dataclass(frozen=True)
class Deployment:
    """One parallel plan with its batch, or arrays of plans; every field is a number or an array.

    Attributes:
        attention_tp, attention_dp, kvp: tensor, data and KV (Helix) parallelism of attention.
        ffn_tp, ep: tensor and expert parallelism of the FFN; ffn_tp = None: what the attention side leaves.
        pp: pipeline stages. redundant_experts: spare expert replicas per MoE layer.
        batch: sequences in flight per replica; None (0 in arrays) = as many as memory holds.
        prefill_chunk: prompt tokens of one mixed step; None (0) = the engine's default.
        draft_tokens, acceptance: speculative tokens per step and the chance that one is accepted.
        prefill_*: plan of the prefill pool; prefill_replicas, decode_replicas: sizes of the pools,
            0 = aggregated (prefill and decode share the GPUs).
    """

    attention_tp: Any = 1
    attention_dp: Any = 1
    kvp: Any = 1
    ffn_tp: Any = None
    ep: Any = 1
    pp: Any = 1
    redundant_experts: Any = 0
    batch: Any = None
    prefill_chunk: Any = None
    draft_tokens: Any = 0
    acceptance: Any = 0.0
    prefill_attention_tp: Any = 0
    prefill_attention_dp: Any = 0
    prefill_ffn_tp: Any = 0
    prefill_ep: Any = 0
    prefill_pp: Any = 0
    prefill_batch: Any = 0
    prefill_replicas: Any = 0
    decode_replicas: Any = 0

    def __post_init__(self) -> None:
        for name in ("batch", "prefill_chunk"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, 0)
        for name in ("attention_tp", "attention_dp", "kvp", "ep", "pp"):
            _whole(name, getattr(self, name), 1)
        if self.ffn_tp is None:
            group = np.asarray(self.attention_tp) * self.attention_dp * self.kvp
            if np.any(group % self.ep):
                raise ValueError(f"ep={self.ep}: must divide attention_tp x attention_dp x kvp = {group}")
            object.__setattr__(self, "ffn_tp", group // np.asarray(self.ep))
        _whole("ffn_tp", self.ffn_tp, 1)
        for name in FIELDS[6:]:
            if name != "acceptance":
                _whole(name, getattr(self, name), 0)
        acceptance = np.asarray(self.acceptance, dtype=float)
        if not np.all((acceptance >= 0) & (acceptance < 1)):
            raise ValueError(f"acceptance={self.acceptance}: must be in [0, 1)")
        attention = np.asarray(self.attention_tp) * self.attention_dp * self.kvp
        ffn = np.asarray(self.ffn_tp) * self.ep
        if np.any(attention != ffn):
            raise ValueError(
                f"attention_tp x attention_dp x kvp = {attention} and ffn_tp x ep = {ffn} must use the same GPUs"
            )

    @property
    def stage_gpus(self) -> Any:
        """GPUs of one pipeline stage."""
        return np.asarray(self.attention_tp) * self.attention_dp * self.kvp

    @property
    def replica_gpus(self) -> Any:
        return self.stage_gpus * self.pp

    @property
    def disaggregated(self) -> Any:
        return np.asarray(self.prefill_replicas) > 0

    @property
    def prefill_gpus(self) -> Any:
        """GPUs of one prefill replica; 0 where aggregated."""
        return np.asarray(self.prefill_attention_tp) * self.prefill_attention_dp * self.prefill_pp

    def prefill_pool(self) -> Deployment:
        """The prefill pool's own plan, as a deployment that only prefills."""
        return Deployment(
            attention_tp=self.prefill_attention_tp,
            attention_dp=self.prefill_attention_dp,
            ffn_tp=self.prefill_ffn_tp,
            ep=self.prefill_ep,
            pp=self.prefill_pp,
            redundant_experts=self.redundant_experts,
            batch=self.prefill_batch,
            prefill_chunk=self.prefill_chunk,
        )

    def take(self, index: Any) -> Deployment:
        """Plans of a batch at `index` along their first axis; scalars stay scalars."""
        return unchecked({n: v[index] if np.ndim(v := getattr(self, n)) else v for n in FIELDS})

    def having(self, **values: Any) -> Deployment:
        """The same plans with other values of some fields, unchecked like `take`."""
        return unchecked({name: getattr(self, name) for name in FIELDS} | values)

    def as_dict(self) -> dict[str, Any]:
        """Plain Python numbers of a single plan."""
        return {name: np.asarray(getattr(self, name)).item() for name in FIELDS}


FIELDS = tuple(field.name for field in fields(Deployment))


def unchecked(values: dict[str, Any]) -> Deployment:
    """Build a Deployment from values that come from plans already checked."""
    deployment = object.__new__(Deployment)
    for name in FIELDS:
        object.__setattr__(deployment, name, values[name])
    return deployment


def concatenated(deployments: Sequence[Deployment]) -> Deployment:
    """One batch of the (P,) plans of several."""

    def joined(name: str) -> np.ndarray:
        fields = [np.broadcast_to(np.asarray(getattr(d, name)), np.shape(d.batch)) for d in deployments]
        return np.concatenate(fields)

    return unchecked({name: joined(name) for name in FIELDS})


def _whole(name: str, value: Any, least: int) -> None:
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or (array.size and array.min() < least):
        raise ValueError(f"{name}={value!r}: must be a whole number >= {least}")


@dataclass(frozen=True)
class Rule:
    """A named condition of legality: `holds(architecture, plan)` broadcasts, `message` explains one failure."""

    name: str
    holds: Callable[[Architecture, Deployment], Any]
    message: Callable[[Architecture, Deployment], str]


def _divisors(number: Any) -> str:
    n = int(number)
    return ", ".join(str(d) for d in range(1, n + 1) if n % d == 0)


def fed(deployment: Deployment) -> Any:
    """Every attention-DP rank of every pipeline stage has a sequence (or as many as memory holds)."""
    batch = np.asarray(deployment.batch)
    return (batch == MAX_BATCH) | (batch >= np.asarray(deployment.attention_dp) * deployment.pp)


RULES: tuple[Rule, ...] = (
    Rule(
        "heads",
        lambda a, d: np.asarray(a.heads) % (np.asarray(d.attention_tp) * d.kvp) == 0,
        lambda a, d: (
            f"attention_tp={d.attention_tp} x kvp={d.kvp}: {a.heads} heads need a divisor: {_divisors(a.heads)}"
        ),
    ),
    Rule(
        "kv_heads",
        lambda a, d: (
            a.is_mla | (np.asarray(a.kv_heads) % d.attention_tp == 0) | (np.asarray(d.attention_tp) % a.kv_heads == 0)
        ),
        lambda a, d: (
            f"attention_tp={d.attention_tp}: must divide {a.kv_heads} KV heads or be a multiple of them "
            f"(replicated); divisors: {_divisors(a.kv_heads)}"
        ),
    ),
    Rule(
        "kvp",
        # KV-parallel ranks split the sequence, so TP beyond the KV heads (1 for the MLA latent) would only copy it
        lambda a, d: (
            (np.asarray(d.kvp) == 1) | (np.asarray(d.attention_tp) <= np.where(a.is_mla, 1, np.asarray(a.kv_heads)))
        ),
        lambda a, d: (
            f"kvp={d.kvp} with attention_tp={d.attention_tp}: attention_tp must be at most "
            f"{1 if np.all(a.is_mla) else a.kv_heads} KV heads under KV parallelism"
        ),
    ),
    Rule(
        "ffn",
        lambda a, d: np.where(a.is_moe, True, np.asarray(a.ffn) % d.ffn_tp == 0),
        lambda a, d: (
            f"ffn_tp={d.ffn_tp}: FFN width {a.ffn} needs a divisor; powers of two that fit: "
            f"{', '.join(str(2**i) for i in range(11) if int(a.ffn) % 2**i == 0)}"
        ),
    ),
    Rule(
        "shared_ffn",
        # dense layers and shared experts of an MoE model are sharded over the ranks that hold the same tokens
        lambda a, d: (
            ~a.is_moe
            | (
                (a.shared_width % (np.asarray(d.attention_tp) * d.kvp) == 0)
                & ((np.asarray(a.dense_layers) == 0) | (np.asarray(a.ffn) % (np.asarray(d.attention_tp) * d.kvp) == 0))
            )
        ),
        lambda a, d: (
            f"attention_tp={d.attention_tp} x kvp={d.kvp}: dense FFN width {a.ffn} and shared expert width "
            f"{a.shared_width} must divide by it"
        ),
    ),
    Rule(
        "expert_ffn",
        lambda a, d: ~a.is_moe | (np.asarray(a.expert_ffn) % d.ffn_tp == 0),
        lambda a, d: (
            f"ffn_tp={d.ffn_tp}: expert width {a.expert_ffn} needs a divisor; powers of two that fit: "
            f"{', '.join(str(2**i) for i in range(11) if int(a.expert_ffn) % 2**i == 0)}"
        ),
    ),
    Rule(
        "dense_ep",
        lambda a, d: a.is_moe | ((np.asarray(d.ep) == 1) & (np.asarray(d.redundant_experts) == 0)),
        lambda a, d: f"ep={d.ep}, redundant_experts={d.redundant_experts}: a dense model has no experts; use ep=1",
    ),
    Rule(
        "experts",
        lambda a, d: ~a.is_moe | ((np.asarray(a.experts) + d.redundant_experts) % d.ep == 0),
        lambda a, d: (
            f"ep={d.ep}: {a.experts} experts + {d.redundant_experts} redundant need a divisor: "
            f"{_divisors(np.asarray(a.experts) + d.redundant_experts)}"
        ),
    ),
    Rule(
        "pp",
        lambda a, d: np.asarray(a.layers) >= d.pp,
        lambda a, d: f"pp={d.pp}: at most one stage per layer; {a.layers} layers",
    ),
    Rule(
        "batch",
        lambda a, d: fed(d),
        lambda a, d: (
            f"batch={d.batch}: at least one sequence per attention-DP rank and pipeline stage: "
            f"{np.asarray(d.attention_dp) * d.pp}"
        ),
    ),
)
RULE_NAMES = tuple(rule.name for rule in RULES)


def legal(architecture: Architecture, deployment: Deployment) -> tuple[Any, Any]:
    """Which plans are legal for which models.

    Returns:
        (mask, reason): bool and int arrays of the broadcast shape; reason is the index in RULES of the first
        broken rule, -1 where legal.
    """
    reason: Any = np.array(-1)
    for number in reversed(range(len(RULES))):
        reason = np.where(RULES[number].holds(architecture, deployment), reason, number)
    return reason < 0, reason


def legal_mask(architecture: Architecture, deployment: Deployment) -> Any:
    """`legal`'s mask alone."""
    mask: Any = np.array(True)
    for rule in RULES:
        mask = mask & rule.holds(architecture, deployment)
    return mask


def check_legal(architecture: Architecture, deployment: Deployment) -> None:
    """Raise a ValueError that names the first broken rule of one plan for one model."""
    mask, reason = legal(architecture, deployment)
    if not np.all(mask):
        rule = RULES[int(np.asarray(reason).ravel()[np.argmin(np.ravel(mask))])]
        raise ValueError(rule.message(architecture, deployment))


def powers_of_two(most: int, least: int = 1) -> list[int]:
    return [2**i for i in range(least.bit_length() - 1, most.bit_length()) if least <= 2**i <= most]


def enumerate_deployments(
    gpus: Iterable[int],
    architecture: Architecture | None = None,
    batches: Iterable[int] | None = None,
    kvp: Iterable[int] = (1,),
    pp: Iterable[int] = (1, 2, 4, 8),
    redundant_experts: Iterable[int] = (0,),
    draft_tokens: int = 0,
    acceptance: float = 0.0,
    moe: bool | None = None,
) -> Deployment:
    """Every plan of the given GPU counts, as one Deployment of (plans,) arrays.

    Args:
        gpus: GPUs per replica, e.g. [1, 2, 4, 8].
        architecture: keep only plans legal for it (a batch: legal for at least one of its designs).
        batches: sequences per replica; default: powers of two from 1 to 2048.
        kvp, pp, redundant_experts: values allowed for these; draft_tokens, acceptance: speculation.
        moe: also split experts (default: as the architecture has any; True without one).
    Raises:
        ValueError: a GPU count below 1, or no plan: nothing of pp x kvp divides any of the counts.
    """
    gpus, kvp, pp = list(gpus), list(kvp), list(pp)
    if moe is None:
        moe = architecture is None or bool(np.any(architecture.is_moe))
    rows = []
    for count in sorted(set(gpus)):
        if count < 1:
            raise ValueError(f"gpus = {count}: must be at least 1")
        for stages in (p for p in pp if count % p == 0):
            group = count // stages
            for k in (k for k in kvp if group % k == 0):
                for tp in (t for t in range(1, group // k + 1) if group // k % t == 0):
                    for ep in (e for e in range(1, group + 1) if group % e == 0 and (moe or e == 1)):
                        for spare in redundant_experts if ep > 1 else (0,):
                            rows.append((tp, group // k // tp, k, group // ep, ep, stages, spare))
    if not rows:
        raise ValueError(f"gpus = {gpus}: no plan; one must be a multiple of some pp x kvp of pp = {pp}, kvp = {kvp}")
    plans = np.array(rows, dtype=np.int64)
    sizes = np.array(sorted(set(powers_of_two(2048) if batches is None else batches)), dtype=np.int64)
    table = np.repeat(plans, len(sizes), axis=0)
    batch = np.tile(sizes, len(plans))
    fed = (batch == MAX_BATCH) | (batch >= table[:, 1] * table[:, 5])  # the `batch` rule, which needs no model
    table, batch = table[fed], batch[fed]
    tp, dp, k, ffn_tp, ep, stages = table.T[:6]
    deployment = Deployment(
        tp,
        dp,
        k,
        ffn_tp,
        ep,
        stages,
        redundant_experts=table[:, 6],
        batch=batch,
        draft_tokens=draft_tokens,
        acceptance=acceptance,
    )
    if architecture is None:
        return deployment
    mask, _ = legal(architecture.map(lambda v: np.asarray(v).reshape(-1, 1)), deployment)
    return deployment.take(np.any(mask, axis=0))
