"""What lies in a GPU's memory: weights in three sharding classes, KV cache, activations, and what is left.

Weights are sharded by tensor parallelism (attention, dense FFN, embeddings), by experts, or replicated
(norms, router, MLA down-projections). KV heads are replicated where tensor parallelism exceeds them, and the
MLA latent on every tensor-parallel rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.grid import gathered
from spaces.architecture import Architecture
from spaces.deployment import FIELDS, Deployment, enumerate_deployments, powers_of_two, unchecked
from spaces.formats import KV_BYTES, RECIPE_ATTENTION, RECIPE_FFN, WEIGHT_BYTES, kv_code, recipe_code
from spaces.parameters import layer_parameters
from spaces.workload import Workload


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest GPU of a replica.

    Attributes:
        weights, kv_cache, activations, reserved: bytes by use; kv_cache holds `batch` sequences.
        total: their sum. available: bytes the engine may fill beyond `reserved`.
        batch: sequences per replica the plan holds: the asked number, or the most that fit.
        largest_batch: the most sequences per replica that fit (0: not even the weights and one sequence).
    """

    weights: Any
    kv_cache: Any
    activations: Any
    reserved: Any
    available: Any
    batch: Any
    largest_batch: Any

    @property
    def total(self) -> Any:
        return self.weights + self.kv_cache + self.activations + self.reserved

    @property
    def fits(self) -> Any:
        return (self.largest_batch >= self.batch) & (self.batch > 0)


def weight_bytes_per_gpu(architecture: Architecture, recipe: Any, deployment: Deployment) -> Any:
    """Weight bytes on the fullest GPU: the first or last pipeline stage with its embedding or LM head."""
    a, d = architecture, deployment
    code = recipe_code(recipe)
    attention_byte = WEIGHT_BYTES[RECIPE_ATTENTION[code]]
    ffn_byte = WEIGHT_BYTES[RECIPE_FFN[code]]
    layer = layer_parameters(a)
    tp, group = np.asarray(d.attention_tp), np.asarray(d.attention_tp) * d.kvp
    # K and V projections stop shrinking once every rank holds one KV head; Helix ranks all hold QKV in full
    copies = np.where(a.is_mla, 1, np.maximum(tp / a.kv_heads, 1))
    kv_linear = np.where(a.is_mla, 0, 2.0 * np.asarray(a.hidden) * a.kv_heads * a.head_dim)
    output_linear = np.asarray(a.heads) * a.value_dim * a.hidden
    attention = (layer.attention_sharded - kv_linear - output_linear) / tp + kv_linear * copies / tp
    attention = attention + output_linear / group + layer.attention_replicated
    moe_share = a.moe_layers / np.asarray(a.layers)
    dense_group = np.where(a.is_moe, group, d.ffn_tp)
    dense = layer.ffn_dense * (1 - moe_share) / dense_group
    slots = (np.asarray(a.experts) + d.redundant_experts) / np.asarray(d.ep)
    routed = moe_share * (slots * layer.expert / d.ffn_tp + layer.shared / group)
    plain = 2.0 * (layer.norms + moe_share * layer.router)
    stage_layers = -(-np.asarray(a.layers) // d.pp)
    matrices = np.where(
        np.asarray(a.tied_embeddings) & (np.asarray(d.pp) == 1), 1, np.where(np.asarray(d.pp) > 1, 1, 2)
    )
    ends = 2.0 * matrices * np.asarray(a.vocab) * a.hidden / tp
    return stage_layers * (attention * attention_byte + (dense + routed) * ffn_byte + plain) + ends


def kv_bytes_per_token_layer(architecture: Architecture, kv_format: Any, attention_tp: Any) -> Any:
    """KV bytes of one token in one layer on one rank: max(1, kv_heads / tp) heads, or the whole MLA latent."""
    a = architecture
    heads = np.maximum(np.ceil(np.asarray(a.kv_heads) / attention_tp), 1)
    values = np.where(a.is_mla, np.asarray(a.kv_lora_rank) + a.qk_rope_head_dim, 2 * heads * a.head_dim)
    return values * KV_BYTES[kv_code(kv_format)]


def kv_bytes_per_sequence_gpu(
    architecture: Architecture, kv_format: Any, deployment: Deployment, context: Any, gpu: Accelerator
) -> Any:
    """KV bytes of one sequence on one rank of its attention group, in whole pages; windows as the engine keeps them."""
    a, d = architecture, deployment
    block = gpu.engine.tokens_per_block
    held = np.ceil(np.asarray(context) / d.kvp / block) * block
    windowed = np.minimum(held, np.asarray(a.window) + block) if gpu.engine.windowed_kv else held
    layers = ((np.asarray(a.layers) - a.windowed_layers) * held + a.windowed_layers * windowed) / d.pp
    return layers * kv_bytes_per_token_layer(a, kv_format, d.attention_tp)


def activation_bytes_per_gpu(architecture: Architecture, deployment: Deployment, tokens: Any) -> Any:
    """Live activations of one step of `tokens` tokens per rank, bf16, and fp32 logits of 1024 rows.

    Residual, its normalised copy, QKV, attention output and both FFN intermediates are live at the widest point;
    an MoE rank holds the permuted inputs and intermediates of the tokens routed to it.
    """
    a, d = architecture, deployment
    tp = np.asarray(d.attention_tp) * d.kvp
    attention = (np.asarray(a.heads) * a.query_dim * 2 + np.asarray(a.kv_heads) * a.head_dim * 2) / tp
    dense = 3.0 * np.asarray(a.ffn) / np.where(a.is_moe, tp, d.ffn_tp)
    routed = np.where(a.is_moe, a.top_k, 0) * (2.0 * np.asarray(a.hidden) + 3.0 * np.asarray(a.expert_ffn) / d.ffn_tp)
    routed = routed * d.attention_dp / np.asarray(d.ep)
    width = 4.0 * np.asarray(a.hidden) + np.maximum(attention, np.maximum(dense, routed))
    return 2.0 * width * tokens + 4.0 * 1024 * np.asarray(a.vocab) / np.asarray(d.attention_tp)


def prefill_chunk(deployment: Deployment, gpu: Accelerator) -> Any:
    """Prompt tokens one step may carry: the plan's, or the engine's default."""
    asked = np.asarray(deployment.prefill_chunk)
    return np.where(asked > 0, asked, gpu.engine.prefill_chunk)


def memory(
    architecture: Architecture,
    recipe: Any,
    deployment: Deployment,
    workload: Workload,
    gpu: Accelerator,
    kv_format: Any = "bf16",
    product: bool = False,
) -> Memory:
    """Memory of one replica's fullest GPU when each sequence has grown to its full length.

    A GPU holds the sequences of its attention-DP rank; under pipeline parallelism every stage holds all of them.
    `product` says that (A, 1) designs meet (P,) plans, whose few distinct shardings are then priced once.
    """
    d = deployment
    context = np.asarray(workload.cached) + workload.isl + workload.osl
    single = product and np.ndim(context) == 0
    available = gpu.memory_bytes * gpu.engine.memory_fraction - gpu.engine.reserved_bytes

    def sharded(*values: Any) -> tuple[Any, Any, Any, Any]:
        plan = unchecked({**{name: 0 for name in FIELDS}, **dict(zip(SHARDING, values, strict=True))})
        weights = weight_bytes_per_gpu(architecture, recipe, plan)
        activations = activation_bytes_per_gpu(architecture, plan, plan.prefill_chunk)
        sequence = kv_bytes_per_sequence_gpu(architecture, kv_format, plan, context, gpu)
        room = available - weights - activations
        return weights, activations, sequence, np.maximum(np.floor(room / sequence), 0.0) * plan.attention_dp

    keys = (*(getattr(d, name) for name in SHARDING[:-1]), prefill_chunk(d, gpu))
    ((weights, activations, sequence, largest),) = gathered(sharded, single, keys)
    asked = np.asarray(d.batch)
    batch = asked if np.all(asked > 0) else np.where(asked > 0, asked, largest)
    held = np.ceil(batch / np.asarray(d.attention_dp)) * sequence
    return Memory(weights, held, activations, gpu.engine.reserved_bytes, available, batch, largest)


SHARDING = ("attention_tp", "attention_dp", "kvp", "ffn_tp", "ep", "pp", "redundant_experts", "prefill_chunk")


def why_not(held: Memory) -> str:
    """In plain words why a single plan does not fit, "" where it does."""
    if np.all(held.fits):
        return ""
    used = held.weights + held.activations
    gb = {"used": used, "left": held.available - used, "all": held.available, "kv": held.kv_cache}
    gb = {name: f"{value / 1e9:.1f} GB" for name, value in gb.items()}
    if np.all(held.largest_batch < 1):
        return f"weights and activations take {gb['used']} of {gb['all']}: the {gb['left']} left hold no sequence"
    most = int(held.largest_batch)
    return f"batch {int(held.batch)} needs {gb['kv']} of KV cache, {gb['left']} are left: {most} sequences fit"


def nearest_fit(
    architecture: Architecture,
    recipe: Any,
    deployment: Deployment,
    workload: Workload,
    gpu: Accelerator,
    kv_format: Any = "bf16",
    most_gpus: int = 64,
) -> Deployment | None:
    """The legal plan of the same batch that fits, on the fewest more GPUs and changing the fewest parallel degrees.

    Returns:
        A single Deployment, or None where nothing up to `most_gpus` GPUs fits.
    """
    batch, degrees = int(np.asarray(deployment.batch)), SHARDING[:6]
    for gpus in powers_of_two(most_gpus, int(np.asarray(deployment.replica_gpus))):
        plans = enumerate_deployments([gpus], architecture, batches=[batch])
        if not np.size(plans.batch):
            continue
        fits = memory(architecture, recipe, plans, workload, gpu, kv_format).fits
        changed = sum(getattr(plans, name) != np.asarray(getattr(deployment, name)) for name in degrees)
        if np.any(fits):
            return plans.take(int(np.argmin(np.where(fits, changed, len(degrees) + 1))))
    return None
