"""Which recipe a checkpoint carries."""

import json
from pathlib import Path

import pytest

from spaces import load_recipe
from spaces.huggingface import read_config

ZOO = Path(__file__).parents[1] / "zoo"

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
ATTENTION = ["re:.*self_attn.*"]


def load(tmp_path, quantization, base=LLAMA, neighbour=None):
    (tmp_path / "config.json").write_text(json.dumps(base | {"quantization_config": quantization}), encoding="utf-8")
    if neighbour:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(neighbour), encoding="utf-8")
    return load_recipe(tmp_path)


def group(bits, kind, strategy, size=None, activations=None, **extra):
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": size, **extra}
    inputs = {"num_bits": activations[0], "type": activations[1]} if activations else None
    return {"targets": ["Linear"], "weights": weights, "input_activations": inputs}


def compressed(*groups, ignore=("lm_head",), **extra):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {f"group_{i}": one for i, one in enumerate(groups)},
        "ignore": list(ignore),
        **extra,
    }


NVFP4 = group(4, "float", "tensor_group", 16, (4, "float"))


@pytest.mark.parametrize(
    ("file", "recipe", "kv_format"),
    [
        ("Qwen--Qwen3-235B-A22B-FP8", "fp8-block", None),
        ("nvidia--Llama-3.1-70B-Instruct-FP8", "fp8", "fp8"),
        ("nvidia--Qwen3-235B-A22B-NVFP4", "nvfp4", "fp8"),
        ("nvidia--DeepSeek-V3.1-NVFP4", "nvfp4", "fp8"),  # the output projections, 63 % of attention, are quantised
        ("deepseek-ai--DeepSeek-V3", "fp8-block", None),
        ("openai--gpt-oss-120b", "mxfp4-experts", None),
        ("Qwen--Qwen3-30B-A3B", "bf16", None),
    ],
)
def test_published_checkpoints(file, recipe, kv_format):
    assert load_recipe(ZOO / f"{file}_config.json") == (recipe, kv_format)


def test_bundled_names_carry_their_release_format():
    assert load_recipe("gpt-oss-20b") == ("mxfp4-experts", None)
    assert load_recipe("kimi-k2") == ("fp8-block", None)
    assert load_recipe("llama-3.1-8b") == ("bf16", None)


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "fp8", "activation_scheme": "static"}, ("fp8", None)),
        ({"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}, ("fp8-block", None)),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, ("fp8", None)),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, ("int4", None)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, ("int4", None)),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:lm_head": {}}}, ("int4", None)),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["self_attn"]},
            ("int4-experts", None),
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, ("nvfp4", None)),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.*.self_attn*"],
             "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}},
            ("nvfp4-ffn", "fp8"),
        ),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "W4A8_AWQ", "group_size": 128}}, ("w4a8", None)),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}, ("fp8", "nvfp4")),
        (compressed(NVFP4), ("nvfp4", None)),
        (compressed(NVFP4, ignore=["lm_head", *ATTENTION]), ("nvfp4-ffn", None)),
        (compressed(group(8, "float", "channel", activations=(8, "float"))), ("fp8", None)),
        (
            compressed(group(8, "float", "block", activations=(8, "float"), block_structure=[128, 128])),
            ("fp8-block", None),
        ),
        (compressed(group(8, "int", "channel", activations=(8, "int"))), ("int8", None)),
        (compressed(group(4, "int", "group", 128)), ("int4", None)),
        (compressed(group(4, "int", "group", 128, (8, "float"))), ("w4a8", None)),
        (compressed(group(4, "float", "group", 32, (4, "float"))), ("mxfp4", None)),
        (
            compressed(NVFP4, kv_cache_scheme={"num_bits": 8, "type": "float", "strategy": "tensor"}),
            ("nvfp4", "fp8"),
        ),
        (compressed({**NVFP4, "targets": ["re:.*mlp.*"]}), ("nvfp4-ffn", None)),
    ],
)  # fmt: skip
def test_flavours(tmp_path, quantization, expected):
    assert load(tmp_path, quantization) == expected


def test_excluding_a_router_does_not_exclude_the_gate_projections(tmp_path):
    names = [f"model.layers.{i}.mlp.gate" for i in range(32)]
    assert load(tmp_path, {"quant_method": "fp8", "modules_to_not_convert": names}) == ("fp8", None)


def test_a_few_excluded_layers_do_not_change_the_recipe(tmp_path):
    edges = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.", "model.layers.31"]}
    assert load(tmp_path, edges) == ("fp8", None)
    most = {"quant_method": "fp8", "modules_to_not_convert": [f"model.layers.{i}" for i in range(20)]}
    assert load(tmp_path, most) == ("bf16", None)


def test_names_of_multimodal_checkpoints(tmp_path):
    config, _ = read_config("kimi-k2.5")
    ignore = ["language_model.lm_head", "re:.*self_attn.*", "vision_tower.encoder"]
    assert load(tmp_path, compressed(NVFP4, ignore=ignore), config) == ("nvfp4-ffn", None)
    named = [f"language_model.model.layers.{i}.self_attn" for i in range(61)]
    assert load(tmp_path, compressed(NVFP4, ignore=named), config) == ("nvfp4-ffn", None)


def test_the_config_wins_over_its_neighbour_and_the_neighbour_over_nothing(tmp_path):
    neighbour = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}
    assert load(tmp_path, compressed(NVFP4), neighbour=neighbour) == ("nvfp4", None)
    assert load(tmp_path, None, neighbour=neighbour) == ("fp8", None)


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({}, "quant_method = None: not supported; supported: modelopt, compressed-tensors"),
        ({"quant_method": ["fp8"]}, "quant_method = .*: text is needed"),
        ({"quant_method": "bitsandbytes"}, "quant_method = 'bitsandbytes': not supported"),
        ("fp8", "quantization_config = \"fp8\": an object is needed"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quant_algo = 'MIXED_PRECISION': not"),
        ({"quant_method": "modelopt"}, "quant_algo = None"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "INT8"}, "valid: bf16, fp8, nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": [1]}, "exclude_modules = .*list of text"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size = .*only .128, 128. is supported"),
        ({"quant_method": "awq", "bits": 3, "group_size": 128}, "bits = 3: only 4 is supported"),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, "group_size = 32: only 128 is supported"),
        ({"quant_method": "gptq", "bits": 4}, "group_size is missing"),
        (compressed(group(4, "int", "group", 32)), "weights = 4-bit int weights, strategy group, group 32.*not"),
        (compressed(group(4, "float", "tensor_group", 16)), "activations None-bit"),
        (compressed(NVFP4, ignore=["re:("]), "module pattern .*does not compile"),
        (compressed(NVFP4, ignore=["re:(a+)+b"]), "too deep to match safely"),
        (compressed(NVFP4, ignore=["re:" + "x" * 600]), "module pattern of 603 characters"),
        ({"quant_method": "compressed-tensors"}, "config_groups = null: an object is needed"),
        (compressed(7), "config_groups.group_0 must be an object"),
        (
            {"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]},
            "attention in bf16 with FFN in fp8 is no known recipe: bf16, fp8",
        ),
    ],
)  # fmt: skip
def test_what_no_recipe_describes_is_refused(tmp_path, quantization, message):
    with pytest.raises(ValueError, match=message) as caught:
        load(tmp_path, quantization)
    assert str(tmp_path) in str(caught.value)
