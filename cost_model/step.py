"""Seconds of one forward pass, as a sum over the operations of every layer.

A pass runs one micro-batch through all pipeline stages. It may carry decoding sequences, prompt tokens
(a prefill chunk), or both: the linears see their sum, the attention cores see each apart.

    pass = layers x (attention linears + attention core + FFN or experts + communication) + LM head + overhead
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cost_model import exchange, kernels, layer
from cost_model.design import Design
from cost_model.grid import gathered
from spaces.deployment import Deployment

COMPONENTS = ("attention_linear", "attention_core", "ffn", "communication", "head", "overhead")


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
    def decoded(self) -> Any:
        return np.asarray(self.sequences) * self.queries

    @property
    def total(self) -> Any:
        return self.decoded + self.prompt_tokens

    @property
    def starting(self) -> Any:
        """Prompts in this pass, 0 where it carries none."""
        return np.where(np.asarray(self.prompt_tokens) > 0, self.prompts, 0)

    @property
    def sampled(self) -> Any:
        return np.maximum(self.decoded + self.starting, 1)


Seconds = dict[str, Any]  # by component
Forward = Callable[[Design, Deployment, list[Tokens]], list[Seconds]]


def forward(design: Design, plan: Deployment, passes: list[Tokens]) -> list[Seconds]:
    """Seconds of each pass by component (COMPONENTS), broadcast over designs and plans.

    Under pipeline parallelism a pass is one trip through all stages, each as slow as the slowest stage.
    """
    raw = kernel_seconds(design, plan, passes)
    return [charged(design, plan, tokens, seconds) for tokens, seconds in zip(passes, raw, strict=True)]


def kernel_seconds(design: Design, plan: Deployment, passes: list[Tokens]) -> list[Seconds]:
    """Seconds of the kernels of each pass, as measured alone.

    Attention cores of prompts are apart ("prompt_core"), and so is what attention-DP ranks exchange around the FFN
    ("exchange"). "overhead" holds the small operations.
    """
    attention = gathered(
        partial(layer.attention_side, design),
        design.product,
        *[(plan.attention_tp, plan.kvp, p.total, p.sampled) for p in passes],
    )
    group, dp = np.asarray(plan.attention_tp) * plan.kvp, np.asarray(plan.attention_dp)
    ffn = gathered(
        partial(layer.feed_forward, design),
        design.product,
        *[(plan.ffn_tp, plan.ep, plan.redundant_experts, p.total * dp, dp > 1) for p in passes],
    )
    keys = [(group, dp, plan.ep, p.total) for p in passes]
    wire = gathered(partial(exchange.ffn_wire, design), design.product, *keys)
    linear = _with_mla(design, plan, passes, [part[0] for part in attention])
    core, prompt_core = attention_cores(design, plan, passes)
    helix = _helix(design, plan, passes, core)
    results = []
    for i in range(len(passes)):
        seconds = {
            "attention_linear": linear[i],
            "attention_core": core[i],
            "prompt_core": prompt_core[i],
            "ffn": ffn[i][0] + attention[i][4],
            "communication": attention[i][1] + np.where(dp > 1, 0.0, wire[i][0]) + helix[i],
            "exchange": np.where(dp > 1, wire[i][0], 0.0),
            "head": attention[i][2],
            "overhead": attention[i][3],
        }
        results.append(seconds)
    return _staged(design, plan, passes, results) if np.any(np.asarray(plan.pp) > 1) else results


def charged(design: Design, plan: Deployment, tokens: Tokens, kernels_alone: Seconds) -> Seconds:
    """A pass as the engine runs it: kernels at its factors, and its overheads."""
    engine, a = design.gpu.engine, design.architecture
    scale, seconds = engine.release_factor, kernels_alone
    linear = scale * engine.linear_factor[design.attention_format]
    ffn = scale * np.where(a.is_moe, engine.experts_factor[design.ffn_format], engine.linear_factor[design.ffn_format])
    layers = np.asarray(a.layers)
    own = layers * engine.layer_overhead_s + a.moe_layers * engine.moe_layer_overhead_s
    rows = np.asarray(tokens.sequences) + tokens.starting  # of one attention-DP rank, which has a scheduler of its own
    spread = a.is_moe & (np.asarray(plan.ep) > 1)
    if np.any(spread):
        dispatched = np.where(np.asarray(plan.attention_dp) > 1, engine.dispatched_experts_factor, 1.0)
        ffn = ffn * np.where(spread, engine.expert_parallel_factor * dispatched, 1.0)
    fixed = engine.step_overhead_s + engine.sequence_overhead_s * rows
    fixed = fixed + np.where(np.asarray(tokens.prompt_tokens) > 0, engine.prefill_overhead_s, 0.0)
    return {
        "attention_linear": linear * seconds["attention_linear"],
        "attention_core": scale * engine.attention_factor * seconds["attention_core"]
        + scale * engine.prompt_attention_factor * seconds["prompt_core"],
        "ffn": ffn * seconds["ffn"],
        "communication": scale * engine.communication_factor * seconds["communication"]
        + scale * engine.exchange_factor * seconds["exchange"],
        "head": scale * engine.linear_factor[layer.BF16] * seconds["head"],
        # layers overlap their launches: the gain is negative overhead, but never more than the small kernels take
        "overhead": np.maximum(scale * seconds["overhead"] + own, 0.0) + fixed,
    }


def _staged(design: Design, plan: Deployment, passes: list[Tokens], seconds: list[Seconds]) -> list[Seconds]:
    """The same passes cut into pipeline stages: the largest stage's layers, the head's delay, and the sends."""
    pp = np.asarray(plan.pp)
    across = np.asarray(plan.replica_gpus) > kernels.collectives.domain_gpus(design.gpu)
    ((uneven,),) = gathered(partial(layer.uneven_stages, design), design.product, (pp,))
    cut = gathered(partial(layer.stage_sends, design), design.product, *[(pp, across, p.total) for p in passes])
    staged = []
    for parts, (sends,) in zip(seconds, cut, strict=True):
        # the last stage's LM head holds up every stage of the pipeline
        parts = {name: value * (pp if name == "head" else uneven) for name, value in parts.items()}
        staged.append({**parts, "communication": parts["communication"] + sends})
    return staged


def _with_mla(design: Design, plan: Deployment, passes: list[Tokens], linear: list[Any]) -> list[Any]:
    """Linears with MLA's absorbed products of decoded tokens and expansions of prompt tokens added."""
    if not np.any(design.architecture.is_mla):
        return linear
    expanded = [np.asarray(p.prompt_tokens) + p.starting * np.asarray(p.past) for p in passes]
    for function, tokens in ((layer.mla_absorbed, [p.decoded for p in passes]), (layer.mla_expanded, expanded)):
        keys = [(plan.attention_tp, np.maximum(t, 1)) for t in tokens]
        linear = [s + e for s, e in zip(linear, _where_any(design, function, keys, tokens), strict=True)]
    return linear


def _helix(design: Design, plan: Deployment, passes: list[Tokens], core: list[Any]) -> list[Any]:
    if not np.any(np.asarray(plan.kvp) > 1):
        return [0.0] * len(passes)
    keys = [(plan.attention_tp, plan.kvp, np.maximum(p.decoded, 1)) for p in passes]
    whole = _where_any(design, exchange.helix_exchange, keys, [p.decoded for p in passes])
    return [exchange.exposed_exchange(e, c, p.sequences) for e, c, p in zip(whole, core, passes, strict=True)]


def attention_cores(design: Design, plan: Deployment, passes: list[Tokens]) -> tuple[list[Any], list[Any]]:
    """Attention cores of all layers in each pass: of decoding sequences, and of prompts."""
    decoding = [(plan.attention_tp, plan.kvp, np.maximum(p.sequences, 1), p.queries, p.context) for p in passes]
    prompts = [
        (
            np.asarray(plan.attention_tp) * plan.kvp,
            p.prompts,
            np.maximum(p.prompt_tokens / np.asarray(p.prompts), 1),
            p.past,
        )
        for p in passes
    ]
    decode = _where_any(design, layer.decode_core, decoding, [p.sequences for p in passes])
    prefill = _where_any(design, layer.prefill_core, prompts, [p.prompt_tokens for p in passes])
    return decode, prefill


def _where_any(
    design: Design, function: Callable[..., tuple[Any]], keys: list[tuple[Any, ...]], amounts: list[Any]
) -> list[Any]:
    """function(*keys) of each pass that has an amount, 0 where it has none."""
    some = [i for i, amount in enumerate(amounts) if np.any(np.asarray(amount) > 0)]
    results: list[Any] = [0.0] * len(keys)
    if some:
        parts = gathered(partial(function, design), design.product, *[keys[i] for i in some])
        for i, (part,) in zip(some, parts, strict=True):
            here = np.asarray(amounts[i]) > 0
            results[i] = part if np.all(here) else np.where(here, part, 0.0)
    return results
