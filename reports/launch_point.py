"""One server to start: what an engine must be told of a priced plan, and the limits that hold it to what was priced.

Limits come from the memory model with the engine's own constants: sequences in flight, tokens per step, context, and
the shares of memory that the engine's own knobs speak of.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from pathlib import Path
from typing import Any

from cost_model import Accelerator
from cost_model.engine import available, load_engine
from cost_model.memory import memory, prefill_chunk, why_not
from reports.recipes import formats
from spaces import Architecture, Deployment, Workload
from spaces.alignment import check_aligned

TABLE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "launch.toml").read_text(encoding="utf-8"))
_TRAY = 4  # GPUs of one host in a rack-scale NVLink domain (GB200, GB300 NVL72)
_HOST = 8  # GPUs of one host elsewhere
STEP = 64  # token limits are rounded up to whole KV pages of any engine


class Inexpressible(ValueError):
    """A plan that an engine cannot run, with the reason."""


class Unsupported(Inexpressible):
    """A model, recipe or GPU for which an engine has nothing: no other plan helps."""


@dataclass(frozen=True)
class Server:
    """One server of one engine.

    Attributes:
        architecture, family, recipe, kv_format: the model. plan: a single aggregated plan of Python numbers.
        workload: what it serves. gpu: with the engine's own constants. device_bytes: all memory of the device, of
            which a study may use less. side: "prefill" or "decode" of a disaggregated pair, "" of neither.
        replicas: servers of this kind.
    """

    architecture: Architecture
    family: str
    recipe: str
    kv_format: str
    plan: Deployment
    workload: Workload
    gpu: Accelerator
    device_bytes: float
    side: str = ""
    replicas: int = 1

    @property
    def context(self) -> int:
        """Tokens of one sequence at its end."""
        return int(self.workload.cached) + int(self.workload.isl) + int(self.workload.osl)

    @property
    def gpus(self) -> int:
        return int(self.plan.replica_gpus)

    @property
    def host_gpus(self) -> int:
        return _TRAY if self.gpu.link_domain > _HOST else _HOST

    @property
    def hosts(self) -> int:
        return ceil(self.gpus / self.host_gpus)


@dataclass(frozen=True)
class Limits:
    """What keeps a server at its priced point.

    Attributes:
        sequences: in flight per replica. largest: the most that memory holds. per_rank: sequences of one
            attention-DP rank. per_step: sequences of one rank in one step of one pipeline stage.
        chunk: prompt tokens of a step; step_tokens: all tokens of a step, per rank. context: of one sequence.
        used_share: of the device that the engine may fill. static_share: of the device, weights and KV cache.
        free_share: KV cache, of what is free beside weights and activations.
    """

    sequences: int
    largest: int
    per_rank: int
    per_step: int
    chunk: int
    step_tokens: int
    context: int
    used_share: float
    static_share: float
    free_share: float


def limits(server: Server) -> Limits:
    """Limits of a server.

    Raises:
        Inexpressible: the plan's batch, or any at all, does not fit the memory that this engine leaves.
    """
    plan, gpu = server.plan, server.gpu
    held = memory(server.architecture, server.recipe, plan, server.workload, gpu, server.kv_format)
    largest, ranks = int(held.largest_batch), int(plan.attention_dp)
    asked = int(plan.batch)
    if largest < max(ranks * plan.pp, 1):
        raise Inexpressible(
            f"it does not fit on {server.gpus} x {gpu.name}: {why_not(replace(held, batch=ranks * plan.pp))}"
        )
    sequences = min(asked, largest) if asked else largest
    per_rank = ceil(sequences / ranks)
    per_step = ceil(per_rank / plan.pp)
    chunk = int(prefill_chunk(plan, gpu))
    room = float(held.available - held.weights - held.activations)
    context = ceil((server.context + int(plan.draft_tokens)) / STEP) * STEP
    step = chunk + (per_step * (1 + int(plan.draft_tokens)) if server.side != "prefill" else 0)
    device = max(server.device_bytes, gpu.memory_bytes)
    free = device - float(held.weights + held.activations + held.reserved)
    return Limits(
        sequences=sequences,
        largest=largest,
        per_rank=per_rank,
        per_step=per_step,
        chunk=chunk,
        step_tokens=ceil(step / STEP) * STEP,
        context=context,
        used_share=_down(gpu.memory_bytes * gpu.engine.memory_fraction / device),
        static_share=_down((float(held.weights) + room) / device),
        free_share=_down(room / free),
    )


def _down(share: float) -> float:
    """Two decimals, never more than what is there."""
    return floor(100 * share + 1e-9) / 100


def servers(server: Server, plan: Deployment) -> tuple[Server, ...]:
    """The servers of a plan: one, or a prefill and a decode pool."""
    if not plan.disaggregated:
        return (server,)
    pool = {name: int(value) for name, value in plan.prefill_pool().as_dict().items() if name != "acceptance"}
    alone = {name: value for name, value in plan.as_dict().items() if not name.startswith("prefill_")}
    decode = Deployment(**{**alone, "decode_replicas": 0, "prefill_chunk": int(plan.prefill_chunk)})
    first = Workload(server.workload.isl, 1, server.workload.cached)
    return (
        replace(server, plan=Deployment(**pool), workload=first, side="prefill", replicas=int(plan.prefill_replicas)),
        replace(server, plan=decode, side="decode", replicas=int(plan.decode_replicas)),
    )


def with_engine(gpu: Accelerator, engine: str) -> Accelerator:
    """The GPU as another engine runs on it: its memory share, reserve and defaults (llama.cpp: as it is)."""
    if engine not in available():
        return gpu
    return replace(gpu, engine=load_engine(engine, gpu.generation, gpu.name))


def check_formats(server: Server, engine: str) -> None:
    """Whether an engine has kernels for the recipe, the KV format, the plan's shards and the GPU.

    Raises:
        Unsupported: it has none. Inexpressible: a shard cuts a quantisation block.
    """
    row, gpu, a = TABLE[engine], server.gpu, server.architecture
    attention, ffn = formats(server.recipe)
    if gpu.vendor not in row["vendors"]:
        raise Unsupported(
            f"{row['name']} {row['version']} is exported for {' and '.join(row['vendors'])} GPUs, not {gpu.vendor}"
        )
    used = [("linears", attention), ("experts" if a.is_moe else "linears", ffn)]
    if a.is_moe and (a.dense_layers or a.shared_experts):
        used.append(("linears", ffn))
    for kind, name in used:
        what = f"{name} {'experts' if kind == 'experts' else 'linears'}"
        if name not in row[kind]:
            raise Unsupported(f"{row['name']} has no kernels for {what}; it serves {', '.join(row[kind])}")
        if name in row.get("gpt_oss_only", ()) and server.family != "gpt-oss":
            raise Unsupported(f"{row['name']} serves {what} of gpt-oss only")
        if gpu.vendor == "NVIDIA":
            _check_capability(row, kind, name, what, gpu)
    try:
        check_aligned(a, server.recipe, int(server.plan.attention_tp), int(server.plan.ffn_tp), int(server.plan.kvp))
    except ValueError as error:
        raise Inexpressible(f"{row['name']} does not cut quantisation blocks: {error}") from error
    if server.kv_format == "nvfp4" and a.is_mla:
        raise Unsupported(f"{row['name']}: an NVFP4 cache of latent attention is not documented; use an fp8 KV cache")


def _check_capability(row: dict[str, Any], kind: str, name: str, what: str, gpu: Accelerator) -> None:
    have, need = gpu.compute_capability, row[kind][name]
    only = row.get("only", {}).get(name)
    if have in row.get("except", {}).get(name, ()):
        raise Unsupported(f"{row['name']} has no kernels for {what} on compute capability {have} ({gpu.name})")
    if have < need or (only and have not in only):
        wanted = " or ".join(map(str, only)) if only else f"{need} or more"
        raise Unsupported(f"{row['name']} runs {what} on compute capability {wanted}; {gpu.name} has {have}")


def comment(text: Any) -> str:
    """Text for one comment line: names from a study file cannot end it."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def script(head: Sequence[str], lines: Sequence[str], command: Sequence[str | tuple[str, ...]]) -> str:
    """A bash script.

    Args:
        head: comment lines. lines: set-up. command: its words, options with their value as one tuple; words that
            begin with a double quote are shell and stay as they are, all others are quoted.
    """
    words = [" ".join(_quoted(w) for w in ((word,) if isinstance(word, str) else word)) for word in command]
    body = " \\\n  ".join(words)
    top = "\n".join(f"# {comment(line)}" for line in head)
    return (
        f"#!/usr/bin/env bash\n{top}\nset -euo pipefail\n" + "".join(f"{line}\n" for line in lines) + f"exec {body}\n"
    )


def _quoted(word: str) -> str:
    return word if word.startswith('"') else shlex.quote(word)


def model_line(server: Server, engine: str) -> str:
    """The shell line that wants the checkpoint's path."""
    _, ffn = formats(server.recipe)
    flavours = TABLE[engine].get("checkpoint", {})
    flavour = flavours.get(ffn, flavours.get("default", "")) if ffn != "bf16" else "bf16"
    if server.kv_format == "nvfp4" and flavour == "compressed-tensors":
        flavour = "modelopt"  # the only tool that calibrates an NVFP4 KV cache
    what = "trained bf16 checkpoint" if flavour == "bf16" else f"quantised checkpoint ({flavour})"
    return f': "${{MODEL:?set MODEL to the folder of the {what}}}"'
