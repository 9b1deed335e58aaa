"""A GPU as the cost model sees it: datasheet facts, kernel constants and the engine that runs on it.

`load_accelerator("h200-sxm", engine="trtllm")` joins three data files:
`accelerators/<gpu>.toml` (facts), `calibration/<gpu>.<engine>.toml` (fitted kernel constants) and
`engines/<engine>.toml` (overheads and default rules). Adding a GPU is adding a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cost_model.constants import Calibration, load_calibration
from cost_model.data_file import LONGEST_NAME, check_constants, check_number, check_text, read_toml
from cost_model.engine import Engine, load_engine
from spaces.formats import COMPUTE, FORMATS, WEIGHT_ONLY

_DIRECTORY = Path(__file__).parent / "accelerators"


@dataclass(frozen=True)
class Accelerator:
    """One GPU of a serving system, with everything in SI units.

    Attributes:
        name, vendor, generation: identity; generation names the family that shares kernel constants.
        compute_capability: CUDA compute capability, 0 for other vendors.
        sm_count: streaming multiprocessors (compute units on AMD, tensor cores on TPU).
        memory_bytes, memory_bytes_per_s, l2_bytes: device memory, its bandwidth, last-level cache.
        peak_flops: dense FLOP/s by compute type (bf16, fp8, fp4, int8).
        native_formats: formats that tensor cores multiply; the others are dequantised to bf16.
        link_bytes_per_s, link_domain: scale-up link per GPU per direction, GPUs it joins.
        nic_bytes_per_s: scale-out network per GPU per direction.
        tdp_w, usd_per_gpu_hour: None where not published; price_source.
        provenance: source, confidence and the decisions taken where sources disagree.
        calibration: kernel constants. engine: serving engine.
    """

    name: str
    vendor: str
    generation: str
    compute_capability: float
    sm_count: int
    memory_bytes: float
    memory_bytes_per_s: float
    l2_bytes: float
    peak_flops: dict[str, float]
    native_formats: tuple[str, ...]
    link_bytes_per_s: float
    link_domain: int
    nic_bytes_per_s: float
    tdp_w: float | None
    usd_per_gpu_hour: float | None
    price_source: str
    provenance: dict[str, Any] = field(repr=False)
    calibration: Calibration = field(repr=False)
    engine: Engine = field(repr=False)

    @cached_property
    def native(self) -> np.ndarray:
        """(formats,) bool: multiplied by tensor cores as they are."""
        return np.asarray(np.array([name in self.native_formats for name in FORMATS]) & ~WEIGHT_ONLY)

    @cached_property
    def format_flops(self) -> np.ndarray:
        """(formats,) dense peak FLOP/s of a GEMM in each format; bf16's where it is dequantised."""
        return np.array([self.peak_flops[COMPUTE[i] if self.native[i] else "bf16"] for i in range(len(FORMATS))])

    def with_constants(self, op: str, key: str, values: dict[str, float]) -> Accelerator:
        """A copy with some kernel constants replaced (calibration and what-if studies)."""
        return replace(self, calibration=self.calibration.with_constants(op, key, values))


def available() -> tuple[str, ...]:
    """Names of the bundled accelerators."""
    return tuple(sorted(path.stem for path in _DIRECTORY.glob("*.toml")))


def accelerator_path(name: str | Path) -> Path:
    """The file of a bundled name, or of a path ending in .toml.

    Raises:
        ValueError: no such file, with the bundled names.
    """
    path = Path(name) if str(name).endswith(".toml") else _DIRECTORY / f"{name}.toml"
    if not os.path.isfile(path):  # unlike Path.is_file, not upset by names that are too long
        raise ValueError(f"unknown GPU {str(name)!r}; valid: {', '.join(available())}, or a path to a .toml file")
    return path


def load_accelerator(name: str | Path, engine: str = "trtllm", **overrides: Any) -> Accelerator:
    """Read a bundled accelerator by name, or any TOML file with the same keys by path.

    Args:
        name: a name from `available()` or a path ending in .toml.
        engine: trtllm, vllm, sglang or ideal (a perfect engine: no overheads, full efficiency); a release of it
            as "vllm:0.17.0" or "vllm:2026-03-01".
        overrides: any scalar field, e.g. memory_bytes of a unified-memory part.

    Raises:
        ValueError: unknown name, unreadable file, or unknown, missing or out-of-range key.
    """
    path = accelerator_path(name)
    data = {**read_toml(path), **overrides}
    custom_calibration = data.pop("calibration", None)  # a calibrated file carries its own constants
    facts = _checked(data, path)
    if custom_calibration is not None:
        check_constants(f"{path}: calibration", custom_calibration, load_calibration("", "", "trtllm").entries)
    running = load_engine(engine, facts["generation"], path.stem)
    return Accelerator(
        **facts,
        calibration=load_calibration(path.stem, facts["generation"], running.kernels, custom_calibration),
        engine=running,
    )


_NUMBERS = [
    "compute_capability",
    "sm_count",
    "memory_bytes",
    "memory_bytes_per_s",
    "l2_bytes",
    "link_bytes_per_s",
    "link_domain",
    "nic_bytes_per_s",
]
_KEYS = {
    *_NUMBERS,
    "name",
    "vendor",
    "generation",
    "peak_flops",
    "native_formats",
    "tdp_w",
    "usd_per_gpu_hour",
    "price_source",
    "provenance",
}


def _checked(data: dict[str, Any], path: Path) -> dict[str, Any]:
    unknown = set(data) - _KEYS
    if unknown:
        raise ValueError(f"{path}: unknown key {sorted(unknown)[0]!r}; valid: {', '.join(sorted(_KEYS))}")
    data.setdefault("tdp_w", None)
    data.setdefault("usd_per_gpu_hour", None)
    data.setdefault("price_source", "")
    missing = _KEYS - set(data)
    if missing:
        raise ValueError(f"{path}: missing key {sorted(missing)[0]!r}; valid: {', '.join(sorted(_KEYS))}")
    for key in _NUMBERS:
        least = 0 if key in ("compute_capability", "l2_bytes", "link_bytes_per_s", "nic_bytes_per_s") else 1
        check_number(f"{path}: {key}", data[key], least, whole=key in ("sm_count", "link_domain"))
    for key in ("tdp_w", "usd_per_gpu_hour"):
        if data[key] is not None:  # left out where unknown
            check_number(f"{path}: {key}", data[key], 1e-6, 1e9)
    for key in ("name", "vendor", "generation"):
        check_text(f"{path}: {key}", data[key], longest=LONGEST_NAME)
    check_text(f"{path}: price_source", data["price_source"], empty=True)
    if not isinstance(data["provenance"], dict):
        raise ValueError(f"{path}: provenance = {data['provenance']!r:.60}: must be a table with at least a source")
    peaks = data["peak_flops"]
    if not isinstance(peaks, dict) or "bf16" not in peaks:
        raise ValueError(f"{path}: peak_flops = {peaks!r:.60}: must be a table of FLOP/s with at least bf16")
    for kind, flops in peaks.items():
        check_number(f"{path}: peak_flops.{kind}", flops, 1)
    if not isinstance(data["native_formats"], list):
        raise ValueError(
            f"{path}: native_formats = {data['native_formats']!r:.60}: must be a list of {', '.join(FORMATS)}"
        )
    for name in data["native_formats"]:
        if name not in FORMATS:
            raise ValueError(f"{path}: native_formats: unknown format {name!r}; valid: {', '.join(FORMATS)}")
        if COMPUTE[FORMATS.index(name)] not in peaks:
            raise ValueError(
                f"{path}: native_formats has {name!r} but peak_flops lacks {COMPUTE[FORMATS.index(name)]!r}"
            )
    data["native_formats"] = tuple(data["native_formats"])
    return data
