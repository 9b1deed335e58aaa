"""Ranks of the serving benchmark: correlations within series, what repeated days allow, and how a miss is explained."""

from __future__ import annotations

import sys

import pandas as pd
import pytest

from benchmarks import serving
from benchmarks.serving import PLAN, rank_correlations, rank_of_repeats
from benchmarks.serving_report import SERIES, TARGETS, missed

SERVED = dict(zip(SERIES, ("DeepSeek-R1", "B200-SXM", "trtllm", "fp8", 1024, 1024, "aggregated"), strict=True))


def series(**columns):
    rows = pd.DataFrame({"tpot": 0.1, **columns} | dict.fromkeys(set(PLAN) - {"attention_tp"}, 1))
    return rows.assign(**SERVED)


def test_spearman_within_a_series():
    # 1 - 6 sum d^2 / n (n^2 - 1): two neighbours exchanged among five, 1 - 12 / 120
    rows = series(
        attention_tp=[1, 1, 1, 2, 2],
        concurrency_or_batch=[1, 2, 3, 4, 5],
        tpot_ms=[10.0, 11.0, 12.0, 13.0, 14.0],
        tpot_s=[0.010, 0.012, 0.011, 0.013, 0.014],
    )
    (line,) = rank_correlations(rows).to_dict("records")
    assert line["ours"] == pytest.approx(0.9)
    assert line["concurrency"] == line["repeats"] == pytest.approx(1.0)
    assert (line["rows"], line["plans"]) == (5, 2) and line["middle_half"] == pytest.approx(13 / 11 - 1)
    assert rank_correlations(rows.assign(attention_tp=1)).empty and rank_correlations(rows[:4]).empty


def test_what_a_model_blind_to_the_day_can_reach():
    # three days of one configuration and two of another, of which one day is out of order: means are two tied groups
    rows = series(
        attention_tp=[1, 1, 1, 2, 2],
        concurrency_or_batch=8,
        tpot_ms=[10.0, 12.0, 14.0, 13.0, 15.0],
        tpot_s=[0.011, 0.011, 0.011, 0.012, 0.012],
    )
    ranks = rank_correlations(rows)
    (line,) = ranks.to_dict("records")
    assert line["ours"] == line["repeats"] == pytest.approx(3**-0.5)
    assert rank_of_repeats(rows, ranks) == {"ours_over_days": None, "best_of_days": round(line["repeats"], 4)}


def test_a_missed_rank_names_its_series():
    figures = dict.fromkeys(TARGETS["calibrated"], 0.0)
    lines = [{**SERVED, "isl": size, "ours": ours} for size, ours in ((1024, 0.2), (8192, 0.9), (4096, 1.0))]
    result = {where: figures | {"rank_correlation": None} for where in TARGETS} | {"coverage_of_supported": 1.0}
    result |= {"calibrated": figures | {"rank_correlation": 0.7}, "series": lines}
    rows = pd.DataFrame([{**SERVED, "refused": "", "tpot_s": 0.012, "tpot_ms": 10.0, "ttft_s": 0.5, "ttft_ms": 1e3}])
    rows = rows.assign(tokens_per_s_per_gpu=1.0, output_tok_s_per_gpu=1.0)
    (miss,) = missed(result, rows)
    assert (miss["series"][0]["tpot_bias"], miss["series"][0]["ttft_bias"]) == (1.2, 0.5)
    assert [one["isl"] for one in miss["series"]] == [1024, 8192, 4096]
    assert [one["without"] for one in miss["series"]] == [0.95, 0.6, 0.55]


def test_a_single_series_without_first_tokens_is_shown_as_well(monkeypatch, tmp_path, capsys):
    # a table without TTFT ended in a traceback, and the only series was said to leave a mean of zero
    head = "model_shape,gpu,engine,precision_weights,load_type,date,isl,osl,concurrency_or_batch,attention_tp,"
    head += "attention_dp,ffn_tp,expert_parallel,pp,tpot_ms"
    same = "Llama-3.1-70B,H200-SXM,trtllm,fp8,closed-loop,2025-12-01,1024,1024"
    runs = ((4, 1, 10), (8, 1, 11), (16, 2, 8), (8, 2, 9), (4, 2, 30))
    table = tmp_path / "rows.csv"
    table.write_text("\n".join([head, *(f"{same},{c},{tp},1,{tp},1,1,{ms}" for c, tp, ms in runs)]))
    monkeypatch.setattr(sys, "argv", ["serving.py", str(table)])
    serving.main()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Llama-3.1-70B" in line]
    assert line.endswith("TTFT -)")
