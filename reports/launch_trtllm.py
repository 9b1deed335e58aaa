"""TensorRT-LLM: `trtllm-serve` with a YAML file of LLM arguments (PyTorch backend)."""

from __future__ import annotations

from typing import Any

import yaml

from reports.launch_point import (
    TABLE,
    Inexpressible,
    Limits,
    Server,
    check_formats,
    comment,
    limits,
    model_line,
    script,
)

PORT = {"": 8000, "prefill": 8001, "decode": 8002}


def check(server: Server) -> None:
    """Raise Inexpressible where TensorRT-LLM cannot run the plan.

    Attention is tensor-parallel or data-parallel over the whole group, never both; under data parallelism dense FFNs
    are not sharded. KVP x TP x DP = MoE TP x MoE EP (its Helix and parallel-strategy documents).
    """
    check_formats(server, "trtllm")
    d, a = server.plan, server.architecture
    if d.attention_dp > 1 and d.attention_tp > 1:
        raise Inexpressible(
            f"attention TP{d.attention_tp} with DP{d.attention_dp}: its attention is tensor-parallel or data-parallel "
            "over the whole group, never both"
        )
    if d.attention_dp > 1 and not a.is_moe:
        raise Inexpressible(
            f"attention DP{d.attention_dp} of a dense model: each rank then keeps the whole FFN, not a shard"
        )


def files(server: Server, head: list[str], name: str) -> dict[str, str]:
    """`<name>.yaml` and `<name>.sh` of one server."""
    check(server)
    bounds = limits(server)
    top = "\n".join(f"# {comment(line)}" for line in [*head, *_notes(server)])
    options = yaml.safe_dump(arguments(server, bounds), sort_keys=False)
    lines = ['HERE=$(cd "$(dirname "$0")" && pwd)', model_line(server, "trtllm")]
    serve: list[str | tuple[str, ...]] = [
        ("trtllm-serve", '"$MODEL"'),
        ("--backend", "pytorch"),
        ("--config", f'"$HERE/{name}.yaml"'),
    ]
    serve += [("--host", '"${HOST:-localhost}"'), ("--port", f'"${{PORT:-{PORT[server.side]}}}"')]
    if server.hosts > 1:
        tasks = [("--ntasks", str(server.gpus)), ("--ntasks-per-node", str(server.host_gpus))]
        serve = [("srun", "--mpi=pmix"), ("--nodes", str(server.hosts)), *tasks, "trtllm-llmapi-launch", *serve]
    return {f"{name}.yaml": f"{top}\n{options}", f"{name}.sh": script(head, lines, serve)}


def arguments(server: Server, bounds: Limits) -> dict[str, Any]:
    """LLM arguments (TorchLlmArgs) of one server."""
    d, a = server.plan, server.architecture
    group = int(d.attention_tp) * int(d.attention_dp)
    result: dict[str, Any] = {
        "tensor_parallel_size": group,
        "pipeline_parallel_size": int(d.pp),
        "enable_attention_dp": bool(d.attention_dp > 1),
        "max_batch_size": bounds.per_step,
        "max_num_tokens": bounds.step_tokens,
        "max_seq_len": bounds.context,
        "enable_chunked_prefill": True,
        "kv_cache_config": {
            "dtype": TABLE["trtllm"]["kv"][server.kv_format],
            "free_gpu_memory_fraction": bounds.free_share,
            "tokens_per_block": server.gpu.engine.tokens_per_block,
        },
        "cuda_graph_config": {"enable_padding": True, "max_batch_size": bounds.per_step},
    }
    if server.hosts > 1:
        result["gpus_per_node"] = server.host_gpus
    if a.is_moe:
        result |= {"moe_tensor_parallel_size": int(d.ffn_tp), "moe_expert_parallel_size": int(d.ep)}
    if d.kvp > 1:
        result["context_parallel_size"] = int(d.kvp)
        result["cp_config"] = {"cp_type": "HELIX", "tokens_per_block": server.gpu.engine.tokens_per_block}
    if d.redundant_experts > 0:
        slots = int(a.experts) + int(d.redundant_experts)
        balancer = {"num_slots": slots, "layer_updates_per_iter": 2}
        result["moe_config"] = {"backend": "WIDEEP", "load_balancer": balancer}
    if d.draft_tokens > 0:
        draft = {"decoding_type": "Eagle3", "max_draft_len": int(d.draft_tokens), "speculative_model": "draft"}
        result["speculative_config"] = draft
    if server.side:
        result["cache_transceiver_config"] = {"backend": "DEFAULT", "max_tokens_in_buffer": bounds.context}
        result["disable_overlap_scheduler"] = server.side == "prefill"
    return result


def _notes(server: Server) -> list[str]:
    notes = []
    if server.plan.kvp > 1:
        notes.append("Helix: written for the decode side of disaggregated serving; check that your release runs it so")
    if server.plan.draft_tokens > 0:
        notes.append("speculative_model: folder of an EAGLE-3 head trained for this model, relative to where you start")
    if server.kv_format == "nvfp4":
        notes.append("an NVFP4 KV cache needs a checkpoint with calibrated KV scales")
    return notes


def router(pair: tuple[Server, Server], head: list[str], name: str) -> dict[str, str]:
    """The server in front of the two pools of a disaggregated plan."""
    pools: dict[str, Any] = {"hostname": "localhost", "port": 8000, "backend": "pytorch"}
    for side, server in zip(("context_servers", "generation_servers"), pair, strict=True):
        urls = [f"{server.side}{i}:{PORT[server.side]}" for i in range(server.replicas)]
        pools[side] = {"num_instances": server.replicas, "urls": urls}
    top = "\n".join(f"# {comment(line)}" for line in [*head, "urls: put the hosts of your pools here"])
    lines = ['HERE=$(cd "$(dirname "$0")" && pwd)']
    command: list[str | tuple[str, ...]] = [("trtllm-serve", "disaggregated"), ("-c", f'"$HERE/{name}.yaml"')]
    return {
        f"{name}.yaml": f"{top}\n{yaml.safe_dump(pools, sort_keys=False)}",
        f"{name}.sh": script(head, lines, command),
    }
