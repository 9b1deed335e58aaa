"""Export families: which shape fits which, and configurations that read back and build."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spaces import Architecture, available_models, load_architecture
from spaces.architecture import canonical, stack
from spaces.families import FAMILIES, export_family, exportable, to_config
from spaces.huggingface import read_architecture, read_config
from spaces.parameters import parameters
from tests.spaces import architectures

LLAMA = load_architecture("llama-3.1-8b")


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(architectures.exportable())
def test_reading_what_was_written_gives_the_same_model(case):
    family, architecture = case
    assert FAMILIES[int(export_family(architecture))] == family
    config = to_config(architecture)
    assert read_architecture(json.loads(json.dumps(config)), "round trip") == architecture
    assert config == to_config(architecture, family)


def test_every_bundled_model_with_a_family_survives():
    models = [load_architecture(name) for name in available_models()]
    codes = export_family(stack(models))
    assert len({int(code) for code in codes}) == len(FAMILIES) + 1  # every family, and none
    for model, code in zip(models, codes, strict=True):
        assert int(export_family(model)) == code
        if code >= 0:
            assert read_architecture(to_config(model), "round trip") == model


def test_a_batch_is_judged_as_each_alone():
    batch = stack([LLAMA] * 3)
    changed = batch.map(lambda value: value)
    object.__setattr__(changed, "norms", np.array([2, 4, 2]))
    assert list(export_family(changed)) == [0, -1, 0]
    assert list(exportable(changed)) == [True, False, True]
    grid = batch.column()
    object.__setattr__(grid, "qk_norm", np.array([0, 1]))
    assert export_family(grid).tolist() == [[0, 1]] * 3


def test_fields_that_say_nothing_do_not_change_the_family():
    noisy = dataclasses.replace(LLAMA, top_k=3, expert_ffn=5, shared_experts=1, router_bias=True, q_lora_rank=9)
    assert export_family(noisy) == 0
    assert read_architecture(to_config(noisy), "round trip") == Architecture(**canonical(noisy).as_dict()) == LLAMA


def test_layer_indexed_fields_follow_the_layers():
    # CodeFuse-Embeddings#45: max_window_layers stayed 28 for 8 layers
    qwen = dataclasses.replace(load_architecture("qwen3-8b"), layers=8)
    assert to_config(qwen)["max_window_layers"] == 8
    moe = dataclasses.replace(load_architecture("qwen3-30b-a3b"), layers=6, dense_layers=2, ffn=4096)
    assert to_config(moe)["mlp_only_layers"] == [0, 1]
    gpt_oss = dataclasses.replace(load_architecture("gpt-oss-20b"), layers=5, full_attention_layers=2)
    assert to_config(gpt_oss)["layer_types"] == ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"]


def test_what_engines_insist_on_is_always_written():
    # instructlab/training#128, vllm#14139
    for name in available_models():
        model = load_architecture(name)
        if exportable(model):
            config = to_config(model)
            for key in ("architectures", "model_type", "head_dim", "num_key_value_heads", "torch_dtype", "vocab_size"):
                assert config[key] is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norms": 4}, "every family needs two RMS norms per layer"),
        ({"head_dim": 127}, "every family needs an even number of rotary dimensions"),
        ({"ffn_matrices": 2}, "every family needs gated FFNs"),
        ({"window": 4096, "full_attention_layers": 16}, "Llama needs full attention in every layer"),
        ({"qk_norm": 2}, "Llama needs no QK norm; Qwen3 needs QK norm per head"),
        ({"qkv_bias": True, "ffn_bias": True}, "Llama needs the same attention bias on QKV and output"),
    ],
)
def test_a_shape_without_a_family_says_what_each_needs(change, message):
    shape = dataclasses.replace(LLAMA, **change)
    assert export_family(shape) == -1
    with pytest.raises(ValueError, match=message):
        to_config(shape)


def test_windows_that_engines_do_not_read_have_no_family():
    gpt_oss = load_architecture("gpt-oss-120b")
    assert FAMILIES[int(export_family(gpt_oss))] == "gpt-oss"
    assert export_family(dataclasses.replace(gpt_oss, full_attention_layers=12)) == -1


def test_bad_requests():
    with pytest.raises(ValueError, match="the Mixtral family cannot carry this shape: it needs MoE layers"):
        to_config(LLAMA, "Mixtral")
    with pytest.raises(ValueError, match="unknown family 'Bloom'; valid: Llama, Qwen3"):
        to_config(LLAMA, "Bloom")
    with pytest.raises(ValueError, match="one design at a time"):
        to_config(stack([LLAMA, LLAMA]))


def test_exports_build_in_transformers_with_our_parameter_count(tmp_path):
    """Eight random shapes of every family, on the meta device, to the unit."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for number, (family, architecture) in enumerate(_samples(8)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(to_config(architecture)), encoding="utf-8")
        config = transformers.AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
        assert [type(model).__name__] == to_config(architecture)["architectures"]
        built = sum(parameter.numel() for parameter in model.parameters())
        assert built == int(parameters(architecture).total), family


def test_published_families_count_as_transformers_builds_them():
    """Every bundled file, cut to four layers, through the published class: families that are only read, too."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for name in ("falcon-180b", "gpt-j-6b", "gemma-2-9b", "gemma-3-27b", "llama-4-maverick", "minimax-m2",
                 "deepseek-v2-lite", "mistral-7b", "glm-4.5-air", "qwen2.5-0.5b"):  # fmt: skip
        config = _cut(name, layers=4)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
        built = sum(parameter.numel() for parameter in model.parameters())
        assert built == int(parameters(read_architecture(config, name)).total), name


def _samples(count):
    """`count` random shapes per family, the same in every run."""
    samples = []
    for family in FAMILIES:

        @settings(
            max_examples=count, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        )  # fmt: skip
        @given(st.just(family), architectures.of_family(family, max_layers=4))
        def collect(family, architecture):
            samples.append((family, architecture))

        collect()
    return samples


def _cut(name, layers):
    config, _ = read_config(name)
    config = dict(config.get("text_config", config))
    for key in ("_source", "quantization_config"):
        config.pop(key, None)
    config["n_layer" if "n_layer" in config else "num_hidden_layers"] = layers
    return config
