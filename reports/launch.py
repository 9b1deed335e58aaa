"""Launch files of one serving point for every engine, or why an engine cannot run it and which plan comes nearest.

Each engine has its own spelling of a plan (launch_trtllm, launch_vllm, launch_sglang, launch_llama). Flags and keys
are those of the versions in launch.toml; tests hold them to what those versions define.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from cost_model import predict
from reports import launch_llama, launch_sglang, launch_trtllm, launch_vllm
from reports.launch_point import TABLE, Inexpressible, Server, Unsupported, limits, servers, with_engine
from reports.words import number, plan
from spaces import Deployment, enumerate_deployments

MODULES: dict[str, ModuleType] = {
    "trtllm": launch_trtllm,
    "vllm": launch_vllm,
    "sglang": launch_sglang,
    "llama": launch_llama,
}
ENGINES = tuple(MODULES)
_DEGREES = ("attention_tp", "attention_dp", "kvp", "ffn_tp", "ep", "pp", "redundant_experts")
_SUFFIXES = ("", "_prefill", "_decode", "_router")


@dataclass(frozen=True)
class Point:
    """A priced point: the model on its GPU, its whole plan, and what was predicted.

    Attributes:
        server: the model, workload and GPU with the study's engine; its plan is replaced side by side.
        plan: a single plan of Python numbers. predicted: fields of the point's row. skew: of expert popularity.
        head: comment lines that say what this is.
    """

    server: Server
    plan: Deployment
    predicted: dict[str, Any]
    skew: str
    head: tuple[str, ...]


def names(engine: str) -> tuple[str, ...]:
    """Every file that an export may write for an engine at one point."""
    stems = [f"{engine}{suffix}" for suffix in _SUFFIXES]
    kinds = (".sh", ".yaml") if engine == "trtllm" else (".sh",)
    return (*(stem + kind for stem in stems for kind in kinds), f"{engine}.refused.txt")


def engine_files(point: Point, engine: str) -> dict[str, str]:
    """Files of one engine: a server, or both pools and what stands in front of them.

    Raises:
        Inexpressible: the engine cannot run the plan, with the reason and the nearest plan it can run.
    """
    module, row = MODULES[engine], TABLE[engine]
    said = f"{row['name']} {row['version']}; flags change between releases: {row['check']}"
    head = [*point.head, said]
    whole = replace(point.server, gpu=with_engine(point.server.gpu, engine))
    sides = servers(replace(whole, plan=point.plan), point.plan)
    files: dict[str, str] = {}
    for server in sides:
        name = f"{engine}_{server.side}" if server.side else engine
        try:
            files |= module.files(server, [*head, *_batch_note(server)], name)
        except Unsupported:
            raise
        except Inexpressible as error:
            side = f"{server.side} pool: " if server.side else ""
            raise Inexpressible(f"{side}{error}. {nearest(server, engine, point)}") from error
    if len(sides) == 2:
        files |= module.router(sides, head, f"{engine}_router")
    return files


def _batch_note(server: Server) -> list[str]:
    bounds, asked = limits(server), int(server.plan.batch)
    if server.side == "prefill":
        return [f"prefill pool: {server.replicas} such servers"]
    lines = [f"decode pool: {server.replicas} such servers"] if server.side else []
    text = f"{bounds.sequences} sequences in flight per replica, of at most {bounds.context} tokens"
    fewer = f" (the point has {asked}; this engine's memory share holds no more)" if bounds.sequences < asked else ""
    return [*lines, f"{text}{fewer}; memory holds {bounds.largest}"]


def nearest(server: Server, engine: str, point: Point) -> str:
    """The plan on as many GPUs and with the same batch that the engine runs and that changes the fewest degrees."""
    found = _nearest(server, engine, point)
    if found is None:
        return f"No plan on {server.gpus} x {server.gpu.name} for this model and recipe is expressible there."
    deployment, speed = found
    before = point.predicted["tokens_per_s_per_user"]
    said = f"Nearest plan it can run: {plan(deployment.as_dict())}"
    if server.side == "prefill":
        return f"{said}, for that pool."
    return f"{said}, at the same batch: predicted {number(speed)} tokens/s/user instead of {number(before)}."


def _nearest(server: Server, engine: str, point: Point) -> tuple[Deployment, float] | None:
    d, gpu = server.plan, point.server.gpu  # priced as the point was: with the study's engine
    plans = enumerate_deployments(
        [server.gpus],
        server.architecture,
        batches=[max(int(d.batch), 1)],
        kvp=sorted({1, int(d.kvp)}),
        pp=sorted({1, 2, 4, 8, int(d.pp)}),
        redundant_experts=sorted({0, int(d.redundant_experts)}),
        draft_tokens=int(d.draft_tokens),
        acceptance=float(d.acceptance),
    )
    if not np.size(plans.batch):
        return None
    priced = predict(server.architecture, server.recipe, plans, server.workload, gpu, server.kv_format, point.skew)
    changed = sum(np.asarray(getattr(plans, name)) != int(getattr(d, name)) for name in _DEGREES)
    speed = np.broadcast_to(priced.tokens_per_s_per_user, np.shape(plans.batch))
    for index in np.lexsort((-speed, changed)):
        if not (np.ravel(priced.legal)[index] and np.ravel(priced.fits)[index]):
            continue
        candidate = Deployment(**plans.take(index).as_dict())
        try:
            MODULES[engine].check(replace(server, plan=candidate))
            limits(replace(server, plan=candidate))
        except Inexpressible:
            continue
        return candidate, float(speed[index])
    return None
