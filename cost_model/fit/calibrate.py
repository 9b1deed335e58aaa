"""From measured rows to a calibration file: fit one GPU and engine, record the error, write the TOML."""

from __future__ import annotations

import fcntl
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.fit.common import Columns, Constants, Op, band, fit_record, held_out, select

# backends of libraries that every engine calls: their constants go where every engine looks last
ENGINE_OF = {"nccl": "trtllm"}
# so do Blackwell's fused experts; in bf16 and fp8 they stay vLLM's: TensorRT-LLM's tables measure grouped kernels there
SHARED_EXPERTS = ("nvfp4", "fp8-block")


def calibrate(
    op: Op, gpu: Accelerator, rows: Columns, source: str, date: str, sisters: Columns | None = None
) -> tuple[Constants, Columns]:
    """Constants of an operation on one GPU and engine, each entry with its fit record.

    Args:
        sisters: rows of other GPUs of its generation under the same engine, for an operation that pools them.
    Returns:
        (constants, rows used in the fit).
    """
    kept_back = held_out(rows.get("holdout", rows["group"]))
    used = seen_by_fit = select(rows, ~kept_back)
    if sisters is not None:
        more = select(sisters, ~held_out(sisters.get("holdout", sisters["group"])))
        seen_by_fit = {name: np.concatenate([used[name], more[name]]) for name in used}
    fitted = op.fit(gpu, seen_by_fit)
    for name, keys in fitted.items():
        for key, values in keys.items():
            gpu = gpu.with_constants(name, key, values)
    score = select(rows, kept_back)
    for name, keys in fitted.items():
        for key, values in keys.items():
            own, seen = (select(part, (part["calibrated"] == name) & (part["key"] == key)) for part in (score, used))
            if not len(seen["seconds"]):
                continue  # a constant that the rows support only through another entry: the fit records its own error
            versions = ", ".join(sorted(set(seen["version"])))
            record = band(op.predict(gpu, seen), seen["seconds"]) | {"source": f"{source}, {versions}", "date": date}
            if len(own["seconds"]):
                record |= fit_record(op.predict(gpu, own), own["seconds"], own["group"])
            values["fit"] = record | values.get("fit", {})
    return fitted, seen_by_fit


def home(gpu: Accelerator, operation: str, key: str) -> str:
    """Engine whose calibration file holds an entry that was measured under the GPU's own engine."""
    shared = operation == "experts_fused" and key in SHARED_EXPERTS and gpu.generation.startswith("blackwell")
    return "trtllm" if shared else gpu.engine.kernels


def write_constants(path: Path, fitted: Constants, under: str = "") -> None:
    """Replace the entries of `fitted` in a TOML file (in its table `under`), leaving everything else as it is."""
    import tomli_w

    with locked(path.parent):
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        into = tables.setdefault(under, {}) if under else tables
        for name, keys in fitted.items():
            for key, values in keys.items():
                into.setdefault(name, {})[key] = _rounded(values)
        path.write_text(tomli_w.dumps(tables), encoding="utf-8")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a directory's advisory lock, so that two calibrations can write the same files."""
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Constants to five significant digits, as plain numbers that TOML can hold."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return _rounded(value)
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, bool | str | int):
        return value
    return float(f"{float(value):.5g}")
