"""Counts of a whole model: KV, weights and FLOPs."""

import dataclasses

import numpy as np
import pytest

from cost_model import counts
from spaces import load_architecture
from spaces.architecture import stack
from spaces.formats import RECIPES

LLAMA = load_architecture("llama-3.1-8b")
GPT_OSS = load_architecture("gpt-oss-120b")
DEEPSEEK = load_architecture("deepseek-v3")


def test_kv_counts_kv_heads_not_query_heads():
    # 2 (keys, values) x 32 layers x 8 KV heads x 128 x 2 bytes, not x 32 heads
    assert counts.kv_bytes_per_sequence(LLAMA, "bf16", 1) == 131_072
    assert counts.kv_bytes_per_sequence(LLAMA, "bf16", 8192) == 2**30


def test_kv_of_mla_is_the_latent_once():
    # LMCache#694 and TensorRT-LLM#16707 sized it as multi-head: 25 times too much
    assert counts.kv_bytes_per_sequence(DEEPSEEK, "bf16", 1) == 61 * (512 + 64) * 2


def test_kv_of_windows_stops_growing():
    assert counts.kv_bytes_per_sequence(GPT_OSS, "bf16", 128) == 128 * 73_728
    assert counts.kv_bytes_per_sequence(GPT_OSS, "bf16", 100_000) == 128 * 73_728 + (100_000 - 128) * 36_864


def test_kv_formats_carry_their_scales():
    ratio = counts.kv_bytes_per_sequence(LLAMA, np.array(["bf16", "fp8", "nvfp4"]), 1000)
    assert list(ratio / ratio[0]) == [1.0, 0.5, 0.5625 / 2]


def test_kv_refuses_bad_context():
    for context in (-1, np.nan, np.inf):
        with pytest.raises(ValueError, match="context"):
            counts.kv_bytes_per_sequence(LLAMA, "bf16", context)
    with pytest.raises(ValueError, match="unknown KV format 'int3'; valid: bf16"):
        counts.kv_bytes_per_sequence(LLAMA, "int3", 1)


def test_weight_bytes_leave_embeddings_norms_and_router_in_bf16():
    moe = load_architecture("qwen3-30b-a3b")
    count, plain = counts.parameters(moe), counts.weight_bytes(moe, "bf16")
    assert plain.total == 2 * count.total
    router_and_norms = 48 * (128 * 2048 + 2 * 2048 + 2 * 128) + 2048
    assert plain.plain == 2 * (count.embedding + router_and_norms)
    for recipe, bytes_ in (("nvfp4", 0.5625), ("mxfp4", 0.53125), ("fp8", 1.0)):
        quantised = counts.weight_bytes(moe, recipe)
        assert quantised.plain == plain.plain
        assert quantised.ffn == plain.ffn / 2 * bytes_
        assert quantised.attention == plain.attention / 2 * bytes_
    assert counts.weight_bytes(moe, "nvfp4-ffn").attention == plain.attention


def test_resident_weights_hold_every_expert():
    # llmfit#230 sized Mixtral by its active parameters: 33 GB "perfect fit"
    assert counts.weight_bytes(load_architecture("mixtral-8x7b"), "bf16").total > 93e9


def test_biases_stay_bf16():
    expert_biases = 36 * 128 * (2 * 2880 + 2880)
    with_biases = counts.weight_bytes(GPT_OSS, "mxfp4-experts")
    without = counts.weight_bytes(dataclasses.replace(GPT_OSS, ffn_bias=False), "mxfp4-experts")
    assert with_biases.total - without.total == 2 * expert_biases
    assert with_biases.ffn == without.ffn


def test_moe_flops_use_the_active_experts_and_the_head_always():
    # maxtext#678: 287.8 instead of 80.0 TFLOPs with all experts of Mixtral counted
    mixtral = load_architecture("mixtral-8x7b")
    active_matrices = 12_879_925_248 - 32_000 * 4096 - 65 * 4096  # less input embedding and norms
    assert counts.matrix_flops_per_token(mixtral) == 2 * active_matrices


def test_a_tied_head_still_multiplies():
    tied = dataclasses.replace(LLAMA, tied_embeddings=True)
    assert counts.matrix_flops_per_token(tied) == counts.matrix_flops_per_token(LLAMA)
    assert counts.parameters(tied).total == counts.parameters(LLAMA).total - 128_256 * 4096


def test_attention_flops():
    # 4 x context x heads x head_dim per layer
    assert counts.attention_flops_per_token(LLAMA, 1000) == 4 * 1000 * 32 * 128 * 32
    # absorbed MLA: scores over 512 + 64, values over 512; expanded: 192 and 128
    assert counts.attention_flops_per_token(DEEPSEEK, 10, absorbed=True) == 2 * 10 * 128 * (576 + 512) * 61
    assert counts.attention_flops_per_token(DEEPSEEK, 10) == 2 * 10 * 128 * (192 + 128) * 61
    assert counts.attention_flops_per_token(LLAMA, 10, absorbed=True) == counts.attention_flops_per_token(LLAMA, 10)


def test_training_flops_are_6_n_d():
    n = counts.matrix_flops_per_token(LLAMA) / 2
    assert counts.training_flops(LLAMA, 15e12) == 6.0 * n * 15e12


def test_a_batch_over_recipes_and_contexts_broadcasts():
    models = [LLAMA, GPT_OSS, DEEPSEEK]
    batch = stack(models).column()
    recipes = np.arange(len(RECIPES))
    total = counts.weight_bytes(batch, recipes).total
    held = counts.kv_bytes_per_sequence(batch, "fp8", np.array([1, 128, 4096.5]))
    flops = counts.attention_flops_per_token(batch, np.array([1.0, 200.0]))
    for i, model in enumerate(models):
        assert list(total[i]) == [counts.weight_bytes(model, name).total for name in RECIPES]
        assert list(held[i]) == [counts.kv_bytes_per_sequence(model, "fp8", c) for c in (1, 128, 4096.5)]
        assert list(flops[i]) == [counts.attention_flops_per_token(model, c) for c in (1.0, 200.0)]
