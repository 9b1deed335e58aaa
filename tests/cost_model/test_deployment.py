"""Which plans exist and which are legal: rules of engines and papers, not of our code."""

from __future__ import annotations

import numpy as np
import pytest

from spaces import Deployment, load_architecture
from spaces.deployment import RULE_NAMES, check_legal, enumerate_deployments, legal

LLAMA = load_architecture("llama-3.1-70b")  # 64 heads, 8 KV heads, FFN 28672
DEEPSEEK = load_architecture("deepseek-r1")  # 256 experts of 2048


@pytest.mark.parametrize(
    ("architecture", "plan", "broken"),
    [
        (LLAMA, dict(attention_tp=3), "heads"),
        (LLAMA, dict(attention_tp=16), ""),  # twice the KV heads: replicated
        (LLAMA, dict(ep=2, attention_tp=2), "dense_ep"),
        (DEEPSEEK, dict(attention_dp=48, ep=48), "experts"),
        (DEEPSEEK, dict(attention_dp=48, ep=48, redundant_experts=32), ""),  # 288 slots on 48 ranks
        (DEEPSEEK, dict(attention_tp=8, kvp=2), "kvp"),  # MLA: attention_tp = 1 under KV parallelism
        (DEEPSEEK, dict(attention_tp=1, kvp=8, ep=8), ""),
        (LLAMA, dict(attention_tp=8, pp=128, batch=128), "pp"),
        (LLAMA, dict(attention_tp=1, attention_dp=8, batch=4), "batch"),
    ],
)
def test_rules(architecture, plan, broken):
    deployment = Deployment(**{"batch": 512, **plan})
    mask, reason = legal(architecture, deployment)
    assert (RULE_NAMES[int(reason)] if not mask else "") == broken
    if broken:
        with pytest.raises(ValueError, match="="):
            check_legal(architecture, deployment)


def test_attention_and_ffn_must_use_the_same_gpus():
    with pytest.raises(ValueError, match="same GPUs"):
        Deployment(attention_tp=8, ffn_tp=4, ep=1)
    assert Deployment(attention_tp=8, ep=4).ffn_tp == 2


@pytest.mark.parametrize("bad", [dict(attention_tp=0), dict(batch=-1), dict(attention_tp=1.5), dict(acceptance=1.0)])
def test_bad_numbers(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Deployment(**bad)


def test_enumeration_is_complete_and_without_repeats():
    plans = enumerate_deployments([8], DEEPSEEK, batches=[64], pp=(1, 2), kvp=(1, 2))
    rows = list(
        zip(
            *(np.asarray(getattr(plans, n)).tolist() for n in ("attention_tp", "attention_dp", "kvp", "ep", "pp")),
            strict=True,
        )
    )
    assert len(rows) == len(set(rows))
    assert np.all(np.asarray(plans.replica_gpus) == 8)
    assert (8, 1, 1, 8, 1) in rows and (1, 8, 1, 8, 1) in rows and (1, 4, 2, 8, 1) in rows and (1, 4, 1, 4, 2) in rows
    assert np.all(legal(DEEPSEEK, plans)[0])


def test_dense_models_get_no_expert_parallelism():
    assert np.all(np.asarray(enumerate_deployments([1, 2, 4, 8], LLAMA).ep) == 1)
