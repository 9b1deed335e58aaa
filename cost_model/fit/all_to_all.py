"""Fit of kernels/all_to_all.py to measured MoE dispatch and combine (alltoall.csv, alltoall_gb200_nvl72.csv)."""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.fit.collectives import widened
from cost_model.fit.common import Columns, Constants, Op, fit_constants, joined, partitions, renamed, table
from cost_model.kernels.all_to_all import all_to_all

DIMENSIONS = ("tokens", "hidden", "top_k", "experts", "ep", "phase", "format")
BACKENDS = {
    "NVLinkOneSided": "nvlink-one-sided",
    "NVLinkTwoSided": "nvlink-two-sided",
    "trtllm_deepep_ll": "deepep-ll",
    "trtllm_deepep_ht": "deepep-ht",
    "deepep_ll": "deepep-ll",
    "deepep_ht": "deepep-ht",
}
# vLLM's "default" is DeepEP's own: fp8 dispatch, bf16 combine
FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4", "fp4": "nvfp4", "default": "fp8"}
PHASES = {
    "alltoall_prepare": "prepare",
    "alltoall_dispatch": "dispatch",
    "alltoall_combine": "combine",
    "alltoall_combine_low_precision": "combine-low-precision",
}
START = {
    "latency_s": 1e-5,
    "rank_doubling_s": 1e-6,
    "floor_s": 5e-6,
    "link_efficiency": 0.65,
    "congestion": 0.02,
    "local_efficiency": 0.3,
}
BOUNDS = {
    "latency_s": (0.0, 4e-4),
    "rank_doubling_s": (0.0, 1e-5),
    "floor_s": (0.0, 4e-4),
    "token_s": (0.0, 3e-7),
    "link_efficiency": (0.02, 1.0),
    "congestion": (0.0, 0.3),
    "local_efficiency": (0.01, 1.0),
}
PREPARE = {"floor_s": 0.0, "link_efficiency": 1.0, "congestion": 0.0, "local_efficiency": 1.0}


def prepare(file: str, raw: Columns) -> Columns:
    """Rows of the four kernels; DeepEP v2 (two GPUs, one engine) is left out."""
    rack = "comm_backend" not in raw
    names = raw["kernel"] if rack else raw["comm_backend"]
    phase = renamed(raw["op"], PHASES, "phase") if rack else raw["phase"]
    phase = np.where((phase == "combine") & (raw["dtype"] == "fp4"), "combine-low-precision", phase)
    backend = renamed(names, BACKENDS, "all-to-all kernel", strict=False)
    form = renamed(raw["dtype"], FORMATS, "dtype")
    keep = np.isin(backend, list(BACKENDS.values()))
    step = np.where(phase == "dispatch", np.char.add("dispatch/", form), phase)
    return table(
        raw,
        keep,
        op=np.char.add(np.char.add(np.char.add(backend, " "), phase), " rack" if rack else ""),
        format=form,
        calibrated="all_to_all",
        key=np.char.add(np.char.add(backend, "/"), step),
        group=joined(raw["hidden"], raw["topk"], raw["experts"], raw["num_tokens"]),
        tokens=raw["num_tokens"],
        hidden=raw["hidden"],
        top_k=raw["topk"],
        experts=raw["experts"],
        ep=raw["ep_size"],
        phase=phase,
        kernel=backend,
    )


def predict(gpu: Accelerator, rows: Columns) -> np.ndarray:
    return np.asarray(all_to_all(gpu, **{name: rows[name] for name in DIMENSIONS}, backend=rows["kernel"]))


def fit(gpu: Accelerator, rows: Columns) -> Constants:
    fitted: Constants = {"all_to_all": {}}
    for (key,), own in partitions(rows, "key"):
        start, fixed = _free(key, len(np.unique(own["ep"])) == 1)
        trial_gpu = gpu.with_constants("all_to_all", key, fixed)

        def trial(
            values: dict[str, float], gpu: Accelerator = trial_gpu, key: str = key, own: Columns = own
        ) -> np.ndarray:
            return predict(gpu.with_constants("all_to_all", key, values), own)

        chosen = fixed | fit_constants(trial, own["seconds"], start, BOUNDS)
        fitted["all_to_all"][key] = chosen | {"fit": widened(trial(chosen), own["seconds"])}
    return fitted | {"all_to_all": _unmeasured_formats(fitted["all_to_all"])}


def _free(key: str, one_group_size: bool) -> tuple[dict[str, float], dict[str, float]]:
    """(start of the constants to fit, the constants left at a value) of an entry."""
    if key.endswith("/prepare"):
        return {"latency_s": 1e-5, "rank_doubling_s": 1e-6, "token_s": 7e-9}, dict(PREPARE)
    start, fixed = dict(START), {}
    if key.startswith("deepep-ht"):
        start["token_s"] = 1e-8  # shows where hidden sizes differ
    else:
        fixed["token_s"] = 0.0
    if one_group_size:  # which cannot tell these from the others
        fixed |= {"rank_doubling_s": 0.0, "congestion": 0.0}
        start = {name: value for name, value in start.items() if name not in fixed}
    return start, fixed


def _unmeasured_formats(entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Dispatch formats that a kernel was not measured with, as the one it was: bytes tell them apart."""
    filled = dict(entries)
    for backend in set(BACKENDS.values()):
        dispatch = {form: f"{backend}/dispatch/{form}" for form in ("nvfp4", "fp8", "bf16")}
        measured = [key for key in dispatch.values() if key in entries]
        for key in dispatch.values():
            if measured and key not in entries:
                note = {"error_low": 0.7, "error_high": 1.4, "source": f"as {measured[0]}: not measured in this format"}
                filled[key] = entries[measured[0]] | {"fit": note}
    return filled


def target(op: str, form: str) -> tuple[float, float] | None:
    return (0.09, 0.25) if op.endswith(" rack") else None


ALL_TO_ALL = Op("all_to_all", ("alltoall", "alltoall_gb200_nvl72"), prepare, predict, fit, target)
