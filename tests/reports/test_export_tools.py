"""The quantisation tools themselves read what we write: run where their packages are installed (no GPU needed).

Seen with compressed-tensors 0.19.0, LLM Compressor 0.14.0.1 and nvidia-modelopt 0.47.0. Their imports take seconds.
"""

import contextlib
import io
import json
import warnings

import pytest

from spaces import Architecture, load_architecture
from spaces.families import to_config
from spaces.formats import RECIPES
from tests.reports.test_export_quantise import written

MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b", "mixtral-8x7b")
SMALL = {
    "dense": Architecture(hidden=128, layers=2, heads=2, kv_heads=1, head_dim=64, ffn=256, vocab=256),
    "moe": Architecture(hidden=128, layers=2, heads=2, kv_heads=1, head_dim=64, ffn=0, vocab=256, experts=4, top_k=2,
                        expert_ffn=128, qk_norm=1),
}  # fmt: skip


def test_compressed_tensors_reads_what_every_checkpoint_will_carry(tmp_path):
    config_class = pytest.importorskip("compressed_tensors.quantization").QuantizationConfig
    for number, recipe in enumerate(name for name in RECIPES if name != "bf16"):
        model = load_architecture(MODELS[number % 5])
        files, _ = written(model, recipe, "fp8", tmp_path / str(number))
        carried = config_class(**json.loads(files["quantise/compressed-tensors/config.json"])["quantization_config"])
        assert carried.quant_method == "compressed-tensors" and carried.config_groups, recipe
        if model.is_mla:  # engines choose the format of the latent themselves
            assert carried.kv_cache_scheme is None
        else:
            assert carried.kv_cache_scheme.num_bits == 8, recipe


def test_compressed_tensors_and_llm_compressor_read_both_files_alike(tmp_path):
    """What the checkpoint will carry is what the recipe asks for, by the tools' own reading."""
    config_class = pytest.importorskip("compressed_tensors.quantization").QuantizationConfig
    recipe_class = pytest.importorskip("llmcompressor.recipe").Recipe
    names = ("num_bits", "type", "strategy", "group_size", "block_structure", "symmetric", "dynamic")

    def plain(arguments):
        values = arguments.model_dump(mode="json") if arguments else {}
        return {name: values[name] for name in names if name in values}

    for number, recipe in enumerate(RECIPES):
        folder = tmp_path / str(number)
        files, _ = written(load_architecture(MODELS[number % 5]), recipe, "fp8", folder)
        if recipe == "bf16":
            assert "quantise/llmcompressor.yaml" not in files
            continue
        carried = config_class(**json.loads(files["quantise/compressed-tensors/config.json"])["quantization_config"])
        asked = recipe_class.create_instance(str(folder / "quantise/llmcompressor.yaml")).modifiers[0]
        resolved = asked.resolve_quantization_config()
        ours, theirs = carried.config_groups["group_0"], resolved.config_groups["group_0"]
        assert plain(ours.weights) == plain(theirs.weights), recipe
        assert plain(ours.input_activations) == plain(theirs.input_activations), recipe
        assert plain(carried.kv_cache_scheme) == plain(resolved.kv_cache_scheme)
        assert carried.ignore == resolved.ignore and carried.quant_method == "compressed-tensors"


def test_modelopt_reads_the_recipe_and_exports_what_we_foretold(tmp_path):
    """A small model, really quantised: the exclusions, algorithm and KV format are those we wrote beforehand."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("modelopt.torch.quantization")
        import modelopt.torch.quantization as mtq
        from modelopt.recipe import load_recipe as read
        from modelopt.torch.export.quant_utils import get_quant_config

        for kind, recipe, kv in (("dense", "fp8", "fp8"), ("moe", "nvfp4-ffn", "nvfp4"), ("moe", "mxfp4", "bf16")):
            folder = tmp_path / f"{kind}-{recipe}"
            files, _ = written(SMALL[kind], recipe, kv, folder)
            config = transformers.AutoConfig.for_model(**to_config(SMALL[kind]))
            model = transformers.AutoModelForCausalLM.from_config(config)
            with contextlib.redirect_stdout(io.StringIO()):
                asked = read(folder / "quantise/modelopt.yaml").quantize.model_dump()
                ids = torch.zeros((1, 4), dtype=torch.long)
                mtq.quantize(model, asked, forward_loop=lambda m, ids=ids: m(ids))
            ours = json.loads(files["quantise/modelopt/hf_quant_config.json"])["quantization"]
            assert get_quant_config(model)["quantization"] == ours, recipe


def test_modelopt_reads_every_recipe_and_converts_its_configuration_as_we_do(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("modelopt.recipe")
        from modelopt.recipe import load_recipe as read
        from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format

        for number, recipe in enumerate(RECIPES):
            folder = tmp_path / str(number)
            files, _ = written(load_architecture(MODELS[number % 5]), recipe, "fp8", folder)
            with contextlib.redirect_stdout(io.StringIO()):
                read(folder / "quantise/modelopt.yaml")
            theirs = convert_hf_quant_config_format(json.loads(files["quantise/modelopt/hf_quant_config.json"]))
            ours = json.loads(files["quantise/modelopt/config.json"])["quantization_config"]
            assert ours == theirs, recipe
