"""Memory against published checkpoint sizes and KV bytes per token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model import load_accelerator
from cost_model.memory import (
    kv_bytes_per_sequence_gpu,
    kv_bytes_per_token_layer,
    memory,
    nearest_fit,
    weight_bytes_per_gpu,
    why_not,
)
from spaces import Deployment, Workload, load_architecture
from spaces.formats import WEIGHT_BYTES

GPU = load_accelerator("h100-sxm")


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    # bf16, published golden figures (parallelism.md section 6, user_asks.md 17-22)
    [("llama-3.1-8b", 131072), ("llama-3.1-70b", 327680), ("llama-3.1-405b", 516096), ("deepseek-v3", 70272)],
)
def test_kv_bytes_per_token(name, bytes_per_token):
    a = load_architecture(name)
    assert a.layers * kv_bytes_per_token_layer(a, "bf16", 1) == bytes_per_token


def test_mla_latent_is_copied_to_every_tp_rank_and_heads_are_not():
    mla, gqa = load_architecture("deepseek-r1"), load_architecture("llama-3.1-70b")
    tp = np.array([1, 8])
    assert len(set(kv_bytes_per_token_layer(mla, "fp8", tp).tolist())) == 1
    assert kv_bytes_per_token_layer(gqa, "fp8", tp).tolist() == [2048.0, 256.0]


def test_windows_are_held_as_the_engine_keeps_them():
    # gpt-oss-120b: 73,728 bytes per token up to the window of 128, then 36,864 (its 18 full layers)
    a, plan = load_architecture("gpt-oss-120b"), Deployment(batch=1)
    ideal = load_accelerator("h100-sxm", engine="ideal")
    held = [float(kv_bytes_per_sequence_gpu(a, "bf16", plan, context, ideal)) for context in (64, 4096, 5096)]
    assert held[0] == 64 * 73728
    assert held[2] - held[1] == 1000 * 36864


@pytest.mark.parametrize(
    ("name", "recipe", "gb", "tolerance"),
    # sizes of the published safetensors (FP8: embeddings and head stay bf16; DeepSeek-R1 without its MTP layer)
    [
        ("llama-3.1-8b", "bf16", 16.06, 0.01),
        ("llama-3.1-70b", "bf16", 141.1, 0.01),
        ("llama-3.1-70b", "fp8", 72.7, 0.02),
        ("deepseek-r1", "fp8-block", 673.0, 0.02),
        ("gpt-oss-120b", "mxfp4-experts", 65.3, 0.05),
    ],
)
def test_weights_of_published_checkpoints(name, recipe, gb, tolerance):
    total = weight_bytes_per_gpu(load_architecture(name), recipe, Deployment(batch=1))
    assert total / 1e9 == pytest.approx(gb, rel=tolerance)


def test_fp4_bytes_with_scales():
    assert WEIGHT_BYTES[7] == 9 / 16 and WEIGHT_BYTES[6] == 17 / 32


def test_sharding_classes():
    a = load_architecture("deepseek-r1")
    whole = weight_bytes_per_gpu(a, "fp8-block", Deployment(batch=1))
    tp, ep, adp = (
        weight_bytes_per_gpu(a, "fp8-block", d)
        for d in (
            Deployment(attention_tp=8, batch=8),
            Deployment(attention_tp=8, ep=8, batch=8),
            Deployment(attention_dp=8, ep=8, batch=8),
        )
    )
    assert whole / 8 < tp and tp == pytest.approx(ep)
    assert adp > ep  # attention, embeddings and head on every rank


@settings(max_examples=60)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    isl=st.integers(128, 65536),
    osl=st.integers(1, 8192),
    kv=st.sampled_from(["bf16", "fp8"]),
)
def test_largest_batch_is_the_boundary(tp, isl, osl, kv):
    a, work = load_architecture("llama-3.1-8b"), Workload(isl, osl)
    asked = memory(a, "bf16", Deployment(attention_tp=tp), work, GPU, kv)
    most = int(asked.largest_batch)
    assert asked.batch == most
    if most:
        assert memory(a, "bf16", Deployment(attention_tp=tp, batch=most), work, GPU, kv).fits
    over = memory(a, "bf16", Deployment(attention_tp=tp, batch=most + 1), work, GPU, kv)
    assert not over.fits and why_not(over)
    assert over.total > GPU.memory_bytes * GPU.engine.memory_fraction - 1


def test_what_does_not_fit_gets_a_reason_and_the_nearest_plan():
    a, work = load_architecture("llama-3.1-70b"), Workload(1024, 1024)
    plan = Deployment(attention_tp=1, batch=32)
    held = memory(a, "bf16", plan, work, GPU)
    assert "GB" in why_not(held) and not held.fits
    near = nearest_fit(a, "bf16", plan, work, GPU)
    assert near is not None and near.replica_gpus == 4
    assert memory(a, "bf16", near, work, GPU).fits
    assert nearest_fit(a, "bf16", plan, work, GPU, most_gpus=1) is None
