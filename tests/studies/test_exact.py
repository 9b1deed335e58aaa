"""Sweeps of whole studies, what they certify, and disaggregated plans as a study prices them."""

import json
from dataclasses import replace

import numpy as np
import pytest

import ridgeline
from spaces.architecture import Architecture
from spaces.deployment import FIELDS, Deployment
from studies.objective import build_objective
from studies.outcome import sweep_is_cheaper
from studies.study import load_study
from studies.sweep import certificate_text, certify_run, run_sweep

SMALL = {"target.0.gpus": [1], "serving.batches": [1, 32], "space.hidden": [4096, 4608], "space.layers": [28, 32, 36]}


@pytest.fixture(scope="module")
def study():
    return ridgeline.load_study("8b-h200", **SMALL)


@pytest.fixture(scope="module")
def exact(study, tmp_path_factory):
    directory, state = run_sweep(study, tmp_path_factory.mktemp("sweep") / "exact", progress=False)
    assert state.complete
    return directory


def test_a_search_of_everything_is_certified_whole(study, exact, tmp_path):
    every = study.override({"search.trials": 10_000})
    run = ridgeline.run(every, out=tmp_path / "run", progress=False)
    certificate = certify_run(run.path, exact)
    assert certificate["share_of_hypervolume"] == pytest.approx(1) and certificate["epsilon"] == pytest.approx(1)
    assert certificate["designs_recovered"] == certificate["designs_identical"] == 1
    assert certificate_text(certificate).startswith("100.00% of the exact hypervolume")
    assert json.loads((run.path / "run.json").read_text())["certificate"] == certificate
    assert "100.00" in ridgeline.write_report(ridgeline.load_run(run.path)).read_text(encoding="utf-8")


def test_a_short_search_is_certified_in_part(study, exact, tmp_path):
    few = study.override({"search.trials": 16, "search.sampler": "random"})
    run = ridgeline.run(few, out=tmp_path / "run", progress=False)
    certificate = certify_run(run.path, exact)
    assert 0 < certificate["share_of_hypervolume"] < 1 and certificate["epsilon"] > 1
    assert certificate["designs_identical"] < 1


def test_another_study_is_not_certified(study, exact, tmp_path):
    other = study.override({"space.layers": [32], "search.trials": 4})
    run = ridgeline.run(other, out=tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match=r"--certify .*: holds another study; these differ: space"):
        certify_run(run.path, exact)


def test_pools_of_a_disaggregated_study_are_priced_as_predict_does_and_matched(tmp_path):
    changes = {"serving.modes": ["disaggregated"], "target.0.gpus": [1, 2], "serving.batches": [8, 64, 256]}
    study = ridgeline.load_study("8b-h200", **{**SMALL, **changes, "search.trials": 12})
    run = ridgeline.run(study, out=tmp_path / "run", progress=False)
    cell = run.objective.cells[0]
    assert len(run.frontier) > 5 and (run.frontier["prefill_replicas"] > 0).all()
    skew, ours = study.serving.expert_skew, []
    for row in run.frontier.to_dict("records")[::5]:
        architecture = Architecture(**{name: row[name] for name in Architecture.__dataclass_fields__ if name in row})
        plan = Deployment(**{name: row[name] for name in FIELDS if name in row})

        def rate(prefills, plan=plan, row=row, architecture=architecture):
            matched = replace(plan, prefill_replicas=prefills)
            work = cell.workload
            p = ridgeline.predict(architecture, row["recipe"], matched, work, cell.gpu, row["kv_format"], skew)
            return float(p.tokens_per_s_per_gpu)

        ours.append((row["tokens_per_s_per_gpu"], rate(plan.prefill_replicas)))
        assert rate(plan.prefill_replicas + 1) < ours[-1][1] * (1 + 1e-9)  # one more only idles
    np.testing.assert_allclose(*zip(*ours, strict=True), rtol=1e-6)


@pytest.mark.parametrize("preset", ["8b-h200", "two-gpus", "long-context-128k"])
def test_presets_of_few_designs_are_enumerated(preset):
    # a search of 2,000 trials priced nearly all of their designs and could not say that it had found everything
    study = load_study(preset)
    objective = build_objective(study)
    assert sweep_is_cheaper(study, objective)
    assert not sweep_is_cheaper(study.override({"search.trials": 100}), objective)
