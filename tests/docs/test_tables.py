"""Tables that the benchmarks write into the READMEs."""

import json

import pytest

from benchmarks.tables import PAGES, TABLES, rewritten

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
