"""Which recipe a published checkpoint carries: `quantization_config`, or a neighbouring `hf_quant_config.json`.

Formats per module come from the file's scheme less its exclusions; a class of operation (attention linears,
FFN and experts) has the format that most of its weights have, and the pair must be a known recipe. Layouts:
TensorRT Model Optimizer, compressed-tensors, and the fp8, mxfp4, AWQ and GPTQ flavours of transformers.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spaces.architecture import Architecture
from spaces.config_file import Fields, read_object
from spaces.formats import FORMATS, KV_FORMATS, RECIPE_ATTENTION, RECIPE_FFN, RECIPES
from spaces.huggingface import read_architecture, read_config
from spaces.parameters import layer_parameters

_MAX_PATTERN = 500  # longer ones appear in no published file
_SLOW = re.compile(r"[*+}][^()]*\)[*+{]|(?:[*+][^*+]*){7}")  # repeats inside repeats, or too many: may take forever

# ModelOpt's quant_algo (and raw export identifiers, in lower case) -> our format
_ALGORITHMS = {
    "fp8": "fp8",
    "fp8_per_channel_per_token": "fp8",
    "fp8_pc_pt": "fp8",
    "fp8_pb_wo": "fp8-block",
    "fp8_pb_real": "fp8-block",
    "nvfp4": "nvfp4",
    "nvfp4_awq": "nvfp4",
    "w4a16_awq": "int4",
    "int4_awq": "int4",
    "w4a8_awq": "w4a8",
    "w8a8_sq_per_channel": "int8",
    "int8_sq": "int8",
    "mxfp4": "mxfp4",
}
_KV_ALGORITHMS = {"fp8": "fp8", "nvfp4": "nvfp4", "nvfp4_affine": "nvfp4"}

Scheme = Callable[[str], str]  # module name -> format


def load_recipe(path_or_name: str | Path) -> tuple[str, str | None]:
    """(recipe, KV format) of a published model or checkpoint; the KV format is None where the file says nothing.

    Args:
        path_or_name: as for `load_architecture`; beside a `config.json` without `quantization_config`, a
            `hf_quant_config.json` is read.
    Raises:
        ValueError: as `load_architecture`; or a quantisation that no recipe describes, naming file and key.
    """
    config, path = read_config(path_or_name)
    architecture = read_architecture(config, path)
    quantization = _find(config, path)
    if quantization is None:
        return "bf16", None
    scheme, kv_format = _read(quantization)
    attention, ffn = _majority(architecture, scheme)
    for name, a, f in zip(RECIPES, RECIPE_ATTENTION, RECIPE_FFN, strict=True):
        if (FORMATS[a], FORMATS[f]) == (attention, ffn):
            return name, kv_format
    raise ValueError(
        f"{quantization.where}: attention in {attention} with FFN in {ffn} is no known recipe: {', '.join(RECIPES)}"
    )


def _find(config: dict[str, Any], path: Path) -> Fields | None:
    outer = Fields(config, str(path))
    inner = Fields(outer.table("text_config"), f"{path}: text_config") if outer.get("text_config") else outer
    for fields in (outer, inner):
        if fields.get("quantization_config") is not None:
            return Fields(fields.table("quantization_config"), f"{fields.where}: quantization_config")
    neighbour = path.with_name(path.name.replace("config.json", "hf_quant_config.json"))
    if neighbour == path or not neighbour.is_file():
        return None
    table = Fields(read_object(neighbour), str(neighbour)).table("quantization")
    return Fields({"quant_method": "modelopt", **table}, f"{neighbour}: quantization")


def _read(fields: Fields) -> tuple[Scheme, str | None]:
    method = fields.word("quant_method")
    if method is None or method not in _READERS:
        raise fields.error("quant_method", f"= {method!r}: not supported; supported: {', '.join(_READERS)}")
    return _READERS[method](fields)


def _modelopt(fields: Fields) -> tuple[Scheme, str | None]:
    if isinstance(fields.values.get("quantization"), dict):
        fields = Fields(fields.table("quantization"), f"{fields.where}: quantization")
    algorithm = fields.word("quant_algo")
    if algorithm is None and _kv_format(fields) is not None:  # only the KV cache is quantised
        return (lambda module: "bf16"), _kv_format(fields)
    if algorithm is None or algorithm.lower() not in _ALGORITHMS:
        raise fields.error("quant_algo", f"= {algorithm!r}: not supported; supported: {', '.join(_ALGORITHMS)}")
    format_ = _ALGORITHMS[algorithm.lower()]
    if format_ in ("int4", "w4a8"):
        fields.expect("group_size", 128)
    ignored = fields.words("exclude_modules", []) + fields.words("ignore", [])
    return _except(format_, ignored, fields), _kv_format(fields)


def _kv_format(fields: Fields) -> str | None:
    algorithm = fields.word("kv_cache_quant_algo")
    if algorithm is not None:
        if algorithm.lower() not in _KV_ALGORITHMS:
            raise fields.error("kv_cache_quant_algo", f"= {algorithm!r}: valid: {', '.join(KV_FORMATS)}")
        return _KV_ALGORITHMS[algorithm.lower()]
    if fields.get("kv_cache_scheme") is None:
        return None
    scheme = Fields(fields.table("kv_cache_scheme"), f"{fields.where}: kv_cache_scheme")
    kind, bits = scheme.word("type"), scheme.integer("num_bits")
    names: dict[tuple[str | None, int], str] = {("float", 8): "fp8", ("float", 4): "nvfp4"}
    if (kind, bits) not in names:
        raise fields.error("kv_cache_scheme", f"= {bits}-bit {kind}: valid: {', '.join(KV_FORMATS)}")
    return names[kind, bits]


def _compressed_tensors(fields: Fields) -> tuple[Scheme, str | None]:
    groups: list[tuple[bool, _Patterns, str]] = []
    for name, group in fields.table("config_groups").items():
        if not isinstance(group, dict):
            raise fields.error(f"config_groups.{name}", "must be an object")
        each = Fields(group, f"{fields.where}: config_groups.{name}")
        targets = each.words("targets")
        groups.append(("Linear" in targets, _Patterns(targets, each), _group_format(each)))
    ignored = _Patterns(fields.words("ignore", []), fields)

    def scheme(module: str) -> str:
        if ignored.match(module):
            return "bf16"
        return next((format_ for all_, targets, format_ in groups if all_ or targets.match(module)), "bf16")

    return scheme, _kv_format(fields)


def _group_format(group: Fields) -> str:
    """Our format of one compressed-tensors group: its weights, and its activations where quantised."""
    weights = Fields(group.table("weights"), f"{group.where}: weights")
    bits, kind, strategy = weights.integer("num_bits"), weights.word("type"), weights.word("strategy")
    size = weights.integer("group_size", 0, least=-1)  # -1: not grouped
    act = act_kind = None
    if group.get("input_activations") is not None:
        inputs = Fields(group.table("input_activations"), f"{group.where}: input_activations")
        act, act_kind = inputs.integer("num_bits"), inputs.word("type")
    key = (kind, bits, strategy, size if strategy in ("group", "tensor_group") else 0, act, act_kind)
    known = {
        ("float", 8, "tensor", 0, 8, "float"): "fp8",
        ("float", 8, "channel", 0, 8, "float"): "fp8",
        ("int", 8, "tensor", 0, 8, "int"): "int8",
        ("int", 8, "channel", 0, 8, "int"): "int8",
        ("int", 4, "group", 128, None, None): "int4",
        ("int", 4, "group", 128, 8, "float"): "w4a8",
        ("float", 4, "tensor_group", 16, 4, "float"): "nvfp4",
        ("float", 4, "group", 32, 4, "float"): "mxfp4",
    }
    if (kind, bits, strategy, act, act_kind) == ("float", 8, "block", 8, "float"):
        weights.expect("block_structure", [128, 128])
        return "fp8-block"
    if key not in known:
        shape = f"{bits}-bit {kind} weights, strategy {strategy}, group {size}, activations {act}-bit {act_kind}"
        raise group.error("weights", f"= {shape}: not a format of ours: {', '.join(FORMATS)}")
    return known[key]


def _fp8(fields: Fields) -> tuple[Scheme, str | None]:
    fields.expect("fmt", "e4m3", "float8_e4m3fn")
    fields.expect("weight_block_size", [128, 128])
    format_ = "fp8-block" if fields.get("weight_block_size") else "fp8"
    ignored = fields.words("modules_to_not_convert", []) + fields.words("ignored_layers", [])
    return _except(format_, ignored, fields), _kv_format(fields)


def _mxfp4(fields: Fields) -> tuple[Scheme, str | None]:
    return _except("mxfp4", fields.words("modules_to_not_convert", []), fields), None


def _int4(fields: Fields) -> tuple[Scheme, str | None]:
    """AWQ and GPTQ: four bits in groups of 128 along K."""
    for keys, value in ((("bits", "w_bit"), 4), (("group_size", "q_group_size"), 128)):
        given = [key for key in keys if fields.get(key) is not None]
        if not given:
            raise fields.error(keys[0], "is missing and is never guessed from another field")
        fields.expect(given[0], value)
    ignored = fields.words("modules_to_not_convert", [])
    rules = fields.table("dynamic") if fields.get("dynamic") else {}
    ignored += [f"re:{rule[2:]}" for rule in rules if rule.startswith("-:")]
    return _except("int4", ignored, fields), None


_READERS: dict[str, Callable[[Fields], tuple[Scheme, str | None]]] = {
    "modelopt": _modelopt,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "mxfp4": _mxfp4,
    "awq": _int4,
    "gptq": _int4,
}


def _except(format_: str, ignored: list[str], fields: Fields) -> Scheme:
    patterns = _Patterns(ignored, fields)
    return lambda module: "bf16" if patterns.match(module) else format_


class _Patterns:
    """Module patterns of a file: dotted names (a module or any of its parents), globs, or `re:` expressions.

    Multimodal checkpoints write `language_model.` before the names that the text model alone has.
    """

    def __init__(self, patterns: list[str], fields: Fields) -> None:
        wild = [pattern for pattern in patterns if pattern.startswith("re:") or any(c in pattern for c in "*?[")]
        self.names = {pattern.replace("language_model.", "").strip(".") for pattern in patterns} - {""}
        self.expressions = [_compiled(pattern, fields) for pattern in wild]

    def match(self, module: str) -> bool:
        parts = module.split(".")
        ends = range(len(parts) + 1)
        if any(".".join(parts[i:j]) in self.names for i in ends for j in ends[i + 1 :]):
            return True
        return any(e.match(module) or e.match(f"language_model.{module}") for e in self.expressions)


def _compiled(pattern: str, fields: Fields) -> re.Pattern[str]:
    if len(pattern) > _MAX_PATTERN:
        raise fields.error("module pattern", f"of {len(pattern)} characters: at most {_MAX_PATTERN}")
    try:
        if pattern.startswith("re:"):
            if _SLOW.search(pattern):
                raise fields.error("module pattern", f"{json.dumps(pattern)}: repetitions too deep to match safely")
            return re.compile(pattern[3:])
        return re.compile(f"{fnmatch.translate(pattern)}|{fnmatch.translate(pattern + '.*')}")
    except (re.error, RecursionError, OverflowError) as error:
        raise fields.error("module pattern", f"{json.dumps(pattern)} does not compile: {error}") from error


def _majority(architecture: Architecture, scheme: Scheme) -> tuple[str, str]:
    """(attention, FFN) formats that most weights of each class have."""
    weight: dict[str, dict[str, int]] = {"attention": {}, "ffn": {}}
    for kind, module, parameters in _modules(architecture):
        format_ = scheme(module)
        weight[kind][format_] = weight[kind].get(format_, 0) + parameters
    attention, ffn = (max(weight[kind], key=lambda name: weight[kind][name]) for kind in ("attention", "ffn"))
    return attention, ffn


def _modules(a: Architecture) -> Iterator[tuple[str, str, int]]:
    """(class, checkpoint name, parameters) of every kind of linear in every layer; one expert stands for all."""
    count = layer_parameters(a)
    if a.kv_lora_rank:
        attention = {
            "kv_a_proj_with_mqa": a.hidden * (a.kv_lora_rank + a.qk_rope_head_dim),
            "kv_b_proj": a.kv_lora_rank * a.heads * (a.qk_nope_head_dim + a.v_head_dim),
            "o_proj": a.heads * a.v_head_dim * a.hidden,
        }
        query = a.heads * (a.qk_nope_head_dim + a.qk_rope_head_dim)
        if a.q_lora_rank:
            attention |= {"q_a_proj": a.hidden * a.q_lora_rank, "q_b_proj": a.q_lora_rank * query}
        else:
            attention["q_proj"] = a.hidden * query
    else:
        query, key = a.hidden * a.heads * a.head_dim, a.hidden * a.kv_heads * a.head_dim
        attention = {"q_proj": query, "k_proj": key, "v_proj": key, "o_proj": query}
    for i in range(a.layers):
        layer = f"model.layers.{i}"
        for name, parameters in attention.items():
            yield "attention", f"{layer}.self_attn.{name}", parameters
        if a.experts and i >= a.dense_layers and (i + 1) % a.moe_every == 0:
            routed = int(count.expert) * a.experts
            for name in ("gate_proj", "up_proj", "down_proj"):
                yield "ffn", f"{layer}.mlp.experts.0.{name}", routed // 3
                yield "ffn", f"{layer}.mlp.shared_experts.{name}", int(count.shared) // 3
        else:
            for name in ("gate_proj", "up_proj", "down_proj"):
                yield "ffn", f"{layer}.mlp.{name}", int(count.ffn_dense) // 3
