"""A pass against measured decode steps, and properties that hold for every design."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cost_model import load_accelerator, predict
from cost_model.design import Design
from cost_model.exchange import exposed_exchange
from cost_model.kernels import all_to_all
from cost_model.memory import kv_bytes_per_token_layer
from cost_model.step import COMPONENTS, Tokens, forward
from spaces import Deployment, Workload, load_architecture
from spaces.formats import FORMATS

MEASURED = Path(__file__).parents[1] / "measured"
BF16 = FORMATS.index("bf16")


def decode_seconds(gpu, name: str, deployment: Deployment, sequences, context) -> np.ndarray:
    design = Design(load_architecture(name), BF16, BF16, 0, gpu, 2, True)
    (parts,) = forward(design, deployment, [Tokens(sequences, 1, context)])
    assert tuple(parts) == COMPONENTS
    return sum(parts.values())


def test_decode_steps_of_llama_8b_on_h100():
    # TensorRT-LLM 1.0.0rc3, prefill separated from served points; the whole file is scored by benchmarks/
    rows = list(csv.DictReader((MEASURED / "decode_h100_llama31_8b.csv").open()))
    tp, batch, context, measured = (np.array([float(r[k]) for r in rows]) for k in ("tp", "bs", "ctx", "decode_ms"))
    gpu = load_accelerator("h100-sxm", engine="trtllm:1.0.0rc3@2025-07-15")
    tp = tp.astype(int)
    predicted = decode_seconds(
        gpu, "llama-3.1-8b", Deployment(attention_tp=tp, batch=batch.astype(int)), batch, context
    )
    error = np.abs(predicted / (measured / 1e3) - 1)
    assert np.median(error) < 0.12 and error.max() < 0.35


@pytest.mark.parametrize(
    ("name", "recipe", "tp", "batch", "seconds"),
    [("llama-3.1-8b", "bf16", 1, 32, 9.9e-3), ("llama-3.1-70b", "fp8", 8, 64, 15.9e-3)],
)
def test_published_decode_steps_on_h100(name, recipe, tp, batch, seconds):
    gpu = load_accelerator("h100-sxm", engine="vllm")
    p = predict(load_architecture(name), recipe, Deployment(attention_tp=tp, batch=batch), Workload(2048, 256), gpu)
    assert p.decode_step_s == pytest.approx(seconds, rel=0.25)


def test_deepseek_all_to_all_as_published():
    # arXiv 2505.09343, section 2.3.2: (1 byte out + 2 back) x 32 tokens x 9 copies x 7K / 50 GB/s = 120.96 us
    # Here top_k = 8 routed copies cross the network, the shared expert is local, and a collective has a latency.
    gpu = load_accelerator("h800-sxm", engine="ideal")
    dims = dict(tokens=32, hidden=7168, top_k=8, experts=256, ep=256)
    total = all_to_all(gpu, **dims, phase="dispatch", format="fp8", backend="deepep-ll")
    total += all_to_all(gpu, **dims, phase="combine", backend="deepep-ll")
    assert total == pytest.approx(120.96e-6 * 8 / 9, rel=0.15)


def test_helix_hides_all_but_the_last_exchange():
    # Helix, arXiv 2507.07120, figure 3: 8 requests of 2 units of attention and 1.2 of exchange take 25.6 units after
    # one another, and about 17 with the exchange of a request under the attention of the next
    assert 16.0 + exposed_exchange(9.6, 16.0, 8) == pytest.approx(17.0, rel=0.02)
    assert exposed_exchange(9.6, 16.0, 1) == 9.6
    assert exposed_exchange(40.0, 16.0, 8) == pytest.approx(26.0)  # attention covers 7 of its 8 requests


def test_helix_exchange_does_not_grow_with_context():
    # section 2.1: B x H / (KVP x TPA) per peer, whatever the sequence length
    gpu, a = load_accelerator("gb200-nvl72"), load_architecture("llama-3.1-405b")
    plan = Deployment(attention_tp=8, kvp=8, batch=1)
    short, long = (
        predict(a, "nvfp4", plan, Workload(1, 2, cached=c, load="static"), gpu) for c in (100_000, 1_000_000)
    )
    assert short.breakdown["communication"] == pytest.approx(long.breakdown["communication"])
    assert long.breakdown["attention_core"] > 1.5 * short.breakdown["attention_core"]


def test_tp_beyond_kv_heads_keeps_one_head_per_rank():
    a = load_architecture("llama-3.1-405b")
    per_rank = kv_bytes_per_token_layer(a, "bf16", np.array([8, 16]))
    assert per_rank[0] == per_rank[1] == 2 * 128 * 2
    group = per_rank * np.array([8, 16])
    assert group[1] == 2 * group[0]


def test_pass_grows_with_sequences_and_context():
    gpu = load_accelerator("h200-sxm", engine="trtllm")
    plan = Deployment(attention_tp=4, batch=1)
    for name in ("llama-3.1-70b", "deepseek-r1", "gpt-oss-120b"):
        by_batch = decode_seconds(gpu, name, plan, np.array([1.0, 16.0, 256.0, 4096.0]), 2048.0)
        by_context = decode_seconds(gpu, name, plan, 64.0, np.array([512.0, 4096.0, 32768.0, 262144.0]))
        assert np.all(np.diff(by_batch) > 0) and np.all(np.diff(by_context) > 0)


def test_pipeline_stages_wait_for_the_largest():
    # 61 layers over 4 stages run as 4 x 16
    gpu = load_accelerator("h200-sxm", engine="ideal")
    one = predict(
        load_architecture("deepseek-r1"), "fp8-block", Deployment(attention_tp=8, batch=64), Workload(1024, 1024), gpu
    )
    four = predict(
        load_architecture("deepseek-r1"),
        "fp8-block",
        Deployment(attention_tp=8, pp=4, batch=256),
        Workload(1024, 1024),
        gpu,
    )
    assert four.decode_step_s > one.decode_step_s * 64 / 61


def test_parallel_block_has_one_all_reduce_per_layer():
    gpu = load_accelerator("h100-sxm", engine="ideal")
    a = load_architecture("falcon-180b")
    plan, work = Deployment(attention_tp=8, batch=8), Workload(512, 512)
    parallel = predict(a, "bf16", plan, work, gpu).breakdown["communication"]
    serial = predict(replace(a, parallel_block=False), "bf16", plan, work, gpu).breakdown["communication"]
    assert serial == pytest.approx(2 * parallel, rel=1e-2)
