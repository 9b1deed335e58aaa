"""Number formats, recipes (a format per class of operation) and KV-cache formats, as small integer codes.

A batch of designs carries formats as code arrays; the tables below are indexed with them.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np

_TABLE = tomllib.loads((Path(__file__).parent / "formats.toml").read_text())

FORMATS = tuple(_TABLE)
WEIGHT_BYTES = np.array([row["weight_bytes"] for row in _TABLE.values()])
ACTIVATION_BYTES = np.array([row["activation_bytes"] for row in _TABLE.values()])
K_MULTIPLE = np.array([row["k_multiple"] for row in _TABLE.values()])
N_MULTIPLE = np.array([row["n_multiple"] for row in _TABLE.values()])
WEIGHT_ONLY = np.array([row["weight_only"] for row in _TABLE.values()])
COMPUTE = tuple(row["compute"] for row in _TABLE.values())

KV_FORMATS = ("bf16", "fp8", "nvfp4")
KV_BYTES = np.array([2.0, 1.0, 0.5625])

# recipe -> (attention linears, FFN and experts); embeddings, norms, router and LM head stay bf16
_RECIPES = {
    "bf16": ("bf16", "bf16"),
    "fp8": ("fp8", "fp8"),
    "fp8-block": ("fp8-block", "fp8-block"),
    "int8": ("int8", "int8"),
    "int4": ("int4", "int4"),
    "w4a8": ("w4a8", "w4a8"),
    "mxfp4": ("mxfp4", "mxfp4"),
    "mxfp4-experts": ("bf16", "mxfp4"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "nvfp4-ffn": ("bf16", "nvfp4"),
    "int4-experts": ("bf16", "int4"),
}
RECIPES = tuple(_RECIPES)
RECIPE_ATTENTION = np.array([FORMATS.index(attention) for attention, _ in _RECIPES.values()])
RECIPE_FFN = np.array([FORMATS.index(ffn) for _, ffn in _RECIPES.values()])


def code(value: Any, names: tuple[str, ...], what: str) -> Any:
    """Integer code(s) of a name, a sequence of names, or codes passed through.

    Raises:
        ValueError: unknown name or code, with the valid names.
    """
    if isinstance(value, str):
        if value not in names:
            raise ValueError(f"unknown {what} {value!r}; valid: {', '.join(names)}")
        return names.index(value)
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return np.array([code(str(item), names, what) for item in array.ravel()]).reshape(array.shape)
    if array.dtype.kind not in "iu" or (array.size and (array.min() < 0 or array.max() >= len(names))):
        raise ValueError(f"{what} {value!r}: not one of {', '.join(names)} nor a code 0..{len(names) - 1}")
    return value


def format_code(value: Any) -> Any:
    return code(value, FORMATS, "format")


def kv_code(value: Any) -> Any:
    return code(value, KV_FORMATS, "KV format")


def recipe_code(value: Any) -> Any:
    return code(value, RECIPES, "recipe")
