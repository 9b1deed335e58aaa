"""Training arguments of a design for Megatron-Core: shape only, nothing about how to parallelise training.

Arguments follow Megatron-LM of 2026-08-22 (commit d98e8a64, megatron-core 0.20.0), megatron/training/arguments.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from cost_model.counts import parameters
from reports.launch_point import comment
from spaces.architecture import Architecture

VERSION = "0.20.0"


def megatron_arguments(architecture: Architecture, config: dict[str, Any]) -> list[tuple[str, ...]]:
    """Options of pretrain_gpt.py that make this shape, with the positions and norm of its config.json."""
    a = architecture.as_dict()
    options: list[tuple[Any, ...]] = [
        ("--num-layers", a["layers"]),
        ("--hidden-size", a["hidden"]),
        ("--ffn-hidden-size", a["ffn"] or a["top_k"] * a["expert_ffn"]),
        ("--num-attention-heads", a["heads"]),
        ("--vocab-size", a["vocab"]),
        ("--max-position-embeddings", config["max_position_embeddings"]),
        ("--position-embedding-type", "rope"),
        ("--rotary-base", int(config["rope_theta"])),
        ("--normalization", "RMSNorm"),
        ("--norm-epsilon", config["rms_norm_eps"]),
        ("--init-method-std", config["initializer_range"]),
        ("--attention-dropout", 0),
        ("--hidden-dropout", 0),
    ]
    options += _attention(a, config) + _biases(a) + _ffn(a, config)
    if not a["tied_embeddings"]:
        options.append(("--untie-embeddings-and-output-weights",))
    return [tuple(str(word) for word in option) for option in options]


def _attention(a: dict[str, Any], config: dict[str, Any]) -> list[tuple[Any, ...]]:
    if a["kv_lora_rank"]:
        options: list[tuple[Any, ...]] = [("--multi-latent-attention",), ("--kv-lora-rank", a["kv_lora_rank"])]
        options += [("--q-lora-rank", a["q_lora_rank"])] if a["q_lora_rank"] else []
        options += [("--qk-head-dim", a["qk_nope_head_dim"]), ("--qk-pos-emb-head-dim", a["qk_rope_head_dim"])]
        return [*options, ("--v-head-dim", a["v_head_dim"]), ("--qk-layernorm",)]  # its latents are normalised
    options = [("--kv-channels", a["head_dim"])]
    if a["kv_heads"] != a["heads"]:
        options += [("--group-query-attention",), ("--num-query-groups", a["kv_heads"])]
    if a["qk_norm"]:
        options.append(("--qk-layernorm",))
    if a["window"]:  # windows in every other layer, from the first
        pattern = layer_pattern([1 - i % 2 for i in range(a["layers"])])
        options += [("--window-size", f"{a['window'] - 1},0"), ("--window-attn-skip-freq", pattern)]
    if a["attention_sinks"]:
        options.append(("--softmax-type", "learnable"))
    if config.get("partial_rotary_factor"):
        options.append(("--rotary-percent", config["partial_rotary_factor"]))
    return options


def layer_pattern(flags: Sequence[int]) -> str:
    """A flag per layer in Megatron's notation, run by run: ([0]*3+[1]*58)."""
    return "(" + "+".join(f"[{flag}]*{len(list(run))}" for flag, run in groupby(flags)) + ")"


def _biases(a: dict[str, Any]) -> list[tuple[Any, ...]]:
    if a["qkv_bias"] and a["output_bias"] and a["ffn_bias"]:
        return []  # Megatron's default: biases everywhere
    return [("--disable-bias-linear",)] + ([("--add-qkv-bias",)] if a["qkv_bias"] else [])


def _ffn(a: dict[str, Any], config: dict[str, Any]) -> list[tuple[Any, ...]]:
    options: list[tuple[Any, ...]] = [("--swiglu",)]
    if config["model_type"] == "gpt_oss":  # its gate: x sigmoid(1.702 x), clamped, (up + 1)
        options = [
            ("--quick-geglu",),
            ("--glu-linear-offset", 1.0),
            ("--activation-func-clamp-value", config["swiglu_limit"]),
        ]
    if not a["experts"]:
        return options
    options += [("--num-experts", a["experts"]), ("--moe-router-topk", a["top_k"])]
    options += [("--moe-ffn-hidden-size", a["expert_ffn"]), ("--moe-grouped-gemm",)]
    if a["shared_experts"]:
        width = a["shared_experts"] * (a["shared_ffn"] or a["expert_ffn"])
        options.append(("--moe-shared-expert-intermediate-size", width))
    pattern = [int(i >= a["dense_layers"] and (i + 1) % a["moe_every"] == 0) for i in range(a["layers"])]
    if not all(pattern):
        options.append(("--moe-layer-freq", layer_pattern(pattern)))
    if config.get("scoring_func") == "sigmoid" or config["model_type"] == "glm4_moe":
        options += [("--moe-router-score-function", "sigmoid"), ("--moe-router-enable-expert-bias",)]
        options.append(("--moe-router-topk-scaling-factor", config["routed_scaling_factor"]))
    return options


def megatron_script(
    architecture: Architecture, config: dict[str, Any], head: Sequence[str], reference: str, flops_ratio: float | None
) -> str:
    """megatron.sh: defines MODEL_ARGS, to be sourced by a training script.

    Args:
        head: comment lines. reference: its name. flops_ratio: training FLOPs per token over the reference's.
    """
    counts = parameters(architecture)
    notes = [
        *head,
        f"Megatron-LM (megatron-core {VERSION}); flags change between releases: pretrain_gpt.py --help",
        f"{int(counts.total):,} parameters, {int(counts.active):,} active; embeddings {int(counts.embedding):,}",
    ]
    if flops_ratio is not None:
        notes.append(f"training FLOPs per token: {flops_ratio:.3f} of {reference}'s")
    notes.append("the shape only: parallelism, batch, learning rate, data and tokenizer are yours to choose")
    if int(architecture.vocab) % 128:
        notes.append("Megatron pads the vocabulary; keep vocab_size of config.json when you convert back")
    missing = _not_told(architecture.as_dict())
    notes += [f"not expressed here: {missing}"] if missing else []
    top = "\n".join(f"# {comment(line)}" for line in notes)
    rows = "\n".join(
        "  " + " ".join(shlex.quote(w) for w in option) for option in megatron_arguments(architecture, config)
    )
    return (
        f"#!/usr/bin/env bash\n{top}\n"
        f'# use: source megatron.sh && torchrun ... pretrain_gpt.py "${{MODEL_ARGS[@]}}" ...\nMODEL_ARGS=(\n{rows}\n)\n'
    )


def _not_told(a: dict[str, Any]) -> str:
    """Biases that no Megatron argument gives in this combination."""
    told = {(0, 0, 0), (1, 0, 0), (1, 1, 1)}
    if (int(a["qkv_bias"]), int(a["output_bias"]), int(a["ffn_bias"])) not in told:
        return "biases on QKV and attention output without FFN biases (only QKV biases are set)"
    return ""
