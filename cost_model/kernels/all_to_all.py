"""Seconds of the expert-parallel all-to-all: tokens to the ranks of their experts (dispatch) and back (combine).

Kernels: TensorRT-LLM's NVLink one-sided and two-sided, DeepEP low-latency and high-throughput.
Across link domains the copies for other domains go through the network card: modelled, not measured; it agrees with
the low-latency times that DeepEP publishes for 16 to 256 ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.kernels.collectives import domain_gpus
from spaces.formats import ACTIVATION_BYTES, FORMATS, code, format_code

PHASES = ("prepare", "dispatch", "combine", "combine-low-precision")
BACKENDS = ("nvlink-one-sided", "nvlink-two-sided", "deepep-ll", "deepep-ht")
STEPS = ("prepare", "dispatch/bf16", "dispatch/fp8", "dispatch/nvfp4", "combine", "combine-low-precision")
KEYS = tuple(f"{backend}/{step}" for backend in BACKENDS for step in STEPS)
_BF16, _NVFP4 = FORMATS.index("bf16"), FORMATS.index("nvfp4")
_WIRE = np.array([0 if size >= 2.0 else 1 if size >= 1.0 else 2 for size in ACTIVATION_BYTES])
_STEP = np.stack([0 * _WIRE, 1 + _WIRE, 4 + 0 * _WIRE, 5 + 0 * _WIRE])  # (phases, formats)
_PAYLOAD = np.stack(  # bytes per value, (phases, formats): partial sums come back in bf16 unless asked otherwise
    [
        0 * ACTIVATION_BYTES,
        ACTIVATION_BYTES,
        0 * ACTIVATION_BYTES + 2.0,
        0 * ACTIVATION_BYTES + ACTIVATION_BYTES[_NVFP4],
    ]
)


def all_to_all(
    gpu: Accelerator,
    tokens: Any,
    hidden: Any,
    top_k: Any,
    experts: Any,
    ep: Any,
    phase: Any = "dispatch",
    format: Any = "bf16",
    backend: Any = "nvlink-one-sided",
    nodes: Any = 1,
) -> Any:
    """Seconds of one phase for `tokens` local tokens per rank over `ep` ranks.

    Args:
        phase: prepare (exchange of counts), dispatch, combine (always bf16, as engines do) or combine-low-precision.
        format: of the dispatched activations. backend: the kernel. nodes: network-separated groups of ranks at
        least; more where ep exceeds the GPU's link domain.
    Returns:
        seconds, shaped like the arguments broadcast together; 0 for ep = 1.
    Raises:
        ValueError: unknown name, or several domains on a GPU that has no network.
    """
    form, step = format_code(format), code(phase, PHASES, "phase")
    kernel = code(backend, BACKENDS, "backend")
    key = kernel * len(STEPS) + _STEP[step, form]
    c = gpu.calibration.at("all_to_all", key, KEYS)
    tokens, ep = np.asarray(tokens, dtype=float), np.asarray(ep, dtype=float)
    domains = np.maximum(np.ceil(ep / domain_gpus(gpu)), nodes)
    apart = bool(np.any(domains > 1.0))
    far = (1.0 - 1.0 / domains) * ep / np.maximum(ep - 1.0, 1.0) if apart else 0.0  # share of the remote copies
    doublings = np.log2(ep)
    vectors = tokens * hidden * _PAYLOAD[step, form]
    remote = _copies(kernel, np.minimum(top_k, experts), ep) * (1.0 - 1.0 / ep)
    link_rate = c.link_efficiency * (gpu.link_bytes_per_s or np.inf)
    link = vectors * (remote * (1.0 - far) * (1.0 + c.congestion * doublings) / link_rate)
    near = vectors * (top_k / (c.local_efficiency * gpu.memory_bytes_per_s))
    busy = np.maximum(np.sqrt(link * link + near * near), c.floor_s)
    started = c.latency_s + c.rank_doubling_s * doublings
    if apart:  # the network works beside the link
        latency, rate = _network(gpu)
        busy = np.maximum(busy, vectors * remote * far / rate)
        started = started + np.where(domains > 1.0, latency, 0.0)
    return np.where(ep > 1.0, started + tokens * c.token_s + busy, 0.0)


def _copies(kernel: Any, top_k: Any, ep: Any) -> Any:
    """How often a token is sent, itself included, under the routing that each kernel was measured with.

    NVLink kernels and DeepEP's high-throughput one send once per rank: min(top_k, ep) when balanced, or the expected
    number of distinct ranks when uniform. The low-latency one sends once per expert.
    """
    balanced = np.minimum(top_k, ep)
    if np.all(kernel < BACKENDS.index("deepep-ll")):
        return balanced
    uniform = ep * (1.0 - (1.0 - 1.0 / ep) ** top_k)
    return np.where(kernel == BACKENDS.index("deepep-ll"), top_k, np.where(kernel < 2, balanced, uniform))


def _network(gpu: Accelerator) -> tuple[float, float]:
    """(latency, achieved bytes/s) of one GPU's network card."""
    if not gpu.nic_bytes_per_s:
        raise ValueError(f"{gpu.name} has no network: ep must fit in one link domain of {domain_gpus(gpu)} GPUs")
    c = gpu.calibration.at("network", "nccl")
    return c.latency_s, c.network_efficiency * gpu.nic_bytes_per_s
