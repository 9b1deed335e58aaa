"""A serving engine: what it adds to kernel time, and what it chooses by default.

An engine file holds defaults and, because software is not one thing, tables that refine them:

    step_overhead_s = 3e-4               # any constant of `Engine`
    [generation.hopper]                  # replaces constants on a GPU generation ...
    [gpu.h200-sxm]                       # ... or on one GPU
    [[release]]                          # what changed over time
    version = "0.17.0"                   # matched anywhere in the version asked for
    date = "2026-03-01"                  # from this day on
    release_factor = 1.04                # step time relative to the newest release

Fitted tables carry source, rows and errors under [fit]; benchmarks/calibrate_engines.py writes them.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from spaces.formats import RECIPE_FFN, WEIGHT_BYTES, recipe_code

_DIRECTORY = Path(__file__).parent / "engines"


@dataclass(frozen=True)
class Engine:
    """Overheads and default rules of a serving engine; see engines/*.toml for their sources.

    Attributes:
        name: engine. version, date: of the release whose constants these are. note: what was assumed ("" if nothing).
        step_overhead_s: host gap of one step that the GPU waits for (scheduling, sampling, launch).
        layer_overhead_s: small kernels and launch gaps of one layer not priced by name.
        sequence_overhead_s: host work per sequence in a step.
        prefill_overhead_s: extra host work of a step that starts prompts.
        first_token_s: from a request's arrival to its first step, and from its token to the client.
        linear_factor, attention_factor, ffn_factor, experts_factor, communication_factor: seconds in a running engine
            over seconds of the same kernel measured alone.
        prefill_factor: the same for the part of a step that prompts add.
        release_factor: step time relative to the newest release.
        kernels: which calibration family this engine's kernels belong to.
        all_reduce_launch: graph or eager, the launch mode of its collectives in decode.
        memory_fraction: share of device memory that the engine may fill.
        reserved_bytes: context, CUDA graphs and communication buffers per GPU.
        prefill_chunk: default tokens of one mixed step.
        tokens_per_block: KV page size.
        mixed_steps: prompts and decoding sequences share passes (False: prompts run in passes of their own).
        windowed_kv: the engine frees KV that left the window (False: it keeps the whole context).
        quantised_kv_format: KV format it picks for checkpoints with weights of 8 bits or fewer.
    """

    name: str
    version: str
    date: str
    step_overhead_s: float
    layer_overhead_s: float
    sequence_overhead_s: float
    prefill_overhead_s: float
    first_token_s: float
    linear_factor: float
    attention_factor: float
    ffn_factor: float
    experts_factor: float
    communication_factor: float
    prefill_factor: float
    release_factor: float
    kernels: str
    all_reduce_launch: str
    memory_fraction: float
    reserved_bytes: float
    prefill_chunk: int
    tokens_per_block: int
    windowed_kv: bool
    mixed_steps: bool
    quantised_kv_format: str
    note: str = ""
    fit: dict[str, Any] = field(repr=False, default_factory=dict)

    def default_kv_format(self, recipe: Any) -> str:
        """The KV format the engine picks for a checkpoint of this recipe."""
        quantised = WEIGHT_BYTES[RECIPE_FFN[recipe_code(recipe)]] <= WEIGHT_BYTES[1]
        return self.quantised_kv_format if quantised else "bf16"


CONSTANTS = tuple(f.name for f in fields(Engine) if f.type in ("float", "int", "bool", "str"))


def available() -> tuple[str, ...]:
    """Names of the bundled engines."""
    return tuple(sorted(path.stem for path in _DIRECTORY.glob("*.toml")))


def load_engine(name: str | Path, generation: str = "", gpu: str = "") -> Engine:
    """Read an engine by bundled name or TOML path, as it runs on a GPU.

    Args:
        name: "vllm", a path ending in .toml, or either with a release: "vllm:0.17.0", "vllm:2026-03-01".
            An unknown version takes the newest release, a day the release of that day; `note` says so.
        generation, gpu: of the GPU, for constants that depend on it.
    Raises:
        ValueError: unknown engine, or an unknown or missing key.
    """
    base, _, release = str(name).partition(":")
    path = Path(base) if base.endswith(".toml") else _DIRECTORY / f"{base}.toml"
    if not path.is_file():
        raise ValueError(f"unknown engine {base!r}; valid: {', '.join(available())}, or a path to a .toml file")
    data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    values = {key: value for key, value in data.items() if not isinstance(value, dict | list)}
    values |= data.get("generation", {}).get(generation, {}) | data.get("gpu", {}).get(gpu, {})
    values |= _released(data.get("release", []), release)
    wrong = sorted((set(values) ^ set(CONSTANTS)) - {"note"})
    if wrong:
        raise ValueError(f"{path}: key {wrong[0]!r} is {'unknown' if wrong[0] in values else 'missing'}")
    return Engine(**values, fit=data.get("fit", {}))


def _released(releases: list[dict[str, Any]], asked: str) -> dict[str, Any]:
    """Constants of the release of that version or day; the newest where none is asked for."""
    if not releases:
        return {"note": f"release {asked!r}: no dated constants"} if asked else {}
    ordered = sorted(releases, key=lambda row: row["date"])
    if not asked:
        return ordered[-1]
    day = re.fullmatch(r"\d{4}(-\d\d)?(-\d\d)?", asked)
    if day:
        earlier = [row for row in ordered if row["date"] <= asked]
        return earlier[-1] if earlier else {**ordered[0], "note": f"{asked} is before the oldest release known"}
    named = [row for row in ordered if row["version"] in asked]
    if named:
        return named[-1]
    return {**ordered[-1], "note": f"unknown version {asked!r}: constants of {ordered[-1]['version']}"}
