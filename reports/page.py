"""One self-contained HTML page per run: opens offline, shows designs first, and says how far to trust it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from reports.html import Safe, escape, join, script_json, tag
from reports.lead import PROXY, Lead, cards, lead, limit_text, sentences, where
from reports.payload import payload
from reports.sections import sections

_HERE = Path(__file__).parent
_SCRIPTS = ("page_data.js", "page_table.js", "page_chart.js", "page_panel.js", "page.js")


def write_report(run: Any) -> Path:
    """Write report.html into the run directory.

    Args:
        run: a Run (studies/run.py).
    Returns:
        The path of the page.
    Raises:
        ValueError: the directory cannot be written.
    """
    return Path(run.directory.write_text("report.html", page(run)))


def page(run: Any) -> str:
    """The page as text."""
    found = lead(run)
    slots = {
        "title": escape(f"{run.name}: designs against {run.reference_name}"),
        "style": Safe(_asset("page.css")),
        "header": header(run),
        "lead": join(sentences(run, found)),
        "cards": cards(run, found),
        "sections": join(sections(run, found)),
        "data": script_json({**payload(run), "chosen": _chosen(found)}),
        "plotly": Safe(get_plotlyjs()),
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
