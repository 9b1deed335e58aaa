"""Reading architectures from Hugging Face `config.json` files and from the bundled published models.

One table per family says which key holds which field. Dimensions are required: a missing or unknown one is
an error, never a guess. Defaults appear only where the family's published configuration class fixes a
constant and published files leave the key out. Only the text model is read; speculative (MTP) layers and
vision towers are left out. Sources: the published configuration classes, transformers 5.24.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from spaces.architecture import Architecture, canonical
from spaces.config_file import Fields, read_object
from spaces.huggingface_families import TABLES

_MODELS = Path(__file__).parent / "models"

# a key that may change shapes or counts: unless its family's table knows it, it is refused
_RELEVANT = re.compile(
    r"layer|head|expert|hidden_size|intermediate|ffn|mlp|rank|lora|window|attn|attention|vocab|moe|ssm|mamba|conv_"
    r"|index|kv|norm|bias|embed|block|router|gate|state|recurr|hybrid|linear|chunk|spars|pattern|width|depth|encoder"
    r"|_dim(_|$)|^dim(_|$)|^num_|^n_|_size$"
)
_TABLE = tomllib.loads((Path(__file__).parent / "huggingface.toml").read_text(encoding="utf-8"))
_HARMLESS = frozenset(key for keys in _TABLE["harmless"].values() for key in keys)
_REFUSED = {name: group["reason"] for group in _TABLE["refused"] for name in group["model_types"]}


def available_models() -> tuple[str, ...]:
    """Names of the bundled published models."""
    return tuple(sorted(path.stem for path in _MODELS.glob("*.json")))


def load_architecture(path_or_name: str | Path) -> Architecture:
    """The architecture of a published model, or of any supported `config.json`.

    Args:
        path_or_name: a name from `available_models()`, a path to a JSON file, or a directory that holds
            a `config.json`.
    Returns:
        A single `Architecture` of Python numbers, in canonical form.
    Raises:
        ValueError: unknown name, unreadable file, unsupported or refused model type, or a missing,
            unknown or inconsistent field, naming file, key and what is supported.
    """
    return read_architecture(*read_config(path_or_name))


def read_config(path_or_name: str | Path) -> tuple[dict[str, Any], Path]:
    """The raw configuration and the file it came from (see `load_architecture`)."""
    path = config_path(path_or_name)
    return read_object(path), path


def config_path(path_or_name: str | Path) -> Path:
    """The file that a bundled name, a file or a directory stands for."""
    text = str(path_or_name)
    if isinstance(path_or_name, str) and text in available_models():
        return _MODELS / f"{text}.json"
    path = Path(path_or_name)
    if os.path.isdir(path):
        path = path / "config.json"
    if os.path.isfile(path):  # unlike Path.is_file, not upset by names that are too long or hold a NUL byte
        return path
    if isinstance(path_or_name, Path) or text.endswith(".json"):
        raise ValueError(f"{path}: no such file")
    near = difflib.get_close_matches(text.lower().rsplit("/", 1)[-1], available_models(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ValueError(
        f"unknown model {text!r}{hint} Bundled: {', '.join(available_models())}; or a path to a config.json"
    )


def read_architecture(config: dict[str, Any], where: str | Path) -> Architecture:
    """The architecture that a parsed configuration describes; `where` names it in errors."""
    config, where = text_config(config, str(where))
    fields = Fields(config, where)
    model_type = fields.word("model_type")
    if model_type in _REFUSED:
        raise fields.error("model_type", f"= {model_type!r}: not supported: {_REFUSED[model_type]}")
    if model_type not in TABLES:
        raise fields.error("model_type", f"= {model_type!r}: not supported; supported: {', '.join(TABLES)}")
    family = TABLES[model_type]
    values = family.read(fields)
    _refuse_unknown(fields, family.name)
    try:
        architecture = Architecture(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return Architecture(**canonical(architecture).as_dict())


def text_config(config: dict[str, Any], where: str) -> tuple[dict[str, Any], str]:
    """The language model's own part of a multimodal configuration (or all of it), and its name."""
    if config.get("text_config") is None:
        return config, where
    outer = Fields(config, where)
    model_type = outer.word("model_type")
    if model_type in _REFUSED:
        raise outer.error("model_type", f"= {model_type!r}: not supported: {_REFUSED[model_type]}")
    inner = dict(outer.table("text_config"))
    tied = outer.flag("tie_word_embeddings", None)
    if tied is not None and inner.setdefault("tie_word_embeddings", tied) != tied:
        raise outer.error("tie_word_embeddings", f"= {str(tied).lower()}: text_config says otherwise")
    return inner, f"{where}: text_config"


def _refuse_unknown(fields: Fields, family: str) -> None:
    """Unknown keys that may change the shape are refused, unless they are switched off."""
    for key, value in fields.values.items():
        known = key in fields.read or key in _HARMLESS or key.startswith("_") or key.endswith("_token_id")
        if known or not _RELEVANT.search(key) or value in (None, False, 0, "") or value == [] or value == {}:
            continue
        if isinstance(value, float) or (isinstance(value, str) and "pattern" not in key):
            continue
        raise fields.error(
            key,
            f"= {str(value)[:60]}: unknown field of the {family} family that may change its shape; "
            f"known: {', '.join(sorted(fields.read))}",
        )
