"""What bounds a deployment, in plain words."""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.design import Design
from spaces.deployment import Deployment
from spaces.formats import WEIGHT_BYTES

REGIMES = (
    "weight reads: decode waits for weights from memory",
    "KV-cache reads: decode waits for attention over the context",
    "matrix maths: linears are compute-bound",
    "communication: GPUs wait for one another",
    "fixed overheads: launches and the host",
    "prefill: most passes carry prompt tokens",
)
_CODE = np.arange(len(REGIMES), dtype=np.int8)  # narrow: every choice is a pass over all points


def regime_code(design: Design, plan: Deployment, breakdown: dict[str, Any], sequences: Any, mixed_share: Any) -> Any:
    """Index into REGIMES of the largest part of the mean pass.

    Linears are compute-bound where the tokens that share a weight exceed the ridge point: 2 FLOPs per token
    and weight against peak FLOP/s over bytes/s.
    """
    gpu, a = design.gpu, design.architecture
    linear = breakdown["attention_linear"] + breakdown["ffn"] + breakdown["head"]
    tokens = sequences * plan.attention_dp * (np.asarray(plan.draft_tokens) + 1)
    share = np.where(a.is_moe, np.asarray(a.top_k) / np.maximum(a.experts, 1), 1.0)  # of tokens that meet a weight
    code = design.ffn_format
    ridge = gpu.format_flops[code] * WEIGHT_BYTES[code] / (2.0 * gpu.memory_bytes_per_s)
    words, largest = np.where(tokens > ridge / share, _CODE[2], _CODE[0]), linear
    for word, name in ((1, "attention_core"), (3, "communication"), (4, "overhead")):
        words = np.where(breakdown[name] > largest, _CODE[word], words)
        largest = np.maximum(largest, breakdown[name])
    return np.where(np.asarray(mixed_share) > 0.5, _CODE[5], words)
