"""The gain of disaggregation between the best measured rows: which rows stand against each other."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks import published, published_rows

TABLE = published.TABLES["disaggregation"]["measured"] | {"engines": ["trtllm"], "interactivity": [40.0]}


def rows(*lines):
    """(mode, TPOT in ms, measured tokens/s/GPU, predicted tokens/s/GPU, why refused)"""
    table = pd.DataFrame(lines, columns=["mode", "tpot_ms", "output_tok_s_per_gpu", "tokens_per_s_per_gpu", "refused"])
    same = {"engine": "trtllm", "gpu": "B200-SXM", "model_shape": "DeepSeek-R1", "precision_weights": "nvfp4"}
    return table.assign(**same, isl=8192, osl=1024, tier="A", spec_decode="none")


@pytest.fixture(autouse=True)
def prices_stay(monkeypatch):
    monkeypatch.setattr(published_rows, "priced", lambda table: table)


def test_the_best_rows_at_the_speed_stand_against_each_other():
    slow, slower = ("aggregated", 40.0, 900.0, 900.0, ""), ("disaggregated", 26.0, 5000.0, 5000.0, "")
    agg, worse = ("aggregated", 24.0, 400.0, 410.0, ""), ("aggregated", 12.0, 200.0, 999.0, "")
    (line,) = published_rows.gains(rows(slow, slower, agg, worse, ("disaggregated", 25.0, 800.0, 1640.0, "")), TABLE)
    assert line["published"] == "2.00x (800 of B200-SXM over 400)" and line["ours"] == "4.00x"
    assert line["met"] is False
    (line,) = published_rows.gains(rows(agg, ("disaggregated", 25.0, 800.0, 900.0, "")), TABLE)
    assert line["met"] is True


def test_what_cannot_be_priced_or_compared_is_not_judged():
    agg, untold = ("aggregated", 24.0, 400.0, 410.0, ""), ("disaggregated", 20.0, 800.0, float("nan"), "plan unknown")
    (line,) = published_rows.gains(rows(agg, untold), TABLE)
    assert line["met"] is None and line["ours"] == "plan unknown"
    assert published_rows.gains(rows(agg), TABLE) == []
