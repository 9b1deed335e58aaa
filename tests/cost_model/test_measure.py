"""Measuring and calibrating one's own GPU: the grid, the files, and that a fitted file is a GPU like any other."""

import csv
import tomllib

import numpy as np
import pytest

from cost_model import kernels, load_accelerator
from cost_model.fit.own_gpu import calibrate_own
from cost_model.measure import measure, shapes


class FakeTimer:
    """A machine that is 20 % slower than our H200 GEMM model and 10 % slower at attention."""

    system, version, formats = "somebody's-gpu", "torch 2.13", ("bfloat16",)

    def __init__(self):
        self.gpu = load_accelerator("h200-sxm")

    def __call__(self, shape):
        c = shape.columns
        if shape.file == "gemm":
            return 1.2 * float(kernels.gemm(self.gpu, c["m"], c["n"], c["k"], "bf16"))
        heads = c["heads"], c["kv_heads"], c["head_dim"]
        if shape.file == "attention_context":
            return 1.1 * float(kernels.attention_prefill(self.gpu, c["batch"], c["seq"], *heads))
        return 1.1 * float(kernels.attention_decode(self.gpu, c["batch"], c["kv_len"], *heads))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("measured") / "mine"
    return out, measure(out, timer=FakeTimer())


def test_the_grid_has_what_no_public_table_has():
    widths = {shape.columns["n"] for shape in shapes() if shape.file == "gemm"}
    assert {10922, 10944, 11008} <= widths and any(n % 256 for n in widths)


def test_rows_follow_the_schema_of_the_public_tables(measured):
    out, counts = measured
    assert set(counts) == {"gemm", "attention_context", "attention_generation"}
    with (out / "gemm.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == counts["gemm"]
    names = ["system", "backend", "backend_version", "kernel", "dtype", "m", "n", "k", "latency_us"]
    assert list(rows[0]) == names


def test_measurements_are_never_overwritten(measured):
    with pytest.raises(ValueError, match="there already"):
        measure(measured[0], timer=FakeTimer())


def test_a_calibrated_file_is_a_gpu_like_any_other(measured, tmp_path):
    pytest.importorskip("scipy")
    out = tmp_path / "mine.toml"
    fits = calibrate_own(measured[0], "h200-sxm", out)
    assert 0.95 < fits["gemm.bf16"]["error_low"] <= fits["gemm.bf16"]["error_high"] < 1.05
    assert {"attention_prefill.bf16", "attention_decode.bf16"} <= set(fits)  # every kind that was measured
    mine, base = load_accelerator(out), load_accelerator("h200-sxm")
    assert mine.name == "mine" and mine.memory_bytes == base.memory_bytes
    sizes = np.array([1, 64, 4096])
    ratio = kernels.gemm(mine, sizes, 4096, 4096, "bf16") / kernels.gemm(base, sizes, 4096, 4096, "bf16")
    assert np.all((ratio > 1.1) & (ratio < 1.3))
    assert "calibrated" in tomllib.loads(out.read_text())["provenance"]


def test_no_gpu_is_said_clearly(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA or ROCm GPU"):
        measure(tmp_path / "x")


def test_directories_without_measurements_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds none of .*gemm.csv"):
        calibrate_own(tmp_path, "h200-sxm", tmp_path / "x.toml")
    with pytest.raises(ValueError, match=r"must end in \.toml"):
        calibrate_own(tmp_path, "h200-sxm", tmp_path / "x.json")
