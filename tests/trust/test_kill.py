"""Runs that are killed, that fill the disk, that meet another process: what was there stays, and they go on.

RIDGELINE_SLOW=1 kills 50 runs of each kind; benchmarks/kill.py says what is compared.
"""

import errno
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import ridgeline
from studies import results, store
from studies.resume import Checkpoints
from studies.store import RunDirectory

ROOT = pathlib.Path(__file__).parents[2]
KILLS = 50 if os.environ.get("RIDGELINE_SLOW") else 3
SMALL = {"target.0.gpus": [1], "serving.batches": [1, 16], "search.sampler": "random", "search.trials": 128}


def small(**changes):
    return ridgeline.load_study("8b-h200", **{**SMALL, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return ridgeline.run(small(), out=tmp_path_factory.mktemp("kill") / "run", progress=False)


def contents(path):
    return {entry.name: entry.read_bytes() for entry in path.iterdir() if entry.is_file() and entry.name != store.LOCK}


@pytest.mark.parametrize("kind", ["run frontier", "sweep"])
def test_killed_at_random_moments_and_resumed(kind):
    line = [sys.executable, "-m", "benchmarks.kill", "--kind", kind, "--kills", str(KILLS), "--json"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    summary = json.loads(done.stdout)
    assert done.returncode == 0, summary["failures"]
    assert summary["same"] == summary["runs"] > 0
    assert summary["paid_twice"] == summary["orphans"] == 0


def test_a_run_killed_before_it_wrote_anything_can_be_started_again(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".study.toml.tmp").write_text("nam")
    assert RunDirectory.create("x", tmp_path).path == tmp_path
    (tmp_path / "notes.tmp").touch()  # someone's own
    with pytest.raises(ValueError, match="not an empty directory"):
        RunDirectory.create("x", tmp_path)


class FullDisk:
    """Lets `bytes` more be written through pathlib, then fails as a full disk does."""

    def __init__(self, left):
        self.left, self.open = left, pathlib.Path.open

    def __call__(self, path, mode="r", *arguments, **options):
        handle = self.open(path, mode, *arguments, **options)
        if "w" not in mode or path.name == store.LOCK:
            return handle
        write = handle.write

        def limited(data):
            if len(data) > self.left:
                write(data[: self.left])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.left -= len(data)
            return write(data)

        return _Handle(handle, limited)


class _Handle:
    def __init__(self, handle, write):
        self.handle, self.write = handle, write

    def __getattr__(self, name):
        return getattr(self.handle, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.handle.close()


@pytest.mark.parametrize("left", [0, 2_000, 60_000, 150_000])
def test_a_full_disk_leaves_what_was_there(finished, tmp_path, monkeypatch, left):
    """A resumed run needs more space than there is: at the study, the checkpoint, or among the tables."""
    run = tmp_path / "run"
    run.mkdir()
    for name, data in contents(finished.path).items():
        (run / name).write_bytes(data)
    disk = FullDisk(left)
    monkeypatch.setattr(pathlib.Path, "open", lambda path, *a, **k: disk(path, *a, **k))
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        ridgeline.run(small(**{"search.trials": 192}), out=run, resume=True, progress=False)
    monkeypatch.undo()
    assert not list(run.glob(".*.tmp"))
    after = contents(run)
    tables = [name for name in after if name not in ("study.toml", "checkpoint.npz")]
    assert {name: after[name] for name in tables} == {name: contents(finished.path)[name] for name in tables}
    again = ridgeline.run(small(**{"search.trials": 192}), out=run, resume=True, progress=False)
    assert again.meta["trials"] == 192


def test_a_crash_between_two_tables_is_not_taken_for_a_run(finished, tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    for name, data in contents(finished.path).items():
        (run / name).write_bytes(data)
    replace = pathlib.Path.replace

    def crash(path, target):
        if target.name == "reference.parquet":
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(pathlib.Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        ridgeline.run(small(**{"search.trials": 192}), out=run, resume=True, progress=False)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="the run has not finished, go on with --resume"):
        results.load_run(run)
    assert ridgeline.run(small(**{"search.trials": 192}), out=run, resume=True, progress=False).meta["trials"] == 192


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_directory_that_cannot_be_written(finished, monkeypatch, code):
    before = contents(finished.path)

    def refuse(path, mode="r", *arguments, **options):
        if "w" in mode:
            raise OSError(code, os.strerror(code))
        return opened(path, mode, *arguments, **options)

    opened = pathlib.Path.open
    monkeypatch.setattr(pathlib.Path, "open", refuse)
    with pytest.raises(ValueError, match=f"{finished.path}: cannot be written: {os.strerror(code)}"):
        ridgeline.run(small(), out=finished.path, resume=True, progress=False)
    monkeypatch.undo()
    assert contents(finished.path) == before


def test_a_second_process_is_told_and_changes_nothing(finished):
    before = contents(finished.path)
    code = "import sys, ridgeline; ridgeline.main()"
    line = ["run", "8b-h200", "--set", "target.0.gpus=[1]", "--set", "serving.batches=[1,16]"]
    line += ["--sampler", "random", "--trials", "192", "--resume", "--out", str(finished.path)]
    with finished.directory.lock():
        other = subprocess.run([sys.executable, "-c", code, *line], cwd=ROOT, capture_output=True, text=True)
    assert other.returncode == 2
    assert other.stderr == f"error: {finished.path}: another process is running in this directory\n"
    assert contents(finished.path) == before


def test_runs_started_at_once_get_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exists = pathlib.Path.exists
    monkeypatch.setattr(pathlib.Path, "exists", lambda path: path.name != "x-1" and exists(path))  # seen too late
    (tmp_path / "runs" / "x-1").mkdir(parents=True)
    with pytest.raises(ValueError, match="File exists"):
        RunDirectory.create("x")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert [RunDirectory.create("x").path.name for _ in range(2)] == ["x-2", "x-3"]


@pytest.mark.parametrize("changes", [{"search.seed": 5}, {"search.interactivity_targets": [25, 75, 100]}])
def test_only_when_to_stop_may_change(finished, changes):
    key = next(iter(changes))
    with pytest.raises(ValueError, match=rf"these differ: {key} \(there .*, here .*\)"):
        ridgeline.run(small(**changes), out=finished.path, resume=True, progress=False)


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    """However dear saving grows, nineteen twentieths of the time are for the search; the last state is saved."""
    now, saved_at = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    checkpoints = Checkpoints(RunDirectory(tmp_path))

    def slow_write(name, arrays):
        saved_at.append(now[0])
        now[0] += 0.5

    monkeypatch.setattr(checkpoints.directory, "write_arrays", slow_write)
    monkeypatch.setattr("studies.resume.saved", lambda state: {})
    for _ in range(1000):
        now[0] += 0.1  # a batch
        checkpoints.save_sometimes(None)
    assert 0.02 < len(saved_at) * 0.5 / now[0] <= 0.05


def test_a_frontier_is_kept_whole_through_a_resumed_run_of_other_length(finished, tmp_path):
    """Stopped in the middle of a sampler's block, then prolonged: as if asked for so many at once."""
    study = ridgeline.load_study("8b-h200", **{**SMALL, "search.sampler": "frontier", "search.seed": 2})
    whole = ridgeline.run(study.override({"search.trials": 200}), out=tmp_path / "whole", progress=False)
    ridgeline.run(study.override({"search.trials": 100}), out=tmp_path / "parts", progress=False)
    parts = ridgeline.run(study.override({"search.trials": 200}), out=tmp_path / "parts", resume=True, progress=False)
    pd.testing.assert_frame_equal(parts.frontier, whole.frontier)
    axes = [name for name in whole.trials if name.startswith("axis_")]
    assert len(np.unique(parts.trials[axes].to_numpy(), axis=0)) == 200  # no design paid twice
