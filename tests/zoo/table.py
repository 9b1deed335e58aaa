"""The conformance table: our counts of every bundled model beside what its publisher says.

`python tests/zoo/table.py` writes docs/models.md; a test keeps the file and this table equal.
"""

from __future__ import annotations

import csv
from pathlib import Path

from cost_model import counts
from spaces import Architecture, load_architecture, load_recipe
from spaces.families import FAMILIES, export_family

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "models.md"

_HEAD = """# Bundled models

Names that `load_architecture` and `--reference` take, with our exact counts beside the published ones. This file is
written by `python tests/zoo/table.py`; the tests hold the two together.

*Total* counts every parameter of the text model, a tied LM head once. Speculative (MTP) layers, block scales and
rotary buffers are no parameters of it; *not counted* says what else a published total holds: the routing
corrections of auxiliary-loss-free balancing (one number per expert and MoE layer, a buffer in today's model
classes) and vision towers.

*Active* is what one token visits, embeddings included. Publishers count it three ways, named in the last column:
all (as we do), without the input embedding (a look-up), or without both embeddings; under that convention our
number is within one unit of the last published digit.

*KV* is bf16 bytes of one more token of one sequence, at the first token and far beyond any window.

"""
_COLUMNS = (
    "model",
    "total",
    "active",
    "embedding",
    "KV bytes per token",
    "recipe as published",
    "exports as",
    "published total",
    "not counted",
    "published active, 1e9",
)


def published() -> list[dict[str, str]]:
    with (HERE / "published.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def active_as_published(architecture: Architecture, convention: str) -> int:
    """Our active parameters under a publisher's convention."""
    count = counts.parameters(architecture)
    return int(
        {
            "all": count.active,
            "without input embedding": count.active - architecture.vocab * architecture.hidden,
            "without embeddings": count.non_embedding_active,
        }[convention]
    )


def kv_bytes_of_next_token(architecture: Architecture, held: int) -> int:
    after, before = (counts.kv_bytes_per_sequence(architecture, "bf16", held + more) for more in (1, 0))
    return int(after - before)


def document() -> str:
    rows = [f"| {' | '.join(_COLUMNS)} |\n", "|---|---:|---:|---:|---:|---|---|---|---|---|\n"]
    for row in published():
        a = load_architecture(row["model"])
        count = counts.parameters(a)
        first, later = kv_bytes_of_next_token(a, 0), kv_bytes_of_next_token(a, 2**20)
        kv = f"{first:,}" if first == later else f"{first:,}, then {later:,}"
        recipe, _ = load_recipe(row["model"])
        family = int(export_family(a))
        rest = int(row["not_counted"])
        cells = [
            row["model"],
            f"{int(count.total):,}",
            f"{int(count.active):,}",
            f"{int(count.embedding):,}",
            kv,
            recipe,
            FAMILIES[family] if family >= 0 else "none: priced, not searched",
            f"{int(row['total']):,} ({row['total_source']})",
            f"{rest:,} {row['what']}" if rest else "",
            f"{row['active']} {row['active_counts']} ({row['active_source']})" if row["active"] else "",
        ]
        rows.append(f"| {' | '.join(cells)} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
