"""Published accuracy of number formats (accuracy.toml): not measured here, shown where a format is used."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def published_accuracy() -> dict[str, list[dict[str, Any]]]:
    """Published accuracy deltas by recipe, and by KV format under "kv:<format>"."""
    data = tomllib.loads((Path(__file__).parent / "accuracy.toml").read_text(encoding="utf-8"))
    result: dict[str, list[dict[str, Any]]] = {}
    for delta in data["delta"]:
        for recipe in delta["recipes"]:
            result.setdefault(recipe, []).append(delta)
    for delta in data["kv_delta"]:
        for name in delta["formats"]:
            result.setdefault(f"kv:{name}", []).append(delta)
    return result
