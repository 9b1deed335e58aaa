"""Fit of kernels/experts.py to measured mixture-of-experts layers of one rank (moe.csv)."""

from __future__ import annotations

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.fit.common import (
    FORMAT_NAMES,
    HOPPER,
    Columns,
    Constants,
    Op,
    fit_constants,
    group_weights,
    joined,
    partitions,
    renamed,
    table,
)
from cost_model.kernels.experts import experts
from spaces.formats import FORMATS

# kernels that read tokens where they are; OpenAI's Triton kernels for mxfp4 sort them like the others
IN_PLACE = ("triton_tritonexperts", "marlin", "vllm_fused_moe")
DIMENSIONS = ("tokens", "hidden", "expert_ffn", "experts", "top_k", "tp", "ep", "gated")
BLACKWELL = ("b200_sxm", "gb200", "b300_sxm", "gb300", "b200-sxm", "gb200-nvl72", "b300-sxm", "gb300-nvl72")
START = {
    "overhead_s": 2.2e-5,
    "overhead_choice_s": 1e-6,
    "pair_s": 6e-10,
    "wave_s": 1.8e-6,
    "compute_efficiency": 0.9,
    "memory_efficiency": 0.86,
    "pass_efficiency": 0.5,
    "token_bytes": 5.0,
}
BOUNDS = {
    "overhead_s": (0.0, 1e-4),
    "overhead_choice_s": (0.0, 5e-6),
    "pair_s": (0.0, 1e-8),
    "wave_s": (0.0, 2e-5),
    "compute_efficiency": (0.05, 1.0),
    "memory_efficiency": (0.05, 1.0),
    "pass_efficiency": (0.05, 1.0),
    "token_bytes": (0.0, 40.0),
    "ramp_s": (0.0, 4e-5),
}


def prepare(file: str, raw: Columns) -> Columns:
    """All rows; mxfp4 as the GPU computes it: with mxfp8 activations on Blackwell, with bf16 elsewhere.

    vLLM's rows say `gated` for every model. Those of the models that TensorRT-LLM's rows call ungated cannot be: three
    matrices would have been read at up to 1.4 times the bandwidth of the data sheet.
    """
    mxfp4 = np.where(np.isin(raw["system"], BLACKWELL), "w4a8_mxfp4_mxfp8", "w4a16_mxfp4")
    dtype = np.where(raw["dtype"] == mxfp4, "mxfp4", raw["dtype"])
    form = renamed(dtype, FORMAT_NAMES | {"w4afp8": "w4a8"}, "dtype", strict=False)
    keep = np.isin(form, FORMATS)
    kernel = raw["kernel"].astype(str)
    fused = (np.char.find(kernel, "flashinfer_trtllm") >= 0) & (form != "mxfp4")
    in_place = np.any([np.char.find(kernel, name) >= 0 for name in IN_PLACE], axis=0)
    # vLLM on Hopper runs Triton where experts are whole, CUTLASS under expert parallelism (its fused_moe/oracle/fp8.py)
    fused |= in_place & (form == "fp8-block") & np.isin(raw["system"], HOPPER)
    names = {"inter": "expert_ffn", "topk": "top_k", "num_tokens": "tokens", "moe_tp": "tp", "moe_ep": "ep"}
    dims = {names.get(name, name): raw[name] for name in ("hidden", "experts", *names)}
    group = joined(raw["hidden"], raw["inter"], raw["topk"], raw["experts"])
    return table(
        raw,
        keep,
        op=np.char.add("experts ", raw["distribution"].astype(str)),
        format=form,
        calibrated=np.where(fused, "experts_fused", "experts"),
        key=form,
        group=group,
        gated=~np.isin(group, group[raw["gated"] == 0]),
        skew=raw["distribution"],
        in_place=in_place,
        **dims,
    )


def predict(gpu: Accelerator, rows: Columns) -> np.ndarray:
    seconds = np.empty(len(rows["seconds"]))
    for (form, skew, kernel), _ in partitions(rows, "format", "skew", "calibrated"):
        own = (rows["format"] == form) & (rows["skew"] == skew) & (rows["calibrated"] == kernel)
        dims = {name: rows[name][own] for name in DIMENSIONS}
        seconds[own] = experts(gpu, **dims, format=form, skew=skew, kernels=(kernel,))
    return seconds


def fit(gpu: Accelerator, rows: Columns) -> Constants:
    """All three routings of a format share its constants: they differ in loads only."""
    fitted: Constants = {}
    for (kernel, form), own in partitions(rows, "calibrated", "format"):
        fitted.setdefault(kernel, {})[form] = _typical(gpu, kernel, form, own)
    return fitted


def _typical(gpu: Accelerator, kernel: str, form: str, rows: Columns) -> dict[str, float]:
    """Least squares, reweighted towards the smallest absolute error from the first guess on.

    One row in ten ran a badly tuned kernel, two to seven times slower than its neighbours: such rows must not pull.
    """
    fixed, values = {"permutes": float(not rows["in_place"].all()), "ramp_s": 0.0}, START
    if kernel == "experts_fused":  # whose routing takes fewer and smaller launches for a handful of tokens
        del fixed["ramp_s"]
        values = START | {"ramp_s": 3e-6}

    def trial(values: dict[str, float]) -> np.ndarray:
        return predict(gpu.with_constants(kernel, form, fixed | values), rows)

    groups = group_weights(rows["group"]) ** 2  # every group counts the same, as in the score
    for _ in range(4):
        miss = np.abs(np.log(trial(values) / rows["seconds"]))
        values = fit_constants(trial, rows["seconds"], values, BOUNDS, groups / np.maximum(miss, 0.02))
    return fixed | values


def target(op: str, form: str) -> tuple[float, float] | None:
    if form not in ("bf16", "fp8", "fp8-block", "nvfp4"):
        return None
    return {"experts balanced": (0.08, 0.28), "experts power_law_1.2": (0.12, 0.35)}.get(op)


EXPERTS = Op("experts", ("moe",), prepare, predict, fit, target)
