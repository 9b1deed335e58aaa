"""A serving engine: what it adds to kernel time, and what it chooses by default.

An engine file holds defaults and, because software is not one thing, tables that refine them:

    step_overhead_s = 3e-4               # any constant of `Engine`
    [generation.hopper]                  # replaces constants on a GPU generation ...
    [gpu.h200-sxm]                       # ... or on one GPU
    [[release]]                          # what changed over time
    version = "0.17.0"                   # matched anywhere in the version asked for; "" where only the date is known
    date = "2026-03-01"
    gpu.h200-sxm = { release_factor = 1.04 }

Fitted tables carry source, rows and errors under [fit]; benchmarks/calibrate_engines.py writes them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cost_model.data_file import LONGEST_NAME, check_number, check_text, read_toml, shown
from spaces.formats import FORMATS, KV_FORMATS, RECIPE_FFN, WEIGHT_BYTES, recipe_code

_DIRECTORY = Path(__file__).parent / "engines"


@dataclass(frozen=True)
class Engine:
    """Overheads and default rules of a serving engine; see engines/*.toml for their sources.

    Attributes:
        name: engine. version, date: of the release whose constants these are. note: what was assumed ("" if nothing).
        step_overhead_s: host gap of one step that the GPU waits for (scheduling, sampling, launch).
        layer_overhead_s, moe_layer_overhead_s: small kernels and launch gaps of any layer and of an MoE layer that are
            not priced by name, less what back-to-back launches overlap (negative where that is more).
        sequence_overhead_s: host work per sequence that one attention-DP rank has in a step.
        prefill_overhead_s: extra host work of a step that starts prompts.
        first_token_s: from a request's arrival to its first step, and from its token to the client.
        handover_s: from a prompt's last pass in a prefill pool to its first token, besides the bytes of its KV cache:
            routers, connections, the decode pool's polling.
        linear_factor, experts_factor: (formats,) seconds in a running engine over seconds of the same kernel measured
            alone, by weight format. attention_factor (of decoding), prompt_attention_factor,
            communication_factor: likewise.
        expert_parallel_factor: the same for experts spread over ranks, which wait for the fullest in every layer.
        dispatched_experts_factor: the same, once more, for experts whose tokens come from attention-DP ranks.
        prefill_factor: the same for the part of a step that prompts add. moe_prefill_factor: once more, of an MoE.
        pool_factor: seconds of a prompt on a prefill pool over those of its passes (scheduling, KV hand-over).
        pool_wait_factor: once more, on a pool of attention-DP ranks, which wait for one another.
        exchange_factor: the same for what attention-DP ranks exchange around the experts.
        admission_steps: passes that an aggregated engine holds a prompt back until other attention-DP ranks have one
            too, so that they start together (TensorRT-LLM tech blog 10: `batching_wait_iters`, `timeout_iters`).
        poll_steps: passes from one look for new prompts to the next (SGLang's `--scheduler-recv-interval`).
        batch_wait_steps: passes that the first of waiting prompts waits for more of them (TensorRT-LLM's
            `batch_wait_timeout_iters`).
        queue_factor: how much longer prompts queue in a closed loop than randomly arriving ones would.
        release_factor: seconds of every kernel under this release over those under the GPU's typical one.
        all_to_all: whose kernels bring tokens to experts: NVLink's where a domain has them, or DeepEP's.
        dispatched_kernels: experts whose tokens come from attention-DP ranks run grouped GEMMs (CUTLASS, DeepGEMM);
            False: tokens are gathered first (vLLM's `allgather_reducescatter`), and fused kernels serve them too.
        fused_experts: tokens that no exchange brought may run the fused expert kernels, where the GPU has them.
        mla_splits_kv: decode attention of latents divides a long context among SMs (False: SGLang's `cutlass_mla`,
            which sgl-kernel calls with num_kv_splits = 1).
        kernels: which calibration family this engine's kernels belong to.
        all_reduce_launch: graph or eager, the launch mode of its collectives in decode.
        memory_fraction: share of device memory that the engine may fill.
        reserved_bytes: context, CUDA graphs and communication buffers per GPU.
        prefill_chunk: default tokens of one mixed step.
        tokens_per_block: KV page size.
        mixed_steps: prompts and decoding sequences share passes (False: prompts run in passes of their own).
        windowed_kv: the engine frees KV that left the window (False: it keeps the whole context).
        fused_quantisation: formats whose activations are quantised inside the norm, attention or gate before a GEMM.
        quantised_kv_format: KV format it picks for checkpoints with weights of 8 bits or fewer.
    """

    name: str
    version: str
    date: str
    step_overhead_s: float
    layer_overhead_s: float
    moe_layer_overhead_s: float
    sequence_overhead_s: float
    prefill_overhead_s: float
    first_token_s: float
    handover_s: float
    linear_factor: Any
    experts_factor: Any
    attention_factor: float
    prompt_attention_factor: float
    expert_parallel_factor: float
    dispatched_experts_factor: float
    communication_factor: float
    prefill_factor: float
    moe_prefill_factor: float
    pool_factor: float
    pool_wait_factor: float
    exchange_factor: float
    admission_steps: float
    poll_steps: float
    batch_wait_steps: float
    queue_factor: float
    release_factor: float
    kernels: str
    all_to_all: str
    dispatched_kernels: bool
    fused_experts: bool
    mla_splits_kv: bool
    all_reduce_launch: str
    memory_fraction: float
    reserved_bytes: float
    prefill_chunk: int
    tokens_per_block: int
    windowed_kv: bool
    mixed_steps: bool
    quantised_kv_format: str
    fused_quantisation: list[str]
    note: str = ""
    fit: dict[str, Any] = field(repr=False, default_factory=dict)

    @cached_property
    def fused(self) -> np.ndarray:
        """(formats,) bool: no quantisation kernel of its own before a GEMM."""
        return np.array([form in self.fused_quantisation for form in FORMATS])

    def default_kv_format(self, recipe: Any) -> str:
        """The KV format the engine picks for a checkpoint of this recipe."""
        quantised = WEIGHT_BYTES[RECIPE_FFN[recipe_code(recipe)]] <= WEIGHT_BYTES[1]
        return self.quantised_kv_format if quantised else "bf16"


CONSTANTS = tuple(f.name for f in fields(Engine) if f.name != "fit")
MOST_DAYS = 180  # farther apart, a release says nothing about another
BY_FORMAT = ("linear_factor", "experts_factor")
_TABLES = ("generation", "gpu", "release", "fit")
_TEXTS = ("name", "version", "date", "note")
_WHOLE = ("prefill_chunk", "tokens_per_block")
_CHOICES: dict[str, tuple[Any, ...]] = {
    "kernels": ("ideal", "sglang", "trtllm", "vllm"),
    "dispatched_kernels": (True, False),
    "fused_experts": (True, False),
    "mla_splits_kv": (True, False),
    "all_to_all": ("nvlink-one-sided", "deepep"),
    "all_reduce_launch": ("graph", "eager"),
    "quantised_kv_format": KV_FORMATS,
    "windowed_kv": (True, False),
    "mixed_steps": (True, False),
}
# by the last word of a constant's name: least and most
_RANGES = {"s": (-1.0, 60.0), "factor": (0.01, 100.0), "fraction": (0.01, 1.0), "bytes": (0.0, 1e13)}
_RANGES |= {"steps": (0.0, 1e4), "chunk": (1, 2**24), "block": (1, 2**16)}
_DATE = re.compile(r"\d{4}(-\d\d){0,2}")


def available() -> tuple[str, ...]:
    """Names of the bundled engines."""
    return tuple(sorted(path.stem for path in _DIRECTORY.glob("*.toml")))


def load_engine(name: str | Path, generation: str = "", gpu: str = "") -> Engine:
    """Read an engine by bundled name or TOML path, as it runs on a GPU.

    Args:
        name: "vllm", a path ending in .toml, or either with a release: "vllm:0.17.0", "vllm:2026-03-01", or both,
            "vllm:0.17.0@2026-03-01". An unknown version takes the release nearest in date,
            or the newest; `note` says so.
        generation, gpu: of the GPU, for constants that depend on it.
    Raises:
        ValueError: unknown engine, or a key that is unknown, missing or has no possible value.
    """
    base, _, asked = str(name).partition(":")
    path = Path(base) if base.endswith(".toml") else _DIRECTORY / f"{base}.toml"
    if not os.path.isfile(path):  # unlike Path.is_file, not upset by names that are too long
        raise ValueError(f"unknown engine {base!r}; valid: {', '.join(available())}, or a path to a .toml file")
    data = _bundled(path) if path.parent == _DIRECTORY else read_toml(path)
    return _engine(path, data, generation, gpu, asked)


def _engine(path: Path, data: dict[str, Any], generation: str, gpu: str, asked: str) -> Engine:
    """The engine of a file's tables, on a GPU and in the release asked for."""
    values = {key: value for key, value in data.items() if key not in _TABLES}
    own = dict(_table(path, data, "gpu", gpu))
    fit = {**_table(path, data, "fit"), **own.pop("fit", {})}
    for refined in (_table(path, data, "generation", generation), own):
        _refine(path, values, refined)
    values |= _released([row for row in _releases(path, data) if gpu in row["gpu"]], gpu, asked)
    _check(path, values)
    for name in BY_FORMAT:
        values[name] = np.array([values[name].get(form, values[name].get("other", 1.0)) for form in FORMATS])
    return Engine(**values, fit=fit)


@cache
def _bundled(path: Path) -> dict[str, Any]:
    return read_toml(path)


def _table(path: Path, data: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The table at the end of the keys, empty where it is absent."""
    for number, key in enumerate(keys):
        data = data.get(key, {})
        if not isinstance(data, dict):
            raise ValueError(f"{path}: {'.'.join(keys[: number + 1])} = {shown(data)}: must be a table")
    return data


def _releases(path: Path, data: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = data.get("release", [])
    if not isinstance(rows, list):
        raise ValueError(f"{path}: release = {shown(rows)}: must be [[release]] tables of version, date and gpu")
    for number, row in enumerate(rows):
        where = f"{path}: release.{number}"
        if not isinstance(row, dict) or row.keys() != {"version", "date", "gpu"}:
            raise ValueError(f"{where} = {shown(row)}: must be a [[release]] table of version, date and gpu")
        check_text(f"{where}.version", row["version"], empty=True, longest=LONGEST_NAME)
        if not isinstance(row["date"], str) or not _DATE.fullmatch(row["date"]):
            raise ValueError(f"{where}.date = {shown(row['date'])}: must be a date such as 2026-03 or 2026-03-01")
        for gpu in _table(path, row, "gpu"):
            _table(path, row, "gpu", gpu)
    return rows


def _check(path: Path, values: dict[str, Any]) -> None:
    """Every constant is there and can be true.

    Raises:
        ValueError: naming the first that is not, with what is valid.
    """
    wrong = sorted((set(values) ^ set(CONSTANTS)) - {"note"})
    if wrong:
        kind = "unknown" if wrong[0] in values else "missing"
        raise ValueError(f"{path}: {kind} key {wrong[0]!r}; valid: {', '.join(CONSTANTS)}")
    for name, value in values.items():
        where = f"{path}: {name}"
        if name in _CHOICES:
            _check_choice(where, value, _CHOICES[name])
        elif name in BY_FORMAT:
            for form, factor in _table(path, values, name).items():
                _check_choice(f"{where} format", form, (*FORMATS, "other"))
                check_number(f"{where}.{form}", factor, *_RANGES["factor"])
        elif name == "fused_quantisation":
            if not isinstance(value, list):
                raise ValueError(f"{where} = {shown(value)}: must be a list of {', '.join(FORMATS)}")
            for form in value:
                _check_choice(where, form, FORMATS)
        elif name in _TEXTS:
            check_text(where, value, empty=True)
        else:
            check_number(where, value, *_RANGES[name.rpartition("_")[2]], whole=name in _WHOLE)


def _check_choice(where: str, value: Any, valid: tuple[Any, ...]) -> None:
    if not any(type(value) is type(one) and value == one for one in valid):
        raise ValueError(f"{where} = {shown(value)}: valid: {', '.join(str(one).lower() for one in valid)}")


def _refine(path: Path, values: dict[str, Any], refined: dict[str, Any]) -> None:
    """Replace constants; tables by format entry by entry."""
    for name, value in refined.items():
        values[name] = {**_table(path, values, name), **_table(path, refined, name)} if name in BY_FORMAT else value


def _released(releases: list[dict[str, Any]], gpu: str, asked: str) -> dict[str, Any]:
    """Constants of the release of that version or day; the newest where none is asked for."""
    if not releases:
        return {"note": f"no dated constants on this GPU: release {asked!r} not told apart"} if asked else {}
    version, _, day = asked.partition("@")
    if _DATE.fullmatch(version):
        version, day = "", version
    named = [row for row in releases if row["version"] and row["version"] in version]
    ordered = sorted(releases, key=lambda row: row["date"])
    row, note = ordered[-1], ""
    if named:
        row = max(named, key=lambda row: len(row["version"]))
    elif day and min(abs(_days(row["date"]) - _days(day)) for row in ordered) > MOST_DAYS:
        return {"date": day, "note": f"no release near {day} is known: constants of this GPU's typical one"}
    elif day:
        row = min(ordered, key=lambda row: abs(_days(row["date"]) - _days(day)))
        note = f"unknown version {version!r}: constants of {row['date']}" if version else ""
    elif version:
        note = f"unknown version {version!r}: constants of {row['version'] or row['date']}"
    return {"version": row["version"], "date": row["date"], "note": note, **row["gpu"][gpu]}


def _days(text: str) -> int:
    """Days of an ISO date, the middle of a month or year where it names no day."""
    year, month, day = (*(int(part) for part in text.split("-")), 0, 0)[:3]
    return date(year, month or 6, day or 15).toordinal()
