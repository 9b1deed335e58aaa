"""Runs side by side: the studies' difference first, one reference point where fair, measured points laid over."""

from __future__ import annotations

import copy

import pytest

from reports.compare import compare, read_measured
from reports.compare_page import write_comparison
from reports.figures import write_images
from studies.run import run
from studies.study import build_study


@pytest.fixture(scope="module")
def runs(small_run, tmp_path_factory):
    """The small run on another GPU, and under another workload, both searched less."""

    def other(**changes):
        table = copy.deepcopy(dict(small_run.study.table)) | changes
        table["search"] = {**table["search"], "trials": 20}
        study = build_study(table, "tests")
        return run(study, out=tmp_path_factory.mktemp("compared") / "run", progress=False)

    gpu = other(name="on-h100", target=[{"gpu": "h100-sxm", "engine": "trtllm", "gpus": [1, 2, 4]}])
    longer = other(name="longer", workload=[{"name": "long", "isl": 8192, "osl": 256}])
    return small_run, gpu, longer


def test_what_differs_is_what_was_changed(runs):
    small, gpu, longer = runs
    assert set(compare([small, gpu])["differences"]) == {"target.0.gpu", "search.trials"}
    assert set(compare([small, longer])["differences"]) >= {"workload.0.isl", "workload.0.osl", "workload.0.name"}


def test_the_same_workload_is_measured_from_one_point(runs):
    small, gpu, _ = runs
    volumes = {row["run"]: row for row in compare([small, gpu])["hypervolumes"]["runs"]}
    assert volumes["small"]["hypervolume"] > volumes["on-h100"]["hypervolume"]  # more bandwidth and memory
    for row in volumes.values():
        assert row["hypervolume"] >= row["reference_hypervolume"] > 0


def test_another_workload_has_no_hypervolume_but_throughput(runs):
    small, _, longer = runs
    result = compare([small, longer])
    assert result["hypervolumes"] is None and result["split"] is None
    assert {row["run"] for row in result["throughput"]} == {"small", "longer"}


def test_gains_of_gpu_and_shape_multiply(runs):
    small, gpu, _ = runs
    rows = compare([gpu, small])["split"]
    assert rows
    for row in rows:
        assert (1 + row["gpu_gain"]) * (1 + row["shape_gain"]) == pytest.approx(1 + row["both"])
        assert row["gpu_gain"] > 0 and row["shape_error"] > 0


@pytest.fixture
def measured(tmp_path):
    path = tmp_path / "serving.csv"
    rows = ["model,gpu,engine,tok_s_per_user,output_tok_s_per_gpu", "m<b>,h200,trtllm,100,5000", "m,h200,trtllm,,1"]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return read_measured(path)


def test_the_page_opens_with_the_difference_and_draws_all(open_page, runs, measured, tmp_path):
    small, gpu, _ = runs
    opened = open_page(write_comparison([small, gpu], tmp_path, measured))
    assert opened.locator("main h2").first.inner_text() == "What differs"
    traces = {t["name"]: t for t in opened.evaluate("document.getElementById('chart').data.map(t => ({...t}))")}
    assert traces["measured"]["x"] == [100] and "&lt;b>" in traces["measured"]["text"][0]
    bf16, fp8, other = traces["small, bf16"], traces["small, fp8"], traces["on-h100, fp8"]
    assert bf16["line"]["color"] == fp8["line"]["color"] != other["line"]["color"]
    assert bf16["marker"]["symbol"] != fp8["marker"]["symbol"] == other["marker"]["symbol"]
    assert any(name.startswith(f"{small.reference_name} in small, fp8") for name in traces)
    assert opened.complaints == []


def test_images_are_written(small_run, tmp_path):
    pytest.importorskip("kaleido", reason="needs the images extra")
    files = write_images(small_run, tmp_path)
    assert sorted(path.suffix for path in files) == [".png", ".svg"]
    assert all(path.stat().st_size > 20_000 for path in files)
