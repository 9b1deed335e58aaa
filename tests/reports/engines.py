"""What engines define, as recorded, and what an exported script tells them, as the shell hands it over."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("engine_arguments.json")
_STUBS = ("vllm", "python", "trtllm-serve", "srun", "llama-server", "vllm-router")


@cache
def _all():
    return json.loads(_FILE.read_text(encoding="utf-8"))


def recorded(name: str) -> dict:
    return _all()[name]


def told(scripts: dict[str, str], name: str, folder: Path) -> list[str]:
    """The command line that a script runs, from bash itself: every program it may start only prints its words."""
    bin_ = folder / "bin"
    if not bin_.exists():
        bin_.mkdir(parents=True)
        for stub in _STUBS:
            (bin_ / stub).write_text('#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@"\n')
            (bin_ / stub).chmod(0o755)
    for file, text in scripts.items():
        (folder / file).write_text(text)
    environment = {
        "PATH": f"{bin_}:{os.environ['PATH']}", "MODEL": "/models/a b", "DRAFT": "/models/draft",
        "NODE_RANK": "1", "HEAD_ADDRESS": "10.0.0.1",
    }  # fmt: skip
    done = subprocess.run(["bash", str(folder / name)], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def check_options(words: list[str], options: dict) -> dict[str, list[str]]:
    """Options of a command line, each known, with a value exactly where one is due and among its choices."""
    given: dict[str, list[str]] = {}
    position = 0
    while position < len(words):
        option = words[position]
        position += 1
        if not option.startswith("--"):
            continue
        assert option in options, f"{option} is not an option"
        if options[option] == 0:
            given.setdefault(option, [])
            continue
        assert position < len(words) and not words[position].startswith("--"), f"{option} wants a value"
        value = words[position]
        position += 1
        if options[option] is not None:
            assert value in options[option], f"{option} {value}: one of {options[option]}"
        given.setdefault(option, []).append(value)
    return given
