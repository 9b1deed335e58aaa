"""`ridgeline check` and `init`: what they say, and that what they write is a study."""

import json
import tomllib

import numpy as np
import pytest

from cost_model.accelerator import available as accelerators
from spaces.huggingface import available_models, load_architecture
from studies.check import check, sample_space
from studies.init import init
from studies.study import available_presets, build_study, load_study, study_path


def written(**arguments):
    return build_study(tomllib.loads(init(**arguments)), "init")


@pytest.fixture(scope="module")
def report():
    return check(load_study("8b-h200", **{"target.0.gpus": [1, 8], "serving.batches": [1, 32]}), samples=4000)


def test_check_counts_designs_plans_and_shares(report):
    study = load_study("8b-h200")
    assert report["designs"] == study.space.size == int(np.prod(study.space.shape))
    # 1 GPU, and 8 as pp x attention_tp x attention_dp with ffn_tp the rest: batch 1 only without DP and PP
    assert 10 <= report["plans"]["h200-sxm 1024/1024"] <= 40
    assert report["points_per_trial"] == 4 * report["plans"]["h200-sxm 1024/1024"]
    assert 0.25 < report["share_within_accuracy"] <= report["share_legal_in_budget"] < 0.5
    assert list(report["excluded_by"].values()) == sorted(report["excluded_by"].values(), reverse=True)
    assert report["advice"] is None
    estimates = report["estimates"]
    assert all(np.isfinite(value) and value > 0 for value in estimates.values())
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_check_gives_the_references_published_numbers(report):
    reference = report["reference"]
    assert (reference["total"], reference["non_embedding_total"]) == (8_030_261_248, 6_979_588_096)
    assert reference["kv_bytes_per_sequence"] == 131_072 * 2048  # bf16, per token, published
    assert reference["shape_loss"] == pytest.approx(2.1587, abs=1e-3)
    formats = [(row["recipe"], row["kv_format"]) for row in reference["serving"]]
    assert formats == [("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "bf16"), ("fp8", "fp8")]
    for row in reference["serving"]:
        at = [value for value in row["tokens_per_s_per_gpu_at"].values() if value is not None]
        assert at == sorted(at, reverse=True)
        assert row["best_tokens_per_s_per_gpu"] >= at[0]


def test_check_names_the_limit_that_excludes_most_and_the_nearest_design():
    study = load_study("8b-h200", **{"envelope.hidden_per_layer": {"min": 500, "max": 600}})
    report = check(study, samples=2000)
    assert report["share_legal_in_budget"] == 0
    assert "hidden_per_layer excludes most of them (100.0%)" in report["advice"]
    assert "nearest design (hidden = " in report["advice"]
    assert "allowed at least 500" in report["advice"]


def test_check_names_the_loss_limits_when_they_exclude_everything():
    study = load_study("8b-h200", **{"budget.total_parameters": 4e9, "accuracy.tolerance_nats": 0.0})
    report = check(study, samples=2000)
    assert report["share_legal_in_budget"] > 0 and report["share_within_accuracy"] == 0
    assert "outside the loss limits: raise accuracy.tolerance_nats (now 0)" in report["advice"]


def test_check_reports_a_reference_that_serves_nowhere():
    report = check(load_study("moe-1t-gb300", **{"target.0.gpus": [1]}), samples=1000)
    assert "the reference has no plan for chat on gb300-nvl72" in report["advice"]
    assert "estimates" not in report


def test_the_sample_does_not_depend_on_its_chunks():
    space = load_study("agents").space
    sample = sample_space(space, None, 10_000, seed=1)
    assert sample.proposals == 10_000
    assert sample.violation == 0 and space.decode(sample.nearest[None]).feasible[0]
    assert max(sample.excluded.values()) <= 1 - sample.feasible / sample.proposals


# -- init -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", available_presets())
def test_init_prints_a_preset_as_it_is(name):
    assert init(name) == study_path(name).read_text()


@pytest.mark.parametrize("model", [m for m in available_models() if load_architecture(m).ffn_matrices == 3])
def test_init_writes_a_study_around_any_published_model(model):
    study = written(reference=model)
    assert study.reference == load_architecture(model)
    proposals = study.space.decode(study.space.random_index(2000, np.random.default_rng(0)))
    assert proposals.feasible.mean() > 0.1
    text = init(reference=model)
    assert text.startswith("# A study around") and text.count("#") >= 5


@pytest.mark.parametrize("gpu", accelerators())
def test_init_for_any_gpu(gpu):
    study = written(gpu=gpu)
    target = study.targets[0]
    assert target.gpu.name == gpu
    assert max(target.gpus) <= max(target.gpu.link_domain, min(target.gpus))


def test_init_gives_a_large_model_enough_gpus():
    study = written(reference="kimi-k2", gpu="gb300-nvl72")
    recipe = study.space.axes[study.space.names.index("recipe")].labels
    assert recipe == ("bf16", "fp8", "nvfp4")
    assert min(study.targets[0].gpus) >= 4  # 1.03e12 x 0.5625 B over 288 GB
    assert study.space.budget.solve == ("layers", "experts")


def test_init_keeps_the_workload_of_the_preset():
    study = written(preset="agents", reference="qwen3-8b", gpu="h200-sxm")
    assert study.workloads[0].name == "agents" and study.targets[0].gpu.name == "h200-sxm"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"preset": "8b"}, "unknown study '8b'"),
        ({"reference": "llama-99"}, "unknown model 'llama-99'"),
        ({"gpu": "h300"}, "unknown GPU 'h300'"),
        ({"reference": "gpt-j-6b"}, "its FFNs are not gated; it can be priced, not searched"),
    ],
)
def test_init_refuses_what_it_does_not_know(arguments, said):
    with pytest.raises(ValueError, match=said):
        init(**arguments)
