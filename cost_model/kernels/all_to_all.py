"""Seconds of the expert-parallel all-to-all: tokens to the ranks of their experts (dispatch) and back (combine).

A token is sent once to every other rank that holds one of its experts: about (ep - 1)(1 - (1 - 1/ep)^k) copies
under uniform routing (TensorRT-LLM, DeepEP). Across link domains the copies for other domains go through the network
card (modelled). Kernels: TensorRT-LLM's NVLink one-sided and two-sided, DeepEP low-latency and high-throughput.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.kernels.collectives import domain_gpus
from spaces.formats import ACTIVATION_BYTES, code, format_code

PHASES = ("prepare", "dispatch", "combine")
BACKENDS = ("nvlink-one-sided", "nvlink-two-sided", "deepep-ll", "deepep-ht")
WIRE = ("bf16", "fp8", "nvfp4")  # formats with constants of their own, by bytes per value on the wire
_WIRE_OF = np.array([0 if size >= 2.0 else 1 if size >= 1.0 else 2 for size in ACTIVATION_BYTES])
KEYS = tuple(f"{backend}/{phase}/{form}" for backend in BACKENDS for phase in PHASES for form in WIRE)


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
        phase: prepare (exchange of counts, only where the kernel has one), dispatch or combine.
        format: of the activations on the wire. backend: the kernel. nodes: network-separated groups of ranks at
        least; more where ep exceeds the GPU's link domain.
    Returns:
        seconds, shaped like the arguments broadcast together; 0 for ep = 1.
    Raises:
        ValueError: unknown name, or several domains on a GPU that has no network.
    """
    form = format_code(format)
    key = (code(backend, BACKENDS, "backend") * len(PHASES) + code(phase, PHASES, "phase")) * len(WIRE) + _WIRE_OF[form]
    c = gpu.calibration.at("all_to_all", key, KEYS)
    tokens, ep = np.asarray(tokens, dtype=float), np.asarray(ep, dtype=float)
    domains = np.maximum(np.ceil(ep / domain_gpus(gpu)), nodes)
    far = np.where(domains > 1.0, (1.0 - 1.0 / domains) * ep / np.maximum(ep - 1.0, 1.0), 0.0)  # of remote ranks
    copies = remote_ranks(experts, top_k, ep)
    moved = tokens * copies * hidden * ACTIVATION_BYTES[form] * c.bytes_factor
    inside = moved * (1.0 - far) / (c.link_efficiency * (gpu.link_bytes_per_s or np.inf))
    return np.where(ep > 1.0, c.latency_s + c.rank_s * ep + inside + _outside(gpu, moved * far, domains), 0.0)


def remote_ranks(experts: Any, top_k: Any, ep: Any) -> Any:
    """Expected number of other ranks that hold an expert of a token, top_k of the experts being picked uniformly."""
    return (ep - 1.0) * (1.0 - (1.0 - 1.0 / ep) ** np.minimum(top_k, experts))


def _outside(gpu: Accelerator, moved: Any, domains: Any) -> Any:
    if not gpu.nic_bytes_per_s:
        if np.any(domains > 1.0):
            raise ValueError(f"{gpu.name} has no network: ep must fit in one link domain of {domain_gpus(gpu)} GPUs")
        return 0.0
    c = gpu.calibration.at("network", "nccl")
    return np.where(domains > 1.0, c.latency_s, 0.0) + moved / (c.network_efficiency * gpu.nic_bytes_per_s)
