"""Tables that the benchmarks write into the READMEs."""

import json
import re
import tomllib

import pytest

from benchmarks.tables import (
    PAGES,
    SERVING,
    SERVING_ACCURACY,
    TABLES,
    accuracy_file,
    elsewhere,
    rewritten,
    serving,
    serving_accuracy,
)

LINE = {"gpu": "h100-sxm", "backend": "trtllm", "groups": 10, "rows": 100, "in_band": 0.8}
KERNELS = [
    {**LINE, "op": "gemm", "format": "bf16", "median": 0.02, "p90": 0.1, "target": [0.03, 0.2]},
    {**LINE, "op": "gemm", "format": "fp8", "median": 0.04, "p90": 0.3, "target": [0.03, 0.2]},
]
PAGE = (
    "before\n<!-- kernels: begin -->\nold\n<!-- kernels: end -->\n"
    "<!-- kill: begin -->\nkept\n<!-- kill: end -->\nafter\n"
)


def test_tables_with_a_result_are_rewritten_and_nothing_else(tmp_path):
    (tmp_path / "kernels.json").write_text(json.dumps(KERNELS))
    (tmp_path / "kill.json").write_text("")  # a benchmark that was stopped leaves an empty file
    text = rewritten(PAGE, tmp_path)
    assert "| gemm | 20 | 200 | 3.0 % | 20.0 % | 80.0 % | 1 of 2 |" in text
    assert text.startswith("before\n<!-- kernels: begin -->\n|") and text.endswith("kept\n<!-- kill: end -->\nafter\n")
    assert rewritten(text, tmp_path) == text


def test_unknown_tables_are_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown table 'x'; valid: versions, kernels"):
        rewritten("<!-- x: begin -->\n<!-- x: end -->", tmp_path)


def test_every_table_has_its_place():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(f"<!-- {name}: begin -->" in text for name in TABLES)


CELL = {"model_class": "moe", "gpu": "H200-SXM", "engine": "trtllm", "mode": "static", "rows": 7, "tpot_p90": None}
SERVED = {
    "overall": {"priced": 9} | dict.fromkeys(SERVING, 0.1),
    "groups": [
        CELL | {"tpot_median": 0.05, "ttft_median": None, "throughput_median": 0.2, "rank_correlation": None},
        CELL | {"engine": "atom"} | dict.fromkeys(SERVING, 0.3),
        CELL | dict.fromkeys(SERVING),
    ],
}


def test_serving_errors_are_written_for_the_reports():
    written = serving_accuracy(SERVED)
    assert written["overall"]["rows"] == 9
    place = {"model_class": "moe", "gpu": "h200-sxm", "mode": "static", "rows": 7}
    assert written["cell"][0] == place | {"engine": "trtllm", "tpot_median": 0.05, "throughput_median": 0.2}
    assert written["cell"][1] == place | {"engine": "sglang", "measured_on": "atom"} | dict.fromkeys(SERVING, 0.3)
    assert len(written["cell"]) == 2  # a cell that no figure is known of says nothing


def test_figures_that_few_rows_do_not_give_are_left_out():
    served = {"overall": {"priced": 3, "rows": 3} | dict.fromkeys([*SERVING, "rank_baseline"]), "groups": []}
    served |= {"disaggregated": served["overall"], "coverage_of_supported": 1.0}
    assert "| rank correlation across plans | - | - | 0.97 |" in serving(served)
    assert serving_accuracy(served)["overall"] == {"rows": 3}


def test_errors_on_left_out_gpus_are_written_and_the_others_kept(tmp_path):
    figures = {"rows": 5} | dict.fromkeys(SERVING, 0.2) | {"rank_correlation": None}
    pair = {"engine": "vllm", "gpu": "mi300x", **figures}
    away = {"overall": figures, "pairs": [pair], "targets": dict.fromkeys(SERVING, 0.3)}
    (tmp_path / "elsewhere.json").write_text(json.dumps(away))
    (tmp_path / "serving.json").write_text("")
    before = tomllib.loads(SERVING_ACCURACY.read_text(encoding="utf-8"))
    after = tomllib.loads(accuracy_file(tmp_path))
    assert after["elsewhere"] == {name: value for name, value in figures.items() if value is not None}
    assert after["overall"] == before["overall"] and after["cell"] == before["cell"]
    assert "| vllm, mi300x | 5 | 20.0 % | 20.0 % | 20.0 % | 20.0 % | - |" in elsewhere(away)


def test_the_reports_hold_the_serving_errors_of_the_readme():
    overall = tomllib.loads(SERVING_ACCURACY.read_text(encoding="utf-8"))["overall"]
    said = re.search(r"\| TPOT, median error \| ([\d.]+) % \|", PAGES[0].read_text(encoding="utf-8"))
    assert said and float(said[1]) == pytest.approx(100 * overall["tpot_median"], abs=0.051)
