"""Our side of the claims of the follow-ups: attention [N2] and speculative decoding [N3]."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from benchmarks.guide_answer import Answer, gpu, model, near
from cost_model import counts, kernels, memory, predict
from spaces import Deployment, Workload


def decode_intensity() -> Answer:
    a = model("llama-3.1-70b")
    heads, kv = int(np.asarray(a.heads)), int(np.asarray(a.kv_heads))
    flop = float(counts.attention_flops_per_token(a, 8192))
    moved = float(counts.kv_bytes_per_sequence(a, "fp8", 8192))
    return Answer(
        f"llama-3.1-70b (G = {heads // kv}), FP8 KV: {flop / moved:.1f} FLOP/B",
        "arithmetic",
        near(flop / moved, 2 * heads / kv),
    )


def attention_flops() -> Answer:
    a = model("llama-3.1-70b")
    ours = float(counts.attention_flops_per_token(a, 8192)) / float(np.asarray(a.layers))
    formula = 4.0 * 64 * 8192 * 128
    return Answer(
        f"{ours / formula:.3f} of the formula per token and layer (llama-3.1-70b, 8192 tokens)",
        "arithmetic",
        near(ours, formula),
    )


def prefill_intensity() -> Answer:
    context, heads, kv, dim = 8192, 64, 8, 128
    flop, moved = 4.0 * heads * context**2 * dim, 2.0 * kv * dim * context * (heads / kv + 1)
    return Answer(f"ISL 8192, G = 8: {flop / moved:.0f} FLOP/B", "arithmetic", near(flop / moved, 2 * context * 8 / 9))


def group_size() -> Answer:
    times = [float(kernels.attention_decode(gpu("h200-sxm"), 64, 8192, 64, kv, 128)) for kv in (16, 8, 4, 2)]
    ratios = [a / b for a, b in pairwise(times)]
    return Answer(
        "G 4, 8, 16, 32 on H200: " + ", ".join(f"{r:.2f}x" for r in ratios) + " per doubling",
        "kernel",
        all(1.6 <= r <= 2.2 for r in ratios),
    )


def head_dim() -> Answer:
    times = [float(kernels.attention_prefill(gpu("h200-sxm"), 1, 8192, 64, 8, d)) for d in (64, 128)]
    ratio = times[1] / times[0]
    return Answer(
        f"prefill of 8192 tokens on H200, head dim 64 to 128: {ratio:.2f}x the time for twice the work",
        "kernel",
        ratio < 1.7,
        "" if ratio < 1.7 else "our attention fit has no tile floor in the head dim",
    )


def kv_copies() -> Answer:
    a = model("llama-3.1-70b")
    rows = [float(memory.kv_bytes_per_token_layer(a, "fp8", tp)) * tp for tp in (8, 16)]
    return Answer(
        f"llama-3.1-70b (8 KV heads), KV bytes over all ranks: TP16 {rows[1] / rows[0]:.0f}x of TP8",
        "arithmetic",
        rows[1] == 2 * rows[0],
    )


def first_draft() -> Answer:
    return Answer(", ".join(f"G = {g}: {128 // g - 1}" for g in (8, 16)), "arithmetic", True)


def draft_batch() -> Answer:
    return Answer("tokens per weight are batch x (1 + D): 1/8 of the batch at D = 7", "arithmetic", True)


def speculation() -> Answer:
    load, acceptance = Workload(isl=1024, osl=1024), 0.8
    steps = [
        predict(
            model("llama-3.1-70b"),
            "fp8",
            Deployment(attention_tp=8, batch=1, draft_tokens=d, acceptance=acceptance if d else 0.0),
            load,
            gpu("b200-sxm"),
            "fp8",
        )
        for d in (0, 3)
    ]
    gain = steps[0].tpot_s / steps[1].tpot_s
    length = sum(acceptance**i for i in range(4))
    return Answer(
        f"llama-3.1-70b, batch 1, D = 3, acceptance 0.8: {gain:.2f}x for {length:.2f} accepted tokens per step",
        "serving",
        1 < gain <= length,
    )
