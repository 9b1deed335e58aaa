"""How a design's checkpoint is quantised: recipes for two tools, and the configuration the checkpoint will carry.

TensorRT Model Optimizer (ModelOpt) gets a recipe file and a script, LLM Compressor likewise. What a serving engine
will read is written beside them: `hf_quant_config.json` and `quantization_config`, as those tools export them.
Calibration data is the user's; the scripts take any text file.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from spaces.architecture import Architecture
from spaces.formats import FORMATS, RECIPE_ATTENTION, RECIPE_FFN, recipe_code

_TABLE = tomllib.loads((Path(__file__).parent / "recipes.toml").read_text(encoding="utf-8"))
VERSIONS: dict[str, str] = _TABLE["versions"]
FOLDER = "quantise"
NAMES = tuple(
    f"{FOLDER}/{name}"
    for name in (
        "modelopt.yaml",
        "modelopt.py",
        "modelopt/hf_quant_config.json",
        "modelopt/config.json",
        "llmcompressor.yaml",
        "llmcompressor.py",
        "compressed-tensors/config.json",
        "mxfp4/config.json",
    )
)


def formats(recipe: str) -> tuple[str, str]:
    """(attention, FFN) formats of a recipe."""
    code = recipe_code(recipe)
    return FORMATS[RECIPE_ATTENTION[code]], FORMATS[RECIPE_FFN[code]]


def gguf_type(architecture: Architecture, recipe: str) -> dict[str, Any] | None:
    """The GGUF file type of the same bits, and its bits per value; None where llama.cpp has none.

    MXFP4 exists for experts only; a recipe that leaves attention in bf16 has a counterpart only there.
    """
    attention, ffn = formats(recipe)
    moe = bool(np.all(architecture.moe_layers > 0))
    if ffn == "mxfp4":
        return _TABLE["mxfp4"]["gguf"] if moe and attention == "bf16" else None
    return _TABLE[ffn].get("gguf") if attention == ffn else None


def unquantised(architecture: Architecture, family: str, recipe: str) -> list[str]:
    """Modules that stay bf16, by their names in Hugging Face checkpoints: head, embedding, routers, maybe attention."""
    attention, _ = formats(recipe)
    names = ["lm_head", "model.embed_tokens"]
    first, every = int(architecture.dense_layers), int(architecture.moe_every)
    for i in range(int(architecture.layers)):
        if architecture.is_moe and i >= first and (i + 1) % every == 0:
            names.append(f"model.layers.{i}.{_router(family)}")
        if attention == "bf16":
            names.append(f"model.layers.{i}.self_attn*")
    return sorted(names)


def _router(family: str) -> str:
    return "mlp.router" if family == "gpt-oss" else "mlp.gate"


def quantisation(
    architecture: Architecture, family: str, recipe: str, kv_format: str, config: dict[str, Any], origin: str
) -> tuple[dict[str, str], list[str]]:
    """Files of the quantise/ folder, and what a reader must know about them.

    Args:
        config: the design's config.json. origin: one line that says where this comes from.
    Returns:
        (text by name, notes). No files where nothing is quantised.
    """
    _, ffn = formats(recipe)
    if ffn == "bf16" and kv_format == "bf16":
        return {}, ["bf16 weights and KV cache: nothing to quantise."]
    excluded = unquantised(architecture, family, recipe)
    files = _modelopt(architecture, recipe, kv_format, excluded, config, origin)
    compressor, notes = _llmcompressor(architecture, family, recipe, kv_format, config, origin)
    return files | compressor | _native(family, recipe, config), notes


def _native(family: str, recipe: str, config: dict[str, Any]) -> dict[str, str]:
    """The MXFP4 flavour of transformers, which gpt-oss checkpoints carry and engines read for its experts."""
    if family != "gpt-oss" or recipe != "mxfp4-experts":
        return {}
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    carried = {**config, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": kept}}
    return {f"{FOLDER}/mxfp4/config.json": json.dumps(carried, indent=2) + "\n"}


def _modelopt(
    a: Architecture, recipe: str, kv_format: str, excluded: list[str], config: dict[str, Any], origin: str
) -> dict[str, str]:
    attention, ffn = formats(recipe)
    quant = hf_quant_config(recipe, kv_format, excluded)
    table = _TABLE[ffn].get("modelopt")
    names = [table["config"]] if table else []
    names += [_TABLE["kv"][kv_format]["modelopt"]["config"]] if kv_format != "bf16" else []
    head = f"# {origin}\n# {' + '.join(names)}, ModelOpt {VERSIONS['modelopt']}"
    head += "; attention stays bf16" if table and attention == "bf16" else ""
    rules = modelopt_rules(recipe, kv_format)
    stage: dict[str, Any] = {"algorithm": table.get("algorithm") if table else "max", "quant_cfg": rules}
    text = {"metadata": {"recipe_type": "ptq", "description": f"{recipe} weights, {kv_format} KV cache"}}
    carried = {**config, "quantization_config": modelopt_config(quant)}
    return {
        f"{FOLDER}/modelopt.yaml": f"{head}\n" + yaml.safe_dump({**text, "quantize": stage}, sort_keys=False),
        f"{FOLDER}/modelopt.py": _script("modelopt", head),
        f"{FOLDER}/modelopt/hf_quant_config.json": json.dumps(quant, indent=2) + "\n",
        f"{FOLDER}/modelopt/config.json": json.dumps(carried, indent=2) + "\n",
    }


def modelopt_rules(recipe: str, kv_format: str) -> list[dict[str, Any]]:
    """ModelOpt quantizer rules, later ones override: everything off, formats on, KV cache, exclusions."""
    attention, ffn = formats(recipe)
    rules: list[dict[str, Any]] = [{"quantizer_name": "*", "enable": False}]
    table = _TABLE[ffn].get("modelopt")
    if table:
        rules.append({"quantizer_name": "*weight_quantizer", "cfg": _axes(table["weight"])})
        on = {"cfg": _axes(table["input"])} if "input" in table else {"enable": False}
        rules.append({"quantizer_name": "*input_quantizer", **on})
    if table and attention == "bf16":
        rules.append({"quantizer_name": "*self_attn*", "enable": False})
    if kv_format != "bf16":
        cache = _axes(_TABLE["kv"][kv_format]["modelopt"]["cfg"])
        rules.append({"quantizer_name": "*[kv]_bmm_quantizer", "cfg": cache})
    for name in ("*lm_head*", "*mlp.gate.*", "*block_sparse_moe.gate*", "*router*"):
        rules.append({"quantizer_name": name, "enable": False})
    # embeddings have weight quantizers of their own
    return [*rules, {"quantizer_name": "*", "parent_class": "nn.Embedding", "enable": False}]


def _axes(cfg: Any) -> Any:
    """Quantizer settings with the axes of `block_sizes` as numbers, which TOML keys cannot be."""
    if isinstance(cfg, list):
        return [_axes(one) for one in cfg]
    blocks = {int(k) if k.lstrip("-").isdigit() else k: v for k, v in cfg.get("block_sizes", {}).items()}
    return {**cfg, "block_sizes": blocks} if blocks else dict(cfg)


def hf_quant_config(recipe: str, kv_format: str, excluded: list[str]) -> dict[str, Any]:
    """`hf_quant_config.json` as ModelOpt exports it."""
    _, ffn = formats(recipe)
    table = _TABLE[ffn].get("modelopt")
    kv = _TABLE["kv"][kv_format]["modelopt"]["kv_cache_quant_algo"] if kv_format != "bf16" else None
    quantization: dict[str, Any] = {"quant_algo": table["quant_algo"] if table else None, "kv_cache_quant_algo": kv}
    if table and "group_size" in table:
        quantization["group_size"] = table["group_size"]
    if table and "awq" in table.get("algorithm", ""):
        quantization |= {"has_zero_point": False, "pre_quant_scale": True}
    if table:
        quantization["exclude_modules"] = excluded
    else:
        quantization["quantized_layers"] = {}
    return {"producer": {"name": "modelopt", "version": VERSIONS["modelopt"]}, "quantization": quantization}


def modelopt_config(quant: dict[str, Any]) -> dict[str, Any]:
    """`quantization_config` of config.json, ModelOpt's flavour."""
    given = quant["quantization"]
    result: dict[str, Any] = {}
    bits = {"FP8": {"num_bits": 8}, "NVFP4": {"num_bits": 4, "group_size": given.get("group_size")}}
    if given["quant_algo"] in bits:
        one = {"dynamic": False, "type": "float", **bits[given["quant_algo"]]}
        result["config_groups"] = {"group_0": {"input_activations": one, "weights": one, "targets": ["Linear"]}}
    result["ignore"] = given.get("exclude_modules", [])
    if given["quant_algo"]:
        result["quant_algo"] = given["quant_algo"]
    kv = {"FP8": 8, "NVFP4": 4}.get(given["kv_cache_quant_algo"] or "")
    if kv:
        result["kv_cache_scheme"] = {"dynamic": False, "num_bits": kv, "type": "float"}
    return {**result, "producer": quant["producer"], "quant_method": "modelopt"}


def _llmcompressor(
    a: Architecture, family: str, recipe: str, kv_format: str, config: dict[str, Any], origin: str
) -> tuple[dict[str, str], list[str]]:
    attention, ffn = formats(recipe)
    table = _TABLE[ffn].get("llmcompressor")
    if table is None:
        return {}, ["LLM Compressor: no recipe, it quantises weights; the KV cache is ModelOpt's or the engine's."]
    scheme = _TABLE["kv"][kv_format].get("llmcompressor", {}).get("scheme") if kv_format != "bf16" else None
    notes = []
    if kv_format != "bf16" and (scheme is None or a.is_mla):
        what = "no NVFP4 KV cache" if scheme is None else "no KV cache of latent attention"
        notes.append(
            f"LLM Compressor calibrates {what}: its recipe covers the weights; use ModelOpt for KV scales, "
            "or let the engine serve with scales of 1."
        )
        scheme = None
    ignore = ["lm_head"] + ([f"re:.*{_router(family).replace('.', '[.]')}$"] if a.is_moe else [])
    ignore += [r"re:.*self_attn.*"] if attention == "bf16" else []
    modifier = {"targets": ["Linear"], "scheme": table["scheme"], "ignore": ignore}
    modifier |= {"kv_cache_scheme": scheme} if scheme else {}
    stage = {"quant_stage": {"quant_modifiers": {table["modifier"]: modifier}}}
    head = f"# {origin}\n# LLM Compressor {VERSIONS['llmcompressor']}, scheme {table['scheme']}"
    head += "; needs calibration data" if table["calibrated"] or scheme else "; needs no data"
    group = {"targets": ["Linear"], "weights": table["weights"], "input_activations": table.get("activations")}
    carried = {
        "quant_method": "compressed-tensors",
        "format": table["layout"],
        "quantization_status": "compressed",
        "config_groups": {"group_0": {**group, "output_activations": None}},
        "ignore": ignore,
        "kv_cache_scheme": scheme,
    }
    return {
        f"{FOLDER}/llmcompressor.yaml": f"{head}\n" + yaml.safe_dump(stage, sort_keys=False),
        f"{FOLDER}/llmcompressor.py": _script("llmcompressor", head),
        f"{FOLDER}/compressed-tensors/config.json": json.dumps({**config, "quantization_config": carried}, indent=2)
        + "\n",
    }, notes


def _script(tool: str, head: str) -> str:
    template = (Path(__file__).parent / "templates" / f"{tool}.py.txt").read_text(encoding="utf-8")
    return f"{head}\n{template}"
