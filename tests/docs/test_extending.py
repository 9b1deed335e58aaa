"""docs/extending.md on a copy of the repository: its edits, made as they stand, add a format, a GPU and a family."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from cost_model import load_accelerator, predict
from spaces import Deployment, Workload, load_architecture
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FORMAT = PAGE[PAGE.index("## A number format") : PAGE.index("## A model family")]
APPEND = re.compile(r"^Append to `([^`]+)`:\n\n```\w+\n(.*?)^```$", re.M | re.S)
EDIT = re.compile(r"In `([^`]+)`, (after|replacing) `([^`]+)`:\n\n```\w+\n(.*?)^```$", re.M | re.S)
SCRIPT = re.compile(r"^```py\n(import .*?)^```$", re.M | re.S)
ROOMS = ("spaces", "cost_model", "search", "studies", "reports")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    root = tmp_path_factory.mktemp("copy")
    for room in ROOMS:
        shutil.copytree(ROOT / room, root / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "ridgeline.py", root)
    edits = 0
    for name, text in APPEND.findall(FORMAT):
        path = root / name
        path.write_text(f"{path.read_text()}\n{text}")
        edits += 1
    for name, how, anchor, text in EDIT.findall(FORMAT):
        path = root / name
        before = path.read_text()
        assert before.count(anchor) == 1, f"{name}: {anchor!r} stands there {before.count(anchor)} times"
        path.write_text(before.replace(anchor, text.rstrip("\n") if how == "replacing" else f"{anchor}\n{text}"))
        edits += 1
    assert edits == 4
    (script,) = SCRIPT.findall(FORMAT)
    python(root, "-c", script)
    return root


def python(root, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_a_format_added_as_written_prices_between_its_neighbours(copy):
    # 70B: weights decide; of an 8B the quantisation of activations costs NVFP4 as much as narrower weights save
    command = re.search(r"^ridgeline (predict .*)$", FORMAT, re.M)[1]
    tpot_s = json.loads(python(copy, "ridgeline.py", *command.split(), "--json"))["tpot_s"]
    model, gpu = load_architecture("llama-3.1-70b"), load_accelerator("b200-sxm")
    less, more = (
        predict(model, recipe, Deployment(batch=32), Workload(isl=1024, osl=1024), gpu).tpot_s
        for recipe in ("nvfp4", "bf16")
    )
    assert less < tpot_s < more


def test_a_format_added_as_written_costs_its_loss_and_keeps_its_blocks_whole(copy):
    check = """
from cost_model import quality
from spaces import load_architecture
from spaces.alignment import aligned
model = load_architecture("llama-3.1-8b")
print(quality.predicted_loss(model, "mxfp6").quant_loss, aligned(model, "mxfp6", 8), aligned(model, "mxfp6", 256))
"""
    loss, eight, many = python(copy, "-c", check).split()
    assert float(loss) == pytest.approx(0.005)
    assert (eight, many) == ("True", "False")


def test_a_gpu_put_where_the_page_says_is_known_by_its_name(copy):
    (text,) = re.findall(r'Path\("h100-96gb.toml"\).write_text\("""\n(.*?)"""\)', PAGE, re.S)
    (copy / "cost_model" / "accelerators" / "h100-96gb.toml").write_text(text)
    command = "predict llama-3.1-8b --gpu h100-96gb --batch 32 --isl 1024 --osl 1024 --json"
    priced = json.loads(python(copy, "ridgeline.py", *command.split()))
    assert priced["evidence"] == "extrapolated" and priced["tpot_s"] > 0


def test_a_family_added_where_the_page_says_reads_its_model(copy):
    section = PAGE[PAGE.index("## A model family") :]
    (entry,) = re.findall(r"^GRANITE = .*?^TABLES.*?$", section, re.M | re.S)
    (config,) = re.findall(r"^config = (\{.*?^\})$", section, re.M | re.S)
    tables = copy / "spaces" / "huggingface_families.py"
    tables.write_text(f"{tables.read_text()}\n\n{entry}\n")
    config = ast.literal_eval(config)
    (copy / "spaces" / "models" / "granite-3.1-8b.json").write_text(json.dumps(config))
    command = "predict granite-3.1-8b --gpu h200-sxm --batch 8 --isl 1024 --osl 128 --json"
    assert json.loads(python(copy, "ridgeline.py", *command.split()))["fits"]
