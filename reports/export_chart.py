"""A small picture for a decision card: the design's own frontier beside the reference's, as plain SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reports.html import Safe, join, tag
from reports.words import number

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 48
_INK, _GREY, _DESIGN, _REFERENCE = "#1f2328", "#8b949e", "#1f6f43", "#9a6700"


def chart(
    design: Sequence[tuple[float, float]],
    reference: Sequence[tuple[float, float]],
    names: tuple[str, str],
    marks: Mapping[str, tuple[float, float]],
) -> str:
    """SVG text: tokens/s/user against tokens/s/GPU, both logarithmic.

    Args:
        design, reference: (tokens/s/user, tokens/s/GPU) points of their own frontiers; reference may be empty.
        names: what to call them. marks: points to name.
    """
    every = [*design, *reference]
    x = _Axis([p[0] for p in every], LEFT, WIDTH - RIGHT)
    y = _Axis([p[1] for p in every], HEIGHT - BOTTOM, TOP)
    parts = [
        tag("rect", width=WIDTH, height=HEIGHT, fill="#ffffff"),
        *_grid(x, y),
        _line(reference, x, y, _REFERENCE, "5 4") if reference else None,
        _line(design, x, y, _DESIGN, None),
        *(_mark(name, p, x, y) for name, p in marks.items()),
        *_legend(names, bool(reference)),
        _text("tokens/s/user", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "middle"),
        _text("tokens/s/GPU", 6, TOP - 12, "start"),
    ]
    title = f"{names[0]} and {names[1]}: throughput against interactivity"
    svg = tag(
        "svg", tag("title", title), join(parts), xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH, height=HEIGHT, role="img", font_family="system-ui, sans-serif", font_size=12, fill=_INK,
    )  # fmt: skip
    return str(svg) + "\n"


class _Axis:
    """A logarithmic axis from values to pixels."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = min(values) / 1.1, max(values) * 1.1
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found = [m * 10.0**d for d in decades for m in (1, 2, 5)]
        inside = [t for t in found if self.low <= t <= self.high]
        return inside or [math.sqrt(self.low * self.high)]


def _grid(x: _Axis, y: _Axis) -> list[Safe]:
    lines = []
    for value in x.ticks():
        lines.append(tag("path", d=f"M{x(value)} {TOP}V{HEIGHT - BOTTOM}", stroke="#eaeef2"))
        lines.append(_text(number(value, 2), x(value), HEIGHT - BOTTOM + 18, "middle"))
    for value in y.ticks():
        lines.append(tag("path", d=f"M{LEFT} {y(value)}H{WIDTH - RIGHT}", stroke="#eaeef2"))
        lines.append(_text(number(value, 2), LEFT - 6, y(value) + 4, "end"))
    return lines


def _line(points: Sequence[tuple[float, float]], x: _Axis, y: _Axis, colour: str, dash: str | None) -> Safe:
    ordered = sorted(points)
    path = "M" + "L".join(f"{x(px)} {y(py)}" for px, py in ordered)
    dots = join(tag("circle", cx=x(px), cy=y(py), r=2.5, fill=colour) for px, py in ordered)
    return join([tag("path", d=path, fill="none", stroke=colour, stroke_width=2, stroke_dasharray=dash), dots])


def _mark(name: str, point: tuple[float, float], x: _Axis, y: _Axis) -> Safe:
    px, py = x(point[0]), y(point[1])
    anchor = "end" if px > WIDTH / 2 else "start"
    ring = tag("circle", cx=px, cy=py, r=6, fill="none", stroke=_DESIGN, stroke_width=1.5)
    return join([ring, _text(name, px + (-9 if anchor == "end" else 9), py + 16, anchor)])


def _legend(names: tuple[str, str], both: bool) -> list[Safe]:
    shown = [(names[0], _DESIGN, None)] + ([(names[1], _REFERENCE, "5 4")] if both else [])
    parts = []
    for i, (name, colour, dash) in enumerate(shown):
        at = LEFT + 120 + 230 * i
        parts.append(tag("path", d=f"M{at} {TOP - 16}h24", stroke=colour, stroke_width=2, stroke_dasharray=dash))
        parts.append(_text(name[:30], at + 30, TOP - 12, "start"))
    return parts


def _text(text: Any, x: float, y: float, anchor: str) -> Safe:
    return tag("text", text, x=x, y=y, text_anchor=anchor, stroke="none")
