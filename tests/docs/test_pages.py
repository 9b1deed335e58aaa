"""Examples of the documentation run and print what the pages say; its numbers, commands and links are true."""

import re
import shlex

import pytest
import typer.main

import ridgeline
from spaces.huggingface_families import TABLES
from tests.docs.pages import PAGES, ROOT, prose, with_outputs

README = ROOT / "README.md"
EVERY_PAGE = (*PAGES, README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md")
NUMBER = re.compile(r"(?<![\w.,/^-])\d[\d,]*(?:\.\d+)?(?![\w/-]|\.\d)")


def ids(paths):
    return [path.stem for path in paths]


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_examples_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(TABLES, "granite", TABLES["llama"])  # which a page replaces; taken back after the test
    text = page.read_text(encoding="utf-8")
    assert with_outputs(text, str(page)) == text


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    small = 'load_study("8b-h200", **{"target.0.gpus": [1], "serving.batches": [1, 64]}), trials=32, progress=False)'
    smaller = text.replace('load_study("8b-h200"), trials=500)', small)
    assert smaller != text
    with_outputs(smaller, "README.md")
    assert (tmp_path / "design" / "config.json").is_file()


def test_numbers_in_the_prose_of_the_cost_model_were_computed():
    """Numbers of two digits and more stand in a code block or its output, up to rounding."""
    text = (ROOT / "docs" / "cost-model.md").read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"^```.*?^```$", text, flags=re.M | re.S))
    computed = {float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", blocks.replace("_", ""))}
    for line in prose(text).splitlines():
        for written in NUMBER.findall("" if line.startswith(("#", "$$")) else line):
            value, digits = float(written.rstrip(",").replace(",", "")), len(written.partition(".")[2])
            known = value < 10 and not digits
            assert known or any(round(number, digits) == value for number in computed), f"{written} in {line!r}"


def commands(text):
    """Every `ridgeline ...` command line of a page's shell blocks, as words."""
    for block in re.findall(r"^```sh\n(.*?)^```$", text, flags=re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|", line):
                words = shlex.split(part, comments=True)
                if words[:1] == ["ridgeline"]:
                    yield words[1:]


@pytest.mark.parametrize("page", EVERY_PAGE, ids=ids(EVERY_PAGE))
def test_commands_and_their_options_exist(page):
    known = typer.main.get_command(ridgeline.app).commands
    for words in commands(page.read_text(encoding="utf-8")):
        assert words[0] in known, words
        options = {option for parameter in known[words[0]].params for option in parameter.opts}
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= options | {"--help"}, words


@pytest.mark.parametrize("page", EVERY_PAGE, ids=ids(EVERY_PAGE))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
