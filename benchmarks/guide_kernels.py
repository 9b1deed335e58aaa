"""Our side of the guide's claims about shapes, the roofline, formats and attention: arithmetic and kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.guide_answer import BATCHES, NEAR, Answer, gemm, gpu, model, near, served
from cost_model import counts, kernels, predict, quality
from reports.mixing import variant
from reports.words import percent
from spaces import Architecture, Deployment, Workload, enumerate_deployments

_SQUARE = (  # M: microseconds at n x k = 16.8M weights, n = 256, 1024, 2048, 4096, 8192, 16384, 65536
    ("b200-sxm", "nvfp4", 1, (126, 36.6, 21.5, 13.7, 10.4, 9.2, 10.1)),
    ("b200-sxm", "nvfp4", 8192, (416, 148, 115, 98, 96, 105, 246)),
    ("gb300-nvl72", "nvfp4", 2048, (171, 51, 32, 29.5, 31.6, 41, 130)),
    ("h200-sxm", "fp8", 2048, (353, 129, 94, 76.5, 72.7, 73.4, 116)),
    ("h200-sxm", "bf16", 256, (25.1, 20.4, 21.1, 16.9, 15.2, 16.3, 24.3)),
)
_SQUARE_N = np.array([256, 1024, 2048, 4096, 8192, 16384, 65536])


def near_square() -> Answer:
    """Time relative to the square shape, against the measured table."""
    errors, tall_k, tall_n = [], [], []
    for name, format, m, measured in _SQUARE:
        ours = np.asarray(kernels.gemm(gpu(name), m, _SQUARE_N, 2**24 // _SQUARE_N, format))
        relative, truth = ours / ours[3], np.array(measured) / measured[3]
        errors += list(np.abs(np.log(relative / truth)))
        tall_k.append(relative[0])
        tall_n.append(relative[-1])
    median = float(np.expm1(np.median(errors)))
    text = (
        f"aspect 256: tall K {min(tall_k):.1f}-{max(tall_k):.1f}x, tall N "
        f"{min(tall_n):.1f}-{max(tall_n):.1f}x; median deviation from the 35 measured ratios "
        f"{percent(median, sign=False)}"
    )
    return Answer(
        text,
        "kernel",
        bool(max(tall_k) > 1.5 and max(tall_n) > 1.5),
        "a tall K is worst, as measured; square is near the optimum, N / K of 1 to 4 best",
    )


def aligned_ffn() -> Answer:
    h100 = gpu("h100-sxm")
    rate = [2 * 8192 * d * 4096 / float(kernels.gemm(h100, 8192, d, 4096, "bf16")) / 1e12 for d in (10922, 10944)]
    gain = rate[1] / rate[0] - 1
    return Answer(
        f"{rate[0]:.0f} to {rate[1]:.0f} TFLOP/s ({percent(gain)})",
        "kernel",
        near(1 + gain, 398.4 / 272.7),
        "the ratio is compared; the published rates are of a training framework",
    )


def _served_gain(changed: Architecture, base: Architecture, target: float, where: str = "h200-sxm") -> float:
    """Throughput at a target over the base's, bf16."""
    values = []
    for a in (base, changed):
        plans = enumerate_deployments((1, 2, 4, 8), a, BATCHES, pp=(1,))
        p = predict(
            a.map(lambda v: np.asarray(v).reshape(1, 1)), "bf16", plans, Workload(isl=1024, osl=1024), gpu(where)
        )
        good = p.legal & p.fits & (p.tokens_per_s_per_user >= target)
        values.append(float(np.where(good, p.tokens_per_s_per_gpu, 0.0).max()))
    return values[1] / values[0] - 1


def wider() -> Answer:
    base = model("llama-3.1-8b")
    other = variant(base.as_dict(), {"layers": 24, "hidden": 4736}, "ffn", 128)
    assert other is not None
    gain = _served_gain(other, base, 100.0)
    loss = float(quality.predicted_loss(other).shape_loss - quality.predicted_loss(base).shape_loss)
    return Answer(
        f"llama-3.1-8b with 24 layers of 4736 for 32 of 4096: {percent(gain)} at 100 tokens/s/user, {loss:+.3f} nats",
        "serving, proxy",
        gain > 0,
        "the loss it costs is why depth is not given up freely",
    )


def alignment_steps() -> Answer:
    b200, m = gpu("b200-sxm"), 8192
    rates = {}
    for step in (8, 64, 128, 256, 512):
        n = np.array([o * step for o in range(1, 16385 // step) if o % 2 and 4096 <= o * step <= 8192])
        rates[step] = float(np.median(m * n / gemm(b200, m, n, 4096, "fp8")))
    best = max(rates.values())
    text = ", ".join(f"{step}: {percent(rate / best - 1)}" for step, rate in rates.items())
    return Answer(
        f"B200 fp8 GEMM rate by exact alignment of N, against the best: {text}",
        "kernel",
        rates[256] > rates[64] * 1.005,
        "the measured tables hold multiples of 256 only; between them our tiles see the step, not the alignment",
    )


def tile_efficiency() -> Answer:
    value = 641 / (128 * np.ceil(641 / 128))
    return Answer(f"{value:.2f}", "arithmetic", near(value, 0.83))


def wave_efficiency() -> Answer:
    value = 150 / (148 * np.ceil(150 / 148))
    return Answer(f"{value:.2f}", "arithmetic", near(value, 0.51))


def two_waves() -> Answer:
    return Answer(f"{int(np.ceil(109 / 108))} waves", "arithmetic", True)


def _saturation(axis: str, where: str = "gb300-nvl72") -> tuple[int, int]:
    size = np.arange(256, 16385, 128)
    n, k = (size, 8192) if axis == "n" else (8192, size)
    rate = size / gemm(gpu(where), 8192, n, k, "nvfp4")
    return int(size[np.argmax(rate >= 0.8 * rate.max())]), int(size[np.argmax(rate >= 0.95 * rate.max())])


def saturation_k() -> Answer:
    at80, at95 = _saturation("k")
    other = _saturation("k", "b200-sxm")[0]
    why = (
        "compared within a factor of two; our GB300 fit fills its pipeline over a long K"
        if at80 > 2 * 3072
        else "compared within a factor of two"
    )
    return Answer(
        f"GB300: 80 % at K = {at80}, 95 % at {at95}; B200: 80 % at {other}", "kernel", 0.5 <= at80 / 3072 <= 2, why
    )


def saturation_n() -> Answer:
    at80, at95 = _saturation("n")
    return Answer(
        f"80 % at N = {at80}, 95 % at {at95}",
        "kernel",
        0.5 <= at80 / 2560 <= 2,
        "compared within a factor of two; our fit fills the GPU with tiles of M as well, so at 8192 "
        "tokens a small N still keeps every SM busy",
    )


def local_maxima() -> Answer:
    b200, m = gpu("b200-sxm"), 4096
    n = np.arange(2048, 8193, 64)
    rate = n / gemm(b200, m, n, 8192, "nvfp4")
    peaks = np.flatnonzero((rate[1:-1] > rate[:-2]) & (rate[1:-1] > rate[2:])) + 1
    share = float(np.mean(n[peaks] % 256 == 0)) if len(peaks) else 0.0
    return Answer(
        f"{len(peaks)} local maxima of the NVFP4 rate, {percent(share, sign=False)} of them at multiples of 256",
        "kernel",
        bool(len(peaks)) and share > 0.7,
    )


def ridge() -> Answer:
    g = gpu("gb300-nvl72")
    value = g.peak_flops["fp4"] / g.memory_bytes_per_s
    return Answer(f"{value:.0f} FLOP/B", "arithmetic", near(value, 1875))


def limit_intensity() -> Answer:
    """2 N K / (b_A K + b_C N) as M goes to infinity."""

    def limit(k: int, out_bytes: float) -> float:
        return 2 * 8192 * k / (0.5 * k + out_bytes * 8192)

    same, fp8_out = [limit(k, 0.5) for k in (512, 2048)], [limit(k, 1.0) for k in (512, 2048)]
    text = (
        f"{same[0]:.0f} and {same[1]:.0f} FLOP/B with FP4 in and out; with FP8 out, as in table 2, "
        f"{fp8_out[0]:.0f} and {fp8_out[1]:.0f}"
    )
    return Answer(text, "arithmetic", near(same[0], 1930) and near(same[1], 6500))


def output_writes() -> Answer:
    math, write = 2 * 16384 * 8192 * 512 / 15e15, 16384 * 8192 / 8e12
    return Answer(
        f"{1e6 * math:.2f} and {1e6 * write:.1f} microseconds",
        "arithmetic",
        near(math, 9.16e-6) and near(write, 16.8e-6),
    )


def _faster(change: dict[str, Any], name: str, batch: int) -> float:
    """Speed-up of llama-3.1-70b FP8 decode on 8 x B200 from a twice as good part of the GPU."""
    plan, load = Deployment(attention_tp=8, batch=batch), Workload(isl=1024, osl=1024)
    base = gpu("b200-sxm")
    before, after = (
        predict(model("llama-3.1-70b"), "fp8", plan, load, g, "fp8").decode_step_s
        for g in (base, replace(base, **change))
    )
    return float(before / after)


def latency_regime() -> Answer:
    base = gpu("b200-sxm")
    memory_ = _faster({"memory_bytes_per_s": 2 * base.memory_bytes_per_s}, "memory", 1)
    math = _faster({"peak_flops": {k: 2 * v for k, v in base.peak_flops.items()}}, "math", 1)
    return Answer(
        f"llama-3.1-70b FP8, TP8, batch 1: twice the bandwidth {memory_:.2f}x, twice the FLOP/s {math:.2f}x",
        "serving",
        memory_ > math,
    )


def throughput_regime() -> Answer:
    base = gpu("b200-sxm")
    gains = [
        _faster({"peak_flops": {k: 2 * v for k, v in base.peak_flops.items()}}, "math", batch) for batch in (1, 1024)
    ]
    return Answer(
        f"the same, twice the FLOP/s: {gains[0]:.2f}x at batch 1, {gains[1]:.2f}x at batch 1024",
        "serving",
        gains[1] > gains[0],
    )


def expert_concurrency() -> Answer:
    a = model("deepseek-r1")
    value = 256 * float(np.asarray(a.experts)) / float(np.asarray(a.top_k))
    return Answer(f"{value:.0f} tokens", "arithmetic", near(value, 8192))


def nvfp4_loss() -> Answer:
    parts = []
    for name in ("llama-3.1-8b", "deepseek-r1"):
        p = quality.predicted_loss(model(name), "nvfp4")
        parts.append(f"{name} {float(p.quant_loss):+.3f} nats")
    return Answer(
        f"predicted for NVFP4 after training: {', '.join(parts)}",
        "proxy",
        float(quality.predicted_loss(model("deepseek-r1"), "nvfp4").quant_loss) < 0.05,
        'larger for small models: at 8B it is as much as a quarter fewer parameters, so "minimal" holds for large ones',
    )


def nvfp4_kernels() -> Answer:
    b200 = gpu("b200-sxm")
    shapes = [(m, n, k) for m in (4096, 8192, 16384) for n in (4096, 8192, 16384) for k in (4096, 8192, 16384)]
    rate = {f: max(m * n * k / float(gemm(b200, m, n, k, f)) for m, n, k in shapes) for f in ("fp8", "nvfp4")}
    decode = float(gemm(b200, 1, 28672, 8192, "fp8") / gemm(b200, 1, 28672, 8192, "nvfp4"))
    best = rate["nvfp4"] / rate["fp8"]
    return Answer(
        f"B200 best shapes {best:.2f}x, decode GEMM (1 x 28672 x 8192) {decode:.2f}x over FP8",
        "kernel",
        1.3 * 0.9 <= best <= 2.0 * 1.1 and decode > 1,
    )


def nvfp4_serving() -> Answer:
    rows = []
    for recipe in ("bf16", "fp8", "nvfp4"):
        best, _ = served("llama-3.1-70b", "b200-sxm", recipe, "fp8", 1_024, 1_024)
        usd = best.prediction.usd_per_million_tokens
        _, at = best.most("tokens_per_s_per_gpu")
        rows.append((recipe, None if usd is None else float(usd[at]), best.most("tokens_per_s_per_gpu")[0]))
    text = ", ".join(f"{r} {rate:,.0f} tokens/s/GPU" + (f" (${usd:.3f}/M)" if usd else "") for r, usd, rate in rows)
    return Answer(f"llama-3.1-70b on B200, most throughput: {text}", "serving", rows[2][2] > rows[1][2] > rows[0][2])


def fp8_weights() -> Answer:
    values = [float(counts.weight_bytes(model("llama-3.1-8b"), r).total) / 1e9 for r in ("bf16", "fp8")]
    return Answer(
        f"{values[0]:.2f} to {values[1]:.2f} GB", "arithmetic", near(values[0], 16.06) and near(values[1], 9.08)
    )


_PEAK = {"bf16": ("bf16", 0.76, 0.95), "fp8": ("fp8", 0.62, 0.81), "nvfp4": ("fp4", 0.50, 0.59)}


def peak_fractions() -> Answer:
    b200 = gpu("b200-sxm")
    shapes = [(m, n, k) for m in (4096, 8192, 16384) for n in (4096, 8192, 16384) for k in (8192, 16384)]
    shares = {
        f: max(2 * m * n * k / float(gemm(b200, m, n, k, f)) for m, n, k in shapes) / b200.peak_flops[peak]
        for f, (peak, _, _) in _PEAK.items()
    }
    inside = all(low * (1 - NEAR) <= shares[f] <= high * (1 + NEAR) for f, (_, low, high) in _PEAK.items())
    return Answer(", ".join(f"{f} {share:.2f}" for f, share in shares.items()), "kernel", inside)


def decode_bandwidth() -> Answer:
    b200, n, k = gpu("b200-sxm"), 28672, 8192
    shares = {
        f: n * k * size / float(gemm(b200, 4, n, k, f)) / b200.memory_bytes_per_s
        for f, size in (("bf16", 2.0), ("fp8", 1.0), ("nvfp4", 0.5625))
    }
    text = ", ".join(f"{f} {share:.2f}" for f, share in shares.items())
    return Answer(f"share of HBM bandwidth, 4 x {n} x {k} on B200: {text}", "kernel", shares["nvfp4"] < shares["bf16"])
