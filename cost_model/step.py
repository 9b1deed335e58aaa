"""Seconds of one forward pass, as a sum over the operations of every layer.

A pass runs one micro-batch through all pipeline stages. It may carry decoding sequences, prompt tokens
(a prefill chunk), or both: the linears see their sum, the attention cores see each apart.

    pass = layers x (attention linears + attention core + FFN or experts + communication) + LM head + overhead
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_model import kernels
from cost_model.accelerator import Accelerator
from cost_model.grid import gathered
from spaces.architecture import Architecture
from spaces.deployment import Deployment

COMPONENTS = ("attention_linear", "attention_core", "ffn", "communication", "head", "overhead")
BF16 = 0  # code of bf16 in FORMATS


@dataclass(frozen=True)
class Design:
    """The design side of a pass: a structurally uniform batch, its formats, and the GPU and engine it runs on."""

    architecture: Architecture
    attention_format: Any
    ffn_format: Any
    kv_format: Any
    gpu: Accelerator
    skew: Any
    product: bool  # (A, 1) designs against (P,) plans: kernels are evaluated on unique keys


@dataclass(frozen=True)
class Tokens:
    """What one pass carries on each attention-DP rank.

    Attributes:
        sequences: decoding sequences, each with `queries` tokens (1 + drafts) against `context` cached tokens.
        prompt_tokens: prompt tokens in this pass, of `prompts` prompts, each after `past` cached tokens.
    """

    sequences: Any
    queries: Any = 1
    context: Any = 1
    prompt_tokens: Any = 0
    prompts: Any = 1
    past: Any = 0

    @property
    def total(self) -> Any:
        return np.asarray(self.sequences) * self.queries + self.prompt_tokens

    @property
    def decoded(self) -> Any:
        return np.asarray(self.sequences) * self.queries


Seconds = dict[str, Any]  # by component


def forward(design: Design, plan: Deployment, passes: list[Tokens]) -> list[Seconds]:
    """Seconds of each pass by component (COMPONENTS), broadcast over designs and plans.

    Under pipeline parallelism a pass is one trip through all stages, each as slow as the slowest stage.
    """
    a, engine = design.architecture, design.gpu.engine
    layers = -(-np.asarray(a.layers) // plan.pp) * np.asarray(plan.pp)
    linear = attention_linears(design, plan, passes)
    core = attention_cores(design, plan, passes)
    ffn = feed_forward(design, plan, passes)
    wire = communication(design, plan, passes)
    head = lm_head(design, plan, passes)
    small = small_operations(design, plan, passes)
    results = []
    for i, tokens in enumerate(passes):
        rows = np.asarray(tokens.sequences) + np.where(np.asarray(tokens.prompt_tokens) > 0, tokens.prompts, 0)
        overhead = engine.step_overhead_s + engine.sequence_overhead_s * rows * plan.attention_dp
        overhead = overhead + np.where(np.asarray(tokens.prompt_tokens) > 0, engine.prefill_overhead_s, 0.0)
        results.append(
            {
                "attention_linear": layers * linear[i],
                "attention_core": layers * core[i],
                "ffn": ffn[i] * (layers / np.asarray(a.layers)),
                "communication": layers * wire[i],
                # the last stage's LM head holds up every stage of the pipeline
                "head": head[i] * plan.pp,
                "overhead": layers * (small[i] + engine.layer_overhead_s) + overhead,
            }
        )
    return results


def attention_linears(design: Design, plan: Deployment, passes: list[Tokens]) -> list[Any]:
    """QKV and output projections of one layer; for MLA also the latent projections, absorbed when decoding."""
    a, gpu, code = design.architecture, design.gpu, design.attention_format
    hidden = np.asarray(a.hidden)

    def gqa(tp: Any, kvp: Any, m: Any) -> Any:
        kv_heads = np.maximum(np.ceil(np.asarray(a.kv_heads) / tp), 1)
        qkv = kernels.gemm(gpu, m, (np.asarray(a.heads) / tp + 2 * kv_heads) * a.head_dim, hidden, code)
        return qkv + kernels.gemm(gpu, m, hidden, np.asarray(a.heads) * a.head_dim / (tp * kvp), code)

    def mla(tp: Any, kvp: Any, m: Any) -> Any:
        rank = np.where(np.asarray(a.q_lora_rank) > 0, a.q_lora_rank, hidden)
        down = np.asarray(a.q_lora_rank) + a.kv_lora_rank + a.qk_rope_head_dim
        seconds = kernels.gemm(gpu, m, down, hidden, code)
        seconds = seconds + kernels.gemm(gpu, m, np.asarray(a.heads) * a.query_dim / tp, rank, code)
        return seconds + kernels.gemm(gpu, m, hidden, np.asarray(a.heads) * a.v_head_dim / (tp * kvp), code)

    def absorbed(tp: Any, m: Any) -> Any:
        heads = np.asarray(a.heads) / tp
        into = kernels.batched_gemm(gpu, heads, m, a.kv_lora_rank, a.qk_nope_head_dim, BF16)
        return into + kernels.batched_gemm(gpu, heads, m, a.v_head_dim, a.kv_lora_rank, BF16)

    def expanded(tp: Any, m: Any) -> Any:
        width = np.asarray(a.heads) * (np.asarray(a.qk_nope_head_dim) + a.v_head_dim) / tp
        return kernels.gemm(gpu, m, width, a.kv_lora_rank, code)

    if not np.any(a.is_mla):
        return gathered(gqa, design.product, *[(plan.attention_tp, plan.kvp, p.total) for p in passes])
    seconds = gathered(mla, design.product, *[(plan.attention_tp, plan.kvp, p.total) for p in passes])
    for function, part in ((absorbed, "decoded"), (expanded, "prompt_tokens")):
        extra = _where_any(design, function, plan.attention_tp, [getattr(p, part) for p in passes])
        seconds = [s + e for s, e in zip(seconds, extra, strict=True)]
    return seconds


def _where_any(design: Design, function: Callable[..., Any], tp: Any, tokens: list[Any]) -> list[Any]:
    """function(tp, tokens) of each pass, 0 where a pass carries no such tokens."""
    some = [i for i, t in enumerate(tokens) if np.any(np.asarray(t) > 0)]
    parts = gathered(function, design.product, *[(tp, np.maximum(tokens[i], 1)) for i in some]) if some else []
    results: list[Any] = [0.0] * len(tokens)
    for i, part in zip(some, parts, strict=True):
        results[i] = np.where(np.asarray(tokens[i]) > 0, part, 0.0)
    return results


def attention_cores(design: Design, plan: Deployment, passes: list[Tokens]) -> list[Any]:
    """Attention core of one layer, averaged over windowed and full layers."""
    windowed = design.architecture.windowed_layers / np.asarray(design.architecture.layers)
    full = _cores(design, plan, passes, 0) if np.any(windowed < 1) else [0.0] * len(passes)
    if not np.any(windowed > 0):
        return full
    cut = _cores(design, plan, passes, design.architecture.window)
    return [(1 - windowed) * f + windowed * c for f, c in zip(full, cut, strict=True)]


def _cores(design: Design, plan: Deployment, passes: list[Tokens], window: Any) -> list[Any]:
    a, gpu, kv = design.architecture, design.gpu, design.kv_format
    mla = bool(np.any(a.is_mla))
    dims = (a.kv_lora_rank, a.qk_rope_head_dim, a.qk_nope_head_dim, a.v_head_dim)

    def decode(tp: Any, kvp: Any, batch: Any, queries: Any, context: Any) -> Any:
        heads, local = np.asarray(a.heads) / tp, np.ceil(context / kvp)
        if mla:
            return kernels.mla_decode(gpu, batch, local, heads, *dims, kv_format=kv, queries=queries)
        kv_heads = np.maximum(np.ceil(np.asarray(a.kv_heads) / tp), 1)
        return kernels.attention_decode(
            gpu, batch, local, heads, kv_heads, a.head_dim, kv_format=kv, window=window, queries=queries
        )

    def prefill(tp: Any, prompts: Any, tokens: Any, past: Any) -> Any:
        heads = np.asarray(a.heads) / tp
        if mla:
            return kernels.mla_prefill(gpu, prompts, tokens, heads, *dims, kv_format=kv, past=past)
        kv_heads = np.maximum(np.ceil(np.asarray(a.kv_heads) / tp), 1)
        return kernels.attention_prefill(
            gpu, prompts, tokens, heads, kv_heads, a.head_dim, kv_format=kv, window=window, past=past
        )

    results: list[Any] = [0.0] * len(passes)
    decoding = [i for i, p in enumerate(passes) if np.any(np.asarray(p.sequences) > 0)]
    if decoding:
        keys = [(plan.attention_tp, plan.kvp, p.sequences, p.queries, p.context) for p in (passes[i] for i in decoding)]
        for i, seconds in zip(decoding, gathered(decode, design.product, *keys), strict=True):
            results[i] = np.where(np.asarray(passes[i].sequences) > 0, seconds, 0.0)
    prefilling = [i for i, p in enumerate(passes) if np.any(np.asarray(p.prompt_tokens) > 0)]
    if prefilling:
        keys = [
            (
                plan.attention_tp * np.asarray(plan.kvp),
                p.prompts,
                np.maximum(p.prompt_tokens / np.asarray(p.prompts), 1),
                p.past,
            )
            for p in (passes[i] for i in prefilling)
        ]
        for i, seconds in zip(prefilling, gathered(prefill, design.product, *keys), strict=True):
            results[i] = results[i] + np.where(np.asarray(passes[i].prompt_tokens) > 0, seconds, 0.0)
    return results


def feed_forward(design: Design, plan: Deployment, passes: list[Tokens]) -> list[Any]:
    """FFN of all layers: dense layers, routed experts, shared experts and the router."""
    a, gpu, code = design.architecture, design.gpu, design.ffn_format

    def dense(width: Any) -> Callable[..., Any]:
        def seconds(shard: Any, m: Any) -> Any:
            up = kernels.gemm(gpu, m, (np.asarray(a.ffn_matrices) - 1) * width / shard, a.hidden, code)
            return up + kernels.gemm(gpu, m, a.hidden, width / shard, code)

        return seconds

    if not np.any(a.is_moe):
        # with attention DP the FFN group gathers the tokens of all its ranks
        keys = [(plan.ffn_tp, p.total * plan.attention_dp) for p in passes]
        return [np.asarray(a.layers) * s for s in gathered(dense(np.asarray(a.ffn)), design.product, *keys)]

    def routed(tp: Any, ep: Any, spare: Any, tokens: Any) -> Any:
        return kernels.experts(
            gpu,
            tokens,
            a.hidden,
            a.expert_ffn,
            np.asarray(a.experts) + spare,
            a.top_k,
            code,
            tp=tp,
            ep=ep,
            gated=np.asarray(a.ffn_matrices) == 3,
            skew=design.skew,
        )

    def router(m: Any) -> Any:
        return kernels.gemm(gpu, m, a.experts, a.hidden, BF16)

    moe, layers = a.moe_layers, np.asarray(a.layers)
    keys = [(plan.ffn_tp, plan.ep, plan.redundant_experts, p.total * plan.attention_dp) for p in passes]
    seconds = gathered(routed, design.product, *keys)
    seconds = [
        moe * (s + r)
        for s, r in zip(seconds, gathered(router, design.product, *[(p.total,) for p in passes]), strict=True)
    ]
    group = np.asarray(plan.attention_tp) * plan.kvp
    for width, count in ((a.shared_width, moe), (np.asarray(a.ffn), layers - moe)):
        if np.any((width > 0) & (count > 0)):
            parts = gathered(dense(np.maximum(width, 1)), design.product, *[(group, p.total) for p in passes])
            seconds = [s + np.where(width > 0, count, 0) * part for s, part in zip(seconds, parts, strict=True)]
    return seconds


def communication(design: Design, plan: Deployment, passes: list[Tokens]) -> list[Any]:
    """Collectives of one layer, and the sends between pipeline stages spread over the layers.

    TP: one all-reduce after attention and one after the FFN. Attention DP: tokens are gathered and scattered
    around a TP FFN, or dispatched and combined around experts, whichever is faster. KVP: partial attention
    outputs change hands between the KV-parallel ranks (Helix, arXiv 2507.07120).
    """
    a, gpu = design.architecture, design.gpu
    launch = gpu.engine.all_reduce_launch
    width = 2.0 * np.asarray(a.hidden)  # bf16 bytes of one token of the residual stream
    group = np.asarray(plan.attention_tp) * plan.kvp
    moe = bool(np.any(a.is_moe))

    def attention(ranks: Any, m: Any) -> Any:
        return np.where(ranks > 1, kernels.all_reduce(gpu, m * width, np.maximum(ranks, 2), launch=launch), 0.0)

    def helix(tp: Any, kvp: Any, m: Any) -> Any:
        # MLA ranks exchange the latent of every head, GQA ranks the head outputs
        dim = np.where(a.is_mla, a.kv_lora_rank, a.head_dim)
        partial = m * 2.0 * np.asarray(a.heads) * dim / tp
        return np.where(kvp > 1, kernels.reduce_scatter(gpu, partial, np.maximum(kvp, 2)), 0.0)

    def ffn(ranks: Any, dp: Any, ep: Any, m: Any) -> Any:
        reduce = kernels.all_reduce(gpu, m * width, np.maximum(ranks, 2), launch=launch)
        if np.any(dp > 1):
            everything = m * dp * width
            ends = np.maximum(ranks, 2)
            gather = kernels.all_gather(gpu, everything, ends) + kernels.reduce_scatter(gpu, everything, ends)
            if moe and np.any(ep > 1):
                exchange = sum(
                    kernels.all_to_all(gpu, m, a.hidden, a.top_k, a.experts, np.maximum(ep, 2), phase=phase)
                    for phase in ("dispatch", "combine")
                )
                gather = np.where(ep > 1, np.minimum(gather, exchange), gather)
            reduce = np.where(dp > 1, gather, reduce)
        return np.where(ranks > 1, reduce, 0.0)

    stage = plan.stage_gpus
    wire = gathered(attention, design.product, *[(group, p.total) for p in passes])
    after = gathered(ffn, design.product, *[(stage, plan.attention_dp, plan.ep, p.total) for p in passes])
    wire = [w + f for w, f in zip(wire, after, strict=True)]
    if np.any(np.asarray(plan.kvp) > 1):
        keys = [(plan.attention_tp, plan.kvp, np.maximum(p.decoded, 1)) for p in passes]
        wire = [w + h for w, h in zip(wire, gathered(helix, design.product, *keys), strict=True)]
    if np.any(np.asarray(plan.pp) > 1):
        hops = (np.asarray(plan.pp) - 1) / np.asarray(a.layers)
        wire = [w + hops * kernels.send(gpu, p.total * width) for w, p in zip(wire, passes, strict=True)]
    return wire


def lm_head(design: Design, plan: Deployment, passes: list[Tokens]) -> list[Any]:
    """The vocabulary projection of the rows that are sampled, bf16, tied or not."""
    a, gpu = design.architecture, design.gpu

    def head(tp: Any, rows: Any) -> Any:
        return kernels.gemm(gpu, rows, np.ceil(np.asarray(a.vocab) / tp), a.hidden, BF16)

    rows = [np.maximum(p.decoded + np.where(np.asarray(p.prompt_tokens) > 0, p.prompts, 0), 1) for p in passes]
    return gathered(head, design.product, *[(plan.attention_tp, r) for r in rows])


def small_operations(design: Design, plan: Deployment, passes: list[Tokens]) -> list[Any]:
    """Norms with their residual, rotary embedding with the KV write, and the gate of one layer."""
    a, gpu = design.architecture, design.gpu
    shard = np.asarray(plan.attention_tp) * plan.kvp

    def small(tp: Any, m: Any) -> Any:
        norms = np.asarray(a.norms) * kernels.elementwise(gpu, 8.0 * m * a.hidden)
        rotary = kernels.elementwise(gpu, 4.0 * m * a.query_dim * (np.asarray(a.heads) / tp + a.kv_heads))
        gate = np.where(a.is_moe, 0.0, kernels.elementwise(gpu, 6.0 * m * np.asarray(a.ffn) / tp))
        return norms + rotary + gate

    return gathered(small, design.product, *[(shard, p.total) for p in passes])
