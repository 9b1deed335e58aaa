"""What a model's weight matrices look like after sharding: alignment, waves, KV heads, tokens per expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_model import Accelerator
from reports.guidelines import COMPUTE_BOUND_M
from reports.linears import linears
from spaces.architecture import Architecture
from spaces.formats import FORMATS, K_MULTIPLE, N_MULTIPLE

TENSOR_PARALLEL = (1, 2, 4, 8, 16)
ALIGNED = 128
WAVE_TOKENS = 2_048  # tokens of a prefill chunk at which waves are counted


@dataclass(frozen=True)
class Shard:
    """One matrix under one tensor-parallel degree.

    Attributes:
        off: what its sides miss ("n = 320 is no multiple of 128"), empty where aligned. legal: the format takes it.
        wasted: share of tile slots that idle in the last wave at WAVE_TOKENS tokens.
    """

    name: str
    tp: int
    n: int
    k: int
    off: tuple[str, ...]
    legal: bool
    wasted: float


def shards(architecture: Architecture, recipe: int, gpu: Accelerator) -> list[Shard]:
    """Every weight matrix of a layer under every tensor-parallel degree that its heads allow."""
    rows = []
    heads = int(np.asarray(architecture.heads))
    for tp in TENSOR_PARALLEL:
        if heads % tp:
            continue
        for matrix in linears(architecture, recipe, tp, 1, tp):
            off = tuple(
                f"{side} = {value:,} is no multiple of {ALIGNED}"
                for side, value in (("n", matrix.n), ("k", matrix.k))
                if value % ALIGNED
            )
            legal = not (matrix.k % int(K_MULTIPLE[matrix.code]) or matrix.n % int(N_MULTIPLE[matrix.code]))
            rows.append(Shard(matrix.name, tp, matrix.n, matrix.k, off, legal, wasted_wave(gpu, matrix.n, matrix.code)))
    return rows


def wasted_wave(gpu: Accelerator, n: int, code: int, m: int = WAVE_TOKENS) -> float:
    """1 - tiles / (SMs x waves): the share of tile slots that stay empty (NVIDIA DU-09799-001, wave quantisation)."""
    native = code if gpu.native[code] or FORMATS[code] == "bf16" else FORMATS.index("int4")
    constants = gpu.calibration.at("gemm", native, FORMATS)
    tiles = np.ceil(m / constants.tile_m) * np.ceil(n / constants.tile_n)
    waves = np.ceil(tiles / gpu.sm_count)
    return float(1 - tiles / (gpu.sm_count * waves))


def kv_heads_note(architecture: Architecture) -> dict[str, Any]:
    """Up to which tensor parallelism KV heads are split rather than copied."""
    if bool(np.any(architecture.is_mla)):
        return {
            "most_tp": 1,
            "text": "MLA: every tensor-parallel rank holds the whole latent; split attention by data or KV parallelism",
        }
    heads = int(np.asarray(architecture.kv_heads))
    return {
        "most_tp": heads,
        "text": (
            f"{heads} KV heads: beyond TP {heads} every further rank holds a copy; use attention data parallelism there"
        ),
    }


def experts_note(architecture: Architecture) -> dict[str, Any] | None:
    """Tokens in flight from which an expert's matrices are compute-bound: M* E / k (None for a dense model)."""
    if not bool(np.any(architecture.is_moe)):
        return None
    experts, top_k = int(np.asarray(architecture.experts)), int(np.asarray(architecture.top_k))
    concurrency = COMPUTE_BOUND_M * experts / top_k
    return {
        "tokens_per_expert_share": top_k / experts,
        "compute_bound_tokens_in_flight": concurrency,
        "text": f"an expert sees {top_k} of {experts} tokens: compute-bound from {concurrency:,.0f} tokens in flight",
    }
