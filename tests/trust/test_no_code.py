"""Nothing that is read can run anything: no unpickling, no eval, safe loaders only."""

import ast
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from studies.store import RunDirectory

ROOT = Path(__file__).parents[2]
SOURCES = [
    *(p for room in ("spaces", "cost_model", "search", "studies", "reports") for p in (ROOT / room).rglob("*.py"))
]
SOURCES += [ROOT / "ridgeline.py", *(ROOT / "benchmarks").glob("*.py")]
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code"}
CALLS = {"eval", "exec", "compile", "__import__", "import_module", "exec_module", "system", "popen"}
CALLS |= {"read_pickle", "to_pickle", "load_module", "run_path", "run_module"}
ALLOWED = {"re.compile"}
SAFE_YAML = {"yaml.safe_load", "yaml.safe_dump"}


def offences(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.rpartition(".")[2] in CALLS and called not in ALLOWED:
                found.append(f"{path}:{node.lineno}: {called}")
            if called.startswith("yaml.") and called not in SAFE_YAML:
                found.append(f"{path}:{node.lineno}: {called}")
            if called in ("np.load", "numpy.load") and "allow_pickle=False" not in ast.unparse(node):
                found.append(f"{path}:{node.lineno}: np.load without allow_pickle=False")
            if any(keyword.arg == "shell" for keyword in node.keywords):
                found.append(f"{path}:{node.lineno}: shell=")
        found += [f"{path}:{node.lineno}: {n}" for n in names if n.split(".")[0] in MODULES]
    return found


def test_no_module_can_run_what_it_reads():
    assert len(SOURCES) > 80
    assert [offence for path in SOURCES for offence in offences(path)] == []


@pytest.mark.parametrize(
    "text", ["import pickle", "x = eval(y)", "yaml.load(text)", "np.load(path)", "subprocess.run(a, shell=True)"]
)
def test_the_scan_finds_what_it_looks_for(text, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(text)
    assert offences(path)


class Bomb:
    """Makes a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


def test_a_checkpoint_with_a_pickle_in_it_is_refused(tmp_path):
    mark = tmp_path / "ran"
    with (tmp_path / "checkpoint.npz").open("wb") as file:
        np.savez(file, notes=np.array([Bomb(mark)], dtype=object))
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        RunDirectory(tmp_path).read_arrays("checkpoint")
    assert not mark.exists()


def test_a_table_with_python_metadata_is_only_data(tmp_path):
    mark = tmp_path / "ran"
    frame = pd.DataFrame({"a": ["__import__('pathlib').Path('ran').touch()"]})
    frame.attrs["note"] = json.dumps({"py/object": "os.system"})
    frame.to_parquet(tmp_path / "designs.parquet")
    assert len(RunDirectory(tmp_path).read_table("designs")) == 1
    assert not mark.exists()
