"""One prediction, or a million: what a design costs on a GPU under a plan and a workload."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cost_model import serving
from cost_model.accelerator import Accelerator
from cost_model.evidence import EVIDENCE, error_and_evidence
from cost_model.grid import is_product
from cost_model.memory import memory
from cost_model.regime import REGIMES, regime_code
from cost_model.step import COMPONENTS, Design, Tokens, forward
from spaces.architecture import FIELDS, Architecture
from spaces.deployment import FIELDS as PLAN_FIELDS
from spaces.deployment import Deployment, check_legal, legal, unchecked
from spaces.formats import RECIPE_ATTENTION, RECIPE_FFN, kv_code, recipe_code
from spaces.workload import Workload


@dataclass(frozen=True)
class Prediction:
    """What a user feels and an operator pays; arrays broadcast over designs and plans.

    Attributes:
        ttft_s, ttft_median_s, tpot_s, e2e_s: see `serving.Steady`. With osl = 1 tpot_s is e2e_s.
        tokens_per_s_per_user: 1 / tpot_s. tokens_per_s_per_gpu: output tokens over all GPUs.
        memory_bytes_per_gpu, fits: bytes on the fullest GPU, and whether the engine may fill it so far.
        legal: the plan is legal for the model; values of illegal plans are finite but mean nothing.
        batch: sequences in flight per replica. gpus: GPUs of the deployment.
        usd_per_million_tokens: per million output tokens, None without a price.
        joules_per_token: per output token at the board's power limit, None where that is not published.
        breakdown: seconds per output token by component; sums to tpot_s.
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


def predict(
    architecture: Architecture,
    recipe: Any,
    deployment: Deployment,
    workload: Workload,
    gpu: Accelerator,
    kv_format: Any = "bf16",
    skew: Any = "power_law_1.2",
) -> Prediction:
    """Price designs under plans.

    Args:
        architecture, recipe, kv_format: the design; fields and codes broadcast. (A, 1) designs against (P,)
            plans is the fast layout.
        deployment, workload, gpu: where and how it serves. skew: popularity of experts
            (balanced, power_law_1.01, power_law_1.2).
    Returns:
        A Prediction of the broadcast shape; plain numbers and words for a single one.
    Raises:
        ValueError: a single plan that is illegal for its model, with the rule it breaks; unknown names.
    """
    recipe, kv = recipe_code(recipe), kv_code(kv_format)
    structure = np.asarray(architecture.is_moe) * 4 + architecture.is_mla * 2 + architecture.is_windowed
    structure = structure * np.ones_like(np.asarray(recipe))
    kinds = np.unique(structure)
    if len(kinds) == 1:
        result = _uniform(architecture, recipe, deployment, workload, gpu, kv, skew)
        return result if np.ndim(result.tpot_s) else _single(result, architecture, deployment)
    rows = structure.reshape(structure.shape[0], -1)[:, 0]
    if not np.all(structure.reshape(structure.shape[0], -1) == rows[:, None]):
        raise ValueError("designs of mixed structure must vary along axis 0 only")
    parts = []
    for kind in kinds:
        index = np.flatnonzero(rows == kind)
        take = _taker(index, len(rows), structure.ndim)
        plan = unchecked({name: take(getattr(deployment, name)) for name in PLAN_FIELDS})
        parts.append((index, _uniform(architecture.map(take), take(recipe), plan, workload, gpu, take(kv), skew)))
    return _scatter(parts, len(rows))


def _taker(index: Any, rows: int, ndim: int) -> Any:
    """Select rows of design-side values: arrays of full rank whose first axis runs over the designs."""

    def take(value: Any) -> Any:
        return value[index] if np.ndim(value) == ndim and np.shape(value)[0] == rows else value

    return take


def _scatter(parts: list[tuple[Any, Prediction]], rows: int) -> Prediction:
    """Put the predictions of uniform batches back into their rows."""

    def merged(get: Any) -> Any:
        values = [(index, get(part)) for index, part in parts]
        if values[0][1] is None:
            return None
        shape = np.shape(parts[0][1].tpot_s)[1:]
        out = np.empty((rows, *shape), dtype=np.result_type(*(np.asarray(v).dtype for _, v in values)))
        for index, value in values:
            out[index] = value
        return out

    names = [f.name for f in fields(Prediction) if f.name != "breakdown"]
    breakdown = {part: merged(lambda p, part=part: p.breakdown[part]) for part in COMPONENTS}
    return Prediction(**{name: merged(lambda p, name=name: getattr(p, name)) for name in names}, breakdown=breakdown)


def _single(result: Prediction, architecture: Architecture, deployment: Deployment) -> Prediction:
    """Plain numbers and words; an illegal single plan is an error."""
    check_legal(architecture, deployment)

    def plain(value: Any) -> Any:
        return value if value is None else np.asarray(value).item()

    values = {f.name: plain(getattr(result, f.name)) for f in fields(Prediction) if f.name != "breakdown"}
    values["regime"], values["evidence"] = REGIMES[values["regime"]], EVIDENCE[values["evidence"]]
    return Prediction(**values, breakdown={k: plain(v) for k, v in result.breakdown.items()})


def _uniform(
    a: Architecture, recipe: Any, plan: Deployment, workload: Workload, gpu: Accelerator, kv: Any, skew: Any
) -> Prediction:
    """Predict designs of one structure (GQA or MLA, dense or MoE, windowed or not)."""
    held = memory(a, recipe, plan, workload, gpu, kv)
    mask, _ = legal(a, plan)
    ranks = np.asarray(plan.attention_dp) * plan.pp
    batch = np.maximum(np.where(np.asarray(plan.batch) > 0, plan.batch, held.batch), ranks)
    if np.all(np.asarray(plan.batch) > 0):
        batch = np.maximum(np.asarray(plan.batch), ranks)  # stays on the plan side
    design_side = [getattr(a, name) for name in FIELDS]
    design = Design(
        a, RECIPE_ATTENTION[recipe], RECIPE_FFN[recipe], kv, gpu, skew, is_product(recipe, kv, *design_side)
    )
    yielded = serving.expected_tokens(plan.draft_tokens, plan.acceptance)
    sequences = np.ceil(batch / ranks)
    chunk = _mixed_chunk(plan, workload, gpu, sequences)
    steady, seconds = _steady_state(design, plan, workload, sequences, chunk, yielded)
    gpus = plan.replica_gpus
    rate = steady.requests_per_s * ranks * workload.osl
    scale = steady.tpot_s / sum(seconds.values())
    breakdown = {name: value * scale for name, value in seconds.items()}
    low, high, evidence = error_and_evidence(design, breakdown)
    price, power = gpu.usd_per_gpu_hour, gpu.tdp_w
    shape = np.broadcast_shapes(np.shape(steady.tpot_s), np.shape(mask), np.shape(held.total))
    full = {
        "ttft_s": steady.ttft_s,
        "ttft_median_s": steady.ttft_median_s,
        "tpot_s": steady.tpot_s,
        "e2e_s": steady.e2e_s,
        "tokens_per_s_per_user": 1.0 / steady.tpot_s,
        "tokens_per_s_per_gpu": rate / gpus,
        "memory_bytes_per_gpu": held.total,
        "fits": held.fits,
        "legal": mask,
        "batch": batch,
        "gpus": gpus,
        "usd_per_million_tokens": None if price is None else price / 3600.0 * 1e6 * gpus / rate,
        "joules_per_token": None if power is None else power * gpus / rate,
        "decode_step_s": steady.decode_s,
        "mixed_step_s": steady.mixed_s,
        "regime": regime_code(design, plan, breakdown, sequences, steady.mixed_share),
        "evidence": evidence,
        "error_low": low,
        "error_high": high,
    }
    full = {name: value if value is None else np.broadcast_to(value, shape) for name, value in full.items()}
    return Prediction(**full, breakdown={k: np.broadcast_to(v, shape) for k, v in breakdown.items()})


def _mixed_chunk(plan: Deployment, workload: Workload, gpu: Accelerator, sequences: Any) -> Any:
    """Prompt tokens of one mixed pass on one rank: a whole prompt, or as many as arrive per pass, up to the chunk."""
    most = np.where(np.asarray(plan.prefill_chunk) > 0, plan.prefill_chunk, gpu.engine.prefill_chunk)
    arriving = sequences * workload.isl / workload.osl
    if workload.load == "static":
        arriving = sequences * workload.isl
    return np.minimum(np.maximum(workload.isl, arriving), most)


def _steady_state(
    design: Design, plan: Deployment, workload: Workload, sequences: Any, chunk: Any, yielded: Any
) -> tuple[serving.Steady, dict[str, Any]]:
    """The steady state and the mean pass by component (not yet per token)."""
    static = workload.load == "static"
    queries = np.asarray(plan.draft_tokens) + 1
    context = np.asarray(workload.cached) + workload.isl + 0.5 * np.asarray(workload.osl)
    prompts = np.maximum(chunk / workload.isl, 1.0)
    past = np.asarray(workload.cached) + 0.5 * np.maximum(workload.isl - chunk, 0)  # the middle chunk's
    decode = Tokens(sequences, queries, context)
    mixed = Tokens(np.zeros_like(sequences) if static else sequences, queries, context, chunk, prompts, past)
    decode_parts, mixed_parts = forward(design, plan, [decode, mixed])
    decode_s, mixed_s = sum(decode_parts.values()), sum(mixed_parts.values())
    # each draft token costs one layer's share of the pass and its head (MTP module, DeepSeek-V3 section 2.2)
    draft = np.asarray(plan.draft_tokens) * (decode_s / np.asarray(design.architecture.layers))
    decode_parts["overhead"] = decode_parts["overhead"] + draft
    decode_s, mixed_s = decode_s + draft, mixed_s + draft
    if static:
        steady = serving.static(decode_s, mixed_s, sequences, workload.isl, workload.osl, chunk, yielded)
        return steady, decode_parts
    queue = workload.load == "closed-loop"
    steady = serving.continuous(
        decode_s, mixed_s, sequences, workload.isl, workload.osl, chunk, np.asarray(plan.pp), yielded, queue
    )
    share = steady.mixed_share
    return steady, {name: decode_parts[name] + share * (mixed_parts[name] - decode_parts[name]) for name in COMPONENTS}
