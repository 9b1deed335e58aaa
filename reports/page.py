"""One self-contained HTML page per run: opens offline, shows designs first, and says how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reports.html import Safe, escape, join, script_json, tag
from reports.lead import PROXY, Lead, cards, lead, limit_text, sentences, where
from reports.overlay import overlay_points, overlay_section
from reports.payload import payload
from reports.sections import sections

_HERE = Path(__file__).parent
_SCRIPTS = ("page_data.js", "page_table.js", "page_chart.js", "page_bounds.js", "page_panel.js", "page.js")


def write_report(run: Any, overlay: Sequence[str | Path] = ()) -> Path:
    """Write report.html into the run directory.

    Args:
        run: a Run (studies/run.py). overlay: other models to draw beside the reference, bundled names or config.json
            files (see `overlay_points`).
    Returns:
        The path of the page.
    Raises:
        ValueError: the directory cannot be written; an overlaid model that is unknown or that nothing serves.
    """
    return Path(run.directory.write_text("report.html", page(run, overlay_points(run, overlay))))


def page(run: Any, overlay: pd.DataFrame | None = None) -> str:
    """The page as text."""
    found = lead(run)
    slots = {
        "title": escape(f"{run.name}: designs against {run.reference_name}"),
        "style": Safe(_asset("page.css")),
        "header": header(run),
        "lead": join(sentences(run, found)),
        "cards": cards(run, found),
        "sections": join([overlay_section(run, overlay) if overlay is not None else None, *sections(run, found)]),
        "data": script_json({**payload(run, overlay), "chosen": _chosen(found)}),
        "plotly": plotly_script(),
        "script": Safe("\n".join(_asset(name) for name in _SCRIPTS)),
    }
    return filled(_asset("page.html"), slots)


def filled(template: str, slots: dict[str, Safe]) -> str:
    """The template with {{name}} replaced once each; what is put in is not searched again."""
    pieces = template.split("{{")
    text = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        text += [slots[name], rest]
    return "".join(text)


def plotly_script() -> Safe:
    """plotly.js's basic bundle (bars, pies, scatter): a quarter of the whole library, and of its start."""
    return Safe(_asset("plotly-basic.min.js"))


def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _chosen(found: Lead) -> str | None:
    row = found.chosen
    return None if row is None else f"{row['design']}|{row['recipe']}|{row['kv_format']}"


def header(run: Any) -> Safe:
    return join(
        [
            tag("p", "Ridgeline design study ", tag("span", run.name, class_="name"), class_="eyebrow"),
            tag("h1", "Which shape serves better than ", tag("em", run.reference_name), "?"),
            tag(
                "p",
                f"{where(run)}, {limit_text(run)}. Reference: {run.reference_name}. {PROXY.capitalize()}.",
                class_="sub",
            ),
        ]
    )
