"""What any honest cost model must obey, asked of `predict` as a whole."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from cost_model import load_accelerator, predict
from cost_model.constants import Calibration
from cost_model.engine import CONSTANTS
from search.frontier import merge
from spaces import Deployment, Workload, load_architecture
from studies.objective import build_objective
from studies.study import load_study

WORK = Workload(isl=1000, osl=200)
CASES = [
    ("h200-sxm", "trtllm", "llama-3.1-8b", "bf16", Deployment(batch=8)),
    ("h200-sxm", "vllm", "llama-3.1-8b", "fp8", Deployment(attention_tp=4, ffn_tp=4, batch=1)),
    ("b200-sxm", "sglang", "llama-3.1-70b", "nvfp4", Deployment(attention_tp=2, ffn_tp=2, pp=2, batch=64)),
    ("gb200-nvl72", "trtllm", "deepseek-v3", "fp8-block", Deployment(attention_dp=8, ffn_tp=1, ep=8, batch=256)),
    ("h200-sxm", "trtllm", "gpt-oss-120b", "mxfp4-experts", Deployment(attention_tp=2, ffn_tp=2, batch=32)),
    ("mi300x", "vllm", "qwen3-30b-a3b", "fp8", Deployment(attention_tp=2, ffn_tp=1, ep=2, batch=16)),
    ("h200-sxm", "ideal", "mixtral-8x7b", "fp8", Deployment(attention_tp=8, ffn_tp=8, batch=128)),
]
IDS = [f"{model} {recipe} on {gpu}" for gpu, _, model, recipe, _ in CASES]
TIMES = ("tpot_s", "ttft_s", "decode_step_s", "e2e_s")


def twice_as_fast(gpu):
    """Twice the bandwidths and FLOP/s, half of every constant that is a time."""
    entries = {
        operation: {
            key: {name: value / 2 if name.endswith("_s") else value for name, value in entry.items()}
            for key, entry in keys.items()
        }
        for operation, keys in gpu.calibration.entries.items()
    }
    times = {name: getattr(gpu.engine, name) / 2 for name in CONSTANTS if name.endswith("_s")}
    rates = {name: 2 * getattr(gpu, name) for name in ("memory_bytes_per_s", "link_bytes_per_s", "nic_bytes_per_s")}
    peaks = {name: 2 * flops for name, flops in gpu.peak_flops.items()}
    engine = replace(gpu.engine, **times)
    return replace(gpu, **rates, peak_flops=peaks, calibration=Calibration(entries), engine=engine)


@pytest.mark.parametrize(("name", "engine", "model", "recipe", "plan"), CASES, ids=IDS)
def test_twice_the_hardware_takes_half_the_time(monkeypatch, name, engine, model, recipe, plan):
    gpu, architecture = load_accelerator(name, engine), load_architecture(model)
    slow = predict(architecture, recipe, plan, WORK, gpu)
    gemm = sys.modules["cost_model.kernels.gemm"]  # the package's `gemm` is the function
    monkeypatch.setattr(gemm, "THROTTLE_ONSET_S", gemm.THROTTLE_ONSET_S / 2)  # how soon a chip heats up, in seconds
    fast = predict(architecture, recipe, plan, WORK, twice_as_fast(gpu))
    for time in TIMES:
        assert getattr(slow, time) == pytest.approx(2 * getattr(fast, time), rel=1e-6), time
    for part, seconds in slow.breakdown.items():
        assert seconds == pytest.approx(2 * fast.breakdown[part], rel=1e-3, abs=1e-9), part


@pytest.mark.parametrize(("name", "engine", "model", "recipe", "plan"), CASES, ids=IDS)
def test_tied_embeddings_save_memory_and_no_time(name, engine, model, recipe, plan):
    gpu, architecture = load_accelerator(name, engine), load_architecture(model)
    untied, tied = (predict(replace(architecture, tied_embeddings=flag), recipe, plan, WORK, gpu) for flag in (0, 1))
    assert [getattr(tied, time) for time in TIMES] == [getattr(untied, time) for time in TIMES]
    saved = untied.memory_bytes_per_gpu - tied.memory_bytes_per_gpu
    assert saved > 0 or (plan.pp > 1 and saved == 0)  # the first stage embeds, the last one has the head


@pytest.mark.parametrize(("name", "engine", "model", "recipe", "plan"), CASES, ids=IDS)
def test_steps_grow_with_the_batch_and_jump_only_at_tiles(name, engine, model, recipe, plan):
    gpu, architecture = load_accelerator(name, engine), load_architecture(model)
    ranks = int(plan.attention_dp * plan.pp)
    batch = ranks * np.arange(1, 400)
    step = np.asarray(predict(architecture, recipe, replace(plan, batch=batch), WORK, gpu).decode_step_s)
    growth = step[1:] / step[:-1] - 1
    assert np.all(growth >= -1e-12)
    tile = np.arange(1, 399) % 32 == 0  # the next sequence opens another tile of tokens
    few = np.arange(1, 399) <= 48  # few tokens wake new experts, or new blocks of attention, one by one
    assert growth[~tile & ~few].max() < 0.05 and growth[tile].max() < 0.10


@pytest.mark.parametrize(("name", "engine", "model", "recipe", "plan"), CASES, ids=IDS)
def test_longer_contexts_and_prompts_are_never_faster(name, engine, model, recipe, plan):
    gpu, architecture = load_accelerator(name, engine), load_architecture(model)
    for field, values in (("isl", np.geomspace(16, 30_000, 40)), ("cached", np.geomspace(1, 60_000, 40))):
        lengths = values.astype(int)
        p = predict(architecture, recipe, plan, replace(WORK, **{field: lengths}), gpu)
        assert np.all(np.diff(p.decode_step_s) >= -1e-12 * p.decode_step_s[1:])
        assert np.all(np.diff(p.memory_bytes_per_gpu) >= 0)
        if field == "isl":
            assert np.all(np.diff(p.ttft_s) > 0)


def better(gpu, rate, factor):
    value = getattr(gpu, rate)
    more = {name: factor * peak for name, peak in value.items()} if rate == "peak_flops" else factor * value
    return replace(gpu, **{rate: more})


@pytest.mark.parametrize("rate", ["memory_bytes_per_s", "link_bytes_per_s", "nic_bytes_per_s", "peak_flops"])
@pytest.mark.parametrize(("name", "engine", "model", "recipe", "plan"), CASES, ids=IDS)
def test_a_better_machine_is_never_slower(name, engine, model, recipe, plan, rate):
    gpu, architecture = load_accelerator(name, engine), load_architecture(model)
    before, after = (predict(architecture, recipe, plan, WORK, better(gpu, rate, factor)) for factor in (1.0, 1.3))
    for time in TIMES:
        assert getattr(after, time) <= getattr(before, time) * (1 + 1e-12), time


@pytest.mark.parametrize("preset", ["8b-h200", "moe-30b-gb200"])
def test_designs_scored_together_or_in_pieces_are_worth_the_same(preset):
    """Dense and MoE, every plan: the same values and points, however the designs are cut into calls."""
    objective = build_objective(load_study(preset, **{"serving.batches": [1, 64]}))
    shape = [objective.space.shape[i] for i in objective.space.outer]
    rows = np.random.default_rng(0).integers(0, shape, (400, len(shape)))
    rows = rows[objective.feasible(rows)][:12]
    whole = objective.score(rows)
    for size in (1, 5):
        pieces = [objective.score(rows[i : i + size]) for i in range(0, len(rows), size)]
        for name in ("values", "violations"):
            parts = np.concatenate([getattr(piece, name) for piece in pieces])
            np.testing.assert_allclose(parts, getattr(whole, name), rtol=1e-12)
        tables = (whole.points, *(piece.points for piece in pieces))
        at_once, merged = (merge(part, objective.objectives, objective.group_by) for part in (tables[:1], tables[1:]))
        for name in ("tokens_per_s_per_user", "tokens_per_s_per_gpu", "shape_loss"):
            np.testing.assert_allclose(np.sort(merged[name]), np.sort(at_once[name]), rtol=1e-12)
