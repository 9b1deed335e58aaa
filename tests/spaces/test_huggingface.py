"""Reading Hugging Face configurations: families, layer rules, refusals and broken files."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spaces import available_models, load_architecture
from spaces.huggingface import read_architecture, read_config
from spaces.parameters import layer_parameters, parameters

ZOO = Path(__file__).parents[1] / "zoo"

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "vocab_size": 151936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}


def read(base, **changes):
    config = {key: value for key, value in (base | changes).items() if value is not ...}
    return read_architecture(config, "here")


def zoo(name):
    return ZOO / f"{name}_config.json"


@pytest.mark.parametrize(
    ("file", "bundled"),
    [
        ("meta-llama--Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("nvidia--Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b"),
        ("mistralai--Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("Qwen--Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("Qwen--Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
        ("nvidia--Qwen3-235B-A22B-NVFP4", "qwen3-235b-a22b"),
        ("deepseek-ai--DeepSeek-V3", "deepseek-v3"),
        ("nvidia--DeepSeek-V3.1-NVFP4", "deepseek-v3"),
        ("openai--gpt-oss-120b", "gpt-oss-120b"),
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"),
    ],
)
def test_whole_published_files_read_as_the_bundled_ones(file, bundled):
    assert load_architecture(zoo(file)) == load_architecture(bundled)


def test_a_directory_and_a_text_path_work(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    expected = load_architecture("llama-3.1-8b")
    assert load_architecture(tmp_path) == load_architecture(str(tmp_path)) == expected
    assert load_architecture(str(tmp_path / "config.json")) == expected


def test_values_are_plain_python_numbers():
    a = load_architecture("gpt-oss-120b")
    assert {type(value) for value in vars(a).values()} == {int, bool}
    assert json.dumps(vars(a))


@pytest.mark.parametrize("key", [key for key in LLAMA if key != "model_type"])
def test_a_missing_dimension_is_an_error_that_names_it(key):
    with pytest.raises(ValueError, match=f"here: {key} is missing and is never guessed"):
        read(LLAMA, **{key: ...})
    with pytest.raises(ValueError, match=f"{key} is missing"):
        read(LLAMA, **{key: None})


@pytest.mark.parametrize("key", [key for key in QWEN3_MOE if key != "model_type"])
def test_a_missing_moe_dimension_is_an_error_that_names_it(key):
    with pytest.raises(ValueError, match=f"{key} is missing"):
        read(QWEN3_MOE, **{key: ...})


@pytest.mark.parametrize("value", ["4096", 4096.0, True, [4096], {}, -1, 10**30])
def test_a_dimension_must_be_a_whole_number_in_range(value):
    with pytest.raises(ValueError, match=r"hidden(_size)?"):
        read(LLAMA, hidden_size=value)


def test_head_dim_is_read_and_never_taken_from_other_families():
    # EAGLE#223, gpt-neox#1434: 5120 / 64 = 80 is wrong for Qwen3-32B, 3072 / 16 = 192 for Gemma-7B
    assert load_architecture("qwen3-32b").head_dim == 128
    gemma = {**LLAMA, "model_type": "gemma", "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
             "num_key_value_heads": 16, "intermediate_size": 24576, "vocab_size": 256000}  # fmt: skip
    with pytest.raises(ValueError, match="head_dim is missing"):
        read(gemma)
    assert parameters(read(gemma, head_dim=256)).total == 8_537_680_896
    with pytest.raises(ValueError, match="head_dim is missing and hidden 4096 is not a multiple of 24 heads"):
        read(LLAMA, num_attention_heads=24)


def test_gemma3_270m():
    config = {
        "model_type": "gemma3_text", "hidden_size": 640, "num_hidden_layers": 18, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 2048, "vocab_size": 262144,
        "sliding_window": 512, "_sliding_window_pattern": 6,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
    }  # fmt: skip
    a = read(config)
    assert parameters(a).total == 268_098_176
    assert (a.window, a.full_attention_layers, a.norms, a.qk_norm) == (512, 3, 4, 1)


def test_qwen2_moe_published_total():
    config = {
        "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_key_value_heads": 16, "intermediate_size": 5632, "vocab_size": 151936, "num_experts": 60,
        "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
    }  # fmt: skip
    assert parameters(read(config)).total == 14_315_784_192  # Qwen1.5-MoE-A2.7B


def test_moe_layers_follow_the_sparse_step():
    # trl#7069: off by one, and mlp_only_layers ignored
    stepped = read(QWEN3_MOE, decoder_sparse_step=2)
    assert (stepped.moe_layers, stepped.moe_every, stepped.ffn) == (24, 2, 6144)
    leading = read(QWEN3_MOE, mlp_only_layers=[0, 1, 2])
    assert (leading.moe_layers, leading.dense_layers) == (45, 3)
    assert read(QWEN3_MOE, mlp_only_layers=[0, 2], decoder_sparse_step=2).moe_layers == 24  # already dense
    assert read(QWEN3_MOE).ffn == 0  # no layer has the dense width
    assert read(QWEN3_MOE, mlp_only_layers=list(range(48))).experts == 0
    with pytest.raises(ValueError, match="mlp_only_layers leaves an irregular pattern"):
        read(QWEN3_MOE, mlp_only_layers=[7])


def test_llama4_interleaves_and_chunks():
    maverick = load_architecture("llama-4-maverick")
    assert (maverick.moe_layers, maverick.ffn, maverick.expert_ffn, maverick.shared_experts) == (24, 16384, 8192, 1)
    assert (maverick.window, maverick.full_attention_layers) == (8192, 12)


def test_first_dense_layers():
    assert load_architecture("deepseek-v3").moe_layers == 58
    assert load_architecture("kimi-k2").moe_layers == 60
    config, where = read_config("deepseek-v3")
    with pytest.raises(ValueError, match="moe_layer_freq = 2: only 1 is supported"):
        read_architecture(config | {"moe_layer_freq": 2}, where)


def test_windows():
    mistral = {**LLAMA, "model_type": "mistral"}
    with pytest.raises(ValueError, match="sliding_window is missing"):
        read(mistral)
    assert read(mistral, sliding_window=None).window == 0
    assert (read(mistral, sliding_window=4096).window, read(mistral, sliding_window=4096).full_attention_layers) == (
        4096,
        0,
    )
    qwen2 = {**LLAMA, "model_type": "qwen2"}
    assert read(qwen2, use_sliding_window=False, sliding_window=4096).window == 0
    on = read(qwen2, use_sliding_window=True, sliding_window=4096, max_window_layers=28)
    assert (on.window, on.full_attention_layers) == (4096, 28)
    gemma2 = load_architecture("gemma-2-9b")
    assert (gemma2.window, gemma2.full_attention_layers, gemma2.layers) == (4096, 21, 42)


def test_layer_types_are_checked():
    config, where = read_config("gpt-oss-20b")
    with pytest.raises(ValueError, match="layer_types lists 3 layers; num_hidden_layers = 24"):
        read_architecture(config | {"layer_types": config["layer_types"][:3]}, where)
    with pytest.raises(ValueError, match="layer_types has 'linear_attention'"):
        read_architecture(config | {"layer_types": ["linear_attention"] * 24}, where)
    with pytest.raises(ValueError, match="layer_types is missing"):
        read_architecture({key: value for key, value in config.items() if key != "layer_types"}, where)


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("deepseek_v32", "sparse-attention indexer"),
        ("glm_moe_dsa", "sparse-attention indexer"),
        ("minimax_m3", "sparse-attention indexer"),
        ("deepseek_v4", "KV cache"),
        ("qwen3_5_moe", "linear-attention"),
        ("qwen3_next", "linear-attention"),
        ("nemotron_h", "Mamba"),
        ("kimi_k3", "linear-attention"),
        ("gemma4", "head widths"),
    ],
)
def test_models_outside_the_cost_model_are_refused_by_name(model_type, reason):
    with pytest.raises(ValueError, match=f"model_type = '{model_type}': not supported: .*{reason}"):
        read(LLAMA, model_type=model_type)
    with pytest.raises(ValueError, match=f"'{model_type}': not supported: .*{reason}"):
        read({"model_type": model_type, "text_config": LLAMA})


def test_an_unknown_model_type_lists_what_is_supported():
    for model_type in ("t5", "", None, ...):
        with pytest.raises(ValueError, match=r"model_type = .*supported: llama, mistral, qwen2"):
            read(LLAMA, model_type=model_type)
    for model_type in (7, ["llama"], {}):
        with pytest.raises(ValueError, match=r"model_type = .*: text is needed"):
            read(LLAMA, model_type=model_type)
        with pytest.raises(ValueError, match=r"model_type = .*: text is needed"):
            read({"model_type": model_type, "text_config": LLAMA})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("index_topk", 2048),
        ("linear_attn_config", {"num_heads": 32}),
        ("ssm_state_size", 128),
        ("hybrid_override_pattern", "M-M*"),
        ("block_configs", [{}]),
        ("num_experts", 8),
        ("n_shared_experts", 1),
        ("num_kv_shared_layers", 10),
        ("global_head_dim", 512),
    ],
)
def test_an_unknown_field_that_may_change_the_shape_is_refused(key, value):
    with pytest.raises(ValueError, match=f"here: {key} = .*: unknown field of the Llama family.*known: .*hidden_size"):
        read(LLAMA, **{key: value})


def test_fields_that_change_nothing_pass():
    harmless = {
        "rope_scaling": {"factor": 8.0}, "bos_token_id": 1, "auto_map": {"AutoConfig": "x"}, "_name_or_path": "y",
        "pretraining_tp": 1, "torch_dtype": "bfloat16", "num_experts": None, "n_shared_experts": 0, "use_cache": True,
        "mamba_ssm_dtype": "float32", "num_nextn_predict_layers": 1, "unsloth_version": "2025.1",
    }  # fmt: skip
    assert read(LLAMA, **harmless) == read(LLAMA)


def test_the_text_part_of_a_multimodal_file_is_read():
    assert load_architecture("kimi-k2.5") == load_architecture("kimi-k2")
    assert read({"model_type": "llava", "text_config": LLAMA, "vision_config": {"hidden_size": 9}}) == read(LLAMA)
    tied = read({"model_type": "x", "tie_word_embeddings": True, "text_config": LLAMA})
    assert tied.tied_embeddings
    with pytest.raises(ValueError, match="tie_word_embeddings = true: text_config says otherwise"):
        read({"model_type": "x", "tie_word_embeddings": True, "text_config": LLAMA | {"tie_word_embeddings": False}})
    with pytest.raises(ValueError, match="text_config = 7: an object is needed"):
        read({"model_type": "x", "text_config": 7})


def test_falcon_heads():
    falcon = {"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
              "vocab_size": 65024}  # fmt: skip
    seven = read(falcon, multi_query=True, parallel_attn=True, new_decoder_architecture=False)
    assert (seven.kv_heads, seven.head_dim, seven.norms, seven.parallel_block) == (1, 64, 1, True)
    assert parameters(seven).total == 6_921_720_704  # Falcon-7B, tied
    with pytest.raises(ValueError, match="num_kv_heads is missing"):
        read(falcon, new_decoder_architecture=True)
    assert layer_parameters(load_architecture("falcon-180b")).norms == 4 * 14848


def test_minimax_lightning_layers_are_refused():
    config, where = read_config("minimax-m2")
    assert read_architecture(config | {"attn_type_list": [1] * 62}, where) == load_architecture("minimax-m2")
    with pytest.raises(ValueError, match="attn_type_list has linear-attention layers"):
        read_architecture(config | {"attn_type_list": [0, 1]}, where)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1, 2]", "a JSON object is needed, found a list"),
        (b"null", "a JSON object is needed, found null"),
        (b'"llama"', "a JSON object is needed, found text"),
        (b'{"hidden_size": NaN}', "NaN is not a number that JSON knows"),
        (b'{"hidden_size": -Infinity}', "-Infinity is not a number"),
        (b'{"a": 1, "a": 2}', "key 'a' appears twice"),
        ("{}".encode("utf-16"), "not UTF-8 text"),
        (b'{"a": "\xff"}', "not UTF-8 text"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b" " * (8 * 2**20 + 1), "larger than 8388608 bytes"),
        (b"\0" * 100, "not valid JSON"),
    ],
)
def test_a_broken_file_is_one_clear_error(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        load_architecture(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_byte_order_mark_is_no_error(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    assert load_architecture(path) == read(LLAMA)


def test_missing_files_and_names(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        load_architecture(tmp_path / "none.json")
    with pytest.raises(ValueError, match=r"config.json: no such file"):
        load_architecture(tmp_path)
    with pytest.raises(
        ValueError, match=r"unknown model 'llama-3.1-9b'; did you mean 'llama-3.1-8b'\? Bundled: deepseek"
    ):
        load_architecture("llama-3.1-9b")
    with pytest.raises(ValueError, match=r"unknown model 'meta-llama/Llama-3.1-8B'; did you mean 'llama-3.1-8b'"):
        load_architecture("meta-llama/Llama-3.1-8B")
    with pytest.raises(ValueError):
        load_architecture("bad\0name")
    with pytest.raises(ValueError):
        load_architecture("")


def test_bundled_files_name_their_source():
    assert len(available_models()) >= 30
    for name in available_models():
        config, _ = read_config(name)
        assert config["_source"].startswith("https://")


_TEXT = st.text("ab.é", max_size=8)
_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=6,
)
_KEYS = sorted({key for name in available_models() for key in read_config(name)[0]})


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(available_models()), st.dictionaries(st.sampled_from(_KEYS), _JUNK, max_size=3))
def test_any_value_in_any_field_reads_or_is_a_value_error(name, changes):
    config, where = read_config(name)
    try:
        a = read_architecture(config | changes, where)
    except ValueError as error:
        assert str(error)
    else:
        assert int(parameters(a).total) > 0
