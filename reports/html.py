"""HTML that cannot be injected: every string is escaped unless it was built here."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any


class Safe(str):
    """Markup that was built by `tag` and needs no escaping."""


def escape(value: Any) -> Safe:
    """Text as HTML; markup passes through."""
    return value if isinstance(value, Safe) else Safe(html.escape(str(value), quote=True))


def tag(name: str, *children: Any, **attributes: Any) -> Safe:
    """An element. Children and attribute values are escaped; None children and attributes are left out.

    Attribute names end in an underscore where Python reserves them (class_) and use _ for - (aria_label).
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Safe(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Iterable[Any], between: str = "") -> Safe:
    """Children one after the other, each escaped."""
    return Safe(escape(between).join(escape(child) for child in children if child is not None))


def script_json(value: Any) -> Safe:
    """A value as JSON inside a <script> element: no '<' survives, so nothing can close the element.

    Raises:
        ValueError: a number is not finite.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return Safe(text.replace("<", "\\u003c"))


def table(heads: list[Any], rows: Iterable[list[Any]], caption: str, numeric: Iterable[int] = ()) -> Safe:
    """A table with a caption for screen readers; `numeric` columns are right-aligned."""
    right = set(numeric)

    def cells(kind: str, row: list[Any]) -> Safe:
        return join(tag(kind, cell, class_="number" if i in right else None) for i, cell in enumerate(row))

    head = join(tag("th", cell, scope="col", class_="number" if i in right else None) for i, cell in enumerate(heads))
    body = join(tag("tr", cells("td", row)) for row in rows)
    return tag(
        "div",
        tag("table", tag("caption", caption), tag("thead", tag("tr", head)), tag("tbody", body)),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )
