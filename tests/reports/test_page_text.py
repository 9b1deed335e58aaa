"""The page as text: names what it must, escapes what it is given, stays small."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from reports.figures import figure
from reports.html import escape, script_json, tag
from reports.payload import MAX_POINTS, payload
from reports.words import number, percent


def test_markup_in_text_is_escaped(hostile):
    assert tag("p", hostile, title='"x"') == f'<p title="&quot;x&quot;">{escape(hostile)}</p>'
    assert "<script" not in escape(hostile)
    assert "</script" not in script_json({"name": hostile})
    assert json.loads(script_json({"name": hostile}))["name"] == hostile


def test_nothing_infinite_reaches_the_page():
    with pytest.raises(ValueError):
        script_json({"x": float("nan")})


def test_numbers_as_people_write_them():
    assert [number(v) for v in (12345, 1.234, 0.01234)] == ["12,345", "1.23", "0.0123"]
    assert [percent(v) for v in (0.314, -0.02, 0.0, 1.5)] == ["+31 %", "−2.0 %", "+0.0 %", "+150 %"]


def test_the_heading_names_workload_gpu_limit_and_reference(report, hostile):
    text = report.read_text(encoding="utf-8")
    head = text[: text.index("<main")]
    for words in ("h200-sxm (trtllm", "1,024 tokens in, 512 out", "first token within 250 ms", "llama-3.1-8b"):
        assert words in head
    assert "oss is a proxy from published scaling laws" in head
    assert str(escape(hostile)) in head and hostile not in text


def test_one_file_of_at_most_8_mb_with_plotly_once(report):
    text = report.read_text(encoding="utf-8")
    assert report.stat().st_size <= 8e6
    assert text.count("* plotly.js (basic") == 1
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(?!data:)", text)


def test_points_in_the_page_are_those_of_the_tables(small_run):
    data = payload(small_run)
    points = data["points"]
    assert len(points["design"]) <= MAX_POINTS
    designs = data["designs"]
    ids = [f"{designs[d]['id']}-{n}" for d, n in zip(points["design"], points["point"], strict=True)]
    table = small_run.points.set_index("point")
    known = [i for i, name in enumerate(ids) if name in table.index][:500]
    assert known
    expected = table.loc[[ids[i] for i in known], "tokens_per_s_per_gpu"].to_numpy()
    assert np.array([points["tokens_per_s_per_gpu"][i] for i in known]) == pytest.approx(expected, rel=1e-4)


def test_figure_of_any_pair(small_run):
    chart = figure(small_run, "e2e_s", "usd_per_million_tokens", "layers")
    curve = next(t for t in chart.data if t.name.startswith("best found"))
    assert np.all(np.diff(curve.x) > 0) and np.all(np.diff(curve.y) < 0)
    with pytest.raises(ValueError, match="valid: tokens_per_s_per_user"):
        figure(small_run, "speed")
    with pytest.raises(ValueError, match="not in this run"):
        figure(small_run, gpu="b200-sxm")
