"""llama.cpp: `llama-server`, where the recipe has a GGUF type of the same bits and one GPU or a pipeline serves."""

from __future__ import annotations

from reports.launch_point import TABLE, Inexpressible, Server, Unsupported, limits, script
from reports.recipes import gguf_type


def check(server: Server) -> None:
    """Raise Inexpressible where llama.cpp cannot run the plan."""
    d = server.plan
    if gguf_type(server.architecture, server.recipe) is None:
        raise Unsupported(f"{server.recipe} weights have no GGUF counterpart")
    if server.side:
        raise Inexpressible("llama.cpp does not split prefill and decode over servers")
    if d.stage_gpus > 1:
        raise Inexpressible("llama.cpp splits layers over GPUs (pipeline); its tensor split is experimental")
    if d.draft_tokens > 0:
        raise Inexpressible("speculative plans are not exported to llama.cpp")


def files(server: Server, head: list[str], name: str) -> dict[str, str]:
    """`<name>.sh`."""
    check(server)
    bounds, pp = limits(server), int(server.plan.pp)
    kind = gguf_type(server.architecture, server.recipe) or {}
    cache = TABLE["llama"]["kv"][server.kv_format]
    notes = [
        "not priced: the point was predicted for another engine",
        f"{server.recipe} as GGUF {kind['type']}, {kind['bits']} bits per value: convert_hf_to_gguf.py CHECKPOINT "
        f"--outtype bf16, then llama-quantize IN.gguf OUT.gguf {kind['type']}",
    ]
    if cache != "bf16":
        notes.append(f"a {server.kv_format} KV cache has no counterpart; {cache} comes nearest")
    command: list[str | tuple[str, ...]] = [
        "llama-server",
        ("--model", '"$MODEL"'),
        ("--n-gpu-layers", "all"),
        ("--parallel", str(bounds.sequences)),
        ("--ctx-size", str(bounds.sequences * bounds.context)),
        ("--batch-size", str(bounds.chunk)),
        ("--cache-type-k", cache),
        ("--cache-type-v", cache),
        ("--flash-attn", "on"),
        ("--host", '"${HOST:-127.0.0.1}"'),
        ("--port", '"${PORT:-8080}"'),
    ]
    if pp > 1:
        command += [("--split-mode", "layer"), ("--tensor-split", ",".join(["1"] * pp))]
    return {f"{name}.sh": script([*head, *notes], [': "${MODEL:?set MODEL to the GGUF file}"'], command)}
