"""How soon a report is usable: `python benchmarks/page.py [RUN_DIR] [--loads N] [--json] [--picture FILE]`.

Opens a run's report.html (default: a fresh run of 8b-h200) in headless Chromium, offline, each load in a new profile,
and prints medians: file size; seconds from navigation until a click on a design is answered (row marked, panel
filled); seconds until the plot is drawn; CPU seconds of the page's main thread until then, which other processes on
the machine hardly touch; seconds to answer a click and draw again. --picture FILE writes the top of the page as PNG.
Needs playwright and a Chromium on the PATH.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import command, positive  # noqa: E402
from reports.page import write_report  # noqa: E402
from studies.results import load_run  # noqa: E402
from studies.run import run  # noqa: E402
from studies.study import load_study  # noqa: E402

FIRST_CLICK = """addEventListener('DOMContentLoaded', () => {
    const row = document.querySelectorAll('#designs-table tbody tr')[1];
    row.querySelector('.pick').click();
    const said = document.querySelector('#panel .id').textContent.includes(row.dataset.design.split('|')[0]);
    window.answered = row.classList.contains('on') && said ? performance.now() : null;
})"""
LATER_CLICK = """() => {
    const from = performance.now();
    document.querySelectorAll('#designs-table tbody tr')[2].querySelector('.pick').click();
    return new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now() - from))));
}"""


def one_load(browser: Any, page_file: Path) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    page.add_init_script(FIRST_CLICK)
    probe = context.new_cdp_session(page)
    probe.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(page_file.as_uri(), wait_until="commit")
    page.wait_for_selector("html[data-ready]", state="attached")
    spent = {entry["name"]: entry["value"] for entry in probe.send("Performance.getMetrics")["metrics"]}
    answered = page.evaluate("window.answered")
    if answered is None:
        raise ValueError(f"{page_file}: a click on the second design was not answered")
    result = {
        "first click answered, s": answered / 1e3,
        "plot drawn, s": float(page.evaluate("document.documentElement.dataset.ready")) / 1e3,
        "CPU until drawn, s": spent["TaskDuration"],
        "later click answered and drawn, s": page.evaluate(LATER_CLICK) / 1e3,
    }
    context.close()
    return result


def measured(page_file: Path, loads: int, picture: Path | None = None) -> dict[str, float]:
    """Medians over loads, and the size of the file; a picture of the page if asked.

    Raises:
        ValueError: no Chromium.
    """
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise ValueError("needs a Chromium on the PATH (apt-get install chromium)")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        rows = [one_load(browser, page_file) for _ in range(loads)]
        if picture is not None:
            page = browser.new_page(viewport={"width": 1280, "height": 1960})
            page.goto(page_file.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            page.screenshot(path=picture)
        browser.close()
    figures = {name: round(median(row[name] for row in rows), 3) for name in rows[0]}
    return {"file, MB": round(page_file.stat().st_size / 1e6, 2), **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, nargs="?")
    parser.add_argument("--loads", type=positive, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.run_dir is None:
            result = run(load_study("8b-h200"), out=Path(folder) / "run", progress=False)
        else:
            result = load_run(arguments.run_dir)
        figures = measured(write_report(result).resolve(), arguments.loads, arguments.picture)
    print(json.dumps(figures, indent=1) if arguments.json else "\n".join(f"{n:36}{v:8}" for n, v in figures.items()))


if __name__ == "__main__":
    command(main)
