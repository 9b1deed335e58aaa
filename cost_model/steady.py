"""Which passes a deployment runs, and the steady state that follows: aggregated, static or disaggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial, reduce
from typing import Any

import numpy as np

from cost_model import kernels, serving
from cost_model.design import Design
from cost_model.engine import Engine
from cost_model.memory import kv_bytes_per_sequence_gpu, prefill_chunk
from cost_model.step import COMPONENTS, Forward, Seconds, Tokens, forward
from spaces.deployment import Deployment
from spaces.workload import Workload

Breakdown = Callable[[], Seconds]


def steady_state(
    design: Design, plan: Deployment, workload: Workload, sequences: Any, forward: Forward = forward
) -> tuple[serving.Steady, Breakdown]:
    """The steady state with `sequences` users per attention-DP rank and micro-batch; how tpot_s splits up, if asked.

    Components take the shares of tpot_s that they have of the mean pass.
    `forward` prices passes; a fit hands in one that remembers their kernel seconds.
    """
    split = np.asarray(plan.disaggregated)
    if not np.any(split):
        return _aggregated(design, plan, workload, sequences, forward)
    if np.all(split):
        return _disaggregated(design, plan, workload, sequences, forward)
    apart, apart_parts = _disaggregated(design, plan, workload, sequences, forward)
    together, together_parts = _aggregated(design, plan, workload, sequences, forward)
    merged = (np.where(split, getattr(apart, f.name), getattr(together, f.name)) for f in fields(serving.Steady))

    def breakdown() -> Seconds:
        one, other = apart_parts(), together_parts()
        return {name: np.where(split, one[name], other[name]) for name in COMPONENTS}

    return serving.Steady(*merged), breakdown


def _aggregated(
    design: Design, plan: Deployment, workload: Workload, sequences: Any, forward: Forward
) -> tuple[serving.Steady, Breakdown]:
    engine, static = design.gpu.engine, workload.load == "static"
    isl, osl = workload.isl, workload.osl
    chunk = _mixed_chunk(plan, workload, design, sequences)
    apart = static or not engine.mixed_steps  # prompts run in passes of their own
    decode, prompt = _decode(plan, workload, sequences), _prompt(plan, workload, 0 if apart else sequences, chunk)
    parts, more = forward(design, plan, [decode, prompt])
    parts = _drafted(design, plan, parts)
    decode_s, more_s, slower = _total(parts), _total(more), _prefill_factor(design)
    if static:
        state = serving.static(decode_s, slower * more_s, sequences, isl, osl, chunk, _yielded(plan))
        return state, partial(_scaled, parts, state.tpot_s / decode_s)
    if apart:
        more, more_s = {name: parts[name] + more[name] for name in COMPONENTS}, decode_s + more_s
    mixed_s = decode_s + slower * np.maximum(more_s - decode_s, 0.0)
    state = serving.continuous(
        decode_s,
        mixed_s,
        sequences,
        isl,
        osl,
        chunk,
        np.asarray(plan.pp),
        _yielded(plan),
        engine.first_token_s,
        engine.queue_factor if workload.load == "closed-loop" else 0.0,
        _held_back(plan, workload, engine, sequences),
    )

    def breakdown() -> Seconds:
        """Of a mean pass of parts + share x (more - parts)."""
        share = slower * state.mixed_share
        scale = state.tpot_s / (decode_s + share * (more_s - decode_s))
        mixed = share * scale
        pure = scale - mixed
        return {name: pure * parts[name] + mixed * more[name] for name in COMPONENTS}

    return state, breakdown


def _disaggregated(
    design: Design, plan: Deployment, workload: Workload, sequences: Any, forward: Forward
) -> tuple[serving.Steady, Breakdown]:
    engine, few = design.gpu.engine, np.maximum(np.ceil(sequences / 4.0), 1.0)
    low, high = forward(design, plan, [_decode(plan, workload, few), _decode(plan, workload, sequences)])
    low, high = _drafted(design, plan, low), _drafted(design, plan, high)
    pool = prefill_pool(design, plan, workload, forward)
    high_s = _total(high)
    state = serving.disaggregated(
        (few, _total(low)),
        (sequences, high_s),
        pool,
        workload.osl,
        _yielded(plan),
        engine.queue_factor if workload.load == "closed-loop" else 0.0,
    )
    return state, partial(_scaled, high, state.tpot_s / high_s)


def prefill_pool(
    design: Design, plan: Deployment, workload: Workload, forward: Forward = forward
) -> serving.PrefillPool:
    """Latency of one prompt and rate of full batches of prompts on the prefill replicas, and the KV transfer."""
    own = {
        name: np.maximum(getattr(plan, f"prefill_{name}"), 1)
        for name in ("attention_tp", "attention_dp", "ffn_tp", "ep", "pp")
    }
    pool = plan.having(**own, kvp=1, redundant_experts=0)
    engine, most = design.gpu.engine, prefill_chunk(plan, design.gpu)
    one = np.minimum(workload.isl, most)
    asked = np.asarray(plan.prefill_batch)
    full = np.where(asked > 0, np.minimum(np.maximum(asked * workload.isl, one), most), most)
    passes = [_prompt(pool, workload, 0, chunk) for chunk in (one, full)]
    waits = np.where(own["attention_dp"] > 1, engine.pool_wait_factor, 1.0)
    slower = _prefill_factor(design) * engine.pool_factor * waits
    alone_s, full_s = (slower * _total(p) for p in forward(design, pool, passes))
    pp = own["pp"]
    count = workload.isl / one
    first = alone_s * (count + pp - 1.0) / pp + _transfer_s(design, plan, pool, workload)
    ranks = np.asarray(plan.attention_dp) * plan.pp * plan.decode_replicas
    rate = np.maximum(full / full_s, one / alone_s) * pp / workload.isl * own["attention_dp"] * plan.prefill_replicas
    return serving.PrefillPool(engine.first_token_s + engine.handover_s + first, rate / ranks)


def _transfer_s(design: Design, plan: Deployment, pool: Deployment, workload: Workload) -> Any:
    """Seconds to hand one prompt's KV to the decode pool, each prefill rank sending its shard (MLA: the latent)."""
    gpu = design.gpu
    context = np.asarray(workload.isl) + workload.cached
    size = kv_bytes_per_sequence_gpu(design.architecture, design.kv_format, pool, context, gpu)
    gpus = np.asarray(plan.replica_gpus) * plan.decode_replicas + np.asarray(plan.prefill_gpus) * plan.prefill_replicas
    return kernels.send(gpu, size, across_domains=gpus > kernels.collectives.domain_gpus(gpu))


def _decode(plan: Deployment, workload: Workload, sequences: Any) -> Tokens:
    """Sequences half way through their answer; the slowest attention-DP rank holds the longest contexts."""
    context = np.asarray(workload.cached) + workload.isl + 0.5 * np.asarray(workload.osl)
    dp = np.asarray(plan.attention_dp)
    if np.any(dp > 1):
        # positions in the answer are uniform; the largest of dp means of s of them, near-Gaussian
        spread = np.asarray(workload.osl) * np.sqrt(np.log(dp) / (6.0 * np.maximum(sequences, 1.0)))
        context = np.ceil(np.minimum(context + spread, context + 0.5 * np.asarray(workload.osl)))
    return Tokens(sequences, np.asarray(plan.draft_tokens) + 1, context)


def _prompt(plan: Deployment, workload: Workload, sequences: Any, chunk: Any) -> Tokens:
    """A pass with `chunk` prompt tokens, the middle one of its prompt, beside decoding sequences."""
    past = np.asarray(workload.cached) + 0.5 * np.maximum(workload.isl - chunk, 0)
    decode = _decode(plan, workload, np.maximum(sequences, 1))
    prompts = np.maximum(chunk / np.asarray(workload.isl), 1.0)
    return Tokens(sequences, decode.queries, decode.context, chunk, prompts, past)


def _mixed_chunk(plan: Deployment, workload: Workload, design: Design, sequences: Any) -> Any:
    """Prompt tokens of one mixed pass on one rank: a whole prompt, or as many as start together, up to the chunk."""
    engine = design.gpu.engine
    together = max(engine.poll_steps, engine.batch_wait_steps, 1.0)  # passes whose arrivals do
    arriving = sequences * workload.isl * (1.0 if workload.load == "static" else together / np.asarray(workload.osl))
    return np.minimum(np.maximum(workload.isl, arriving), prefill_chunk(plan, design.gpu))


def _held_back(plan: Deployment, workload: Workload, engine: Engine, sequences: Any) -> Any:
    """Passes that a prompt waits before the engine lets it start.

    Half the way to the next look for prompts; and of the first prompt and those that join it, which wait for one
    another until it has waited T passes, the mean: T (1 + r T / 2) / (1 + r T) at r arrivals a pass.
    """
    most = engine.batch_wait_steps
    joined = sequences / np.asarray(workload.osl) * most
    waiting = most * (1.0 + 0.5 * joined) / (1.0 + joined)
    balanced = np.where(np.asarray(plan.attention_dp) > 1, engine.admission_steps, 0.0)
    return 0.5 * max(engine.poll_steps - 1.0, 0.0) + waiting + balanced


def _drafted(design: Design, plan: Deployment, parts: Seconds) -> Seconds:
    """Each draft token costs one layer's share of the pass and its head (MTP module, DeepSeek-V3 section 2.2)."""
    if not np.any(plan.draft_tokens):
        return parts
    draft = np.asarray(plan.draft_tokens) / np.asarray(design.architecture.layers)
    return {name: value * (1.0 + draft) for name, value in parts.items()}


def _prefill_factor(design: Design) -> Any:
    engine = design.gpu.engine
    return engine.prefill_factor * np.where(design.architecture.is_moe, engine.moe_prefill_factor, 1.0)


def _yielded(plan: Deployment) -> Any:
    return serving.expected_tokens(plan.draft_tokens, plan.acceptance)


def _scaled(parts: Seconds, factor: Any) -> Seconds:
    return {name: value * factor for name, value in parts.items()}


def _total(parts: Seconds) -> Any:
    return reduce(np.add, parts.values())
