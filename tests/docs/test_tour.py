"""The notebook runs from top to bottom, and is kept without outputs."""

import ast
import json

import pandas as pd

from tests.docs.pages import ROOT

CELLS = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def last_value(code, namespace):
    """What a notebook would show under the cell."""
    *before, last = ast.parse(code).body
    exec(compile(ast.Module(before, []), "tour.ipynb", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), "tour.ipynb", "eval"), namespace)


def test_the_tour_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    shown = [last_value(code, namespace) for code in CODE]
    assert all(value is not None for value in shown)
    assert isinstance(shown[2], pd.DataFrame) and len(shown[2]) > 5 and not shown[2].isna().any(axis=None)
    assert "config.json" in shown[-1]


def test_outputs_are_stripped():
    for cell in CELLS:
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None)
