"""Latent attention cores against measured kernels of head counts that no fit has seen, and the laws they must obey."""

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.accelerator import available
from cost_model.accelerator import load_accelerator as load
from cost_model.kernels import error_band, mla_decode, mla_prefill
from spaces.formats import KV_FORMATS

MEASURED = Path(__file__).parents[1] / "measured" / "mla_sample.csv"
GPUS = {"h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm", "b200_sxm": "b200-sxm", "gb200": "gb200-nvl72"}
NAMES = {"bfloat16": "bf16", "fp8": "fp8"}
SETTINGS = settings(max_examples=60, deadline=None)

load_accelerator = cache(load)

gpus = st.sampled_from([("h200-sxm", "trtllm"), ("b200-sxm", "sglang"), ("mi355x", "vllm"), ("gb200-nvl72", "trtllm")])
gpus = gpus.map(lambda pair: load_accelerator(pair[0], engine=pair[1]))
kv_formats = st.sampled_from(KV_FORMATS)
batches = st.integers(1, 1024)
heads = st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128])


def rows(phase: str) -> list[dict[str, str]]:
    with MEASURED.open() as lines:
        return [
            row for row in csv.DictReader(line for line in lines if not line.startswith("#")) if row["phase"] == phase
        ]


def ratio(row: dict[str, str]) -> float:
    """Measured over predicted seconds, as the kernel was measured (warm L2)."""
    gpu, kv = load_accelerator(GPUS[row["system"]]), NAMES[row["kv_cache_dtype"]]
    batch, count = int(row["batch"]), int(row["heads"])
    if row["phase"] == "context":
        seconds = mla_prefill(gpu, batch, int(row["seq"]), count, kv_format=kv)
    else:
        seconds = mla_decode(gpu, batch, int(row["kv_len"]), count, kv_format=kv, warm_l2=True)
    return 1e-6 * float(row["latency_us"]) / float(seconds)


@pytest.mark.parametrize("phase", ["context", "generation"])
def test_measured_kernels_of_unseen_head_counts(phase):
    error = np.array([abs(1 / ratio(row) - 1) for row in rows(phase)])
    assert len(error) > 100
    assert np.median(error) <= 0.08
    assert np.quantile(error, 0.9) <= 0.25


@pytest.mark.parametrize(("phase", "op"), [("context", "mla_prefill"), ("generation", "mla_decode")])
def test_error_bands_hold_most_unseen_rows(phase, op):
    inside = []
    for row in rows(phase):
        low, high, evidence = error_band(load_accelerator(GPUS[row["system"]]), op, NAMES[row["kv_cache_dtype"]])
        assert evidence == "measured"
        inside.append(low <= ratio(row) <= high)
    assert np.mean(inside) >= 0.75  # 80 % bands


def test_ideal_is_the_roofline():
    gpu = load_accelerator("h200-sxm", engine="ideal")
    # DeepSeek-V3: 576 numbers per token and layer; 128 heads turn 2 (576 + 512) FLOPs per cached token
    batch, context = 32, 8192
    math = 2 * batch * 128 * context * (576 + 512) / gpu.peak_flops["bf16"]
    assert mla_decode(gpu, batch, context, 128) == pytest.approx(math)
    read = batch * (context * 576 * 2 + 2 * 16 * (576 + 512)) / gpu.memory_bytes_per_s
    assert mla_decode(gpu, batch, context, 16) == pytest.approx(max(read, math / 2), rel=1e-9)  # a tile of 64 heads
    # prefill: keys of 192, values of 128 per head, causal, whole tiles
    flops = batch * 128 * context * (context + 128) * (192 + 128)
    moved = batch * context * (2 * 2 * (192 + 128) * 128 + 2 * 576)
    expected = flops / gpu.peak_flops["bf16"] + moved / gpu.memory_bytes_per_s
    assert mla_prefill(gpu, batch, context, 128) == pytest.approx(expected, rel=1e-6)


def test_heads_share_one_latent():
    # up to a tile of heads, long-context decode costs the read of the latent, whatever the heads
    gpu = load_accelerator("h200-sxm")
    few, many = mla_decode(gpu, 64, 32768, np.array([8, 64]))
    assert few <= many < 1.2 * few


def test_a_context_that_is_not_divided_takes_one_block_as_long_as_many():
    gpu = load_accelerator("b200-sxm", engine="sglang")
    whole = replace(gpu, engine=replace(gpu.engine, mla_splits_kv=False))
    one, many = mla_decode(whole, np.array([1, 64]), 65536, 128)
    assert one == pytest.approx(many, rel=0.02)  # 128 blocks of 64 heads fit the 148 SMs at once
    block = 65536 * 64 * 2 * (576 + 512) / (gpu.peak_flops["bf16"] / gpu.sm_count)
    assert block < one < 3 * block  # at the rate of one SM
    assert mla_decode(gpu, 1, 65536, 128) < 0.1 * one


@SETTINGS
@given(gpus, kv_formats, batches, st.integers(1, 131072), heads)
def test_decode_grows(gpu, kv, batch, context, count):
    b, length, n = np.array([1, 2, 2, 2]), np.array([1, 1, 2, 2]), np.array([1, 1, 1, 2])
    seconds = mla_decode(gpu, batch * b, context * length, count * n, kv_format=kv)
    assert np.all(np.isfinite(seconds)) and np.all(seconds > 0)
    assert np.all(np.diff(seconds) >= -1e-12)


@SETTINGS
@given(gpus, kv_formats, st.integers(1, 64), st.integers(1, 32768), heads, st.integers(0, 65536))
def test_prefill_grows(gpu, kv, batch, tokens, count, past):
    b, length, n = np.array([1, 2, 2, 2]), np.array([1, 1, 2, 2]), np.array([1, 1, 1, 2])
    seconds = mla_prefill(gpu, batch * b, tokens * length, count * n, kv_format=kv, past=past)
    assert np.all(np.diff(seconds) > 0)
    assert np.all(mla_prefill(gpu, batch * b, tokens * length, count * n, kv_format=kv, past=past + 4096) > seconds)


@SETTINGS
@given(kv_formats, batches, st.integers(1, 65536), heads)
def test_faster_memory_is_never_slower(kv, batch, context, count):
    slow = load_accelerator("b200-sxm")
    fast = load_accelerator("b200-sxm", memory_bytes_per_s=2 * slow.memory_bytes_per_s)
    assert mla_decode(fast, batch, context, count, kv_format=kv) <= mla_decode(
        slow, batch, context, count, kv_format=kv
    )


def test_one_and_many_are_the_same_path():
    gpu = load_accelerator("b200-sxm")
    random = np.random.default_rng(0)
    columns = [random.integers(1, 200, 40), random.integers(1, 9000, 40), 2 ** random.integers(0, 8, 40)]
    kv = random.integers(0, 3, 40)
    for kernel in (mla_decode, mla_prefill):
        many = kernel(gpu, *columns, kv_format=kv)
        one = [kernel(gpu, *map(int, row[:3]), kv_format=int(row[3])) for row in zip(*columns, kv, strict=True)]
        assert np.allclose(many, one, rtol=1e-12)


def test_every_gpu_and_format_has_constants():
    for name in available():
        for engine in ("trtllm", "vllm", "sglang", "ideal"):
            gpu = load_accelerator(name, engine=engine)
            assert np.all(mla_decode(gpu, 8, 4096, np.array([[16], [128]]), kv_format=np.arange(3)) > 0)
            assert np.all(mla_prefill(gpu, 8, 4096, np.array([[16], [128]]), kv_format=np.arange(3)) > 0)


def test_bad_format_says_what_is_valid():
    with pytest.raises(ValueError, match=r"int4.*bf16, fp8, nvfp4"):
        mla_decode(load_accelerator("h200-sxm"), 1, 128, 16, kv_format="int4")
