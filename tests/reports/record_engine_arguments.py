"""Record the options that engines define, from their own argument parsers, for tests that have no engine at hand.

    python tests/reports/record_engine_arguments.py vllm sglang vllm-router sglang-router megatron

Each name needs its package importable (an unpacked wheel on PYTHONPATH is enough; no GPU). Sections of
engine_arguments.json that are not named stay as they are: TensorRT-LLM and llama.cpp were read from their source
text (serve.py, llm_args.py, disagg_utils.py; tools/server/README.md), as their `source` says.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path

FILE = Path(__file__).with_name("engine_arguments.json")
MOST_CHOICES = 40


def vllm() -> argparse.ArgumentParser:
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()  # without a GPU it infers no device
    from vllm.config.cache import KV_CACHE_DTYPES
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    parser._option_string_actions["--kv-cache-dtype"].choices = KV_CACHE_DTYPES  # checked only after parsing
    return parser


def sglang() -> argparse.ArgumentParser:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


def sglang_router() -> argparse.ArgumentParser:
    from sglang_router.router_args import RouterArgs

    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser, use_router_prefix=False)
    return parser


def vllm_router() -> argparse.ArgumentParser:
    from vllm_router.router_args import RouterArgs

    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser, use_router_prefix=False)
    return parser


def megatron() -> argparse.ArgumentParser:
    import typing

    import typing_extensions

    typing.override = typing_extensions.override  # type: ignore[attr-defined]  # it wants Python 3.12
    from megatron.training.arguments import add_megatron_arguments

    return add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))


PARSERS = {
    "vllm": (vllm, "vllm"),
    "sglang": (sglang, "sglang"),
    "vllm-router": (vllm_router, "vllm-router"),
    "sglang-router": (sglang_router, "sglang-router"),
    "megatron": (megatron, "megatron-core"),
}


def options(parser: argparse.ArgumentParser) -> dict[str, list[str] | int | None]:
    """Option -> its choices, 0 where it takes no value, None where it takes any."""
    found: dict[str, list[str] | int | None] = {}
    for action in parser._actions:
        for name in action.option_strings:
            if name.startswith("--"):
                choices = [str(c) for c in action.choices] if action.choices else []
                listed = choices if 0 < len(choices) <= MOST_CHOICES else None
                found[name] = 0 if action.nargs == 0 else listed
    return dict(sorted(found.items()))


def main(names: list[str]) -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for name in names:
        parser, package = PARSERS[name]
        sys.argv = [name]
        section = {"version": version(package), "source": "its own argument parser", "options": options(parser())}
        recorded[name] = section
    lines = (f"{json.dumps(name)}: {json.dumps(section)}" for name, section in sorted(recorded.items()))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
