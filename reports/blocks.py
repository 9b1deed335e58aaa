"""Pieces that the page's sections share."""

from __future__ import annotations

from typing import Any

import numpy as np

from reports.html import Safe, tag
from reports.trust import within_error
from reports.words import percent


def section(identifier: str, title: str, intro: Any, *body: Any) -> Safe:
    head = tag("div", tag("h2", title, id=f"{identifier}-h"), tag("p", intro), class_="section-head")
    return tag("section", head, *body, id=identifier, aria_labelledby=f"{identifier}-h")


def block(title: str, intro: Any, *body: Any) -> Safe:
    return tag("div", tag("h3", title), tag("p", intro), *body, class_="block")


def gain_cell(gain: float | None, error: float | None = None) -> Any:
    """A gain coloured by sign, grey where the model cannot tell it from nothing."""
    if gain is None or np.isnan(gain):
        return tag("span", "–", class_="noise")
    if within_error(gain, error):
        return tag("span", percent(gain), class_="noise", title="within model error")
    return tag("span", percent(gain), class_="up" if gain > 0 else "down")
