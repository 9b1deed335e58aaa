"""A serving engine: what it adds to kernel time, and what it chooses by default."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

_DIRECTORY = Path(__file__).parent / "engines"


@dataclass(frozen=True)
class Engine:
    """Overheads and default rules of a serving engine; see engines/*.toml for their sources.

    Attributes:
        step_overhead_s: host gap of one step that the GPU waits for (scheduling, sampling, launch).
        layer_overhead_s: small kernels and launch gaps of one layer not priced by name.
        sequence_overhead_s: host work per sequence in a step.
        prefill_overhead_s: extra host work of a step that starts prompts.
        kernels: which calibration family this engine's kernels belong to.
        all_reduce_launch: graph or eager, the launch mode of its collectives in decode.
        memory_fraction: share of device memory that the engine may fill.
        reserved_bytes: context, CUDA graphs and communication buffers per GPU.
        prefill_chunk: default tokens of one mixed step.
        tokens_per_block: KV page size.
        windowed_kv: the engine frees KV that left the window (False: it keeps the whole context).
    """

    name: str
    version: str
    date: str
    step_overhead_s: float
    layer_overhead_s: float
    sequence_overhead_s: float
    prefill_overhead_s: float
    kernels: str
    all_reduce_launch: str
    memory_fraction: float
    reserved_bytes: float
    prefill_chunk: int
    tokens_per_block: int
    windowed_kv: bool
    source: dict[str, str] = field(repr=False, default_factory=dict)


def available() -> tuple[str, ...]:
    """Names of the bundled engines."""
    return tuple(sorted(path.stem for path in _DIRECTORY.glob("*.toml")))


def load_engine(name: str | Path) -> Engine:
    """Read an engine by bundled name or TOML path.

    Raises:
        ValueError: unknown engine, or an unknown or missing key.
    """
    path = Path(name) if str(name).endswith(".toml") else _DIRECTORY / f"{name}.toml"
    if not path.is_file():
        raise ValueError(f"unknown engine {str(name)!r}; valid: {', '.join(available())}, or a path to a .toml file")
    data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    names = {f.name for f in fields(Engine)}
    if set(data) - names or names - set(data):
        wrong = sorted((set(data) - names) | (names - set(data)))[0]
        raise ValueError(f"{path}: key {wrong!r} is {'unknown' if wrong in data else 'missing'}")
    return Engine(**data)
