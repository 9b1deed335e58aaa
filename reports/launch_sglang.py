"""SGLang: `python -m sglang.launch_server`."""

from __future__ import annotations

from reports.launch_point import TABLE, Inexpressible, Limits, Server, check_formats, limits, model_line, script
from reports.recipes import formats

PORT = {"": 30000, "prefill": 30001, "decode": 30002}
BOOTSTRAP = 8998


def check(server: Server) -> None:
    """Raise Inexpressible where SGLang cannot run the plan.

    Attention data parallelism lives inside the tensor-parallel group, in models whose attention follows it; its
    context parallelism splits a group, it does not add ranks.
    """
    check_formats(server, "sglang")
    d, group = server.plan, int(server.plan.stage_gpus)
    if d.kvp > 1:
        raise Inexpressible(
            f"KVP{d.kvp} (Helix) adds ranks to attention; its decode context parallelism only splits a group"
        )
    if d.attention_dp > 1 and server.family not in TABLE["sglang"]["attention_dp"]:
        able = ", ".join(TABLE["sglang"]["attention_dp"])
        raise Inexpressible(
            f"attention DP{d.attention_dp}: its {server.family} attention ignores it; models that follow it: {able}"
        )
    if formats(server.recipe)[1] == "nvfp4" and d.ep not in (1, group):
        raise Inexpressible(f"FFN TP{d.ffn_tp} x EP{d.ep}: its NVFP4 expert kernels take EP1 or EP{group} only")
    if d.redundant_experts > 0 and d.ep == 1:
        raise Inexpressible("redundant experts need expert parallelism")


def files(server: Server, head: list[str], name: str) -> dict[str, str]:
    """`<name>.sh` of one server."""
    check(server)
    bounds = limits(server)
    lines = [model_line(server, "sglang")]
    if server.plan.draft_tokens > 0:
        lines.append(': "${DRAFT:?set DRAFT to the folder of an EAGLE-3 head of this model}"')
    notes = []
    if server.hosts > 1:
        lines.append(': "${NODE_RANK:?0 on the first host}" "${HEAD_ADDRESS:?address of the first host}"')
        notes.append(
            f"start on each of {server.hosts} hosts of {server.host_gpus} GPUs, with NODE_RANK and HEAD_ADDRESS"
        )
    command = [("python", "-m", "sglang.launch_server"), ("--model-path", '"$MODEL"'), *arguments(server, bounds)]
    command += [("--host", '"${HOST:-127.0.0.1}"'), ("--port", f'"${{PORT:-{PORT[server.side]}}}"')]
    return {f"{name}.sh": script([*head, *notes], lines, command)}


def arguments(server: Server, bounds: Limits) -> list[str | tuple[str, ...]]:
    """Options of the server. Batch and chunk are told for the whole group; it divides them by its DP ranks."""
    d = server.plan
    options: list[str | tuple[str, ...]] = [
        ("--tp-size", str(int(d.stage_gpus))),
        ("--pp-size", str(int(d.pp))),
        ("--kv-cache-dtype", TABLE["sglang"]["kv"][server.kv_format]),
        ("--max-running-requests", str(bounds.per_rank * int(d.attention_dp))),
        ("--cuda-graph-max-bs-decode", str(bounds.per_step)),
        ("--chunked-prefill-size", str(bounds.chunk * int(d.attention_dp))),
        ("--context-length", str(bounds.context)),
        ("--mem-fraction-static", str(bounds.static_share)),
    ]
    if d.attention_dp > 1:
        options.append(("--attn-dp-size", str(int(d.attention_dp))))
    if d.ep > 1:
        options.append(("--ep-size", str(int(d.ep))))
    if d.redundant_experts > 0:
        options += ["--enable-eplb", ("--ep-num-redundant-experts", str(int(d.redundant_experts)))]
    if d.draft_tokens > 0:
        options += [
            ("--speculative-algorithm", "EAGLE3"),
            ("--speculative-draft-model-path", '"$DRAFT"'),
            ("--speculative-num-steps", str(int(d.draft_tokens))),
            ("--speculative-eagle-topk", "1"),
            ("--speculative-num-draft-tokens", str(int(d.draft_tokens) + 1)),
        ]
    if server.side:
        options += [("--disaggregation-mode", server.side), ("--disaggregation-transfer-backend", "nixl")]
    if server.side == "prefill":
        options.append(("--disaggregation-bootstrap-port", str(BOOTSTRAP)))
    if server.hosts > 1:
        options += [("--nnodes", str(server.hosts)), ("--node-rank", '"$NODE_RANK"')]
        options.append(("--dist-init-addr", '"$HEAD_ADDRESS:5000"'))
    return options


def router(pair: tuple[Server, Server], head: list[str], name: str) -> dict[str, str]:
    """The router in front of the two pools of a disaggregated plan."""
    prefill, decode = pair
    command: list[str | tuple[str, ...]] = [("python", "-m", "sglang_router.launch_router"), "--pd-disaggregation"]
    for i in range(prefill.replicas):
        command.append(("--prefill", f"http://prefill{i}:{PORT['prefill']}", str(BOOTSTRAP)))
    command += [("--decode", f"http://decode{i}:{PORT['decode']}") for i in range(decode.replicas)]
    command += [("--host", "127.0.0.1"), ("--port", "8000")]
    return {f"{name}.sh": script([*head, TABLE["routers"]["sglang"], "put the hosts of your pools here"], [], command)}
