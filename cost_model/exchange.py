"""Seconds of what ranks exchange around the FFNs and, under KV parallelism, around attention, of all layers.

Functions of plan-side keys like those of `layer`; before the engine's factors.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np

from cost_model import kernels, layer
from cost_model.design import Design, by_ffn, once_per
from cost_model.grid import gathered, split_by
from spaces.formats import ACTIVATION_BYTES, FORMATS

FP8_BLOCK = FORMATS.index("fp8-block")


def ffn_wire(design: Design, group: Any, dp: Any, ep: Any, tokens: Any) -> tuple[Any]:
    """Collectives around the FFNs: an all-reduce, or with attention DP an exchange of tokens.

    Args:
        group: ranks that hold the same tokens. dp: attention-DP ranks, whose tokens the FFN group works on together.
        tokens: of one attention-DP rank.
    """
    exchange, reduce = partial(_token_exchange, design), partial(_ffn_reduce, design)
    one = split_by(dp > 1, exchange, reduce, design.product, group, dp, ep, tokens)
    return (np.asarray(design.architecture.layers) * one,)


def _ffn_reduce(design: Design, group: Any, dp: Any, ep: Any, tokens: Any) -> Any:
    if not np.any(group > 1):
        return 0.0 * tokens
    return layer.hidden_all_reduce(design, group, tokens)


def _token_exchange(design: Design, group: Any, dp: Any, ep: Any, tokens: Any) -> Any:
    """Tokens gathered before and scattered after the FFN, or dispatched to and combined from experts if faster."""
    return by_ffn(design, _gather_and_scatter, _cheaper_exchange, group, dp, ep, tokens)


def _gather_and_scatter(design: Design, group: Any, dp: Any, ep: Any, tokens: Any) -> Any:
    ((both,),) = gathered(lambda *keys: (_gather_scatter(design, *keys),), design.product, (group * dp, tokens * dp))
    return both


@once_per("hidden", "ffn_format")
def _gather_scatter(design: Design, ranks: Any, tokens: Any) -> Any:
    """Gathered as quantised for the FFN, but for fp8-block, whose kernels quantise in their own layout."""
    gpu, values = design.gpu, tokens * design.architecture.hidden
    early = gpu.native[design.ffn_format] & np.not_equal(design.ffn_format, FP8_BLOCK)
    carried = np.where(early, ACTIVATION_BYTES[design.ffn_format], 2.0)
    return kernels.all_gather(gpu, carried * values, ranks) + kernels.reduce_scatter(gpu, 2.0 * values, ranks)


def _cheaper_exchange(design: Design, group: Any, dp: Any, ep: Any, tokens: Any) -> Any:
    gather = _gather_and_scatter(design, group, dp, ep, tokens)
    if not np.any(ep > 1):
        return gather
    ((direct,),) = gathered(partial(expert_exchange, design), design.product, (ep, tokens))
    return np.where(ep > 1, np.minimum(gather, direct), gather)


def expert_exchange(design: Design, ep: Any, tokens: Any) -> tuple[Any]:
    """Dispatch in the format that the experts compute in, where the GPU has it, and combine in bf16.

    By the engine's own kernels; of DeepEP's two families, the faster.
    """
    a, gpu = design.architecture, design.gpu
    rack = gpu.link_domain > kernels.collectives.HOST_GPUS
    own = gpu.engine.all_to_all if rack else "deepep"
    backends = ("deepep-ll", "deepep-ht") if own == "deepep" else (own,)
    wire = np.where(gpu.native[design.ffn_format], design.ffn_format, layer.BF16)
    dims = (tokens, a.hidden, a.top_k, a.experts, ep)
    ways = [
        kernels.all_to_all(gpu, *dims, phase="dispatch", format=wire, backend=backend)
        + kernels.all_to_all(gpu, *dims, phase="combine", backend=backend)
        for backend in backends
    ]
    return (reduce(np.minimum, ways),)


def helix_exchange(design: Design, tp: Any, kvp: Any, tokens: Any) -> tuple[Any]:
    """All-to-all of partial attention outputs between KV-parallel ranks (Helix, arXiv 2507.07120).

    Each rank sends (kvp - 1) / kvp of its B x heads x dim partials with two fp32 statistics per head: independent of
    the context. MLA ranks exchange the latent of every head. By NCCL, or inside a link domain by one-sided kernels,
    whose latency does not go round a ring (`use_nccl_for_alltoall` of TensorRT-LLM).
    """
    a, gpu = design.architecture, design.gpu
    dim: Any = np.where(a.is_mla, a.kv_lora_rank, a.head_dim)
    outputs = tokens * np.asarray(a.heads) / tp * (2.0 * dim + 8.0)
    exchange = kernels.reduce_scatter(gpu, outputs, np.maximum(kvp, 2))
    domain = kernels.collectives.domain_gpus(gpu)
    if gpu.link_domain > kernels.collectives.HOST_GPUS:
        values = outputs / 2.0  # of one bf16 copy that leaves for one of the peers
        sent = kernels.all_to_all(gpu, 1.0, values, 1, kvp, np.minimum(kvp, domain), backend="nvlink-one-sided")
        exchange = np.where(kvp > domain, exchange, np.minimum(exchange, sent))
    return (np.asarray(a.layers) * np.where(kvp > 1, exchange, 0.0),)


def exposed_exchange(exchange: Any, core: Any, sequences: Any) -> Any:
    """Seconds of Helix's exchange that attention does not hide: sent request by request under the next one's attention.

    HOP-B, section 2.1.3 of the paper: of B requests the last one's share, or what attention is too short to cover.
    """
    last = 1.0 / np.maximum(sequences, 1.0)
    return np.maximum(exchange * last, exchange - core * (1.0 - last))
