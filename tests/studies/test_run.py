"""A whole study, small: search, run directory, resume, and what a run says of itself."""

import json

import numpy as np
import pandas as pd
import pytest

from cost_model import predict
from spaces import Architecture, Deployment
from spaces.architecture import FIELDS
from spaces.deployment import FIELDS as PLAN_FIELDS
from studies.check import check
from studies.results import load_run
from studies.run import run
from studies.study import load_study
from studies.tables import design_id

SMALL = {"search.trials": 96, "search.seed": 3}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "small"
    return run(load_study("8b-h200", **SMALL), out=out, progress=False)


def test_the_directory_holds_what_the_design_promises(finished):
    names = {path.name for path in finished.path.iterdir()}
    tables = {f"{name}.parquet" for name in ("trials", "designs", "frontier", "reference", "points")}
    assert tables | {"study.toml", "run.json", "frontier.csv"} <= names
    assert load_study(finished.path / "study.toml").table == finished.study.table


def test_designs_hold_the_budget_and_the_loss(finished):
    designs = finished.designs
    assert np.all(np.abs(designs["non_embedding_total"] / 6_979_588_096 - 1) <= 0.02)
    assert np.all(designs["shape_loss_difference"] <= 0.005 + 1e-9)
    assert np.all(designs["quant_loss"] <= 0.07)
    assert designs["design"].is_unique


def test_some_design_beats_the_reference_under_the_same_formats(finished):
    best = finished.summary()["best"]
    assert [row["interactivity"] for row in best] == [50, 100, 200]
    assert max(row["gain"] for row in best) > 0.05


def test_no_frontier_point_beats_another_of_its_recipe(finished):
    for _, part in finished.frontier.groupby(["gpu", "workload", "recipe"]):
        xy = part[["tokens_per_s_per_user", "tokens_per_s_per_gpu"]].to_numpy()
        beaten = (xy[None] >= xy[:, None]).all(-1) & (xy[None] > xy[:, None]).any(-1)
        assert not beaten.any()


def test_a_stored_point_is_what_predict_says(finished):
    row = finished.frontier.iloc[len(finished.frontier) // 2]
    architecture = Architecture(**{name: int(row[name]) for name in FIELDS})
    plan = {name: float(row[name]) if name == "acceptance" else int(row[name]) for name in PLAN_FIELDS}
    cell = finished.objective.cells[0]
    p = predict(architecture, row["recipe"], Deployment(**plan), cell.workload, cell.gpu, row["kv_format"])
    assert p.tpot_s == pytest.approx(row["tpot_s"], rel=1e-9)
    assert p.memory_bytes_per_gpu == pytest.approx(row["memory_bytes_per_gpu"], rel=1e-9)
    parts = ("attention_linear", "attention_core", "ffn", "communication", "head", "overhead")
    assert sum(row[f"{part}_s"] for part in parts) == pytest.approx(row["tpot_s"], rel=1e-9)


def test_design_ids_are_stable():
    llama = Architecture(4096, 32, 32, 8, 128, 14336, 128256)
    assert design_id(llama, 0, 0) == design_id(llama, 0, 0) != design_id(llama, 1, 0)


def test_resumed_runs_equal_unbroken_ones(finished, tmp_path):
    study = load_study("8b-h200", **SMALL)
    out = tmp_path / "broken"
    run(study.override({"search.trials": 64}), out=out, progress=False)
    again = run(study, out=out, resume=True, progress=False)
    columns = ["design", "tokens_per_s_per_user", "tokens_per_s_per_gpu"]
    pd.testing.assert_frame_equal(again.frontier[columns], finished.frontier[columns])
    assert again.meta["trials"] == 96


def test_resume_refuses_another_study(finished):
    with pytest.raises(ValueError, match="these differ: workload"):
        run(load_study("8b-h200", **SMALL, **{"workload.0.isl": 2048}), out=finished.path, resume=True)


def test_a_new_run_never_lands_in_a_used_directory(finished):
    with pytest.raises(ValueError, match="not an empty directory"):
        run(load_study("8b-h200", **SMALL), out=finished.path)


def test_a_second_process_is_told(finished):
    with finished.directory.lock(), pytest.raises(ValueError, match="another process"):
        run(load_study("8b-h200", **SMALL), out=finished.path, resume=True)


def test_pick_and_describe(finished):
    assert finished.pick(at=50) in set(finished.designs["design"])
    assert finished.pick(knee=True) in set(finished.designs["design"])
    with pytest.raises(ValueError, match="the fastest gives"):
        finished.pick(at=1e6)
    with pytest.raises(ValueError, match="either"):
        finished.pick()
    described = finished.describe(finished.designs["design"].iloc[0])
    json.dumps(described, allow_nan=False)
    assert described["points"]
    with pytest.raises(ValueError, match="no such design"):
        finished.describe("nothing")


def test_damaged_runs_are_refused(finished, tmp_path):
    with pytest.raises(ValueError, match="not a run directory"):
        load_run(tmp_path)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in finished.path.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "designs.parquet").write_bytes(b"PAR1 truncated")
    with pytest.raises(ValueError, match="not a readable Parquet file"):
        _ = load_run(copy).designs


@pytest.mark.parametrize("sampler", ["frontier", "random"])
def test_a_run_with_nothing_feasible_says_which_limit_excludes_most_and_what_is_nearest(tmp_path, sampler):
    narrow = {"space.layers": {"min": 22, "max": 24}, "space.hidden": {"min": 2560, "max": 2816, "step": 256}}
    study = load_study("8b-h200", **narrow, **{"search.sampler": sampler, "search.trials": 32})
    with pytest.raises(ValueError, match=r"width_ratio excludes most of them .* allowed at least 0\.035"):
        run(study, out=tmp_path / sampler, progress=False)


def test_few_trials_outside_the_space_are_not_blamed_on_serving(tmp_path):
    study = load_study("8b-h200", **{"search.sampler": "random", "search.trials": 1, "search.seed": 3})
    with pytest.raises(ValueError, match=r"no trial of 1 was feasible; 3\d\.\d% of random designs are inside"):
        run(study, out=tmp_path / "few", progress=False)


def test_designs_that_no_plan_serves_are(tmp_path):
    search = {"search.sampler": "random", "search.trials": 8, "search.seed": 3}
    served = check(load_study("8b-h200"), samples=10)["reference"]["serving"]
    fastest = max(row["best_tokens_per_s_per_user"] for row in served)
    study = load_study("8b-h200", **search, **{"serving.min_tokens_per_s_per_user": 0.999 * fastest})
    with pytest.raises(ValueError, match=r"no design has a plan within the limits of \[serving\]"):
        run(study, out=tmp_path / "none", progress=False)
