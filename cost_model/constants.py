"""Kernel constants: fitted numbers per (operation, key), with their error and where they come from.

A calibration file holds one table per operation and key (the key is a number format for GEMMs, a KV format
for attention, a launch mode for collectives ...):

    [gemm.fp8]
    compute_efficiency = 0.71      # constants of the form in kernels/gemm.py
    ...
    [gemm.fp8.fit]                 # how good the fit is, on groups not used in it
    rows = 1280
    groups = 41
    median_error = 0.032
    p90_error = 0.107
    error_low = 0.93               # 80 % of measured times lie in [error_low, error_high] x predicted
    error_high = 1.08
    source = "aiconfigurator-core 0.12.0, trtllm 1.3.0rc20"
    date = "2026-11-30"

Constants that a GPU's own file lacks come from the nearest relative, and are then marked extrapolated.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

_DIRECTORY = Path(__file__).parent / "calibration"

# who lends constants to whom, nearest first; every chain ends in "generic"
_RELATIVES: dict[str, tuple[str, ...]] = {
    "ampere": ("a100-sxm", "h100-sxm"),
    "ada": ("l40s", "h100-sxm"),
    "hopper": ("h200-sxm", "h100-sxm"),
    "blackwell": ("b200-sxm", "gb200-nvl72", "b300-sxm"),
    "blackwell-ultra": ("b300-sxm", "gb300-nvl72", "b200-sxm"),
    "blackwell-rtx": ("b200-sxm", "l40s"),
}
# whose measured experts an engine also runs where tokens need no dispatch: both call Triton's and FlashInfer's
_FUSED_EXPERTS = {"sglang": "vllm"}
EXTRAPOLATED_WIDENING = 1.5  # a borrowed constant's error band is this much wider in log time


@dataclass(frozen=True)
class Calibration:
    """Constants by operation and key, each entry with its fit record and evidence."""

    entries: dict[str, dict[str, dict[str, Any]]]

    def at(self, op: str, key: Any, names: tuple[str, ...] = ()) -> SimpleNamespace:
        """Constants of `op` for one key, or for an integer code array over `names`.

        Returns:
            A namespace of floats (one key, or a constant that all keys share) or of arrays shaped like `key`.
        Raises:
            KeyError: no constants exist for this operation and key.
        """
        if isinstance(key, str):
            return _namespace(self, op, key)
        if np.ndim(key) == 0:
            return _namespace(self, op, names[int(key)])
        codes = np.asarray(key, dtype=np.int64)
        return _taken(self, op, names, codes.tobytes(), codes.shape)

    def fit(self, op: str, key: str) -> dict[str, Any]:
        """The fit record of an entry: rows, groups, errors, source, date, evidence."""
        record: dict[str, Any] = self._entry(op, key)["fit"]
        return record

    def with_constants(self, op: str, key: str, values: dict[str, float]) -> Calibration:
        entry = {**self.entries.get(op, {}).get(key, {"fit": {}}), **values}
        return Calibration({**self.entries, op: {**self.entries.get(op, {}), key: entry}})

    def _entry(self, op: str, key: str) -> dict[str, Any]:
        try:
            return self.entries[op][key]
        except KeyError:
            known = ", ".join(sorted(self.entries.get(op, {}))) or "none"
            raise KeyError(f"no calibration of {op} for {key!r}; known: {known}") from None

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@lru_cache(maxsize=2048)  # bounded: a fit makes thousands of calibrations
def _namespace(calibration: Calibration, op: str, key: str) -> SimpleNamespace:
    return SimpleNamespace(**{k: v for k, v in calibration._entry(op, key).items() if k != "fit"})


@lru_cache(maxsize=2048)
def _table(calibration: Calibration, op: str, names: tuple[str, ...]) -> dict[str, Any]:
    """{constant: (names,) values, or one number where they are all equal}."""
    rows = [calibration._entry(op, key) for key in names]
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "fit"}
    return {name: np.array(values) if len(set(values)) > 1 else values[0] for name, values in columns.items()}


@lru_cache(maxsize=64)  # a call asks several times for the same designs'
def _taken(
    calibration: Calibration, op: str, names: tuple[str, ...], content: bytes, shape: tuple[int, ...]
) -> SimpleNamespace:
    codes = np.frombuffer(content, dtype=np.int64).reshape(shape)
    table = _table(calibration, op, names)
    return SimpleNamespace(**{name: v.take(codes) if np.ndim(v) else v for name, v in table.items()})


def load_calibration(gpu: str, generation: str, engine: str, custom: dict[str, Any] | None = None) -> Calibration:
    """Constants of a GPU under an engine; what its own file lacks is borrowed along the chain of relatives.

    Order: `custom` tables, own file of this engine, relatives' files of this engine, own and relatives'
    trtllm files, `generic.toml`. The `ideal` engine has one file of its own for every GPU.
    """
    if engine == "ideal":
        return Calibration(_marked(_read("ideal"), "ideal"))
    relatives = tuple(name for name in _RELATIVES.get(generation, ()) if name != gpu)
    engines = (engine,) if engine == "trtllm" else (engine, "trtllm")
    chain = [
        (f"{name}.{family}", "measured" if name == gpu and family == engine else "extrapolated")
        for family in engines
        for name in (gpu, *relatives)
    ]
    merged: dict[str, dict[str, dict[str, Any]]] = {}
    if custom:
        own = _marked(custom, "measured")
        _merge(merged, own)
        _merge(merged, {"experts_fused": own.get("experts", {})})  # whichever kernels they are
    # one library's kernels, measured on this GPU, whichever engine runs them
    _merge(merged, {"experts_fused": _marked(_read(f"{gpu}.trtllm"), "measured").get("experts_fused", {})})
    for name, evidence in (*chain, ("generic", "extrapolated")):
        _merge(merged, _marked(_read(name), evidence))
    for name in (gpu, *relatives) if engine in _FUSED_EXPERTS else ():
        lent = _marked(_read(f"{name}.{_FUSED_EXPERTS[engine]}"), "measured" if name == gpu else "extrapolated")
        _merge(merged, {"experts_fused": lent.get("experts_fused", {})})
        _merge(merged, {"experts_fused": lent.get("experts", {})})
    if "experts_fused" in merged:  # some formats have such kernels; the others run the grouped ones
        _merge(merged, {"experts_fused": merged["experts"]})
    return Calibration(merged)


def has_measured_kernels(generation: str) -> bool:
    """Whether kernels of some GPU of this generation were measured; all others live on `generic.toml`."""
    return generation in _RELATIVES


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for op, keys in more.items():
        for key, entry in keys.items():
            into.setdefault(op, {}).setdefault(key, entry)


@cache
def _read(name: str) -> dict[str, Any]:
    path = _DIRECTORY / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _marked(data: dict[str, Any], evidence: str) -> dict[str, Any]:
    """Entries with their evidence written in; borrowed ones get a wider error band."""
    marked: dict[str, Any] = {}
    for op, keys in data.items():
        for key, entry in keys.items():
            record = {"error_low": 0.8, "error_high": 1.25, "source": "", **entry.get("fit", {})}
            assumed = record.get("evidence") == "extrapolated"  # the file itself says that nothing was measured
            fit = {**record, "evidence": "extrapolated" if assumed else evidence}
            if evidence == "extrapolated":
                fit["error_low"] **= EXTRAPOLATED_WIDENING
                fit["error_high"] **= EXTRAPOLATED_WIDENING
            marked.setdefault(op, {})[key] = {**entry, "fit": fit}
    return marked
