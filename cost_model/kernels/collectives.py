"""Seconds of collectives between the GPUs of one replica: all-reduce, all-gather, reduce-scatter, send.

Inside a link domain the latency-bandwidth model (alpha-beta); across domains the collective is hierarchical
(modelled, not measured): inside each domain over the link, then between domains over the network cards, each GPU
carrying its share. GPUs without a scale-up link talk over PCIe inside a host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from spaces.formats import code

LAUNCHES = ("graph", "eager", "nccl")
FILLED_BYTES = 4096.0  # of a message that fills a one-shot kernel (the best of three by cross-validation)
HOST_GPUS = 8  # GPUs of one host that reach each other over PCIe where there is no scale-up link


def all_reduce(gpu: Accelerator, message_bytes: Any, ranks: Any, launch: Any = "graph") -> Any:
    """Seconds to sum a message of `message_bytes` over `ranks` GPUs, the result on each of them.

    The fastest of one-shot (every rank reads all the others' messages), two-shot (reduce-scatter, then all-gather)
    and, for large messages, a ring or the reduction inside the switch, which moves the message up and down once.

    Args:
        launch: graph or eager (the engine's own kernel, inside a CUDA graph or not) or nccl.
    Returns:
        seconds, shaped like the arguments broadcast together; 0 for one rank.
    Raises:
        ValueError: unknown launch, or more ranks than one link domain where there is no network.
    """
    c = gpu.calibration.at("all_reduce", code(launch, LAUNCHES, "launch"), LAUNCHES)
    size, ranks = np.asarray(message_bytes, dtype=float), np.asarray(ranks, dtype=float)
    local, domains = split(gpu, ranks)
    inside = _all_reduce_inside(gpu, c, size, local)
    if np.any(local > c.own_ranks):  # beyond one tray of an NVL72 rack engines switch to another kernel
        wide = _all_reduce_inside(gpu, gpu.calibration.at("all_reduce", "wide"), size, local)
        inside = np.where(local > c.own_ranks, np.maximum(wide, c.launch_floor_s), inside)
    return _joined(gpu, inside, local, 2.0 * size, domains)


def _all_reduce_inside(gpu: Accelerator, c: Any, size: Any, ranks: Any) -> Any:
    byte = _seconds_per_byte(gpu, c, ranks)
    inverse = 1.0 / ranks
    share = 2.0 - 2.0 * inverse
    ring = share * (1.0 + c.ring_small_group * inverse) / c.ring_efficiency
    pushed = size * ((ranks - 1.0) * (byte / c.one_shot_efficiency))
    one_shot = np.maximum(pushed, c.one_shot_hidden_s)  # small messages hide in the latency
    filled = np.minimum(size * (1.0 / FILLED_BYTES), 1.0)
    one_shot = one_shot + (c.one_shot_s + c.one_shot_rank_s * ranks + c.one_shot_fill_s * filled)
    two_shot = size * (share * (byte / c.two_shot_efficiency)) + (c.two_shot_s + c.two_shot_rank_s * ranks)
    # between two ranks the switch carries no less than a ring does
    switch = np.where(ranks > 2.0, 1.0 / c.switch_efficiency, np.inf)
    bulk = size * (np.minimum(ring, switch) * byte) + (c.bulk_s + c.bulk_rank_s * ranks)
    return np.maximum(np.minimum(np.minimum(one_shot, two_shot), bulk), c.launch_floor_s)


def _seconds_per_byte(gpu: Accelerator, c: Any, ranks: Any) -> Any:
    """Of the scale-up link; where there is none, the ranks of a host crowd its PCIe."""
    byte = 1.0 / gpu.link_bytes_per_s if gpu.link_bytes_per_s else 0.0
    if not np.any(c.host_contention):
        return byte
    return byte * (1.0 + c.host_contention * np.maximum(ranks - 2.0, 0.0))


def all_gather(gpu: Accelerator, message_bytes: Any, ranks: Any, launch: Any = "graph") -> Any:
    """Seconds until each of `ranks` GPUs holds the whole of a message of `message_bytes` (the full result).

    NCCL's, whatever the launch (the only one measured). Returns 0 for one rank.
    Raises:
        ValueError: unknown launch, or more ranks than one link domain where there is no network.
    """
    return _half(gpu, "all_gather", message_bytes, ranks, launch)


def reduce_scatter(gpu: Accelerator, message_bytes: Any, ranks: Any, launch: Any = "graph") -> Any:
    """Seconds to sum a message of `message_bytes` (the full input), each of `ranks` GPUs keeping its share.

    NCCL's, whatever the launch (the only one measured). Returns 0 for one rank.
    Raises:
        ValueError: unknown launch, or more ranks than one link domain where there is no network.
    """
    return _half(gpu, "reduce_scatter", message_bytes, ranks, launch)


def send(gpu: Accelerator, message_bytes: Any, across_domains: Any = False) -> Any:
    """Seconds to hand a message to one other GPU: over the link, or over the network cards (modelled).

    Raises:
        ValueError: across_domains on a GPU that has no network.
    """
    size, across = np.asarray(message_bytes, dtype=float), np.asarray(across_domains)
    apart = across | (domain_gpus(gpu) == 1)
    c = gpu.calibration.at("send", "nccl")
    inside = c.latency_s + size / (c.link_efficiency * (gpu.link_bytes_per_s or np.inf))
    return np.where(apart, c.latency_s + _wire(gpu, size, 1.0 + apart), inside)


def domain_gpus(gpu: Accelerator) -> int:
    """GPUs that reach each other without a network card."""
    return HOST_GPUS if gpu.link_domain == 1 and gpu.link_bytes_per_s else gpu.link_domain


def split(gpu: Accelerator, ranks: Any) -> tuple[Any, Any]:
    """(ranks inside one domain, domains) of a group."""
    domain = domain_gpus(gpu)
    return np.minimum(ranks, domain), np.ceil(ranks / domain)


def _half(gpu: Accelerator, op: str, message_bytes: Any, ranks: Any, launch: Any) -> Any:
    code(launch, LAUNCHES, "launch")
    c = gpu.calibration.at(op, "nccl")
    size, ranks = np.asarray(message_bytes, dtype=float), np.asarray(ranks, dtype=float)
    local, domains = split(gpu, ranks)
    inverse = 1.0 / local
    share = (1.0 - inverse) * _seconds_per_byte(gpu, c, local)
    quick = size * (share / c.quick_efficiency) + (c.latency_s + c.rank_s * local)
    bulk = size * (share * (1.0 + c.ring_small_group * inverse) / c.ring_efficiency)
    bulk = bulk + (c.bulk_s + c.bulk_rank_s * local)
    return _joined(gpu, np.minimum(quick, bulk), local, size, domains)


def _joined(gpu: Accelerator, inside: Any, local: Any, size: Any, domains: Any) -> Any:
    """Seconds inside a domain, and those between domains: recursive halving (Thakur et al. 2005) over the network.

    Each GPU carries its own share of `size`, twice the message where it is reduced and then gathered.
    """
    inside = np.where(local > 1.0, inside, 0.0)
    if not np.any(domains > 1.0):
        return inside
    steps = size / local * ((domains - 1.0) / domains)
    latency = gpu.calibration.at("network", "nccl").latency_s
    return inside + np.log2(domains) * latency + _wire(gpu, steps, domains)


def _wire(gpu: Accelerator, size: Any, domains: Any) -> Any:
    """Seconds of bytes through one GPU's network card."""
    if not gpu.nic_bytes_per_s:
        if np.any(np.asarray(domains) > 1.0):
            raise ValueError(f"{gpu.name} has no network: at most {domain_gpus(gpu)} ranks, one link domain")
        return 0.0
    return size / (gpu.calibration.at("network", "nccl").network_efficiency * gpu.nic_bytes_per_s)
