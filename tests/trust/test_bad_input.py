# ruff: noqa: E501 -- a case a line
"""Every way to get an input wrong: exit code 2, one message naming what is wrong and what is valid, no traceback."""

import io
import shlex
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import typer

import benchmarks
import ridgeline
from benchmarks import calibrate, elsewhere, kernels, published, serving
from tests.trust import bad_files
from tests.trust.bad_files import FILES

LONG = "x" * 300  # longer than a file name may be
SMALL = "--set target.0.gpus=[1] --set serving.batches=[1,32]"
GPU = "--gpu h200-sxm --isl 1024 --osl 128"

# a command line, and what its message says
COMMANDS = """
run                                           | Missing argument 'study'
run 8b-h20                                    | unknown study '8b-h20', did you mean '8b-h200'; presets: 70b-b200
run nowhere.toml                              | nowhere.toml: no such study file
run directory.toml                            | directory.toml: no such study file
run loop.toml                                 | loop.toml: no such study file
run 8b-h200 extra                             | unexpected extra argument
run 8b-h200 --what                            | No such option: --what
run 8b-h200 --trials 0                        | Invalid value for '--trials'
run 8b-h200 --trials many                     | Invalid value for '--trials'
run 8b-h200 --trials 1.5                      | Invalid value for '--trials'
run 8b-h200 --trials 99999999999999999999     | search.trials = 99999999999999999999; valid: a whole number from 1 to 10,000,000
run 8b-h200 --seconds -1                      | Invalid value for '--seconds'
run 8b-h200 --seconds nan                     | Invalid value for '--seconds'
run 8b-h200 --seconds 0                       | search.seconds = 0.0; valid: seconds above 0
run 8b-h200 --seconds inf                     | search.seconds = inf; valid: seconds above 0
run 8b-h200 --seed -1                         | search.seed = -1; valid: a whole number from 0 to 4294967295
run 8b-h200 --seed x                          | Invalid value for '--seed'
run 8b-h200 --sampler cma                     | search.sampler = 'cma'; valid: one of frontier, nsga2
run 8b-h200 --set trials                      | --set 'trials': must be key.path=value
run 8b-h200 --set =3                          | --set '=3': must be key.path=value
run 8b-h200 --set a.b.c=1                     | unknown key 'a'; valid: name, reference
run 8b-h200 --set target.9.gpu=x              | cannot set 'target.9': '9' must be a position from 0 to 0
run 8b-h200 --set target.0.gpu.x=1            | cannot set 'target.0.gpu.x': its parent is a value
run 8b-h200 --set search.trials=              | search.trials = ''; valid: a whole number
run 8b-h200 --set search.trials=nan           | search.trials = nan; valid: a whole number
run 8b-h200 --set search.interactivity_targets=[1e400] | search.interactivity_targets.0 = inf; valid: a list of tokens/s/user
run 8b-h200 --set serving.batches=[99999999999999999999] | serving.batches.0 = 99999999999999999999; valid: a list of sequences
run 8b-h200 --set serving.kvp=[99999999999999999999] | serving.kvp.0 = 99999999999999999999; valid: a list of KV-parallel ranks
run 8b-h200 --set space.ffn_matrices=[3]      | ffn_matrices
run 8b-h200 --set name=a/../x                 | name = 'a/../x'; valid: letters, digits
run 8b-h200 --set name=LONG                   | valid: letters, digits
run 8b-h200 --set target.0.memory_bytes=2e9   | no plan
run 8b-h200 --out file                        | --out file: cannot be made: File exists
run 8b-h200 --out full                        | --out full: exists and is not an empty directory; choose another, or use --resume
run 8b-h200 --out file/sub                    | --out file/sub: cannot be made: Not a directory
run 8b-h200 --out dangling                    | --out dangling: cannot be made: File exists
run 8b-h200 --out loop                        | --out loop: cannot be made: File exists
run 8b-h200 --out LONG                        | cannot be made: File name too long
run 8b-h200 --out ''                          | --out is empty; leave it out, or give it a value
run 8b-h200 --out=                            | --out is empty; leave it out, or give it a value
run zero.toml                                 | zero.toml: no such study file
run 8b-h200 --resume                          | --resume: name the run directory with --out
run 8b-h200 --resume --out full               | full: not a run directory (no study.toml in it)
run 8b-h200 --resume --out nowhere            | nowhere: not a run directory
run 8b-h200 --resume --out done               | --resume done: holds another study; these differ: serving, target, search.sampler (there 'random', here 'frontier')
sweep                                         | Missing argument 'study'
sweep 8b-h200 --resume                        | --resume: name the run directory with --out
sweep 8b-h200 --resume --out full             | full: not a run directory
sweep 8b-h200 --resume --out done             | --resume done: holds another study
sweep 8b-h200 --out file                      | --out file: cannot be made
sweep small.toml --scheduler nonsense --out s1 | --scheduler nonsense: no Dask scheduler answers there
sweep small.toml --scheduler http://127.0.0.1:1 --out s2 | --scheduler http://127.0.0.1:1: no Dask scheduler
sweep small.toml --certify nowhere --out s3   | nowhere: not a run directory
sweep small.toml --certify file --out s4      | file: not a run directory
sweep small.toml --certify done --out s5      | --certify done: holds another study; these differ: accuracy, budget, name
worker 8b-h200                                | Missing option '--storage'
worker 8b-h200 --storage                      | Option '--storage' requires an argument
worker 8b-h200 --storage nonsense             | --storage: Could not parse
worker 8b-h200 --storage foo://x              | --storage: Can't load plugin: sqlalchemy.dialects:foo; valid: e.g. postgresql+psycopg://user@host/database
worker 8b-h200 --storage sqlite:////nowhere/at/all.db | --storage: cannot be reached: unable to open database file
worker 8b-h200 --storage sqlite:///file       | --storage: (sqlite3.DatabaseError) file is not a database
worker 8b-h200 --storage mysql+pymysql://u:secret@h/d | --storage mysql+pymysql://u:***@h/d: no driver
worker 8b-h200 --storage sqlite:///a.db --seed x | Invalid value for '--seed'
worker 8b-h200 --storage sqlite:///a.db --seed -5 | Invalid value for '--seed'
worker 8b-h200 --storage sqlite:///a.db --trials 0 | Invalid value for '--trials'
worker 8b-h20 --storage sqlite:///a.db        | unknown study '8b-h20'
worker small.toml --storage sqlite:///b.db --out file --trials 1 | --out file: cannot be made: File exists
check                                         | Missing argument 'study'
check 8b-h20                                  | unknown study '8b-h20'
check small.toml --set x                      | --set 'x': must be key.path=value
init --reference heads-fraction.json          | num_attention_heads = 32.5: a whole number is needed
init --gpu gpu-nan.toml                       | memory_bytes_per_s = nan: must be
init --preset 8b-h200                         | No such option: --preset
report                                        | Missing argument 'run_dir'
report nowhere                                | nowhere: not a run directory (no study.toml in it)
report file                                   | file: not a run directory
report full                                   | full: not a run directory
show nowhere                                  | nowhere: not a run directory
show ''                                       | an argument is empty
show done --design nope                       | 'nope': no such design or point in done; designs:
show done --design <b>                        | '<b>': no such design or point
export done --out e1                          | give at least one of --design ID, --at TOKENS_PER_S_PER_USER, --knee
export done --out e1 --at -5                  | --at -5: must be above 0 tokens/s/user
export done --out e1 --at 0                   | --at 0: must be above 0 tokens/s/user
export done --out e1 --at nan                 | --at nan: must be above 0 tokens/s/user
export done --out e1 --at inf                 | --at inf: no point is that fast; the fastest gives
export done --out e1 --at 1e9                 | --at 1e+09: no point is that fast; the fastest gives
export done --out e1 --at x                   | Invalid value for '--at'
export done --out e1 --design nope            | 'nope': no such design or point in done; designs:
export done --knee                            | Missing option '--out'
export done --out file --knee                 | file: file is a file; name a folder
export done --out file/sub --knee             | file is a file; name a folder
export done --out LONG --knee                 | File name too long
export done --out loop --knee                 | --out loop: a symbolic link; name the folder it stands for
export done --out dangling --knee             | --out dangling: a symbolic link; name the folder it stands for
export nowhere --out e1 --knee                | nowhere: not a run directory
compare                                       | Missing argument 'run_dirs'
compare done --out c1                         | compare: needs at least two run directories
compare done done                             | Missing option '--out'
compare done nowhere --out c1                 | nowhere: not a run directory
compare done done --out file                  | --out file: cannot be made: File exists
compare done done --out file/x                | --out file/x: cannot be made: Not a directory
compare done done --out c1 --measured nowhere.csv | nowhere.csv: not a readable CSV file
compare done done --out c1 --measured zero.csv | zero.csv: not a readable CSV file: no such file
compare done done --out c1 --measured full    | full: not a readable CSV file
predict                                       | Missing argument 'model'
predict M                                     | Missing option '--gpu'
predict nowhere GPU                           | unknown model 'nowhere'. Bundled: deepseek-r1
predict nowhere.json GPU                      | nowhere.json: no such file
predict directory.json GPU                    | directory.json/config.json: no such file
predict loop.json GPU                         | loop.json: no such file
predict LONG.json GPU                         | .json: no such file
predict M --gpu h300 --isl 1 --osl 1          | unknown GPU 'h300'; valid: a100-sxm
predict M --gpu nowhere.toml --isl 1 --osl 1  | unknown GPU 'nowhere.toml'; valid: a100-sxm
predict M --gpu directory.toml --isl 1 --osl 1 | unknown GPU 'directory.toml'; valid: a100-sxm
predict M --gpu LONG.toml --isl 1 --osl 1     | .toml'; valid: a100-sxm
predict M --gpu h200-sxm --isl 0 --osl 1      | isl = 0: must be a finite number >= 1
predict M --gpu h200-sxm --isl -1 --osl 1     | isl = -1: must be a finite number >= 1
predict M --gpu h200-sxm --isl 1.5 --osl 1    | Invalid value for '--isl'
predict M --gpu h200-sxm --isl x --osl 1      | Invalid value for '--isl'
predict M --gpu h200-sxm --isl 99999999999999999999 --osl 1 | isl = 99999999999999999999: must be a finite number >= 1 and at most 1e+09
predict M --gpu h200-sxm --isl 1 --osl 0      | osl = 0: must be a finite number >= 1
predict M --gpu h200-sxm --isl 1              | Missing option '--osl'
predict M GPU --cached -1                     | cached = -1: must be a finite number >= 0
predict M GPU --load open                     | load = 'open'; valid: closed-loop, static, offline
predict M GPU --engine tgi                    | unknown engine 'tgi'; valid: ideal, sglang, trtllm, vllm
predict M GPU --engine nowhere.toml           | unknown engine 'nowhere.toml'; valid: ideal
predict M GPU --engine :1                     | unknown engine ''; valid: ideal
predict M GPU --recipe fp9                    | unknown recipe 'fp9'; valid: bf16, fp8
predict M GPU --recipe ''                     | --recipe is empty
predict zero.json GPU                         | zero.json: no such file
predict M --gpu zero.toml --isl 1 --osl 1     | unknown GPU 'zero.toml'
predict M GPU --kv int8                       | unknown KV format 'int8'; valid: bf16, fp8, nvfp4
predict M GPU --tp 0                          | Invalid value for '--tp'
predict M GPU --tp -1                         | Invalid value for '--tp'
predict M GPU --tp 3                          | 32 heads need a divisor: 1, 2, 4, 8, 16, 32
predict M GPU --tp 1000000000000              | 32 heads need a divisor
predict M GPU --tp 99999999999999999999       | attention_tp=99999999999999999999: must be a whole number >= 1
predict M GPU --tp 1.5                        | Invalid value for '--tp'
predict M GPU --ep 2                          | ep=2: must divide attention_tp x attention_dp x kvp = 1
predict M GPU --ep 0                          | Invalid value for '--ep'
predict M GPU --pp 0                          | Invalid value for '--pp'
predict M GPU --pp 33                         | pp=33: at most one stage per layer; 32 layers
predict M GPU --attention-tp 0                | Invalid value for '--attention-tp'
predict M GPU --attention-dp 0                | Invalid value for '--attention-dp'
predict M GPU --kvp 0                         | Invalid value for '--kvp'
predict M GPU --ffn-tp 0                      | Invalid value for '--ffn-tp'
predict M GPU --ffn-tp 3 --attention-tp 2     | must use the same GPUs
predict M GPU --tp 2 --attention-tp 2         | do not mix it with --attention-tp
predict M GPU --tp 2 --batch 0                | --batch '0': a whole number >= 1, or max
predict M GPU --tp 2 --batch -1               | --batch '-1': a whole number >= 1, or max
predict M GPU --tp 2 --batch 1.5              | --batch '1.5': a whole number >= 1, or max
predict M GPU --tp 2 --batch lots             | --batch 'lots': a whole number >= 1, or max
predict M GPU --tp 2 --batch ²                | --batch '²': a whole number >= 1, or max
predict M GPU --tp 2 --batch 9999999999999999999999 | batch=9999999999999999999999: must be a whole number
predict M GPU --tp 1 --draft-tokens -1        | draft_tokens=-1: must be a whole number >= 0
predict M GPU --tp 1 --acceptance 1.5         | acceptance=1.5: must be in [0, 1)
predict M GPU --tp 1 --acceptance nan         | acceptance=nan: must be in [0, 1)
predict M GPU --draft-tokens 2                | --draft-tokens and --acceptance are priced under a plan
predict M GPU --gpus 0                        | Invalid value for '--gpus'
predict M GPU --gpus -4                       | Invalid value for '--gpus'
predict M GPU --gpus x                        | Invalid value for '--gpus'
predict M GPU --tp 4 --gpus 2                 | --gpus bounds the plans that are tried
predict llama-3.1-405b --gpu h200-sxm --isl 100 --osl 100 --gpus 1 | no plan on 1 to 1 x h200-sxm fits: the leanest needs
advise                                        | Missing argument 'model'
advise nowhere --gpu h200-sxm                 | unknown model 'nowhere'
advise M --gpu h300                           | unknown GPU 'h300'; valid: a100-sxm
advise M --gpu h200-sxm --isl 0               | workload.0.isl = 0; valid: prompt tokens
advise M --gpu h200-sxm --osl 0               | workload.0.osl = 0; valid: output tokens
advise M --gpu h200-sxm --cached -3           | workload.0.cached = -3; valid: cached tokens
advise M --gpu h200-sxm --recipe fp9          | unknown recipe 'fp9'; valid: bf16
advise M --gpu h200-sxm --kv x                | space.kv_format = 'x': valid: bf16, fp8, nvfp4
advise M --gpu h200-sxm --engine x            | unknown engine 'x'; valid: ideal
advise heads-fraction.json --gpu h200-sxm     | num_attention_heads = 32.5: a whole number
list                                          | Missing argument 'what'
list things                                   | list 'things': valid: gpus, models, presets, engines, recipes
list gpus more                                | unexpected extra argument
calibrate                                     | Missing argument 'data'
calibrate nowhere --base h200-sxm --out a.toml | nowhere: holds none of allreduce.csv
calibrate csv-text --base h300 --out a.toml   | unknown GPU 'h300'; valid: a100-sxm
calibrate csv-text --base h200-sxm --out a.json | --out a.json: must end in .toml
calibrate endless --base h200-sxm --out a.toml | endless: holds none of allreduce.csv
calibrate csv-text --base h200-sxm            | Missing option '--out'
calibrate csv-shape --base gpu-nan.toml --out a.toml | memory_bytes_per_s = nan
measure                                       | Missing option '--out'
measure --out m1 --what                       | No such option: --what
frobnicate                                    | No such command 'frobnicate'
--what                                        | No such option: --what
"""
ROWS = [tuple(part.strip() for part in row.split(" | ")) for row in COMMANDS.strip().splitlines()]

# a file of a finished run, what becomes of it, the command, and what it says
DAMAGE = [
    ("run.json", None, "show RUN", "run.json: missing: the run has not finished, go on with --resume"),
    ("run.json", lambda data: data[:50], "show RUN", "run.json: not JSON"),
    ("run.json", lambda data: b"", "report RUN", "run.json: not JSON"),
    ("run.json", lambda data: b"[]", "show RUN", "run.json: not the record of a run"),
    ("run.json", lambda data: b'{"name": "x"}', "show RUN", "not the record of a run: axes, cells"),
    ("run.json", lambda data: b"[" * 10**6, "show RUN", "run.json: not JSON"),
    ("run.json", lambda data: data.decode().encode("utf-16"), "show RUN", "run.json: cannot be read"),
    ("run.json", lambda data: b"\0" * 99, "show RUN", "run.json: not JSON"),
    ("study.toml", None, "show RUN", "not a run directory (no study.toml in it)"),
    ("study.toml", lambda data: data[:40], "report RUN", "study.toml: not a TOML file"),
    ("study.toml", lambda data: b"", "report RUN", "study.toml: missing key 'name'"),
    ("study.toml", lambda data: data[:40], "run 8b-h200 --resume --out RUN", "study.toml: not a TOML file"),
    ("designs.parquet", None, "show RUN", "designs.parquet: missing; the run has not finished, use --resume"),
    ("designs.parquet", lambda data: data[: len(data) // 2], "show RUN", "designs.parquet: not a readable Parquet file"),
    ("designs.parquet", lambda data: b"", "show RUN", "designs.parquet: not a readable Parquet file"),
    ("designs.parquet", lambda data: b"PAR1" + b"\xff" * 64 + b"PAR1", "show RUN", "not a readable Parquet file"),
    ("frontier.parquet", lambda data: data[:-9], "export RUN --knee --out x", "frontier.parquet: not a readable Parquet"),
    ("points.parquet", lambda data: data[:-9], "report RUN", "points.parquet: not a readable Parquet file"),
    ("reference.parquet", lambda data: data[:-9], "report RUN", "reference.parquet: not a readable Parquet file"),
    ("checkpoint.npz", lambda data: data[: len(data) // 2], "run STUDY --resume --out RUN", "not a readable checkpoint"),
    ("checkpoint.npz", lambda data: b"", "run STUDY --resume --out RUN", "not a readable checkpoint"),
    ("checkpoint.npz", lambda data: b"\0" * 99, "run STUDY --resume --out RUN", "not a readable checkpoint"),
]  # fmt: skip


def call(capsys, line):
    """(exit code, standard output, standard error on one line) of a command line."""
    before, sys.argv = sys.argv, ["ridgeline", *shlex.split(line)]
    try:
        ridgeline.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    out, err = capsys.readouterr()
    return code, out, " ".join(err.translate(dict.fromkeys(map(ord, "│╭╮╰╯─"), " ")).split())


def assert_refused(capsys, line, said):
    code, out, err = call(capsys, line)
    assert code == 2 and said in err, f"exit code {code}: {err}"
    assert out == "" and (err.startswith("error: ") or "Error " in err)
    assert "Traceback" not in err and "Warning" not in err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of bad files and one finished run, `done`."""
    path = tmp_path_factory.mktemp("bad")
    bad_files.make(path)
    study = ridgeline.load_study(
        "8b-h200",
        **{"target.0.gpus": [1], "serving.batches": [1, 32], "search.sampler": "random", "search.trials": 32},
    )
    ridgeline.run(study, out=path / "done", progress=False)
    return path


@pytest.fixture(scope="module")
def app():
    return typer.main.get_command(ridgeline.app)


@pytest.fixture(autouse=True)
def here(folder, app, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(ridgeline, "app", app)  # Typer would build the same commands again for every call


@pytest.mark.parametrize(("line", "said"), ROWS, ids=[row[0] or "nothing" for row in ROWS])
def test_a_bad_command_line(capsys, line, said):
    words = {"M": "llama-3.1-8b", "GPU": GPU}
    spelled = " ".join(words.get(word, word) for word in line.split()).replace("LONG", LONG)
    assert_refused(capsys, spelled, said)


def command(name):
    kind = name.rpartition(".")[2]
    if kind == "json":
        return f"predict {name} {GPU} --tp 1 --batch 1"
    if name.startswith("gpu-") and name not in ("gpu-nul.toml", "gpu-list.toml"):
        return f"predict llama-3.1-8b --gpu {name} --isl 1024 --osl 128 --tp 1 --batch 1"
    if name.startswith("engine-"):
        return f"predict llama-3.1-8b {GPU} --engine {name} --tp 1 --batch 1"
    if name.startswith("points-"):
        return f"compare done done --out c2 --measured {name}"
    if kind == "toml":
        return f"check {name}"
    return f"calibrate {name.partition('/')[0]} --base h200-sxm --out mine.toml"


@pytest.mark.parametrize("name", [name for name, (_, said) in FILES.items() if said])
def test_a_bad_file(capsys, name):
    assert_refused(capsys, command(name), FILES[name][1])


@pytest.mark.parametrize(
    ("file", "change", "line", "said"), DAMAGE, ids=[f"{row[0]}-{number}" for number, row in enumerate(DAMAGE)]
)
def test_a_damaged_run(capsys, folder, tmp_path, file, change, line, said):
    run = tmp_path / "run"
    shutil.copytree(folder / "done", run)
    data = (run / file).read_bytes()
    if change is None:
        (run / file).unlink()
    else:
        (run / file).write_bytes(change(data))
    kept = {path.name: path.read_bytes() for path in run.iterdir() if path.name != "study.toml"}
    study = f"8b-h200 {SMALL} --sampler random --trials 32"
    assert_refused(capsys, line.replace("RUN", str(run)).replace("STUDY", study), said)
    assert {name: (run / name).read_bytes() for name in kept} == kept  # nothing else was touched


def test_a_run_whose_files_never_end(capsys, folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folder / "done", run)
    (run / "run.json").unlink()
    (run / "run.json").symlink_to("/dev/zero")
    assert_refused(capsys, f"show {run}", "run.json: ")


def test_an_argument_that_is_no_text(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ridgeline", "show", "a\udcff"])
    with pytest.raises(SystemExit) as end:
        ridgeline.main()
    assert end.value.code == 2 and "argument 'a\\udcff': must be UTF-8 text" in capsys.readouterr().err


def test_a_terminal_that_knows_ascii_only(monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "ascii"))
    monkeypatch.setattr(sys, "argv", ["ridgeline", "advise", "llama-3.1-8b", "--gpu", "h200-sxm"])
    with pytest.raises(SystemExit) as end:
        ridgeline.main()
    sys.stdout.flush()
    assert not end.value.code
    assert b"4096 ? 32" in shown.getvalue()  # hidden x layers


def test_a_table_that_lacks_columns(capsys, folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folder / "done", run)
    pd.DataFrame({"design": ["a"]}).to_parquet(run / "designs.parquet")
    assert_refused(capsys, f"show {run}", "designs.parquet: columns attention_sinks, dense_layers")


def test_a_checkpoint_of_something_else(capsys, folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folder / "done", run)
    np.savez(run / "checkpoint.npz", a=np.zeros(3))
    line = f"run 8b-h200 {SMALL} --sampler random --trials 64 --resume --out {run}"
    assert_refused(capsys, line, "checkpoint.npz: not a checkpoint of this study")


SERVING = "model_shape,gpu,engine,precision_weights,load_type,date,isl,osl,concurrency_or_batch,attention_tp,attention_dp,ffn_tp,expert_parallel,pp"
BENCHMARKS = [
    (serving, "points-columns.csv", "points-columns.csv: column 'attention_dp' is missing; it has speed, rate"),
    (serving, "points-empty.csv", "points-empty.csv: not a readable CSV file"),
    (serving, "points-utf16.csv", "points-utf16.csv: not a readable CSV file"),
    (serving, "nowhere.csv", "nowhere.csv: not a readable CSV file"),
    (serving, "lengths.csv", "lengths.csv: row 2: isl = 'long': must be a number of at least 0"),
    (serving, "unsplit.csv --split validation", "--split 'validation': the table has no splits"),
    (serving, "split.csv --split test", "--split 'test': the table has calibration, context"),
    (published, "nowhere.csv", "nowhere.csv: not a readable CSV file"),
    (published, "split.csv", "split.csv: column 'tier' is missing; published rows are told by it"),
    (elsewhere, "nowhere.csv", "nowhere.csv: not a readable CSV file"),
    (elsewhere, "lengths.csv --jobs 1", "lengths.csv: row 2: isl = 'long': must be a number of at least 0"),
    (elsewhere, "unsplit.csv", "unsplit.csv: column 'split' is missing: it tells which rows may be fitted"),
    (kernels, "csv-text", "gemm.csv: row 3: latency_us = 'fast': must be a number above 0"),
    (kernels, "nowhere", "nowhere: holds no measured file of these operations"),
    (kernels, "csv-text --ops nope", "unknown operation 'nope'; valid: gemm"),
    (calibrate, "csv-column --out fitted", "column 'latency_us' is missing"),
]


@pytest.mark.parametrize(("program", "arguments", "said"), BENCHMARKS, ids=[row[1] for row in BENCHMARKS])
def test_a_benchmark_of_bad_data(capsys, folder, monkeypatch, program, arguments, said):
    (folder / "lengths.csv").write_text(f"{SERVING}\nx,x,x,x,x,x,long,1,1,1,1,1,1,1\n")
    row = "x,x,x,x,x,x,1,1,1,1,1,1,1,1"
    (folder / "unsplit.csv").write_text(f"{SERVING}\n{row}\n")
    (folder / "split.csv").write_text(f"{SERVING},split\n{row},calibration\n{row},context\n")
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments.split()])
    with pytest.raises(SystemExit) as end:
        benchmarks.command(program.main)
    err = capsys.readouterr().err
    assert end.value.code == 2 and err.startswith("error: ") and said in err


def test_there_are_enough_of_them():
    assert len(ROWS) + sum(bool(said) for _, said in FILES.values()) + len(DAMAGE) >= 300


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"serving.kvp": [2]}, "gpus = [1]: no plan; one must be a multiple of some pp x kvp"),
        ({"serving.pp": [7]}, "gpus = [1]: no plan"),
        ({"target.0.gpus": [64], "serving.pp": [64]}, "plans is legal for the reference or any design"),
        ({"serving.modes": ["disaggregated"], "serving.batches": [0]}, "disaggregated serving needs batches above 0"),
        ({"target.0.gpu": "rtx-4090", "target.0.gpus": [16]}, "rtx-4090 has no network: at most 8 ranks"),
        ({"workload.0.isl": 10_000_000}, "the reference has no plan for"),
        ({"target.0.memory_bytes": 1e9}, "the reference has no plan for"),
        ({"serving.max_memory_bytes_per_gpu": 1e9}, "the reference has no plan for"),
    ],
)
def test_a_study_that_cannot_be_served(folder, changes, said):
    study = ridgeline.load_study(folder / "small.toml", **changes)
    with pytest.raises(ValueError) as error:
        ridgeline.run(study, out=folder / "never", progress=False)
    assert said in str(error.value) and not (folder / "never").exists()
