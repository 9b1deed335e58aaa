"""What is known of errors: published accuracy of number formats (accuracy.toml, not measured here), and how far
predicted serving was off on measured deployments (serving_accuracy.toml, written by the benchmarks).
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def published_accuracy() -> dict[str, list[dict[str, Any]]]:
    """Published accuracy deltas by recipe, and by KV format under "kv:<format>"."""
    data = _read("accuracy.toml")
    result: dict[str, list[dict[str, Any]]] = {}
    for delta in data["delta"]:
        for recipe in delta["recipes"]:
            result.setdefault(recipe, []).append(delta)
    for delta in data["kv_delta"]:
        for name in delta["formats"]:
            result.setdefault(f"kv:{name}", []).append(delta)
    return result


@cache
def serving_accuracy() -> dict[str, Any]:
    """Errors as fractions: `overall`; `cell`, one row per model class, GPU, engine and mode that was measured;
    `elsewhere`, on GPUs left out of their engine's fit."""
    return _read("serving_accuracy.toml")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
