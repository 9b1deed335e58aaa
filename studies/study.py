"""A study: what a user launches, read from one TOML file, checked strictly, and made ready to run."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from cost_model.accelerator import Accelerator, load_accelerator
from cost_model.data_file import read_toml
from spaces.architecture import Architecture
from spaces.design_space import DesignSpace
from spaces.huggingface import load_architecture
from spaces.parameters import parameters
from spaces.workload import Workload
from studies.errors import readable
from studies.schema import Accuracy, Search, Serving, StudyTable, TargetTable

_PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True)
class Target:
    """GPUs that a design must serve well on: `gpus` are the sizes of one replica."""

    gpu: Accelerator
    engine: str
    gpus: tuple[int, ...]
    weight: float


@dataclass(frozen=True)
class NamedWorkload:
    """A workload with the name that tables and figures give it."""

    name: str
    workload: Workload
    weight: float


@dataclass(frozen=True)
class Study:
    """A validated study.

    Attributes:
        name, reference_name: as in the file. reference: the design that every gain is measured against.
        space: what is searched. targets, workloads: in file order, with weights.
        accuracy, serving, search: the tables of the study file, validated, defaults filled in.
        table: the study as plain TOML values, overrides applied, paths absolute; `Study.toml()` writes it.
    """

    name: str
    reference_name: str
    reference: Architecture
    space: DesignSpace
    targets: tuple[Target, ...]
    workloads: tuple[NamedWorkload, ...]
    accuracy: Accuracy
    serving: Serving
    search: Search
    table: dict[str, Any] = field(repr=False)

    def toml(self) -> str:
        """The study as run, as the text of a study file."""
        return tomli_w.dumps(self.table)

    def override(self, overrides: Mapping[str, Any]) -> Study:
        """A copy with some keys replaced, as in `load_study`."""
        return build_study(self.table, f"study {self.name!r}", overrides)


def available_presets() -> tuple[str, ...]:
    """Names of the bundled studies."""
    return tuple(sorted(path.stem for path in _PRESETS.glob("*.toml")))


@cache
def bundled_workloads() -> dict[str, dict[str, int]]:
    """Bundled workloads by name: isl, osl and cached."""
    return tomllib.loads((Path(__file__).parent / "workloads.toml").read_text(encoding="utf-8"))


def load_study(name_or_path: str | Path, **overrides: Any) -> Study:
    """Read a study by preset name or path, and check all of it.

    Args:
        overrides: dotted key to value, e.g. **{"search.trials": 100, "workload.0.isl": 8192}; a table
            (search={"trials": 100}) is merged into the study's own.
    Raises:
        ValueError: unknown study, unreadable file, or any wrong key or value, naming key, value and what is valid.
    """
    path = study_path(name_or_path)
    return build_study(_absolute(read_toml(path), path.parent), str(path), overrides)


def study_path(name_or_path: str | Path) -> Path:
    """The file of a preset name or a path."""
    text = str(name_or_path)
    if text in available_presets():
        return _PRESETS / f"{text}.toml"
    if text.endswith(".toml"):
        if not os.path.isfile(text):  # unlike Path.is_file, not upset by names that are too long
            raise ValueError(f"{text}: no such study file")
        return Path(text)
    near = difflib.get_close_matches(text, available_presets(), n=1)
    hint = f", did you mean {near[0]!r}" if near else ""
    raise ValueError(
        f"unknown study {text!r}{hint}; presets: {', '.join(available_presets())}, or a path to a .toml file"
    )


def parse_override(text: str) -> tuple[str, Any]:
    """(dotted key, value) of a command line's `key.path=value`; values are TOML, bare words are strings.

    Raises:
        ValueError: no '=' or no key.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {text!r}: must be key.path=value, e.g. search.trials=100")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
    except RecursionError:
        raise ValueError(f"--set {key.strip()}: the value is nested too deeply") from None


def build_study(table: Mapping[str, Any], source: str, overrides: Mapping[str, Any] | None = None) -> Study:
    """Check a study given as plain values; `source` names it in errors."""
    try:
        plain = _overridden(table, overrides or {})
        return _built(StudyTable.model_validate(plain), plain)
    except ValidationError as error:
        raise ValueError(f"{source}: {readable(error, StudyTable)}") from error
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def _built(checked: StudyTable, plain: dict[str, Any]) -> Study:
    try:
        reference = load_architecture(checked.reference)
    except ValueError as error:
        raise ValueError(f"reference: {error}") from error
    targets = tuple(_target(number, table) for number, table in enumerate(checked.target))
    workloads = tuple(
        NamedWorkload(w.name, Workload(isl=w.isl, osl=w.osl, cached=w.cached, load=w.load), w.weight)
        for w in checked.workload
    )
    _refuse_repeated("target", [(t.gpu.name, t.engine) for t in targets])
    _refuse_repeated("workload", [w.name for w in workloads])
    _check_prices(checked.search, targets)
    if checked.serving.draft_tokens and not checked.serving.acceptance:
        raise ValueError("serving.acceptance = 0.0: speculative decoding (draft_tokens) needs a chance above 0")
    space = DesignSpace(
        reference,
        checked.space.axes,
        checked.budget.budget(float(parameters(reference).non_embedding_active)),
        align=checked.space.align,
        inner=checked.space.inner,
        limits=checked.envelope,
        exportable=checked.space.exportable,
        train_tokens=checked.accuracy.train_tokens,
    )
    return Study(
        name=checked.name,
        reference_name=checked.reference,
        reference=reference,
        space=space,
        targets=targets,
        workloads=workloads,
        accuracy=checked.accuracy,
        serving=checked.serving,
        search=checked.search,
        table=plain,
    )


def _target(number: int, table: TargetTable) -> Target:
    overrides = {
        name: value for name in ("usd_per_gpu_hour", "memory_bytes") if (value := getattr(table, name)) is not None
    }
    try:
        gpu = load_accelerator(table.gpu, table.engine, **overrides)
    except ValueError as error:
        raise ValueError(f"target.{number}: {error}") from error
    return Target(gpu, table.engine, tuple(sorted(table.gpus)), table.weight)


def _refuse_repeated(kind: str, keys: list[Any]) -> None:
    for number, key in enumerate(keys):
        if key in keys[:number]:
            raise ValueError(f"{kind}.{number}: {key!r} repeats {kind}.{keys.index(key)}; merge them or rename one")


def _check_prices(search: Search, targets: tuple[Target, ...]) -> None:
    """Objectives in dollars or joules need what they are made of."""
    for number, target in enumerate(targets):
        if "usd_per_million_tokens" in search.objectives and target.gpu.usd_per_gpu_hour is None:
            raise ValueError(
                f"search.objectives has usd_per_million_tokens but {target.gpu.name} has no price; "
                f"state target.{number}.usd_per_gpu_hour"
            )
        if "joules_per_token" in search.objectives and target.gpu.tdp_w is None:
            raise ValueError(f"search.objectives has joules_per_token but {target.gpu.name} has no published power")


def _workloads(given: Any) -> Any:
    """Names of bundled workloads, and tables that hold only such a name, spelled out."""
    listed = [given] if isinstance(given, str | Mapping) else given
    if not isinstance(listed, list):
        return given
    return [_workload(number, entry) for number, entry in enumerate(listed)]


def _workload(number: int, entry: Any) -> Any:
    table = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(table, Mapping):
        return table
    lengths = {"isl", "osl"} & set(table)
    if "name" in table and not lengths:
        if table["name"] not in bundled_workloads():
            raise ValueError(
                f"workload.{number}.name = {table['name']!r}: no such bundled workload; "
                f"valid: {', '.join(bundled_workloads())}; or state isl and osl"
            )
        return {**bundled_workloads()[table["name"]], **table}
    if "name" not in table and lengths:
        cached = f"+{table['cached']}" if table.get("cached") else ""
        return {"name": f"{table.get('isl')}{cached}/{table.get('osl')}", **table}
    return dict(table)


def _absolute(table: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Paths in a study file are relative to that file."""

    def resolved(value: Any) -> Any:
        is_path = isinstance(value, str) and (value.endswith((".toml", ".json")) or "/" in value)
        return str((directory / value).resolve()) if is_path and os.path.exists(directory / value) else value

    result = dict(table)
    if "reference" in result:
        result["reference"] = resolved(result["reference"])
    if isinstance(result.get("target"), list):
        result["target"] = [
            {k: resolved(v) if k in ("gpu", "engine") else v for k, v in t.items()} if isinstance(t, Mapping) else t
            for t in result["target"]
        ]
    return result


def _overridden(table: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = _copied(table)
    if "workload" in result:
        result["workload"] = _workloads(result["workload"])  # so that workload.0.isl finds a table
    for key, value in overrides.items():
        *parents, last = key.split(".")
        node: Any = result
        for depth, part in enumerate(parents):
            node = _child(node, part, ".".join(parents[: depth + 1]))
        _assign(node, last, _copied(value), key)
    if "workload" in overrides:
        result["workload"] = _workloads(result["workload"])
    return result


def _child(node: Any, part: str, path: str) -> Any:
    if isinstance(node, list):
        return node[_position(node, part, path)]
    if not isinstance(node, dict):
        raise ValueError(f"cannot set {path!r}: its parent is a value, not a table")
    return node.setdefault(part, {})


def _assign(node: Any, last: str, value: Any, key: str) -> None:
    if isinstance(node, list):
        node[_position(node, last, key)] = value
    elif not isinstance(node, dict):
        raise ValueError(f"cannot set {key!r}: its parent is a value, not a table")
    elif isinstance(value, dict) and isinstance(node.get(last), dict):
        node[last] |= value
    else:
        node[last] = value


def _position(node: list[Any], part: str, path: str) -> int:
    if not part.isdecimal() or int(part) >= len(node):
        raise ValueError(f"cannot set {path!r}: {part!r} must be a position from 0 to {len(node) - 1}")
    return int(part)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value
