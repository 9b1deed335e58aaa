"""The wheel: all of the product and nothing else, running in an environment of its own with runtime packages only.

Slow (it installs every dependency): runs where RIDGELINE_WHEEL=1, as .ci/run sets it.
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not os.environ.get("RIDGELINE_WHEEL"), reason="slow: set RIDGELINE_WHEEL=1")

ROOT = Path(__file__).parents[2]
ROOMS = ("spaces", "cost_model", "search", "studies", "reports")
DEVELOPMENT = {
    "pytest",
    "hypothesis",
    "ruff",
    "mypy",
    "scipy",
    "torch",
    "transformers",
    "playwright",
    "dask",
    "psycopg",
}


def run(*command, cwd):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, folder / "source", cwd=folder)  # committed files only
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, folder / "source", cwd=folder)
    return next(folder.glob("ridgeline-*.whl"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    path = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", path, cwd=path)
    run(path / "bin/pip", "install", "--quiet", wheel, cwd=path)
    return path / "bin"


def tracked():
    """Files of the product that Git knows."""
    names = run("git", "ls-files", "--", *ROOMS, "ridgeline.py", cwd=ROOT).splitlines()
    return {name for name in names if not name.endswith((".md", ".gitignore"))}


def test_it_holds_the_product_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == tracked()
    kinds = {Path(name).suffix for name in names}
    assert {".py", ".toml", ".json", ".html", ".css", ".js"} <= kinds


def test_it_runs_with_runtime_packages_only(environment, tmp_path):
    rows = json.loads(run(environment / "pip", "list", "--format", "json", cwd=tmp_path))
    assert not {row["name"].lower() for row in rows} & DEVELOPMENT
    program = environment / "ridgeline"
    small = ["--set", "target.0.gpus=[1]", "--set", "serving.batches=[1,16]", "--trials", "40"]
    summary = json.loads(run(program, "run", "8b-h200", *small, "--out", "out", "--json", cwd=tmp_path))
    assert summary["designs"] > 0 and Path(summary["report"]).name == "report.html"
    assert (tmp_path / "out" / "report.html").stat().st_size > 100_000
    run(program, "export", "out", "--knee", "--out", "design", cwd=tmp_path)
    assert json.loads((tmp_path / "design" / "config.json").read_text())["model_type"] == "llama"
    for what in ("gpus", "models", "presets", "engines", "recipes"):
        assert json.loads(run(program, "list", what, "--json", cwd=tmp_path))
    line = ["predict", "gpt-oss-120b", "--gpu", "b200-sxm", "--isl", "1024", "--osl", "128", "--gpus", "1", "--json"]
    assert json.loads(run(program, *line, cwd=tmp_path))["frontier"]
    run(program, "advise", "llama-3.1-8b", "--gpu", "h200-sxm", "--out", "advice", cwd=tmp_path)
    run(program, "sweep", "8b-h200", *small[:4], "--set", "space.layers=[32]", "--out", "sweep", "--json", cwd=tmp_path)


def test_what_needs_an_extra_says_so(environment, tmp_path):
    for line, said in (
        (["worker", "8b-h200", "--storage", "postgresql+psycopg://x@localhost/y"], "ridgeline[distributed]"),
        (["sweep", "8b-h200", "--scheduler", "tcp://127.0.0.1:1", "--out", "s"], "ridgeline[distributed]"),
        (["measure", "--out", "m"], "PyTorch is not installed"),
    ):
        done = subprocess.run([environment / "ridgeline", *line], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2 and said in done.stderr, done.stderr
