"""vLLM: `vllm serve`."""

from __future__ import annotations

import json

from reports.launch_point import TABLE, Inexpressible, Limits, Server, check_formats, limits, model_line, script
from reports.recipes import formats

PORT = {"": 8000, "prefill": 8100, "decode": 8200}


def check(server: Server) -> None:
    """Raise Inexpressible where vLLM cannot run the plan.

    Its KV parallelism splits a tensor-parallel group, it does not add ranks; data-parallel ranks of a dense model
    share nothing; experts are spread over all TP x DP ranks, or every expert is cut over all of them.
    """
    check_formats(server, "vllm")
    d, a, group = server.plan, server.architecture, int(server.plan.stage_gpus)
    if d.kvp > 1:
        raise Inexpressible(
            f"KVP{d.kvp} (Helix) adds ranks to attention; its decode context parallelism only splits a "
            "tensor-parallel group whose KV heads are replicated"
        )
    if d.attention_dp > 1 and not a.is_moe:
        raise Inexpressible(
            f"attention DP{d.attention_dp} of a dense model: its data-parallel ranks are whole replicas"
        )
    if a.is_moe and (d.ffn_tp, d.ep) not in ((1, group), (group, 1)):
        raise Inexpressible(
            f"FFN TP{d.ffn_tp} x EP{d.ep}: experts are spread (EP{group}) or cut (TP{group}) over all {group} ranks"
        )
    if server.hosts > 1 and d.attention_dp > 1 and d.attention_tp * d.pp > server.host_gpus:
        raise Inexpressible(
            f"a data-parallel rank of {d.attention_tp * d.pp} GPUs spans hosts of {server.host_gpus}: not exported"
        )


def files(server: Server, head: list[str], name: str) -> dict[str, str]:
    """`<name>.sh` of one server."""
    check(server)
    bounds = limits(server)
    lines = [model_line(server, "vllm")]
    if server.plan.draft_tokens > 0:
        lines.append(': "${DRAFT:?set DRAFT to the folder of an EAGLE-3 head of this model}"')
    if server.side:
        lines.append('export VLLM_NIXL_SIDE_CHANNEL_HOST="${VLLM_NIXL_SIDE_CHANNEL_HOST:-$(hostname -i)}"')
    command = [("vllm", "serve", '"$MODEL"'), *arguments(server, bounds)]
    command += [("--host", '"${HOST:-localhost}"'), ("--port", f'"${{PORT:-{PORT[server.side]}}}"')]
    extra = []
    if server.hosts > 1:
        lines.append(': "${NODE_RANK:?0 on the first host}" "${HEAD_ADDRESS:?address of the first host}"')
        lines.append('HEADLESS=(); [[ "$NODE_RANK" == 0 ]] || HEADLESS=(--headless)')
        extra = ['"${HEADLESS[@]}"']
    return {f"{name}.sh": script([*head, *_notes(server)], lines, [*command, *extra])}


def arguments(server: Server, bounds: Limits) -> list[str | tuple[str, ...]]:
    """Options of `vllm serve` for one server."""
    d = server.plan
    options: list[str | tuple[str, ...]] = [
        ("--tensor-parallel-size", str(int(d.attention_tp))),
        ("--pipeline-parallel-size", str(int(d.pp))),
        ("--kv-cache-dtype", TABLE["vllm"]["kv"][server.kv_format]),
        ("--max-num-seqs", str(bounds.per_rank)),
        ("--max-num-batched-tokens", str(bounds.step_tokens)),
        ("--max-model-len", str(bounds.context)),
        ("--gpu-memory-utilization", str(bounds.used_share)),
    ]
    if d.attention_dp > 1:
        options.append(("--data-parallel-size", str(int(d.attention_dp))))
    if d.ep > 1:
        options.append("--enable-expert-parallel")
    if d.redundant_experts > 0:
        options.append("--enable-eplb")
        options.append(("--eplb-config", json.dumps({"num_redundant_experts": int(d.redundant_experts)})))
    if d.draft_tokens > 0:
        # the shell puts the folder in: the JSON stands in double quotes, its own quotes escaped
        tokens = int(d.draft_tokens)
        draft = json.dumps({"method": "eagle3", "model": "$DRAFT", "num_speculative_tokens": tokens})
        options.append(("--speculative-config", '"' + draft.replace('"', '\\"') + '"'))
    if server.side:
        role = {"prefill": "kv_producer", "decode": "kv_consumer"}[server.side]
        options.append(("--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role})))
    return options + _hosts(server)


def _hosts(server: Server) -> list[str | tuple[str, ...]]:
    if server.hosts == 1:
        return []
    if server.plan.attention_dp > 1:
        local = server.host_gpus // int(server.plan.attention_tp * server.plan.pp)
        return [
            ("--data-parallel-size-local", str(local)),
            ("--data-parallel-start-rank", f'"$((NODE_RANK * {local}))"'),
            ("--data-parallel-address", '"$HEAD_ADDRESS"'),
        ]
    return [("--nnodes", str(server.hosts)), ("--node-rank", '"$NODE_RANK"'), ("--master-addr", '"$HEAD_ADDRESS"')]


def _notes(server: Server) -> list[str]:
    d, notes = server.plan, []
    below = TABLE["vllm"]["weight_only_below"].get(formats(server.recipe)[1], 0.0)
    if server.gpu.compute_capability < below:
        notes.append(
            f"below compute capability {below} its {server.recipe} weights are dequantised to bf16 for the product"
        )
    if server.hosts > 1:
        notes.append(
            f"start on each of {server.hosts} hosts of {server.host_gpus} GPUs, with NODE_RANK and HEAD_ADDRESS"
        )
    if d.attention_dp > 1 and d.ep > 1:
        fast = "flashinfer_nvlink_one_sided" if server.gpu.link_domain > 8 else "deepep_low_latency"
        notes.append(f"tokens are exchanged by all-gather; with its kernels installed, try --all2all-backend {fast}")
    return notes


def router(pair: tuple[Server, Server], head: list[str], name: str) -> dict[str, str]:
    """The router in front of the two pools of a disaggregated plan."""
    command: list[str | tuple[str, ...]] = ["vllm-router", "--vllm-pd-disaggregation"]
    for server in pair:
        command += [
            (f"--{server.side}", f"http://{server.side}{i}:{PORT[server.side]}") for i in range(server.replicas)
        ]
    command += [("--host", "127.0.0.1"), ("--port", "8000")]
    return {f"{name}.sh": script([*head, TABLE["routers"]["vllm"], "put the hosts of your pools here"], [], command)}
