"""The operations of a decode pass on the roofline: FLOP per byte moved, and FLOP/s reached, on one GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cost_model import Accelerator, kernels
from spaces.architecture import FIELDS, Architecture, unchecked
from spaces.formats import (
    ACTIVATION_BYTES,
    KV_BYTES,
    KV_FORMATS,
    RECIPE_ATTENTION,
    RECIPE_FFN,
    RECIPES,
    WEIGHT_BYTES,
)

OPERATIONS = ("QKV", "attention output", "FFN up", "FFN down", "experts", "attention core")


def roofline(
    points: pd.DataFrame, gpu: Accelerator, context: float, skew: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(FLOP per byte, FLOP/s) of each operation at (n,) points of one GPU, decoding at `context` tokens.

    A weight matrix of shape (n, k) with m tokens does 2 m n k FLOP on its own bytes, those of its input and those of
    its output. "QKV" is the query up-projection under MLA. An MoE model has "experts" in place of "FFN up" and "FFN
    down", and the other way round: NaN marks what a point does not have.
    """
    a = unchecked({name: points[name].to_numpy() for name in FIELDS})
    recipe = np.array([RECIPES.index(name) for name in points["recipe"]])
    kv = np.array([KV_FORMATS.index(name) for name in points["kv_format"]])
    tp, kvp, ffn_tp, dp, pp, batch = (
        points[name].to_numpy(dtype=float) for name in ("attention_tp", "kvp", "ffn_tp", "attention_dp", "pp", "batch")
    )
    tokens = np.maximum(np.ceil(batch / dp / pp), 1.0)
    attention, ffn = RECIPE_ATTENTION[recipe], RECIPE_FFN[recipe]
    kv_heads = np.maximum(np.ceil(a.kv_heads / tp), 1)
    query = np.where(a.is_mla, a.heads * a.query_dim / tp, (a.heads / tp + 2 * kv_heads) * a.head_dim)
    into = np.where(a.is_mla & (a.q_lora_rank > 0), a.q_lora_rank, a.hidden)
    dense = np.where(a.is_moe, np.nan, 1.0)
    width = np.maximum(a.ffn, 1) / ffn_tp
    return {
        "QKV": _linear(gpu, tokens, query, into, attention),
        "attention output": _linear(gpu, tokens, a.hidden, a.heads * a.value_dim / (tp * kvp), attention),
        "FFN up": _times(dense, _linear(gpu, tokens * dp, (a.ffn_matrices - 1) * width, a.hidden, ffn)),
        "FFN down": _times(dense, _linear(gpu, tokens * dp, a.hidden, width, ffn)),
        "experts": _experts(gpu, a, tokens * dp, ffn_tp, points["ep"].to_numpy(dtype=float), ffn, skew),
        "attention core": _core(gpu, a, tokens, np.ceil(context / kvp), a.heads / tp, kv_heads, kv),
    }


def _linear(gpu: Accelerator, m: Any, n: Any, k: Any, code: Any) -> tuple[np.ndarray, np.ndarray]:
    flop = 2.0 * m * n * k
    moved = WEIGHT_BYTES[code] * n * k + ACTIVATION_BYTES[code] * m * k + 2.0 * m * n
    return flop / moved, flop / kernels.gemm(gpu, m, n, k, code)


def _times(present: np.ndarray, values: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return values[0] * present, values[1] * present


def _experts(
    gpu: Accelerator, a: Architecture, tokens: Any, tp: Any, ep: Any, code: Any, skew: str
) -> tuple[np.ndarray, np.ndarray]:
    """Routed experts of one rank: every expert that some token visits is read once (uniform routing)."""
    intensity, rate = np.full(len(tokens), np.nan), np.full(len(tokens), np.nan)
    rows = np.asarray(a.is_moe)
    if rows.any():
        one = a.take(rows)
        m, t, e, c = (np.asarray(value)[rows] for value in (tokens, tp, ep, code))
        weights = one.ffn_matrices * one.hidden * one.expert_ffn / t
        visits = m * one.top_k / e
        read = one.experts / e * (1 - (1 - one.top_k / one.experts) ** m)
        flop = 2.0 * visits * weights
        moved = read * weights * WEIGHT_BYTES[c] + visits * one.hidden * (ACTIVATION_BYTES[c] + 2.0)
        gated = one.ffn_matrices == 3
        seconds = kernels.experts(
            gpu, m, one.hidden, one.expert_ffn, one.experts, one.top_k, c, tp=t, ep=e, gated=gated, skew=skew
        )
        intensity[rows], rate[rows] = flop / moved, flop / seconds
    return intensity, rate


def _core(
    gpu: Accelerator, a: Architecture, sequences: Any, context: Any, heads: Any, kv_heads: Any, kv: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and weighted values of every head against the cache of full-attention layers."""
    mla = np.asarray(a.is_mla)
    latent = np.asarray(a.kv_lora_rank) + a.qk_rope_head_dim
    width = np.where(mla, latent + a.kv_lora_rank, 2 * np.asarray(a.head_dim))
    cached = np.where(mla, latent, 2 * kv_heads * a.head_dim)
    flop = 2.0 * sequences * heads * width * context
    moved = sequences * context * cached * KV_BYTES[kv]
    seconds = np.empty(len(flop))
    for is_mla in (False, True):
        rows = mla == is_mla
        if not rows.any():
            continue
        m, past, q, g, code = (
            np.broadcast_to(np.asarray(v), mla.shape)[rows] for v in (sequences, context, heads, kv_heads, kv)
        )
        one = a.take(rows)
        if is_mla:
            dims = (one.kv_lora_rank, one.qk_rope_head_dim, one.qk_nope_head_dim, one.v_head_dim)
            seconds[rows] = kernels.mla_decode(gpu, m, past, q, *dims, kv_format=code)
        else:
            seconds[rows] = kernels.attention_decode(gpu, m, past, q, g, one.head_dim, kv_format=code)
    return flop / moved, flop / seconds
