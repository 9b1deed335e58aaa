"""One prediction, or a million: what a design costs on a GPU under a plan and a workload."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.design import Design
from cost_model.evidence import EVIDENCE, error_and_evidence
from cost_model.grid import gathered, is_product
from cost_model.kernels.routing import skew_code
from cost_model.memory import SHARDING, memory
from cost_model.regime import REGIMES, regime_code
from cost_model.steady import steady_state
from cost_model.step import Seconds
from spaces.architecture import FIELDS, Architecture
from spaces.deployment import FIELDS as PLAN_FIELDS
from spaces.deployment import Deployment, check_legal, fed, legal_mask, unchecked
from spaces.formats import RECIPE_ATTENTION, RECIPE_FFN, kv_code, recipe_code
from spaces.workload import Workload

BLOCK = 200_000  # points


@dataclass(frozen=True)
class Prediction:
    """What a user feels and an operator pays; arrays broadcast over designs and plans.

    Attributes:
        ttft_s, ttft_median_s, tpot_s, e2e_s: see `serving.Steady`. With osl = 1 tpot_s is e2e_s.
        tokens_per_s_per_user: 1 / tpot_s. tokens_per_s_per_gpu: output tokens over all GPUs.
        memory_bytes_per_gpu, fits: bytes on the fullest GPU, and whether the engine may fill it so far.
        legal: the plan is legal for the model; values of illegal plans are finite but mean nothing.
        batch: sequences in flight per replica. users: in flight on the whole deployment, of `gpus` GPUs.
        usd_per_million_tokens: per million output tokens, None without a price.
        joules_per_token: per output token at the board's power limit, None where that is not published.
        breakdown: seconds per output token by component; sums to tpot_s. bounds.py splits it by bound.
        input_tokens: prompt tokens to prefill per output token.
        decode_step_s, mixed_step_s: seconds of a pass without and with prompt tokens.
        regime: what bounds the mean pass, in plain words (codes of REGIMES for arrays).
        evidence: measured, interpolated or extrapolated (codes of EVIDENCE for arrays).
        error_low, error_high: factors on tpot_s that hold 80 % of measurements.
    """

    ttft_s: Any
    ttft_median_s: Any
    tpot_s: Any
    e2e_s: Any
    tokens_per_s_per_user: Any
    tokens_per_s_per_gpu: Any
    memory_bytes_per_gpu: Any
    fits: Any
    legal: Any
    batch: Any
    users: Any
    gpus: Any
    usd_per_million_tokens: Any
    joules_per_token: Any
    decode_step_s: Any
    mixed_step_s: Any
    breakdown: dict[str, Any]
    regime: Any
    evidence: Any
    error_low: Any
    error_high: Any
    input_tokens: Any

    @property
    def usd_per_million_input_tokens(self) -> Any:
        """The whole cost spread over prompt tokens alone; None without a price (accelerator.price_source)."""
        return None if self.usd_per_million_tokens is None else self.usd_per_million_tokens / self.input_tokens

    @property
    def usd_per_million_total_tokens(self) -> Any:
        """The whole cost spread over prompt and output tokens; None without a price."""
        return None if self.usd_per_million_tokens is None else self.usd_per_million_tokens / (1.0 + self.input_tokens)

    @property
    def tokens_per_s_per_mw(self) -> Any:
        """Output tokens per second and megawatt of GPU boards; None where the power is not published."""
        return None if self.joules_per_token is None else 1e6 / self.joules_per_token

    def gpus_for_users(self, users: Any) -> Any:
        """GPUs, in whole deployments of this plan, that serve so many users at once at this interactivity."""
        return np.ceil(np.asarray(users) / self.users) * self.gpus

    @property
    def amdahl(self) -> dict[str, Any]:
        """How many times faster a token could at most be if one component were free: 1 / (1 - its share)."""
        return amdahl(self.breakdown)

    def as_columns(self) -> dict[str, Any]:
        """Flat arrays of every field, broadcast to one shape; codes become words, breakdown one column each."""
        shape = np.shape(self.tpot_s)
        columns = {}
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if name == "breakdown":
                for part, seconds in value.items():
                    columns[f"{part}_s"] = np.broadcast_to(seconds, shape).ravel()
            elif value is None:
                columns[name] = np.full(np.prod(shape, dtype=int), None)
            else:
                words = {"regime": REGIMES, "evidence": EVIDENCE}.get(name)
                flat = np.broadcast_to(np.asarray(value), shape).ravel()
                columns[name] = np.array(words)[flat] if words and flat.dtype.kind in "iu" else flat
        return columns


def amdahl(breakdown: dict[str, Any]) -> dict[str, Any]:
    """Largest speed-up from making one part free, for every part: 1 / (1 - share) (Amdahl 1967)."""
    total = sum(breakdown.values())
    return {name: total / np.maximum(total - seconds, 1e-12 * total) for name, seconds in breakdown.items()}


def predict(
    architecture: Architecture,
    recipe: Any,
    deployment: Deployment,
    workload: Workload,
    gpu: Accelerator,
    kv_format: Any = "bf16",
    skew: Any = "power_law_1.2",
    explain: bool = True,
) -> Prediction:
    """Price designs under plans.

    Args:
        architecture, recipe, kv_format: the design; fields and codes broadcast. (A, 1) designs against (P,)
            plans is the fast layout.
        deployment, workload, gpu: where and how it serves. skew: popularity of experts
            (balanced, power_law_1.01, power_law_1.2).
        explain: False leaves out what a search never asks for: breakdown is empty, and regime, evidence and error
            bounds are None.
    Returns:
        A Prediction of the broadcast shape; plain numbers and words for a single one.
    Raises:
        ValueError: a single plan that is illegal for its model, with the rule it breaks; unknown names.
    """
    recipe, kv, skew = recipe_code(recipe), kv_code(kv_format), skew_code(skew)
    structure = np.asarray(architecture.is_mla) * 4 + architecture.is_windowed * 2 + architecture.is_moe
    structure = structure * np.ones_like(np.asarray(recipe))
    product = is_product(recipe, kv, *(getattr(architecture, name) for name in FIELDS))
    blocks = _blocks(structure, np.size(deployment.batch) if product else 0)
    if len(blocks) == 1:
        result = _uniform(architecture, recipe, deployment, workload, gpu, kv, skew, product, explain)
        shape = np.broadcast_shapes(*(np.shape(v) for v in (result.tpot_s, result.legal, result.fits)))
        return _broadcast(result, shape) if shape else _single(result, architecture, deployment)
    parts = []
    for index in blocks:
        take = _taker(index, len(structure), structure.ndim)
        plan = unchecked({name: take(getattr(deployment, name)) for name in PLAN_FIELDS})
        work = replace(workload, isl=take(workload.isl), osl=take(workload.osl), cached=take(workload.cached))
        part = _uniform(architecture.map(take), take(recipe), plan, work, gpu, take(kv), take(skew), product, explain)
        parts.append((index, part))
    return _scatter(parts, len(structure))


def _blocks(structure: Any, plans: int) -> list[Any]:
    """Rows of designs that are priced together: of one structure, dense and MoE mixing where that makes one block.

    Args:
        plans: that each design meets in the product layout, else 0. There, blocks of more than BLOCK points are cut:
            their arrays would no longer fit the processor's cache.
    """
    kinds = np.unique(structure)
    most = max(BLOCK // plans, 1) if plans else 0
    if len(kinds) == 1 and not 0 < most < np.size(structure):
        return [slice(None)]
    table = structure.reshape(len(structure), -1)
    rows = table[:, 0]
    if not np.all(table == rows[:, None]):
        raise ValueError("designs of mixed structure must vary along axis 0 only")
    blocks = []
    for attention in np.unique(kinds // 2):
        index = np.flatnonzero(rows // 2 == attention)
        whole = 0 < len(index) <= most
        for one in [index] if whole else [index[rows[index] % 2 == moe] for moe in (0, 1)]:
            blocks += np.array_split(one, -(-len(one) // most) if most else 1) if len(one) else []
    return blocks


def _taker(index: Any, rows: int, ndim: int) -> Any:
    """Select rows of design-side values: arrays of full rank whose first axis runs over the designs."""

    def take(value: Any) -> Any:
        return value[index] if np.ndim(value) == ndim and np.shape(value)[0] == rows else value

    return take


def _scatter(parts: list[tuple[Any, Prediction]], rows: int) -> Prediction:
    """Put the predictions of uniform batches back into their rows."""

    shapes = [np.shape(v)[1:] for _, part in parts for v in (part.tpot_s, part.legal, part.fits)]
    shape = np.broadcast_shapes(*shapes)

    def merged(get: Any) -> Any:
        values = [(index, get(part)) for index, part in parts]
        if values[0][1] is None:
            return None
        if all(np.ndim(value) < len(shape) + 1 for _, value in values):  # the plans' alone
            return np.broadcast_to(values[0][1], (rows, *shape))
        out = np.empty((rows, *shape), dtype=np.result_type(*(np.asarray(v).dtype for _, v in values)))
        for index, value in values:
            out[index] = value
        return out

    names = [f.name for f in fields(Prediction) if f.name != "breakdown"]
    breakdown = {part: merged(lambda p, part=part: p.breakdown[part]) for part in parts[0][1].breakdown}
    return Prediction(**{name: merged(lambda p, name=name: getattr(p, name)) for name in names}, breakdown=breakdown)


def _broadcast(result: Prediction, shape: tuple[int, ...]) -> Prediction:
    def full(value: Any) -> Any:
        return value if value is None else np.broadcast_to(value, shape)

    values = {f.name: full(getattr(result, f.name)) for f in fields(Prediction) if f.name != "breakdown"}
    return Prediction(**values, breakdown={name: full(value) for name, value in result.breakdown.items()})


def _single(result: Prediction, architecture: Architecture, deployment: Deployment) -> Prediction:
    """Plain numbers and words; an illegal single plan is an error."""
    check_legal(architecture, deployment)

    def plain(value: Any) -> Any:
        return value if value is None else np.asarray(value).item()

    values = {f.name: plain(getattr(result, f.name)) for f in fields(Prediction) if f.name != "breakdown"}
    if result.breakdown:
        values["regime"], values["evidence"] = REGIMES[values["regime"]], EVIDENCE[values["evidence"]]
    return Prediction(**values, breakdown={k: plain(v) for k, v in result.breakdown.items()})


def _uniform(
    a: Architecture,
    recipe: Any,
    plan: Deployment,
    workload: Workload,
    gpu: Accelerator,
    kv: Any,
    skew: Any,
    product: bool,
    explain: bool,
) -> Prediction:
    """Predict designs of one structure (GQA or MLA, windowed or not; outside the product layout dense or MoE)."""
    held = memory(a, recipe, plan, workload, gpu, kv, product)
    ranks = np.asarray(plan.attention_dp) * plan.pp
    batch = np.maximum(held.batch, ranks)  # a plan-side array unless memory sets it
    design = Design(a, RECIPE_ATTENTION[recipe], RECIPE_FFN[recipe], kv, gpu, skew, product)
    sequences = np.ceil(batch / ranks)
    steady, split_up = steady_state(design, plan, workload, sequences)
    split = np.asarray(plan.disaggregated)
    replicas = np.where(split, plan.decode_replicas, 1)
    gpus = plan.replica_gpus * replicas + np.where(split, plan.prefill_gpus * np.asarray(plan.prefill_replicas), 0)
    rate = steady.requests_per_s * (ranks * replicas * workload.osl / gpus)  # output tokens per second and GPU
    breakdown: Seconds = {}
    low = high = evidence = regime = None
    if explain:
        breakdown = split_up()
        low, high, evidence = error_and_evidence(design, breakdown, steady.tpot_s)
        regime = regime_code(design, plan, breakdown, sequences, steady.mixed_share)
    price, power = gpu.usd_per_gpu_hour, gpu.tdp_w
    return Prediction(
        ttft_s=steady.ttft_s,
        ttft_median_s=steady.ttft_median_s,
        tpot_s=steady.tpot_s,
        e2e_s=steady.e2e_s,
        tokens_per_s_per_user=1.0 / steady.tpot_s,
        tokens_per_s_per_gpu=rate,
        memory_bytes_per_gpu=held.total,
        fits=held.fits,
        legal=_legal(a, plan, product),
        batch=batch,
        users=batch * replicas,
        gpus=gpus,
        usd_per_million_tokens=None if price is None else price / 3600.0 * 1e6 / rate,
        joules_per_token=None if power is None else power / rate,
        decode_step_s=steady.decode_s,
        mixed_step_s=steady.mixed_s,
        breakdown=breakdown,
        regime=regime,
        evidence=evidence,
        error_low=low,
        error_high=high,
        input_tokens=np.asarray(workload.isl) / workload.osl,
    )


def _legal(a: Architecture, plan: Deployment, product: bool) -> Any:
    """Mask of legal plans; every rule but the batch's looks at the sharding alone."""

    def sharded(*values: Any) -> tuple[Any]:
        names = dict(zip(SHARDING, (np.asarray(v).astype(np.int64) for v in values), strict=False))
        return (legal_mask(a, unchecked({**{name: 0 for name in PLAN_FIELDS}, **names})),)

    ((mask,),) = gathered(sharded, product, tuple(getattr(plan, name) for name in SHARDING[:-1]))
    return mask & fed(plan)
