"""Fit of kernels/gemm.py to measured GEMMs (gemm.csv)."""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator, load_accelerator
from cost_model.fit.common import (
    FEW_ROWS,
    FORMAT_NAMES,
    GPUS,
    HOPPER,
    Columns,
    Constants,
    Op,
    band,
    fit_constants,
    group_weights,
    joined,
    renamed,
    select,
    table,
)
from cost_model.kernels.gemm import gemm, roofline
from spaces.formats import FORMATS

# A vLLM table of block-scaled fp8 holds the host's launch path, 60 to 430 us per call whatever the shape (DeepGEMM,
# FlashInfer, Triton), which CUDA graphs hide in serving: only products whose math alone takes this long at the data
# sheet's rate measure the GPU. (Choosing by measured time would keep the calls whose launch was slowest.)
VLLM_FP8_BLOCK_MATH_S = 250e-6

# From vLLM's per-tensor fp8 (CUTLASS) on Hopper, products of more than 128 rows are 20 to 60 % slower where m % 4 > 0,
# like block-scaled fp8: engines pad m, so these rows are left out too.
VLLM_FP8_ANY_M = 128

# What the libraries schedule. cuBLAS and DeepGEMM mix tile shapes and behave as if they placed 64 x 64 pieces;
# CUTLASS's nvfp4 runs 256 x 256 on pairs of SMs, which is 128 x 256 on each; FlashInfer's nvfp4 behaves finer;
# weight-only kernels waste few rows on small batches.
TILES = {
    ("trtllm", "nvfp4"): (128.0, 256.0),
    ("trtllm", "int4"): (16.0, 128.0),
    ("vllm", "nvfp4"): (128.0, 64.0),
    ("vllm", "fp8"): (128.0, 256.0),
}
FINE_TILE = (64.0, 64.0)
RELATIVE_PULL = 0.4  # for engines with few rows: stay near the constants of trtllm unless the rows say otherwise

BOUNDS = {
    "compute_efficiency": (0.05, 1.0),
    "memory_efficiency": (0.3, 1.0),
    "exposure": (0.0, 7.0),
    "overhead_s": (0.0, 20e-6),
    "serial_k_s": (0.0, 2e-9),
    "serial_k_limit": (1e3, 1e5),
    "write_factor": (1.0, 3.0),
    "prologue_k": (0.0, 4000.0),
    "wave_quantisation": (0.0, 1.0),
    "panel_quantisation": (0.0, 1.0),
    "split_k_s": (0.0, 100e-6),
    "split_k_bytes": (0.0, 160.0),
    "throttle": (0.0, 0.5),
    "l2_hit": (0.0, 1.0),
    "l2_share": (0.05, 0.5),
    "padding_s": (0.0, 5e-11),
    "quantise_bytes": (0.0, 15.0),
    "quantise_overhead_s": (0.0, 20e-6),
    "quantise_ramp_s": (0.0, 10e-6),
}
START = {
    "compute_efficiency": 0.75,
    "memory_efficiency": 0.8,
    "exposure": 0.6,
    "serial_k_s": 1e-10,
    "prologue_k": 150.0,
    "wave_quantisation": 0.3,
    "panel_quantisation": 0.1,
    "split_k_s": 3e-6,
    "split_k_bytes": 20.0,
    "throttle": 0.1,
    "l2_hit": 0.5,
    "l2_share": 0.1,
}
STARTS = {
    "nvfp4": {"prologue_k": 1000.0, "wave_quantisation": 0.9, "split_k_s": 50e-6, "serial_k_s": 3e-10},
    "fp8-block": {"prologue_k": 350.0, "serial_k_s": 4e-10},
}
NEUTRAL = {"serial_k_limit": 1e6, "write_factor": 1.0}
SPLITS_K = ("bf16", "fp8")  # cuBLAS: the formats whose kernels divide a tall k among SMs; their writes hide behind math
EXPOSES_WRITES = ("fp8-block", "nvfp4")  # DeepGEMM, CUTLASS: an epilogue that stalls the next tile's loads
QUANTISE_START = {"quantise_bytes": 5.0, "quantise_overhead_s": 3e-6, "quantise_ramp_s": 0.5e-6}


def prepare(file: str, raw: Columns) -> Columns:
    """Rows with N, K >= 512 that a serving engine meets.

    Block-scaled fp8 (and vLLM's fp8 on Hopper) only where m % 4 = 0, to which engines pad m; vLLM's block-scaled fp8
    only well above its launch path; weight-only int8 is no format of ours.
    """
    form = renamed(raw["dtype"], FORMAT_NAMES, "dtype", strict=False)
    m, n, k = raw["m"], raw["n"], raw["k"]
    keep = (n >= 512) & (k >= 512) & np.isin(form, FORMATS)
    block = form == "fp8-block"
    vllm, hopper = raw["backend"] == "vllm", np.isin(raw["system"], HOPPER)
    padded = block | (vllm & hopper & (form == "fp8") & (m > VLLM_FP8_ANY_M))
    keep &= ~padded | (m % 4 == 0)
    launched = np.flatnonzero(block & vllm)
    gpus = renamed(raw["system"][launched], GPUS, "system")
    for name in np.unique(gpus):
        own = launched[gpus == name]
        bound = roofline(load_accelerator(str(name)), m[own], n[own], k[own], "fp8-block")
        keep[own] &= bound.math > VLLM_FP8_BLOCK_MATH_S
    shape = {"m": m, "n": n, "k": k, "group": joined(n, k), "holdout": n * k}  # equal weight counts are compared
    return table(raw, keep, op="gemm", format=form, calibrated="gemm", key=form, **shape)


def predict(gpu: Accelerator, rows: Columns) -> np.ndarray:
    """Seconds as the tables were measured: replays of one product, which leave small weights in L2."""
    seconds = np.empty(len(rows["m"]))
    for form in np.unique(rows["format"]):
        own = rows["format"] == form
        m, n, k = (rows[name][own] for name in ("m", "n", "k"))
        seconds[own] = gemm(gpu, m, n, k, str(form), warm_l2=True)
    return seconds


def fit(gpu: Accelerator, rows: Columns) -> Constants:
    """Constants per format."""
    fitted: Constants = {"gemm": {}}
    forms = [str(form) for form in np.unique(rows["format"])]
    for form in sorted(forms, key=lambda name: name != "bf16"):  # bf16 first: it tells the launch overhead
        own = select(rows, rows["format"] == form)
        fitted["gemm"][form] = _fit_format(gpu, form, own, fitted["gemm"].get("bf16"))
    return fitted


def _fit_format(gpu: Accelerator, form: str, rows: Columns, bf16: dict[str, float] | None) -> dict[str, Any]:
    engine = gpu.engine.kernels
    tile_m, tile_n = TILES.get((engine, form), FINE_TILE)
    fixed = NEUTRAL | {"tile_m": tile_m, "tile_n": tile_n, "padding_s": 0.0, "misaligned_rate": 0.685}
    start = START | STARTS.get(form, {})
    quantised = form != "bf16" and bool(gpu.native[FORMATS.index(form)])
    if quantised:  # only the sum of both kernels' overheads is measured: the product's is taken to be bf16's
        fixed["overhead_s"] = bf16["overhead_s"] if bf16 else gpu.calibration.at("gemm", "bf16").overhead_s
        start |= QUANTISE_START
    else:
        fixed |= dict.fromkeys(QUANTISE_START, 0.0)
        start["overhead_s"] = 2.5e-6
    if form in SPLITS_K:
        del fixed["serial_k_limit"]
        start["serial_k_limit"] = 2e4
    if form in EXPOSES_WRITES:
        del fixed["write_factor"]
        start["write_factor"] = 1.3
    if form == "fp8-block" and gpu.generation == "hopper":
        del fixed["padding_s"]
        start["padding_s"] = 2e-11  # rows that fill no tile slow this kernel down
    thin = engine != "trtllm"
    relative = load_accelerator(gpu.name).calibration if thin else gpu.calibration
    if thin and TILES.get(("trtllm", form), FINE_TILE) == (tile_m, tile_n):
        lent = vars(relative.at("gemm", form))
        start |= {name: lent[name] for name in start}

    def trial(values: dict[str, float]) -> np.ndarray:
        return predict(gpu.with_constants("gemm", form, fixed | values), rows)

    weights = group_weights(rows["group"])
    tuned = fit_constants(
        trial, rows["seconds"], start, BOUNDS, weights, scale=0.04, starts=2, pull=RELATIVE_PULL if thin else 0.0
    )
    record: dict[str, Any] = {}
    if thin and len(rows["seconds"]) < FEW_ROWS:  # nearly as many constants as rows: what they leave over is no band
        own, lent = band(trial(tuned), rows["seconds"]), relative.fit("gemm", form)
        low, high = (wider(own[side], lent[side]) for side, wider in (("error_low", min), ("error_high", max)))
        record = {"fit": {"error_low": low, "error_high": high}}
    return fixed | tuned | record


def target(op: str, form: str) -> tuple[float, float] | None:
    return {"bf16": (0.05, 0.16), "fp8": (0.05, 0.16), "nvfp4": (0.05, 0.16), "fp8-block": (0.07, 0.20)}.get(form)


GEMM = Op("gemm", ("gemm",), prepare, predict, fit, target)
