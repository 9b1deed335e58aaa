"""Attention cores against measured kernels of head shapes that no fit has seen, and the laws they must obey."""

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.accelerator import available
from cost_model.accelerator import load_accelerator as load
from cost_model.kernels import attention_decode, attention_prefill, error_band
from cost_model.kernels.attention import DECODE_CLASSES, causal_tiles, decode_class
from spaces.formats import KV_FORMATS

MEASURED = Path(__file__).parents[1] / "measured"
GPUS = {"h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm", "b200_sxm": "b200-sxm", "gb200": "gb200-nvl72"}
NAMES = {"bfloat16": "bf16", "fp8": "fp8"}
SETTINGS = settings(max_examples=60, deadline=None)

load_accelerator = cache(load)

gpus = st.sampled_from([("h200-sxm", "trtllm"), ("b200-sxm", "trtllm"), ("h100-sxm", "vllm"), ("mi355x", "vllm")])
gpus = gpus.map(lambda pair: load_accelerator(pair[0], engine=pair[1]))
kv_formats = st.sampled_from(KV_FORMATS)
batches = st.integers(1, 1024)
contexts = st.integers(1, 200_000)
head_dims = st.sampled_from([64, 96, 128, 192, 256])
groups = st.sampled_from([1, 2, 4, 8, 16, 32])
kv_heads = st.integers(1, 16)


def sample(name: str) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """{(gpu, KV format): columns} of a measured sample."""
    with (MEASURED / name).open() as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    tables: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        tables.setdefault((GPUS[row["system"]], NAMES[row["kv_cache_dtype"]]), []).append(row)
    numbers = [name for name in rows[0] if name not in ("system", "kv_cache_dtype", "phase")]
    return {key: {n: np.array([float(r[n]) for r in own]) for n in numbers} for key, own in tables.items()}


@cache
def ratios(name: str) -> dict[tuple[str, str], np.ndarray]:
    """Measured over predicted seconds of a sample, as the kernels were measured (warm L2)."""
    result = {}
    for (gpu, kv), rows in sample(name).items():
        dims = [rows[n] for n in ("heads", "kv_heads", "head_dim")]
        accelerator, rest = load_accelerator(gpu), {"kv_format": kv, "window": rows["window_size"]}
        if "seq" in rows:
            seconds = attention_prefill(accelerator, rows["batch"], rows["seq"], *dims, **rest)
        else:
            seconds = attention_decode(accelerator, rows["batch"], rows["kv_len"], *dims, **rest, warm_l2=True)
        result[gpu, kv] = 1e-6 * rows["latency_us"] / seconds
    return result


@pytest.mark.parametrize(
    ("name", "median", "p90"),
    [("attention_prefill_sample.csv", 0.07, 0.18), ("attention_decode_sample.csv", 0.07, 0.25)],
)
def test_measured_kernels_of_unseen_shapes(name, median, p90):
    error = np.abs(1 / np.concatenate(list(ratios(name).values())) - 1)
    assert len(error) >= 200
    assert np.median(error) <= median
    assert np.quantile(error, 0.9) <= p90


# aiconfigurator-core 0.12.0 (Apache-2.0), vLLM 0.14.0 on A100 and 0.24.0, heads that no fit has seen, microseconds:
# short prompts, where vLLM's appending to the cache (a thread block per token) takes longer than the attention
@pytest.mark.parametrize(
    ("gpu", "kv", "batch", "tokens", "heads", "kv_heads", "head_dim", "measured"),
    [
        ("a100-sxm", "bf16", 32, 512, 48, 4, 128, 1129.0),
        ("a100-sxm", "bf16", 16, 512, 64, 8, 128, 696.35),
        ("a100-sxm", "bf16", 128, 256, 12, 1, 128, 382.78),
        ("h100-sxm", "fp8", 64, 128, 24, 24, 128, 220.25),
        ("h100-sxm", "fp8", 256, 64, 16, 2, 256, 286.33),
        ("b200-sxm", "bf16", 128, 128, 24, 24, 128, 222.74),
        ("b200-sxm", "bf16", 128, 256, 12, 1, 128, 119.43),
    ],
)
def test_vllm_appends_token_by_token(gpu, kv, batch, tokens, heads, kv_heads, head_dim, measured):
    accelerator = load_accelerator(gpu, engine="vllm")
    seconds = attention_prefill(accelerator, batch, tokens, heads, kv_heads, head_dim, kv_format=kv)
    assert seconds == pytest.approx(1e-6 * measured, rel=0.15)


@pytest.mark.parametrize(
    ("op", "name"),
    [("attention_prefill", "attention_prefill_sample.csv"), ("attention_decode", "attention_decode_sample.csv")],
)
def test_error_bands_hold_most_unseen_rows(op, name):
    inside = []
    for (gpu, kv), rows in sample(name).items():
        group = rows["heads"] / rows["kv_heads"]
        kinds = decode_class(group, group, rows["head_dim"]) if op == "attention_decode" else np.ones(len(group), int)
        for ratio, kind in zip(ratios(name)[gpu, kv], kinds, strict=True):
            low, high, evidence = error_band(load_accelerator(gpu), op, kv + DECODE_CLASSES[kind])
            assert evidence == "measured"
            inside.append(low <= ratio <= high)
    assert np.mean(inside) >= 0.75  # 80 % bands, 240 rows


def test_ideal_is_the_roofline():
    gpu = load_accelerator("gb300-nvl72", engine="ideal")
    # NVIDIA's attention post: decode moves 2 DB KH Hsz (G + KVSL) with a 1-byte cache, here plus bf16 query and output
    batch, context, heads, kv, dim = 64, 32768, 64, 8, 128
    moved = batch * dim * (2 * kv * context + 4 * heads)
    assert attention_decode(gpu, batch, context, heads, kv, dim, "fp8") == pytest.approx(moved / 8e12)
    # and prefill 4 PB QH ISL^2 Hsz FLOPs, half of them causal (128 more keys per query in whole tiles)
    flops = 2 * batch * heads * context * (context + 128) * dim
    moved = batch * context * dim * (4 * heads + 4 * kv)
    expected = flops / gpu.peak_flops["bf16"] + moved / 8e12
    assert attention_prefill(gpu, batch, context, heads, kv, dim) == pytest.approx(expected, rel=1e-6)
    fast = attention_prefill(gpu, batch, context, heads, kv, dim, compute_format="fp8")
    assert fast == pytest.approx(flops / gpu.peak_flops["fp8"] + moved / 8e12, rel=1e-6)


@pytest.mark.parametrize("name", ["h200-sxm", "b200-sxm", "gb300-nvl72"])
def test_decode_halves_when_the_group_doubles(name):
    # NVIDIA's attention post: at fixed query heads, doubling heads per KV head roughly halves long-context decode
    gpu = load_accelerator(name)
    kv = np.array([16, 8, 4])
    seconds = attention_decode(gpu, 128, 16384, 32, kv, 128, "fp8")
    assert np.all(seconds[:-1] / seconds[1:] > 1.6)
    assert np.all(seconds[:-1] / seconds[1:] < 2.4)


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm"])
def test_hopper_stops_sharing_the_cache_beyond_32_heads_per_kv_head(name):
    # measured: the XQA kernels end there and latency more than doubles
    gpu = load_accelerator(name)
    shared, unshared = attention_decode(gpu, 64, 4096, np.array([32, 48]), 1, 128)
    assert unshared > 2.4 * shared


def test_fp8_prefill_is_no_faster_than_bf16():
    # measured on H100, H200, B200, GB200, B300: latency ratio 0.94-1.03
    gpu = load_accelerator("b200-sxm")
    bf16 = attention_prefill(gpu, 4, 8192, 32, 8, 128, "fp8", compute_format="bf16")
    assert attention_prefill(gpu, 4, 8192, 32, 8, 128, "fp8", compute_format="fp8") == pytest.approx(bf16, rel=0.06)


def test_causal_tiles_of_a_window():
    # 1024 tokens are 8 query tiles: 1 + 2 + ... + 8; a window of 256 sees its 2 tiles and the diagonal's one
    assert causal_tiles(1024, 0, 0, 1.0, 1.0) == (36, 8, 8)
    assert causal_tiles(1024, 256, 0, 1.0, 1.0) == (1 + 2 + 6 * 3, 3, 8)
    assert causal_tiles(1024, 0, 2048, 1.0, 1.0) == (36 + 8 * 16, 24, 8)


@SETTINGS
@given(gpus, kv_formats, batches, contexts, groups, kv_heads, head_dims, st.sampled_from([0, 1024]))
def test_decode_grows_with_batch_and_context(gpu, kv, batch, context, group, kv_head, dim, window):
    b, length = np.array([1, 2, 2]) * batch, np.array([1, 1, 2]) * context
    seconds = attention_decode(gpu, b, length, group * kv_head, kv_head, dim, kv, window=window)
    assert np.all(np.isfinite(seconds)) and np.all(seconds > 0)
    assert np.all(np.diff(seconds) >= -1e-12)


@SETTINGS
@given(gpus, kv_formats, batches, contexts, groups, kv_heads, head_dims)
def test_decode_grows_with_heads_of_one_group_size(gpu, kv, batch, context, group, kv_head, dim):
    more = np.array([1, 2, 3]) * kv_head
    seconds = attention_decode(gpu, batch, context, group * more, more, dim, kv)
    assert np.all(np.diff(seconds) >= -1e-12)


@SETTINGS
@given(gpus, kv_formats, st.integers(1, 64), st.integers(1, 32768), groups, kv_heads, head_dims, st.integers(0, 65536))
def test_prefill_grows_with_batch_tokens_heads_and_past(gpu, kv, batch, tokens, group, kv_head, dim, past):
    b, t, h, p = (np.array(row) for row in zip(*([1] * 4, [2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 2, 1]), strict=True))
    base = attention_prefill(gpu, batch, tokens, group * kv_head, kv_head, dim, kv, past=past)
    grown = attention_prefill(gpu, batch * b, tokens * t, group * kv_head * h, kv_head, dim, kv, past=past * p)
    assert np.all(grown >= base - 1e-12)
    assert attention_prefill(gpu, batch, tokens, group * kv_head, kv_head, dim, kv, past=past + 4096) > base


@SETTINGS
@given(gpus, kv_formats, batches, st.integers(1, 32768), groups, head_dims, st.integers(0, 5000))
def test_a_window_of_the_whole_context_is_none(gpu, kv, batch, tokens, group, dim, more):
    window = tokens + more
    full = attention_decode(gpu, batch, tokens, 8 * group, 8, dim, kv)
    assert attention_decode(gpu, batch, tokens, 8 * group, 8, dim, kv, window=window) == pytest.approx(full)
    full = attention_prefill(gpu, batch, tokens, 8 * group, 8, dim, kv)
    assert attention_prefill(gpu, batch, tokens, 8 * group, 8, dim, kv, window=window) == pytest.approx(full)
    assert attention_prefill(gpu, batch, tokens, 8 * group, 8, dim, kv, window=128) <= full


@SETTINGS
@given(kv_formats, batches, contexts, groups, head_dims)
def test_faster_memory_is_never_slower(kv, batch, context, group, dim):
    slow = load_accelerator("h200-sxm")
    fast = load_accelerator("h200-sxm", memory_bytes_per_s=2 * slow.memory_bytes_per_s)
    dims = (8 * group, 8, dim, kv)
    assert attention_decode(fast, batch, context, *dims) <= attention_decode(slow, batch, context, *dims)
    assert attention_prefill(fast, batch, context, *dims) <= attention_prefill(slow, batch, context, *dims)


def test_one_and_many_are_the_same_path():
    gpu = load_accelerator("b200-sxm")
    random = np.random.default_rng(0)
    columns = [random.integers(1, 200, 40), random.integers(1, 9000, 40), 8 * 2 ** random.integers(0, 5, 40)]
    columns += [np.full(40, 8), random.choice([64, 128, 512], 40), random.integers(0, 3, 40)]
    for kernel in (attention_decode, attention_prefill):
        many = kernel(gpu, *columns, window=256)
        one = [kernel(gpu, *row, window=256) for row in zip(*(map(int, column) for column in columns), strict=True)]
        assert np.allclose(many, one, rtol=1e-12)
    grid = attention_decode(gpu, columns[0][:, None], 4096, 32, 8, 128, np.array([0, 1]))
    assert grid.shape == (40, 2)


def test_drafts_share_the_cache_read():
    gpu = load_accelerator("h200-sxm")
    one, four = attention_decode(gpu, 256, 8192, 64, 8, 128, queries=np.array([1, 4]))
    assert one <= four < 1.5 * one


def test_kernel_classes():
    group = np.array([1, 2, 8, 9, 32, 33, 128])
    assert decode_class(group, group, 128).tolist() == [0, 1, 1, 2, 2, 3, 3]
    assert decode_class(group, group, 512).tolist() == [4] * 7
    assert decode_class(8, 8 * 8, 128) == 2  # drafts fill the tile; they do not end the sharing


def test_every_gpu_and_format_has_constants():
    for name in available():
        for engine in ("trtllm", "vllm", "sglang", "ideal"):
            gpu = load_accelerator(name, engine=engine)
            heads = np.array([[8], [16], [96], [256]])
            for dim in (64, 512):
                assert np.all(attention_decode(gpu, 8, 4096, heads, 4, dim, np.arange(3)) > 0)
                assert np.all(attention_prefill(gpu, 8, 4096, heads, 4, dim, np.arange(3)) > 0)


def test_bad_formats_say_what_is_valid():
    gpu = load_accelerator("h200-sxm")
    with pytest.raises(ValueError, match=r"int8.*bf16, fp8, nvfp4"):
        attention_decode(gpu, 1, 128, 8, 8, 128, "int8")
    with pytest.raises(ValueError, match=r"nvfp4.*bf16, fp8"):
        attention_prefill(gpu, 1, 128, 8, 8, 128, compute_format="nvfp4")
