"""Time the operations of a GPU's own kernels, in the schema that calibration reads.

GEMMs (aligned and misaligned), causal prefill attention and decode attention, through PyTorch on a CUDA or ROCm
device. Each shape is captured in a graph that runs over enough copies of its operands to overflow the last-level
cache, as a model's layers do, and replayed. Rows carry the columns of calibration's gemm.csv,
attention_context.csv and attention_generation.csv, so `ridgeline calibrate` takes the directory as it is.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
# N x K: near-square, wide and tall at 4 M to 134 M weights, and what no public table has: widths off every tile
ALIGNED = (
    (1024, 1024),
    (2048, 2048),
    (4096, 4096),
    (8192, 8192),
    (4096, 1024),
    (1024, 4096),
    (14336, 4096),
    (4096, 14336),
    (28672, 4096),
    (512, 8192),
    (8192, 512),
    (6144, 4096),
    (16384, 2048),
    (2048, 16384),
)
MISALIGNED = (
    (10922, 4096),
    (10944, 4096),
    (11008, 4096),
    (4096, 10944),
    (4096, 11008),
    (4160, 4096),
    (4224, 4096),
    (4096, 4160),
    (5000, 5000),
    (5120, 5120),
    (2880, 2880),
    (3000, 8192),
    (8192, 3000),
)
HEADS = ((32, 8, 128), (32, 4, 128), (64, 8, 128), (32, 32, 128), (16, 1, 128), (32, 8, 64))  # heads, KV heads, dim
PREFILL = tuple(product((1, 4), (256, 512, 1000, 1024, 2048, 4096, 8192)))  # batch, tokens
DECODE = tuple(product((1, 4, 16, 64, 256), (128, 512, 1024, 4096, 16384)))  # batch, context
SECONDS_PER_SHAPE = 0.05
MAX_BYTES = 8e9  # operands of one shape


@dataclass(frozen=True)
class Shape:
    """One thing to time: the file it belongs to, its columns there, and a description for the progress bar."""

    file: str
    columns: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file} " + " ".join(f"{k}={v}" for k, v in self.columns.items())


def shapes(formats: tuple[str, ...] = ("bfloat16",)) -> Iterator[Shape]:
    """The grid, cheapest kind first; `formats` are the GEMM formats the device runs."""
    for dtype, (n, k), m in product(formats, (*ALIGNED, *MISALIGNED), TOKENS):
        if dtype == "bfloat16" or (n % 16 == 0 and k % 16 == 0):  # fp8 products need multiples of 16
            yield Shape("gemm", {"dtype": dtype, "m": m, "n": n, "k": k})
    own = {"dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
    for (heads, kv_heads, dim), (batch, tokens) in product(HEADS, PREFILL):
        dims = {"heads": heads, "kv_heads": kv_heads, "head_dim": dim, "window_size": 0}
        yield Shape("attention_context", {**own, "batch": batch, "seq": tokens, **dims})
    for (heads, kv_heads, dim), (batch, context) in product(HEADS, DECODE):
        if 4.0 * batch * context * kv_heads * dim <= MAX_BYTES:
            dims = {"heads": heads, "kv_heads": kv_heads, "head_dim": dim, "window_size": 0}
            yield Shape("attention_generation", {**own, "batch": batch, "kv_len": context, **dims})


class TorchTimer:
    """Times shapes on the first CUDA or ROCm device.

    Raises:
        ValueError: no PyTorch, or no GPU that it can use.
    """

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise ValueError("measure: PyTorch is not installed here; install a CUDA or ROCm build of torch") from error
        if not torch.cuda.is_available():
            raise ValueError("measure: PyTorch sees no CUDA or ROCm GPU on this machine; run it where the GPU is")
        self.torch = torch
        self.properties = torch.cuda.get_device_properties(0)
        self.system = self.properties.name.lower().replace(" ", "-")
        self.version = f"torch {torch.__version__}"
        self.cache_bytes = getattr(self.properties, "L2_cache_size", 64 << 20)

    @property
    def formats(self) -> tuple[str, ...]:
        """GEMM formats that torch multiplies on this device."""
        fp8 = self.torch.cuda.get_device_capability(0) >= (8, 9)
        return ("bfloat16", "fp8") if fp8 else ("bfloat16",)

    def __call__(self, shape: Shape) -> float:
        """Seconds of one call."""
        builders: dict[str, Callable[..., list[Callable[[], Any]]]] = {
            "gemm": self._gemm,
            "attention_context": self._prefill,
            "attention_generation": self._decode,
        }
        calls = builders[shape.file](**shape.columns)
        return self._replayed(calls)

    def _copies(self, bytes_each: float) -> int:
        """Operand sets whose reads overflow the cache twice."""
        return int(min(max(2 * self.cache_bytes / bytes_each, 1), MAX_BYTES / bytes_each, 64)) or 1

    def _random(self, *size: int) -> Any:
        return self.torch.randn(*size, device="cuda", dtype=self.torch.bfloat16)

    def _gemm(self, dtype: str, m: int, n: int, k: int) -> list[Callable[[], Any]]:
        torch = self.torch
        if dtype == "bfloat16":
            pairs = [(self._random(m, k), self._random(n, k)) for _ in range(self._copies(2.0 * n * k))]
            return [partial(torch.nn.functional.linear, x, w) for x, w in pairs]
        pairs = [(self._random(m, k), self._random(n, k).to(torch.float8_e4m3fn)) for _ in range(self._copies(n * k))]
        one = torch.ones((), device="cuda")

        def quantised(x: Any, w: Any) -> Any:  # dynamic per-tensor scale, as calibration's rows include it
            scale = x.abs().amax().float() / 448.0
            return torch._scaled_mm(
                (x / scale).to(torch.float8_e4m3fn), w.t(), scale_a=scale, scale_b=one, out_dtype=torch.bfloat16
            )

        return [partial(quantised, x, w) for x, w in pairs]

    def _prefill(
        self, batch: int, seq: int, heads: int, kv_heads: int, head_dim: int, **_: Any
    ) -> list[Callable[[], Any]]:
        q = self._random(batch, heads, seq, head_dim)
        k, v = self._random(batch, kv_heads, seq, head_dim), self._random(batch, kv_heads, seq, head_dim)
        attention = self.torch.nn.functional.scaled_dot_product_attention
        return [partial(attention, q, k, v, is_causal=True, enable_gqa=True)]

    def _decode(
        self, batch: int, kv_len: int, heads: int, kv_heads: int, head_dim: int, **_: Any
    ) -> list[Callable[[], Any]]:
        size = (batch, kv_heads, kv_len, head_dim)
        copies = self._copies(4.0 * batch * kv_heads * kv_len * head_dim)
        q = self._random(batch, heads, 1, head_dim)
        caches = [(self._random(*size), self._random(*size)) for _ in range(copies)]
        attention = self.torch.nn.functional.scaled_dot_product_attention
        return [partial(attention, q, k, v, enable_gqa=True) for k, v in caches]

    def _replayed(self, calls: list[Callable[[], Any]]) -> float:
        """Mean seconds per call over replays of one graph of all calls."""
        torch = self.torch
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):  # warm up off the default stream, as capture needs
            for call in calls:
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        replays, elapsed = 1, 0.0
        while elapsed < SECONDS_PER_SHAPE:
            start.record()
            for _ in range(replays):
                graph.replay()
            end.record()
            torch.cuda.synchronize()
            elapsed, done = start.elapsed_time(end) * 1e-3, replays
            replays *= 2
        return elapsed / (done * len(calls))


def measure(out: Path, timer: Any = None, progress: Callable[[int, int, str], None] | None = None) -> dict[str, int]:
    """Time the whole grid into out/<file>.csv, a row at a time, so that a stopped run keeps what it measured.

    Args:
        timer: callable with `system`, `version` and `formats`; None = the GPU of this machine.
        progress: called with (done, total, description).
    Returns:
        Rows written per file.
    Raises:
        ValueError: no GPU, or `out` holds measurements already.
    """
    timer = timer or TorchTimer()
    grid = list(shapes(timer.formats))
    out.mkdir(parents=True, exist_ok=True)
    there = [shape.file for shape in grid if (out / f"{shape.file}.csv").exists()]
    if there:
        raise ValueError(f"{out}: {there[0]}.csv is there already; choose an empty directory")
    counts: dict[str, int] = {}
    for number, shape in enumerate(grid):
        seconds = timer(shape)
        first = {"system": timer.system, "backend": "torch", "backend_version": timer.version, "kernel": "torch"}
        row = {**first, **shape.columns, "latency_us": f"{seconds * 1e6:.5g}"}
        with (out / f"{shape.file}.csv").open("a", newline="", encoding="utf-8") as handle:
            writer = csv.DictWriter(handle, list(row))
            if shape.file not in counts:
                writer.writeheader()
            writer.writerow(row)
        counts[shape.file] = counts.get(shape.file, 0) + 1
        if progress:
            progress(number + 1, len(grid), str(shape))
    return counts
