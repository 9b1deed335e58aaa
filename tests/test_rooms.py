"""Imports point one way: ridgeline > reports > studies > search > cost_model > spaces."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("spaces", "cost_model", "search", "studies", "reports")
FORBIDDEN = {"spaces": {"optuna", "pandas", "plotly"}, "cost_model": {"optuna", "pandas", "plotly"}}


def imported(path: Path) -> set[str]:
    """Top-level packages that a file imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_below(room):
    above = {*ROOMS[ROOMS.index(room) + 1 :], "ridgeline", "tests", "benchmarks"}
    for path in (ROOT / room).rglob("*.py"):
        found = imported(path)
        assert not found & above, f"{path} imports {found & above}"
        assert not found & FORBIDDEN.get(room, set()), f"{path} imports {found & FORBIDDEN[room]}"
