"""Other models beside the reference: priced as the reference is, refused with what is valid."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ridgeline
from reports.figures import figure
from reports.overlay import model_name, overlay_points, overlay_section
from reports.page import page
from spaces.huggingface import read_config


def test_the_reference_as_an_overlay_is_the_reference(small_run):
    points = overlay_points(small_run, ["llama-3.1-8b"])
    keys = ["recipe", "kv_format", "tokens_per_s_per_user"]
    ours, theirs = (t.sort_values(keys)["tokens_per_s_per_gpu"].to_numpy() for t in (points, small_run.reference))
    assert ours == pytest.approx(theirs)


def test_a_smaller_model_serves_more_and_a_config_file_is_its_model(small_run, tmp_path):
    config = tmp_path / "my-model" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(read_config("llama-3.2-3b")[0]), encoding="utf-8")
    points = overlay_points(small_run, ["llama-3.2-3b", config])
    assert list(points["design"].unique()) == ["llama-3.2-3b", "my-model"]
    most = points.groupby("design")["tokens_per_s_per_gpu"].max()
    assert most["my-model"] == pytest.approx(most["llama-3.2-3b"])
    assert most["my-model"] > 1.3 * small_run.reference["tokens_per_s_per_gpu"].max()
    assert model_name(config) == "my-model" and model_name("somewhere/phi.json") == "phi"


def test_an_moe_gets_its_own_plans(small_run):
    points = overlay_points(small_run, ["qwen3-30b-a3b"])
    assert points["ep"].max() > 1 and small_run.reference["ep"].max() == 1


def test_models_are_in_the_page_the_table_and_the_figure(small_run):
    points = overlay_points(small_run, ["qwen3-8b"])
    text = overlay_section(small_run, points)
    best = points[(points["recipe"] == "fp8") & points["within_ttft"] & (points["tokens_per_s_per_user"] >= 40)]
    assert f"{best['tokens_per_s_per_gpu'].max():,.0f}" in text
    assert '"model":"qwen3-8b"' in page(small_run, points)
    assert "qwen3-8b, fp8, KV bf16" in [trace.name for trace in figure(small_run, overlay=["qwen3-8b"]).data]


def test_the_command_draws_them_and_says_what_is_valid(small_run, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(small_run.path, directory)
    done = CliRunner().invoke(ridgeline.app, ["report", str(directory), "--overlay", "qwen3-8b", "--json"])
    assert done.exit_code == 0, done.output
    assert '"model":"qwen3-8b"' in Path(json.loads(done.stdout)["report"]).read_text(encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    wrong = CliRunner().invoke(ridgeline.app, ["run", "8b-h200", "--out", str(tmp_path / "new"), "--overlay", "qwen9"])
    assert "unknown model 'qwen9'" in str(wrong.exception)
    assert sorted(tmp_path.iterdir()) == before  # refused before anything is searched


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (["qwen9"], "did you mean 'qwen3-8b'.*Bundled: deepseek-r1.*or a path to a config.json"),
        (["qwen3-8b", "qwen3-8b"], "'qwen3-8b' is listed twice"),
        (["kimi-k2"], "--overlay kimi-k2: no plan fits within the study's limits"),
    ],
)
def test_what_cannot_be_drawn_is_refused(small_run, models, said):
    with pytest.raises(ValueError, match=said):
        overlay_points(small_run, models)
