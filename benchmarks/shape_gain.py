"""Error of a difference between shapes: `benchmarks/shape_gain.py DATA_DIR [--json] [--published] [--write]`.

What a search sells is that one shape is faster than another of the same size. Pairs of measured GEMMs with equal m and
equal weight count (n k equal, aspect differing), of the same GPU, format and engine, are compared: measured latency
ratio against predicted ratio. Only pairs of which neither group was used in the fit count. Per GPU and format: pairs,
median and 80 % quantile of the ratio's relative error, and how often the sign is right where the measured ratio
differs from one by more than 5 %. The last two lines pool the pairs of every line, and of those that kernel targets are
set for (TensorRT-LLM on Hopper and Blackwell). Targets: median at most 4 %, sign right in at least 95 %.
--published prices shape pairs that papers measured end to end beside what they report.
--write stores the table in cost_model/calibration/shape_gain.toml, which reports read to grey out gains that are
smaller than the model's error of a difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import command  # noqa: E402
from benchmarks.calibrate import CALIBRATION, read_groups  # noqa: E402
from cost_model import predict  # noqa: E402
from cost_model.accelerator import load_accelerator  # noqa: E402
from cost_model.fit.calibrate import locked  # noqa: E402
from cost_model.fit.common import Columns, load, partitions, select  # noqa: E402
from cost_model.fit.gemm import GEMM  # noqa: E402
from spaces import Architecture, Deployment, Workload  # noqa: E402

MEDIAN_TARGET, SIGN_TARGET = 0.04, 0.95
TARGETED = ("h100-sxm", "h200-sxm", "b200-sxm", "gb200-nvl72", "b300-sxm", "gb300-nvl72")
NOTICEABLE = 0.05  # a measured difference below this has no sign


def gains(directory: Path, seen: bool = False) -> list[dict[str, Any]]:
    """One line per GPU, format and engine; with `seen`, pairs of fitted groups count too."""
    rows = load(GEMM, directory)
    if rows is None:
        return []
    fitted = read_groups().get("gemm", {})
    lines, every, targeted = [], [], []
    for (gpu, form, backend), own in partitions(rows, "gpu", "format", "backend"):
        if not seen:
            own = select(own, ~np.isin(own["group"], fitted.get(f"{gpu}|{backend}|{form}", [])))
        first, second = pairs(own)
        if not len(first):
            continue
        predicted = GEMM.predict(load_accelerator(gpu, engine=backend), own)
        ratios = own["seconds"][first] / own["seconds"][second], predicted[first] / predicted[second]
        every.append(ratios)
        if backend == "trtllm" and gpu in TARGETED:
            targeted.append(ratios)
        lines.append({"gpu": gpu, "format": form, "backend": backend} | compared(*ratios))
    for name, parts in (("all", every), ("hopper, blackwell", targeted)):
        if parts:
            true, ours = (np.concatenate(values) for values in zip(*parts, strict=True))
            lines.append({"gpu": name, "format": "all", "backend": "all"} | compared(true, ours))
    return lines


def pairs(rows: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Indices of rows with equal m and n k but another aspect, each pair once."""
    m, n, k = rows["m"], rows["n"], rows["k"]
    first, second = np.nonzero((m[:, None] == m) & ((n * k)[:, None] == n * k) & (n[:, None] < n))
    return first, second


def compared(true: np.ndarray, ours: np.ndarray) -> dict[str, Any]:
    """Errors of predicted latency ratios against measured ones."""
    error = np.abs(ours / true - 1)
    clear = np.abs(true - 1) > NOTICEABLE
    right = (ours > 1) == (true > 1)
    return {
        "pairs": len(true),
        "median": round(float(np.median(error)), 4),
        "p80": round(float(np.quantile(error, 0.8)), 4),
        "clear_pairs": int(clear.sum()),
        "sign_right": round(float(right[clear].mean()), 4) if clear.any() else None,
    }


def write(lines: list[dict[str, Any]]) -> None:
    import tomli_w

    tables: dict[str, Any] = {
        "source": "benchmarks/shape_gain.py, groups not used in the fit",
        "date": str(date.today()),
    }
    for line in lines:
        if line["backend"] == "trtllm":
            kept = {name: line[name] for name in ("pairs", "median", "p80", "sign_right") if line[name] is not None}
            tables.setdefault(line["gpu"], {})[line["format"]] = kept
    with locked(CALIBRATION):
        (CALIBRATION / "shape_gain.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")


def published() -> None:
    """Whole models of equal size: papers' end-to-end numbers beside ours."""
    gpu = load_accelerator("a100-sxm", engine="vllm")
    layers, seconds = np.array([12, 16, 24]), np.array([1.96, 2.57, 3.61])
    shapes = zip((3072, 2560, 2048), layers, (8192, 6912, 5632), strict=True)
    ours = [latency(gpu, dense(hidden, depth, hidden // 128, hidden // 128, ffn)) for hidden, depth, ffn in shapes]
    print("arXiv 2501.18107, 1.3B at 3072 x 12, 2560 x 16, 2048 x 24 layers, relative to the first:")
    print(
        "  published", np.round(seconds / seconds[0], 2), "ours with CUDA graphs", np.round(np.array(ours) / ours[0], 2)
    )
    print(
        "  published seconds per layer", np.round(seconds / layers, 3), "hardly depend on the width: launch-bound eager"
    )
    print("  code, which pays per layer; engines replay graphs, so most of that gap is not there to be won.")
    print("arXiv 2510.18245, throughput over Llama-3.2 (published: up to +42 % for Surefire):")
    cases = {
        "1B": (dense(2048, 16, 32, 8, 8192, 64), dense(2560, 16, 40, 8, 4096, 64), dense(2560, 16, 36, 4, 6144, 64)),
        "3B": (dense(3072, 28, 24, 8, 8192), dense(4096, 28, 24, 8, 4096), dense(4096, 28, 28, 4, 4096)),
    }
    for name, (llama, panda, surefire) in cases.items():
        for batch in (16, 64, 256):
            base, *rates = (throughput(gpu, model, batch) for model in (llama, panda, surefire))
            gains = [f"{rate / base - 1:+.0%}" for rate in rates]
            print(f"  {name} batch {batch}: Panda {gains[0]}, Surefire {gains[1]}")


def dense(hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, head_dim: int = 128) -> Architecture:
    return Architecture(
        hidden=hidden,
        layers=int(layers),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        vocab=128256,
        tied_embeddings=True,
    )


def latency(gpu: Any, model: Architecture) -> float:
    return float(predict(model, "bf16", Deployment(batch=1), Workload(isl=128, osl=256), gpu).e2e_s)


def throughput(gpu: Any, model: Architecture, batch: int) -> float:
    workload = Workload(isl=1024, osl=256)
    return float(predict(model, "bf16", Deployment(batch=batch), workload, gpu).tokens_per_s_per_gpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seen", action="store_true", help="count pairs of fitted groups too")
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines = gains(arguments.data, arguments.seen)
    if arguments.write:
        write(lines)
    if arguments.json:
        print(json.dumps(lines, indent=1))
        return
    print(f"{'gpu':18}{'format':11}{'backend':9}{'pairs':>7}{'median':>8}{'p80':>8}{'clear':>7}{'sign right':>12}")
    for line in lines:
        sign = "-" if line["sign_right"] is None else f"{line['sign_right']:.1%}"
        late = line["median"] > MEDIAN_TARGET or (line["sign_right"] or 1.0) < SIGN_TARGET
        print(
            f"{line['gpu']:18}{line['format']:11}{line['backend']:9}{line['pairs']:7}{line['median']:8.1%}"
            f"{line['p80']:8.1%}{line['clear_pairs']:7}{sign:>12}" + ("  MISSED" if late else "")
        )
    if arguments.published:
        published()


if __name__ == "__main__":
    command(main)
