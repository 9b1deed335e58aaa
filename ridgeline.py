"""Ridgeline: which LLM should we train, so that it serves best on the GPUs we will have?

The command line (`ridgeline --help`) and the notebook face (`import ridgeline as rl`).
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cost_model import Accelerator, Prediction, counts, kernels, load_accelerator, memory, predict, quality
from reports.compare import compare, read_measured
from reports.compare_page import write_comparison
from reports.export import export, read_design
from reports.figures import figure, write_images
from reports.model_commands import Json, commands
from reports.page import write_report
from reports.terminal import line, print_json, readable, report_text, summary_table
from spaces import (
    Architecture,
    Deployment,
    DesignSpace,
    Workload,
    enumerate_deployments,
    load_architecture,
)
from studies.check import check
from studies.init import init
from studies.results import Run, load_run
from studies.run import run
from studies.study import load_study, parse_override
from studies.sweep import certificate_text, certify_run, run_sweep
from studies.sweep import summary as sweep_summary
from studies.worker import run_worker

__all__ = [
    "Accelerator",
    "Architecture",
    "Deployment",
    "DesignSpace",
    "Prediction",
    "Run",
    "Workload",
    "counts",
    "enumerate_deployments",
    "export",
    "kernels",
    "load_accelerator",
    "load_architecture",
    "load_run",
    "load_study",
    "memory",
    "predict",
    "quality",
    "read_design",
    "run",
    "write_report",
]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Find the LLM shape that serves best on your GPUs, before you train it.",
)
app.add_typer(commands)
Overlay = Annotated[
    list[str] | None,
    typer.Option("--overlay", help="Model to draw beside the reference, bundled or a config.json; may be repeated."),
]
console = Console()
Run.figure = figure  # type: ignore[attr-defined]  # run.figure(x, y, colour): plots live above studies


def main() -> None:
    """Run the command line; bad input ends with one message on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows ASCII only shows ? for the rest
    try:
        refuse_unusable(sys.argv)
        app()
    except BrokenPipeError:  # the reader of a pipe had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        text = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in str(error))  # no terminal codes
        print(f"error: {text}", file=sys.stderr)
        sys.exit(2)


def refuse_unusable(words: list[str]) -> None:
    """Refuse arguments that no command can mean: empty ones, such as an unset variable of a script, and broken text.

    Raises:
        ValueError: naming the argument, and the option before it.
    """
    for before, word in pairwise(words):
        option, equals, value = word.partition("=")
        if not word or (equals and not value and option.startswith("--")):
            where = option or (before if before.startswith("-") else "an argument")
            raise ValueError(f"{where} is empty; leave it out, or give it a value")
        if not word.isascii() and word.encode("utf-8", "replace").decode("utf-8") != word:
            raise ValueError(f"argument {word!r}: must be UTF-8 text")


@app.command("run")
def run_command(
    study: Annotated[str, typer.Argument(help="Preset name or study file.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; default runs/<name>-<n>.")] = None,
    trials: Annotated[int | None, typer.Option(min=1)] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0)] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    sampler: Annotated[str | None, typer.Option(help="frontier, nsga2, tpe, random or qmc.")] = None,
    resume: Annotated[bool, typer.Option(help="Continue the run in --out.")] = False,
    overlay: Overlay = None,
    as_json: Json = False,
) -> None:
    """Search a study's design space and write the run directory with its report."""
    loaded = load_study(study, **overrides(set_, trials=trials, seconds=seconds, seed=seed, sampler=sampler))
    for model in overlay or []:
        load_architecture(model)  # a misspelt name must not cost a search
    result = run(loaded, out=out, resume=resume, progress=False if as_json else None, command=shlex.join(sys.argv))
    page = write_report(result, overlay or [])
    if as_json:
        print_json({**result.summary(), "report": str(page)})
    else:
        console.print(summary_table(result))
        console.print(line("report", page))


def overrides(pairs: list[str] | None, **search: Any) -> dict[str, Any]:
    """--set pairs and search options as the keyword overrides of load_study."""
    values = dict(parse_override(pair) for pair in pairs or [])
    return values | {f"search.{name}": value for name, value in search.items() if value is not None}


@app.command("init")
def init_command(
    preset: Annotated[str | None, typer.Argument(help="Bundled study to start from.")] = None,
    reference: Annotated[str | None, typer.Option(help="Model to improve on: bundled name or config.json.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU name or TOML file.")] = None,
) -> None:
    """Print a commented study file."""
    print(init(preset, reference, gpu), end="")


@app.command("check")
def check_command(
    study: str,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Say how large a study is, how feasible, how long it takes, and what excludes most."""
    report = check(load_study(study, **overrides(set_)))
    if as_json:
        print_json(report)
        return
    console.print(report_text(report))


@app.command("sweep")
def sweep_command(
    study: str,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory; default runs/<name>-sweep-<n>.")] = None,
    certify: Annotated[Path | None, typer.Option(help="Run directory to compare with the exact frontier.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    resume: Annotated[bool, typer.Option(help="Continue the sweep in --out.")] = False,
    as_json: Json = False,
) -> None:
    """Enumerate a study's whole space: the exact frontier."""
    directory, state = run_sweep(
        load_study(study, **overrides(set_)), out, scheduler, resume, progress=False if as_json else None
    )
    result = {"path": str(directory.path), **sweep_summary(state)}
    if certify is not None:
        if not state.complete:
            raise ValueError(
                f"--certify: the sweep stopped after {state.trials:,} of {state.total:,} trials; --resume it"
            )
        result["certificate"] = certify_run(certify, directory)
    if as_json:
        print_json(result)
        return
    console.print(readable({k: v for k, v in result.items() if k != "certificate"}), markup=False)
    if "certificate" in result:
        console.print(line(certify, certificate_text(result["certificate"])))


@app.command("worker")
def worker_command(
    study: str,
    storage: Annotated[str, typer.Option(help="Optuna storage, e.g. postgresql+psycopg://user@host/database.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Different for each worker; default: random.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Of all workers together; default: the study's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for this worker's frontier.")] = None,
) -> None:
    """Price trials of a study shared with other machines through an Optuna storage."""
    done = run_worker(load_study(study, **overrides(set_)), storage, seed, trials, out)
    console.print(readable(done), markup=False)


@app.command("report")
def report_command(
    run_dir: Path,
    images: Annotated[bool, typer.Option("--images", help="Also write PNG and SVG of the main charts.")] = False,
    overlay: Overlay = None,
    as_json: Json = False,
) -> None:
    """Write the HTML page of a run again."""
    result = load_run(run_dir)
    page = write_report(result, overlay or [])
    drawn = [str(path) for path in write_images(result, result.path, overlay or [])] if images else []
    if as_json:
        print_json({"report": str(page), "images": drawn})
    else:
        console.print(line("report", " ".join([str(page), *drawn])))


@app.command("compare")
def compare_command(
    run_dirs: Annotated[list[Path], typer.Argument(help="Two or more run directories.")],
    out: Annotated[Path, typer.Option(help="Folder for the HTML page.")],
    measured: Annotated[Path | None, typer.Option(help="CSV of measured points to lay over.")] = None,
    as_json: Json = False,
) -> None:
    """Put runs side by side: what their studies differ in, and what that changes."""
    runs = [load_run(path) for path in run_dirs]
    points = None if measured is None else read_measured(measured)
    page = write_comparison(runs, out, points)
    if as_json:
        print_json({**compare(runs, points), "page": str(page)})
    else:
        console.print(line("comparison", page))


@app.command("show")
def show_command(
    run_dir: Path, design: Annotated[str | None, typer.Option(help="Show one design.")] = None, as_json: Json = False
) -> None:
    """Print what a run found, or one of its designs."""
    result = load_run(run_dir)
    if design is None:
        print_json(result.summary()) if as_json else console.print(summary_table(result))
        return
    described = result.describe(design)
    if as_json:
        print_json(described)
        return
    for name, value in described.items():
        console.print(line(name, value))


@app.command("export")
def export_command(
    run_dir: Path,
    out: Annotated[Path, typer.Option(help="Folder to write; several designs get a folder each in it.")],
    design: Annotated[list[str] | None, typer.Option(help="Design or point id; may be repeated.")] = None,
    at: Annotated[list[float] | None, typer.Option(help="Best design at this tokens/s/user; may be repeated.")] = None,
    knee: Annotated[bool, typer.Option(help="The design at the knee of the frontier.")] = False,
    engine: Annotated[str | None, typer.Option(help="Launch files of one engine; it must run the plans.")] = None,
    force: Annotated[bool, typer.Option(help="Overwrite.")] = False,
    as_json: Json = False,
) -> None:
    """Write a design's config.json, recipes, launch files, training arguments and card."""
    result = load_run(run_dir)
    picked = [*(design or []), *(result.pick(at=target) for target in at or [])]
    picked += [result.pick(knee=True)] if knee else []
    only = at[0] if at and len(picked) == 1 else None  # its balanced point is then the one asked for
    picked = list(dict.fromkeys(picked))
    if not picked:
        raise ValueError("give at least one of --design ID, --at TOKENS_PER_S_PER_USER, --knee")
    files = export(result, picked if len(picked) > 1 else picked[0], out, force=force, engine=engine, at=only)
    if as_json:
        print_json({"design": picked[0], "designs": picked, "files": [str(path) for path in files]})
    else:
        console.print(line(", ".join(picked), f"{len(files)} files in {out}; start with README.md and card.md"))


if __name__ == "__main__":
    main()
