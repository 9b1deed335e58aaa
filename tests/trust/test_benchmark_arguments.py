"""Benchmarks refuse what they cannot measure: one message with what is valid, exit code 2, no traceback."""

import importlib
import sys

import pytest

from benchmarks import command

BAD = [
    ("page", ["--loads", "-3"], "--loads: '-3': must be a whole number of at least 1"),
    ("page", ["no-such-run"], "not a run directory"),
    ("speed", ["--plans", "1e99"], "--plans: '1e99': must be a whole number of at least 1"),
    ("speed", ["--gpu", "nosuch"], "unknown GPU 'nosuch'; valid: a100-sxm"),
    ("speed_profile", ["--seconds", "nan"], "--seconds: 'nan': must be seconds above 0"),
    ("speed_profile", ["--studies", "nosuch"], "unknown study 'nosuch'; presets: 70b-b200"),
    ("search", ["--seeds", "0"], "--seeds: '0': must be a whole number of at least 1"),
    ("search", ["--quick", "--problems", "nosuch"], "unknown problem 'nosuch'; valid: toy"),
    ("published", ["no-such.csv"], "not a readable CSV file"),
]


@pytest.mark.parametrize(("name", "arguments", "message"), BAD)
def test_a_benchmark_says_what_is_valid(monkeypatch, capsys, name, arguments, message):
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as stop:
        command(module.main)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
