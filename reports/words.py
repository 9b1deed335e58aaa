"""Numbers and designs as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

LABELS = {
    "hidden": "hidden size",
    "layers": "layers",
    "heads": "query heads",
    "kv_heads": "KV heads",
    "head_dim": "head dim",
    "ffn": "FFN width",
    "vocab": "vocabulary",
    "experts": "experts",
    "top_k": "experts per token",
    "expert_ffn": "expert width",
    "shared_experts": "shared experts",
    "shared_ffn": "shared expert width",
    "dense_layers": "dense layers",
    "moe_every": "MoE every n-th layer",
    "window": "window",
    "full_attention_layers": "full-attention layers",
    "q_lora_rank": "query latent",
    "kv_lora_rank": "KV latent",
    "qk_nope_head_dim": "QK dim without position",
    "qk_rope_head_dim": "QK dim with position",
    "v_head_dim": "value head dim",
    "tied_embeddings": "tied embeddings",
    "ffn_matrices": "FFN matrices",
    "recipe": "recipe",
    "kv_format": "KV format",
}

# a dimension that the parameter budget decides, as the subject of a sentence
SOLVED = {"ffn": "The FFN width", "layers": "The number of layers", "experts": "The number of experts"}


def label(field: str) -> str:
    return LABELS.get(field, field.replace("_", " "))


def sentence(text: str) -> str:
    """Text with its first letter large, the rest as it is."""
    return text[:1].upper() + text[1:]


def listed(values: Iterable[Any]) -> str:
    """a, b and c."""
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]


def records(frame: Any) -> list[dict[str, Any]]:
    """Rows of a table as dictionaries."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def count(value: float) -> str:
    """A whole number with thousands separators."""
    return f"{value:,.0f}"


def number(value: float, digits: int = 3) -> str:
    """A few significant digits, thousands separated, never in exponent form above 1e-3."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}" if abs(value) >= 1e-3 else f"{value:.{digits}g}"


def percent(fraction: float, sign: bool = True) -> str:
    """A fraction in percent: whole numbers from 10 % on, one decimal below."""
    points = 100.0 * fraction
    text = f"{abs(points):.0f}" if abs(points) >= 9.95 else f"{abs(points):.1f}"
    mark = "−" if points < 0 and float(text) else "+" if sign else ""
    return f"{mark}{text} %"


def nats(value: float) -> str:
    return f"{'−' if value < -0.0005 else '+'}{abs(value):.3f}"


def parameters(value: float) -> str:
    return f"{value / 1e9:.2f} B" if value < 99.5e9 else f"{value / 1e9:.0f} B"


def seconds(value: float) -> str:
    return f"{1e3 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


def shape(row: Mapping[str, Any]) -> str:
    """A design in one readable line: 3840 wide x 35 deep, 48/4 heads, FFN 12,800."""
    attention = (
        f"MLA {row['kv_lora_rank']:.0f}" if row["kv_lora_rank"] else f"{row['heads']:.0f}/{row['kv_heads']:.0f} heads"
    )
    text = f"{row['hidden']:.0f} × {row['layers']:.0f}, {attention}"
    if row["experts"]:
        shared = f" + {row['shared_experts']:.0f} shared" if row["shared_experts"] else ""
        return f"{text}, {row['top_k']:.0f} of {row['experts']:.0f} experts{shared} × {row['expert_ffn']:.0f}"
    return f"{text}, FFN {row['ffn']:.0f}"


def plan(row: Mapping[str, Any]) -> str:
    """A deployment as engines would say it: attention TP2 DP4, FFN TP1 EP8, PP2."""
    text = f"attention TP{row['attention_tp']:.0f}"
    if row["attention_dp"] > 1:
        text += f" DP{row['attention_dp']:.0f}"
    if row["kvp"] > 1:
        text += f" KVP{row['kvp']:.0f}"
    text += f", FFN TP{row['ffn_tp']:.0f}" + (f" EP{row['ep']:.0f}" if row["ep"] > 1 else "")
    return text + (f", PP{row['pp']:.0f}" if row["pp"] > 1 else "")


def finite(value: Any) -> float | int | None:
    """A number as JSON can hold it: missing ones are null."""
    number = float(value)
    if not np.isfinite(number):
        return None
    return int(number) if number.is_integer() else float(f"{number:.6g}")


def rounded(values: Any, digits: int = 5) -> list[Any]:
    """Numbers to a few significant digits; whole ones without a decimal point."""
    return [int(v) if v.is_integer() else v for v in (float(f"{value:.{digits}g}") for value in values)]
