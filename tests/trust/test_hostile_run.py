"""Someone else's run directory, GPU file and model path: their text is shown, never run."""

import json
import shutil
from html.parser import HTMLParser

import pandas as pd
import pytest

import ridgeline
from reports.advice import advise
from reports.advice_page import advice_page
from reports.compare_page import write_comparison
from tests.trust import bad_files
from tests.trust.test_bad_input import call

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"`${alert(3)}"
SMALL = {"target.0.gpus": [1], "serving.batches": [1, 16], "search.sampler": "random", "search.trials": 64}


class Elements(HTMLParser):
    """Counts elements, and keeps what could run: scripts' number, event handlers, javascript: links, sources."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.suspects = {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attributes:
            link = (value or "").strip().lower()
            if name.startswith("on") or link.startswith("javascript:") or (name == "src" and link == "x"):
                self.suspects.append((tag, name, value))


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return ridgeline.run(
        ridgeline.load_study("8b-h200", **SMALL), out=tmp_path_factory.mktemp("a") / "run", progress=False
    )


@pytest.fixture(scope="module")
def hostile(honest, tmp_path_factory):
    """The same run with its texts replaced by markup: in run.json, in every text column of every table."""
    path = tmp_path_factory.mktemp("b") / "run"
    shutil.copytree(honest.path, path)
    meta = json.loads((path / "run.json").read_text())
    for key in ("name", "command", "stop_reason", "finished", "sampler"):
        meta[key] = HOSTILE
    meta["versions"] = {HOSTILE: HOSTILE}
    (path / "run.json").write_text(json.dumps(meta))
    for table in ("designs", "frontier", "points", "reference"):
        frame = pd.read_parquet(path / f"{table}.parquet")
        for column in set(frame.select_dtypes("str")) & {"shape", "regime", "limits_touched", "evidence"}:
            frame[column] = frame[column] + HOSTILE
        frame.to_parquet(path / f"{table}.parquet")
    return ridgeline.load_run(path)


def test_the_page_shows_markup_as_text(honest, hostile):
    clean = Elements(ridgeline.write_report(honest).read_text(encoding="utf-8"))
    text = ridgeline.write_report(hostile).read_text(encoding="utf-8")
    found = Elements(text)
    assert found.suspects == [] and found.tags["script"] == clean.tags["script"]
    assert HOSTILE not in text and "alert(1)" in text  # it is there, escaped


def test_the_comparison_shows_markup_as_text(honest, hostile, tmp_path):
    clean = Elements(write_comparison([honest, honest], tmp_path / "clean").read_text(encoding="utf-8"))
    text = write_comparison([honest, hostile], tmp_path / "page").read_text(encoding="utf-8")
    found = Elements(text)
    assert found.suspects == [] and found.tags["script"] == clean.tags["script"] and HOSTILE not in text


def test_a_gpu_may_be_called_anything(tmp_path):
    gpu = tmp_path / "<b>[red]gpu.toml"
    gpu.write_bytes(bad_files.gpu(name=HOSTILE[:80], price_source=HOSTILE))
    study = ridgeline.load_study("8b-h200", **SMALL, **{"target.0.gpu": str(gpu)})
    run = ridgeline.run(study, out=tmp_path / "run", progress=False)
    text = ridgeline.write_report(run).read_text(encoding="utf-8")
    assert Elements(text).suspects == [] and HOSTILE[:80] not in text
    page = advice_page(advise("llama-3.1-8b", str(gpu)))
    assert Elements(page).suspects == [] and HOSTILE[:80] not in page


def test_launch_files_quote_what_a_shell_would_run(honest, tmp_path):
    """A model path, which ends up in launch files, with what shells expand in it."""
    model = tmp_path / "$(touch ran);`touch ran`[x]\ntouch ran\n'a'.json"
    model.write_text(json.dumps(bad_files.LLAMA))
    study = ridgeline.load_study("8b-h200", **SMALL, **{"reference": str(model)})
    run = ridgeline.run(study, out=tmp_path / "run", progress=False)
    files = ridgeline.export(run, run.pick(knee=True), tmp_path / "design")
    for path in files:
        lines = path.read_text(encoding="utf-8").splitlines() if path.suffix in (".sh", ".py") else []
        live = [line for line in lines if "touch ran" in line and not line.lstrip().startswith("#")]
        assert live == [] or path.suffix == ".py", (path, live)


@pytest.mark.parametrize("line", ["predict", "predict-plan", "advise", "check", "list"])
def test_the_terminal_takes_no_name_for_markup(capsys, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "[bold]x[").mkdir()  # [bold]x[/red].json is then a path in it
    (tmp_path / "[bold]x[/red].json").write_text(json.dumps(bad_files.LLAMA))
    (tmp_path / "[bold]x[/red].toml").write_bytes(bad_files.gpu(name="[/red]"))
    model, gpu = "'[bold]x[/red].json'", "--gpu '[bold]x[/red].toml'"
    lines = {
        "predict": f"predict {model} {gpu} --isl 128 --osl 16 --gpus 1",
        "predict-plan": f"predict {model} {gpu} --isl 128 --osl 16 --tp 1 --batch 1",
        "advise": f"advise {model} {gpu} --out '[/x]'",
        "check": f"check 8b-h200 --set reference={model} --set target.0.gpus=[1]",
        "list": "list recipes",
    }
    code, out, err = call(capsys, lines[line])
    assert code == 0, err
    assert line == "list" or "[/red]" in out
