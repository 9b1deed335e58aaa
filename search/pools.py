"""Disaggregated serving: prefill and decode pools are optimised apart, then rate-matched.

The prefill pool of a design is the plan that prefills most prompts per second and GPU among those whose first token
is in time; it does not depend on the decode plan. Each decode plan then gets the whole numbers of replicas that
waste least. (Rate matching as in TensorRT-LLM's disaggregated serving and arXiv 2506.05508.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cost_model import Accelerator, Prediction, predict
from spaces import Architecture, Deployment, Workload
from spaces.deployment import FIELDS, unchecked

UNBOUNDED = 10**6  # replicas of a pool that never holds up the other
MOST_REPLICAS = 4  # decode replicas of one deployment; prefill replicas follow from the rates
_POOL = ("attention_tp", "attention_dp", "ffn_tp", "ep", "pp")


def disaggregated(decode: Deployment) -> Deployment:
    """(P,) plans marked as decode pools, their prefill pools still to be matched."""
    ones = np.ones_like(np.asarray(decode.attention_tp))
    own = {f"prefill_{name}": ones for name in _POOL}
    return replace(decode, **own, prefill_replicas=ones, decode_replicas=ones)


def matched(
    decode: Deployment,
    pool: Deployment,
    architecture: Architecture,
    recipe: Any,
    kv_format: Any,
    workload: Workload,
    gpu: Accelerator,
    skew: Any,
    max_ttft_s: float,
) -> Deployment:
    """Decode plans with the prefill pool of each design and rate-matched replicas.

    Args:
        decode: (P,) plans marked by `disaggregated`. pool: (Q,) plans a prefill replica may have.
        architecture, recipe, kv_format: (n, 1). max_ttft_s: of the choice among prefill plans.
    Returns:
        A Deployment whose prefill fields are (n, 1) and whose replicas are (n, P).
    """

    def priced(plans: Deployment) -> Prediction:
        return predict(architecture, recipe, plans, workload, gpu, kv_format, skew, explain=False)

    def requests_per_s(p: Prediction) -> Any:
        return p.tokens_per_s_per_gpu * p.gpus / workload.osl

    ones = np.ones_like(np.asarray(pool.attention_tp))
    own = {f"prefill_{name}": getattr(pool, name) for name in _POOL}
    alone = replace(pool, **own, batch=np.asarray(pool.attention_dp) * pool.pp, prefill_replicas=ones)
    busy = priced(replace(alone, decode_replicas=ones * UNBOUNDED))
    idle = priced(replace(alone, prefill_replicas=ones * UNBOUNDED, decode_replicas=ones))
    rate = requests_per_s(busy)
    usable = busy.legal & busy.fits
    in_time = usable & (idle.ttft_s <= max_ttft_s)
    merit = np.where(in_time, rate / pool.replica_gpus, 0.0)
    fallback = np.where(usable, idle.ttft_s, np.inf)
    best = np.where(in_time.any(axis=1), merit.argmax(axis=1), fallback.argmin(axis=1))
    rows = np.arange(len(best))
    values = {name: getattr(decode, name) for name in FIELDS}
    values |= {name: np.broadcast_to(value, ones.shape)[best][:, None] for name, value in own.items()}
    values |= {"prefill_replicas": np.int64(UNBOUNDED), "decode_replicas": np.int64(1)}
    need = requests_per_s(priced(unchecked(values))) / rate[rows, best][:, None]  # prefill replicas per decode replica
    prefill_gpus = np.broadcast_to(np.asarray(pool.replica_gpus), ones.shape)[best][:, None]
    count = np.arange(1, MOST_REPLICAS + 1)[:, None, None]
    prefills = np.ceil(count * need - 1e-9)
    served = count * need / (count * decode.replica_gpus + prefills * prefill_gpus)
    chosen = served.argmax(axis=0)
    values["decode_replicas"] = chosen + 1
    values["prefill_replicas"] = np.take_along_axis(prefills, chosen[None], axis=0)[0].astype(np.int64)
    return unchecked(values)
