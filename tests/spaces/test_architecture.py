"""What an architecture is: consistency, canonical form, parameter counts of unusual shapes."""

import dataclasses

import numpy as np
import pytest

from spaces import Architecture, load_architecture
from spaces.architecture import canonical, stack
from spaces.parameters import layer_parameters, parameters

DENSE = {"hidden": 2560, "layers": 36, "heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 9728, "vocab": 151936}
MOE = {**DENSE, "ffn": 0, "experts": 64, "top_k": 4, "expert_ffn": 768}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 0}, "hidden = 0: must be at least 1"),
        ({"hidden": 2.5}, "hidden = 2.5: a whole number is needed"),
        ({"hidden": "4096"}, "whole number"),
        ({"layers": 2**20}, "layers = 1048576: must be at most"),
        ({"kv_heads": 7}, "kv_heads = 7: must divide heads = 32"),
        ({"ffn": 0}, "ffn = 0: at least 1 where some layers are dense"),
        ({"qk_norm": 3}, "qk_norm = 3: must be at most 2"),
        ({"experts": 8}, "top_k = 0: at least 1"),
        ({"experts": 8, "top_k": 9, "expert_ffn": 64}, "top_k = 9: at most the number of experts, 8"),
        ({"experts": 8, "top_k": 2}, "expert_ffn = 0: at least 1"),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim = 0: at least 1 where kv_lora_rank = 512"),
        ({"dense_layers": 40}, "dense_layers = 40: at most layers = 36"),
        ({"window": 128, "full_attention_layers": 37}, "full_attention_layers = 37: at most layers = 36"),
    ],
)
def test_an_inconsistent_shape_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Architecture(**{**DENSE, **change})


def test_head_dim_is_independent_of_hidden_over_heads():
    # EAGLE#223: Qwen3-4B has 32 heads of 128 over a hidden size of 2560, not of 80
    assert parameters(Architecture(**DENSE, qk_norm=1, tied_embeddings=True)).total == 4_022_468_096


def test_a_gated_ffn_has_three_matrices_and_any_width():
    # llm-analysis refused 14336 / 4096 = 3.5 and counted Llama-3.1-8B as 5.63 B
    layer = layer_parameters(load_architecture("llama-3.1-8b"))
    assert layer.ffn_dense == 3 * 4096 * 14336
    assert layer_parameters(load_architecture("gpt-j-6b")).ffn_dense == 2 * 4096 * 16384 + 16384 + 4096


def test_the_shared_expert_has_its_own_width():
    # maxtext#4017: built at one width, counted at another, three times too low
    a = Architecture(**MOE, shared_experts=1, shared_ffn=2112)
    assert layer_parameters(a).shared == 3 * 2560 * 2112
    assert layer_parameters(dataclasses.replace(a, shared_ffn=0)).shared == 3 * 2560 * 768
    assert layer_parameters(dataclasses.replace(a, shared_experts=2)).shared == 2 * 3 * 2560 * 2112


def test_which_layers_are_moe():
    for dense, every, expected in ((0, 1, 36), (3, 1, 33), (0, 2, 18), (1, 2, 18), (2, 2, 17), (3, 2, 17), (36, 1, 0)):
        a = Architecture(**{**MOE, "ffn": 512}, dense_layers=dense, moe_every=every)
        listed = [i for i in range(36) if i >= dense and (i + 1) % every == 0]
        assert a.moe_layers == len(listed) == expected


def test_mla_down_projections_are_the_replicated_part():
    layer = layer_parameters(load_architecture("deepseek-v3"))
    assert layer.attention_replicated == 7168 * (1536 + 512 + 64)
    assert layer.attention_sharded == 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    assert layer.norms == 2 * 7168 + 1536 + 512
    assert layer_parameters(load_architecture("llama-3.1-8b")).attention_replicated == 0


def test_layers_add_up_to_the_model():
    a = load_architecture("glm-4.5")
    layer, count = layer_parameters(a), parameters(a)
    every = layer.attention_sharded + layer.attention_replicated + layer.norms
    moe = layer.router + layer.shared + 160 * layer.expert
    assert count.total - count.embedding == 92 * every + 3 * layer.ffn_dense + 89 * moe + 5120
    assert count.total - count.active == 89 * 152 * layer.expert


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.uint16, np.uint32])
def test_narrow_integers_do_not_wrap(dtype):
    names = ("llama-3.1-405b", "deepseek-v3", "kimi-k2", "gpt-oss-120b")
    batch = stack([load_architecture(name) for name in names])
    narrow = batch.map(lambda value: value if value.dtype == bool else np.minimum(value, 32000).astype(dtype))
    wide = batch.map(lambda value: value if value.dtype == bool else np.minimum(value, 32000))
    assert np.array_equal(parameters(narrow).total, parameters(wide).total)


def test_the_largest_legal_shape_still_counts():
    largest = Architecture(
        hidden=2**17, layers=2**10, heads=2**12, kv_heads=2**12, head_dim=2**12, ffn=2**20, vocab=2**24,
        experts=2**13, top_k=2**13, expert_ffn=2**20,
    )  # fmt: skip
    assert int(parameters(largest).total) > 2**61
    assert int(layer_parameters(largest).expert) == 3 * 2**37


def test_canonical_drops_what_says_nothing():
    a = Architecture(**DENSE, top_k=4, expert_ffn=99, shared_experts=2, moe_every=3, full_attention_layers=5,
                     qk_nope_head_dim=128, v_head_dim=64)  # fmt: skip
    assert Architecture(**canonical(a).as_dict()) == Architecture(**DENSE)
    all_moe = Architecture(**{**MOE, "ffn": 512}, shared_experts=1, shared_ffn=768, dense_layers=1, moe_every=2)
    plain = canonical(all_moe)
    assert (plain.ffn, plain.shared_ffn, plain.dense_layers) == (512, 0, 0)
    assert canonical(dataclasses.replace(all_moe, moe_every=1, dense_layers=0)).ffn == 0


def test_canonical_keeps_the_counts_and_is_its_own_form():
    rng = np.random.default_rng(0)
    n = 2000
    experts = rng.choice([0, 8, 64], n)
    mla = rng.random(n) < 0.3
    a = Architecture(
        hidden=rng.integers(1, 64, n) * 64, layers=rng.integers(4, 40, n), heads=16, kv_heads=rng.choice([1, 2, 16], n),
        head_dim=64, ffn=rng.integers(1, 9999, n), vocab=1000, tied_embeddings=rng.random(n) < 0.5, experts=experts,
        top_k=2, expert_ffn=96, shared_experts=rng.integers(0, 3, n), shared_ffn=rng.choice([0, 96, 200], n),
        dense_layers=rng.integers(0, 4, n), moe_every=rng.integers(1, 4, n), q_lora_rank=rng.choice([0, 64], n),
        kv_lora_rank=np.where(mla, 128, 0), qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32,
        window=rng.choice([0, 128], n), full_attention_layers=rng.integers(0, 4, n), qk_norm=rng.integers(0, 3, n),
    )  # fmt: skip
    once = canonical(a)
    for field in ("total", "active", "embedding"):
        assert np.array_equal(getattr(parameters(a), field), getattr(parameters(once), field))
    twice = canonical(once)
    assert all(np.array_equal(getattr(once, f.name), getattr(twice, f.name)) for f in dataclasses.fields(once))
