"""The benchmark of left-out GPUs: which pairs it takes, and that the fit sees no row of the GPU that it scores."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks import elsewhere


def table(*pairs):
    return pd.DataFrame([{"engine": engine, "gpu": gpu, "split": "calibration"} for engine, gpu in pairs])


def test_engines_with_one_gpu_have_none_to_leave_out():
    rows = table(("vllm", "H100-SXM"), ("vllm", "B200-SXM"), ("vllm", "B200-SXM"), ("trtllm", "H100-SXM"))
    assert elsewhere.pairs(rows, ["vllm", "trtllm"]) == [("vllm", "B200-SXM"), ("vllm", "H100-SXM")]
    rows = table(("atom", "MI355X"), ("sglang", "H200-SXM"))  # ATOM is priced, and fitted, as SGLang
    assert elsewhere.pairs(rows, ["sglang"]) == [("sglang", "H200-SXM"), ("sglang", "MI355X")]


def test_the_fit_sees_no_row_of_the_gpu_that_is_scored(monkeypatch, tmp_path):
    seen = {}

    def fitted(engine, rows, quiet):
        seen["fit"] = set(rows.gpu)
        return {"generation": {}, "gpu": {}, "release": []}

    def priced(rows, engines):
        seen["scored"], seen["file"] = set(rows.gpu), engines["vllm"]
        return rows.assign(refused="")

    monkeypatch.setattr(elsewhere, "fitting", lambda rows, engine: rows)
    monkeypatch.setattr(elsewhere, "fitted", fitted)
    monkeypatch.setattr(elsewhere, "priced", priced)
    monkeypatch.setattr(elsewhere, "scored", lambda rows: rows)
    rows = table(("vllm", "H100-SXM"), ("vllm", "B200-SXM"), ("trtllm", "B200-SXM"))
    elsewhere.left_out(rows, ("vllm", "B200-SXM"))
    assert seen["fit"] == {"H100-SXM"} and seen["scored"] == {"B200-SXM"} and seen["file"].endswith("vllm.toml")


@pytest.mark.parametrize("value", [None, 0.2])
def test_the_table_names_every_pair_and_the_targets(value):
    one = {"rows": 3} | dict.fromkeys(elsewhere.FIGURES, value)
    pair = {"engine": "vllm", "gpu": "h100-sxm", "bias": value, **one}
    text = elsewhere.text({"overall": one, "targets": {"tpot_median": 0.18}, "pairs": [pair]})
    assert "vllm h100-sxm" in text and "targets: tpot median 0.18" in text
    assert ("0.200" in text) == (value is not None)
