"""The Python examples of a page, run: `python -m tests.docs.pages [PAGE ...]` rewrites the outputs that pages show.

A page's ```python blocks run in order in one namespace. A ```text block right after one shows what it printed.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GENERATED = ("models.md", "guide.md")  # written and checked by programs of their own
PAGES = tuple(sorted(path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED))
_EXAMPLE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.M | re.S)


def with_outputs(text: str, where: str = "page") -> str:
    """The page with every shown output replaced by what its example prints now."""
    namespace: dict[str, Any] = {"__name__": where}

    def run(match: re.Match[str]) -> str:
        line = text[: match.start()].count("\n") + 1
        printed = io.StringIO()
        with redirect_stdout(printed):
            # keeps line numbers of the page in tracebacks
            exec(compile("\n" * line + match["code"], where, "exec"), namespace)
        block = f"```python\n{match['code']}```\n"
        return block if match["shown"] is None else f"{block}\n```text\n{printed.getvalue()}```\n"

    return _EXAMPLE.sub(run, text)


def prose(text: str) -> str:
    """A page without its code, outputs and links."""
    text = re.sub(r"^```.*?^```\n", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    for path in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):  # examples write files
            text = with_outputs(path.read_text(encoding="utf-8"), str(path))
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
