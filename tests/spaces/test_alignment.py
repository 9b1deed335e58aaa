"""Shards and quantisation blocks."""

import numpy as np
import pytest

from spaces import available_models, load_architecture
from spaces.alignment import aligned, check_aligned
from spaces.architecture import stack
from spaces.formats import RECIPES

QWEN3_235B = load_architecture("qwen3-235b-a22b")
GPT_OSS = load_architecture("gpt-oss-120b")


def test_block_fp8_experts_stop_at_128():
    # vLLM refuses this checkpoint at TP 8: 1536 / 8 = 192 is no multiple of the 128 block
    assert list(aligned(QWEN3_235B, "fp8-block", 1, np.array([1, 2, 4, 8]))) == [True, True, True, False]
    with pytest.raises(
        ValueError, match=r"fp8-block: expert_ffn .* = 1536 / 8 = 192 is not a multiple of 128; ffn_tp of 1, 2, 4 "
    ):
        check_aligned(QWEN3_235B, "fp8-block", 1, 8)
    check_aligned(QWEN3_235B, "fp8", 1, 8)
    check_aligned(QWEN3_235B, "bf16", 64, 512)


def test_mxfp4_groups_of_32():
    # 2880 / 4 = 720 = 22.5 groups: engines pad gpt-oss there
    assert list(aligned(GPT_OSS, "mxfp4-experts", 1, np.array([1, 2, 4]))) == [True, True, False]
    assert aligned(GPT_OSS, "nvfp4-ffn", 1, 4)  # groups of 16 still fit
    assert aligned(GPT_OSS, "mxfp4-experts", 8, 1)  # attention stays bf16


def test_int4_groups_of_128_along_k():
    llama = load_architecture("llama-3.1-8b")  # 14336 = 112 x 128
    assert list(aligned(llama, "int4", 1, np.array([1, 16, 32, 112]))) == [True, True, False, True]
    with pytest.raises(ValueError, match=r"K of the output projection.* = 4096 / 64 = 64 is not a multiple of 128"):
        check_aligned(llama, "int4", 64, 1)


def test_helix_cuts_the_output_projection_too():
    llama = load_architecture("llama-3.1-8b")
    assert aligned(llama, "int4", attention_tp=8, kvp=4)
    assert not aligned(llama, "int4", attention_tp=8, kvp=8)


def test_mla_keeps_whole_blocks_where_it_is_replicated():
    deepseek = load_architecture("deepseek-v3")  # its 576 wide down-projection ends in half a block, as published
    for tp in (1, 8, 16):
        check_aligned(deepseek, "fp8-block", tp, 1)
    assert not aligned(deepseek, "fp8-block", 32, 1)  # 2048 / 32 = 64 of the shared expert


def test_key_heads_beyond_tensor_parallelism_are_replicated():
    llama = load_architecture("llama-3.1-70b")
    assert aligned(llama, "fp8-block", 8, 8)
    assert aligned(llama, "fp8-block", 16, 16)  # 8 KV heads of 128 on 16 ranks: one whole head each


def test_hidden_must_hold_whole_blocks():
    with pytest.raises(
        ValueError, match=r"hidden \(K of the attention inputs\) = 2880 is not a multiple of 128; a multiple of 128"
    ):
        check_aligned(GPT_OSS, "fp8-block")


def test_designs_by_plans_by_recipes():
    names = available_models()
    batch = stack([load_architecture(name) for name in names]).map(lambda value: value[:, None, None])
    tp = np.array([1, 2, 8])[:, None]
    mask = aligned(batch, np.arange(len(RECIPES)), tp, tp)
    assert mask.shape == (len(names), 3, len(RECIPES))
    assert mask[..., RECIPES.index("bf16")].all()
    for i in (0, 10, 20, 30):
        for j, ranks in enumerate((1, 2, 8)):
            one = [bool(aligned(load_architecture(names[i]), recipe, ranks, ranks)) for recipe in RECIPES]
            assert list(mask[i, j]) == one
    with pytest.raises(ValueError, match="unknown recipe 'int3'"):
        aligned(GPT_OSS, "int3")
