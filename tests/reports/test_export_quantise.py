"""Quantisation files: what our own reader and transformers make of them."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reports.recipes import gguf_type, quantisation, unquantised
from spaces import load_architecture, load_recipe
from spaces.families import FAMILIES, export_family, to_config
from spaces.formats import KV_FORMATS, RECIPES
from tests.spaces import architectures


def written(architecture, recipe, kv, folder):
    """(files, notes) of one quantisation, on disk."""
    family = FAMILIES[int(export_family(architecture))]
    files, notes = quantisation(architecture, family, recipe, kv, to_config(architecture), "a test")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return files, notes


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(case=architectures.exportable(), recipe=st.sampled_from(RECIPES), kv=st.sampled_from(KV_FORMATS))
def test_the_checkpoint_that_will_be_carries_the_recipe(tmp_path_factory, case, recipe, kv):
    _, architecture = case
    folder = tmp_path_factory.mktemp("q")
    files, notes = written(architecture, recipe, kv, folder)
    if recipe == kv == "bf16":
        assert not files and notes
        return
    assert load_recipe(folder / "quantise/modelopt") == (recipe, None if kv == "bf16" else kv)
    assert load_architecture(folder / "quantise/modelopt") == architecture
    if "quantise/compressed-tensors/config.json" in files:
        scheme = json.loads(files["quantise/compressed-tensors/config.json"])["quantization_config"]["kv_cache_scheme"]
        assert load_recipe(folder / "quantise/compressed-tensors") == (recipe, None if scheme is None else kv)
        assert scheme is not None or kv == "bf16" or notes
    for name, text in files.items():
        if name.endswith(".py"):
            compile(text, name, "exec")


def test_a_neighbouring_file_says_the_same(tmp_path):
    written(load_architecture("llama-3.1-8b"), "nvfp4", "fp8", tmp_path)
    config = json.loads((tmp_path / "quantise/modelopt/config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "quantise/modelopt/config.json").write_text(json.dumps(config))
    assert load_recipe(tmp_path / "quantise/modelopt") == ("nvfp4", "fp8")


def test_excluded_modules_are_those_of_published_checkpoints():
    """nvidia/Qwen3-235B-A22B-NVFP4 keeps head, routers and attention; ours of the same recipe keeps the same kinds."""
    import fnmatch
    from pathlib import Path

    file = Path(__file__).parents[1] / "zoo/nvidia--Qwen3-235B-A22B-NVFP4_hf_quant_config.json"
    published = json.loads(file.read_text())["quantization"]["exclude_modules"]
    ours = unquantised(load_architecture("qwen3-235b-a22b"), "Qwen3-MoE", "nvfp4-ffn")
    for module in ("lm_head", "model.layers.3.mlp.gate", "model.layers.93.mlp.gate"):
        for patterns in (published, ours):
            assert any(fnmatch.fnmatch(module, pattern) for pattern in patterns), module
    assert not any(fnmatch.fnmatch("model.layers.3.mlp.experts.0.up_proj", pattern) for pattern in ours)


def test_gguf_counterparts_exist_in_gguf():
    moe, dense = load_architecture("gpt-oss-20b"), load_architecture("llama-3.1-8b")
    assert gguf_type(moe, "mxfp4-experts")["type"] == "MXFP4_MOE" and gguf_type(dense, "mxfp4-experts") is None
    assert gguf_type(dense, "fp8") is None
    gguf = pytest.importorskip("gguf")
    for recipe in RECIPES:
        kind = gguf_type(moe if recipe == "mxfp4-experts" else dense, recipe)
        assert kind is None or f"MOSTLY_{kind['type']}" in gguf.LlamaFileType.__members__


def test_transformers_reads_the_configurations(tmp_path):
    transformers = pytest.importorskip("transformers")
    files, _ = written(load_architecture("gpt-oss-20b"), "mxfp4-experts", "bf16", tmp_path)
    assert "quantise/mxfp4/config.json" in files
    for name in ("modelopt", "compressed-tensors", "mxfp4"):
        config = transformers.AutoConfig.from_pretrained(tmp_path / "quantise" / name)
        assert config.model_type == "gpt_oss" and config.quantization_config
    assert load_recipe(tmp_path / "quantise/mxfp4") == ("mxfp4-experts", None)
