"""Ridgeline: which LLM should we train, so that it serves best on the GPUs we will have?

The command line (`ridgeline --help`) and the notebook face (`import ridgeline as rl`).
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cost_model import Accelerator, Prediction, load_accelerator, predict
from cost_model.accelerator import available as available_gpus
from cost_model.engine import available as available_engines
from cost_model.fit.own_gpu import calibrate_own
from cost_model.measure import measure
from reports.export import export
from reports.page import write_report
from reports.terminal import frontier_table, prediction_table, readable, report_text, rows_table, summary_table
from spaces import (
    Architecture,
    Deployment,
    Workload,
    available_models,
    enumerate_deployments,
    load_architecture,
    load_recipe,
)
from spaces.design_space import DesignSpace
from spaces.formats import FORMATS, RECIPE_ATTENTION, RECIPE_FFN, RECIPES
from studies.check import check
from studies.init import init
from studies.plans import plan_frontier
from studies.results import Run, load_run
from studies.run import run
from studies.study import available_presets, load_study, parse_override
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
    "enumerate_deployments",
    "export",
    "load_accelerator",
    "load_architecture",
    "load_run",
    "load_study",
    "predict",
    "run",
    "write_report",
]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Find the LLM shape that serves best on your GPUs, before you train it.",
)
console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def main() -> None:
    """Run the command line; bad input ends with one message on standard error and exit code 2."""
    try:
        app()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def print_json(value: Any) -> None:
    print(json.dumps(value, allow_nan=False))


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
    as_json: Json = False,
) -> None:
    """Search a study's design space and write the run directory with its report."""
    loaded = load_study(study, **overrides(set_, trials=trials, seconds=seconds, seed=seed, sampler=sampler))
    result = run(loaded, out=out, resume=resume, progress=False if as_json else None, command=shlex.join(sys.argv))
    page = write_report(result)
    if as_json:
        print_json({**result.summary(), "report": str(page)})
    else:
        console.print(summary_table(result))
        console.print(f"[bold]report:[/bold] {page}")


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
    console.print(readable({k: v for k, v in result.items() if k != "certificate"}))
    if "certificate" in result:
        console.print(f"[bold]{certify}[/bold]: {certificate_text(result['certificate'])}")


@app.command("worker")
def worker_command(
    study: str,
    storage: Annotated[str, typer.Option(help="Optuna storage, e.g. postgresql+psycopg://user@host/database.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(help="Different for each worker; default: random.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Stop after so many; default: the study's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for this worker's frontier.")] = None,
) -> None:
    """Price trials of a study shared with other machines through an Optuna storage."""
    console.print(readable(run_worker(load_study(study, **overrides(set_)), storage, seed, trials, out)))


@app.command("report")
def report_command(run_dir: Path, as_json: Json = False) -> None:
    """Write the HTML page of a run again."""
    page = write_report(load_run(run_dir))
    print_json({"report": str(page)}) if as_json else console.print(f"[bold]report:[/bold] {page}")


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
        console.print(f"[bold]{name}[/bold]: {value}")


@app.command("export")
def export_command(
    run_dir: Path,
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    design: Annotated[str | None, typer.Option(help="Design or point id.")] = None,
    at: Annotated[float | None, typer.Option(help="Best design at this tokens/s/user.")] = None,
    knee: Annotated[bool, typer.Option(help="The design at the knee of the frontier.")] = False,
    force: Annotated[bool, typer.Option(help="Overwrite.")] = False,
    as_json: Json = False,
) -> None:
    """Write a design's config.json, recipes and launch files."""
    if (design is not None) + (at is not None) + knee != 1:
        raise ValueError("give exactly one of --design ID, --at TOKENS_PER_S_PER_USER, --knee")
    result = load_run(run_dir)
    identifier = design or result.pick(at=at, knee=knee)
    files = export(result, identifier, out, force=force)
    if as_json:
        print_json({"design": identifier, "files": [str(path) for path in files]})
    else:
        console.print(f"{identifier}: " + ", ".join(str(path) for path in files))


@app.command("predict")
def predict_command(
    model: Annotated[str, typer.Argument(help="Bundled model name or config.json.")],
    gpu: Annotated[str, typer.Option(help="GPU name or TOML file.")],
    isl: Annotated[int, typer.Option(help="Prompt tokens.")],
    osl: Annotated[int, typer.Option(help="Output tokens.")],
    engine: Annotated[str, typer.Option()] = "trtllm",
    recipe: Annotated[str | None, typer.Option(help="Number formats; default: the checkpoint's own.")] = None,
    kv: Annotated[str | None, typer.Option(help="KV-cache format.")] = None,
    tp: Annotated[int | None, typer.Option(help="Tensor parallelism, as engines spell it.")] = None,
    ep: Annotated[int | None, typer.Option(help="Expert parallelism inside --tp.")] = None,
    pp: Annotated[int | None, typer.Option()] = None,
    attention_tp: Annotated[int | None, typer.Option()] = None,
    attention_dp: Annotated[int | None, typer.Option()] = None,
    kvp: Annotated[int | None, typer.Option()] = None,
    ffn_tp: Annotated[int | None, typer.Option()] = None,
    gpus: Annotated[int | None, typer.Option(help="Without a plan: at most so many GPUs.")] = None,
    batch: Annotated[str, typer.Option(help="Sequences in flight per replica, or max.")] = "max",
    cached: Annotated[int, typer.Option()] = 0,
    load: Annotated[str, typer.Option(help="closed-loop, static or offline.")] = "closed-loop",
    draft_tokens: Annotated[int, typer.Option()] = 0,
    acceptance: Annotated[float, typer.Option()] = 0.0,
    as_json: Json = False,
) -> None:
    """Price one model under a plan; without a plan, price every legal plan and print the frontier."""
    architecture = load_architecture(model)
    own_recipe, own_kv = load_recipe(model)
    recipe, kv = recipe or own_recipe, kv or own_kv or "bf16"
    accelerator = load_accelerator(gpu, engine=engine)
    workload = Workload(isl=isl, osl=osl, cached=cached, load=load)
    decoupled = (attention_tp, attention_dp, kvp, ffn_tp)
    if all(value is None for value in (tp, ep, pp, *decoupled)) and batch == "max":
        count = gpus or accelerator.link_domain
        sizes = [n for n in (1, 2, 4, 8, 16, 32, 64, 72) if n <= count]
        frame = plan_frontier(architecture, recipe, kv, workload, accelerator, sizes)
        if as_json:
            print_json({"model": model, "gpu": gpu, "recipe": recipe, "kv_format": kv, "frontier": records(frame)})
        else:
            console.print(frontier_table(f"{model} on {gpu}, {recipe}, KV {kv}, {isl}/{osl}", frame))
        return
    if any(value is not None for value in decoupled) and tp is not None:
        raise ValueError(
            "--tp is the engines' spelling; do not mix it with --attention-tp, --attention-dp, --kvp, --ffn-tp"
        )
    plan = Deployment(
        attention_tp=attention_tp or tp or 1,
        attention_dp=attention_dp or 1,
        kvp=kvp or 1,
        ffn_tp=ffn_tp,
        ep=ep or 1,
        pp=pp or 1,
        batch=batch_size(batch),
        draft_tokens=draft_tokens,
        acceptance=acceptance,
    )
    prediction = predict(architecture, recipe, plan, workload, accelerator, kv_format=kv)
    if as_json:
        print_json({**vars(prediction), "recipe": recipe, "kv_format": kv, "plan": plan.as_dict()})
    else:
        console.print(
            prediction_table(f"{model} on {prediction.gpus} x {gpu} ({engine}), {recipe}, KV {kv}", prediction)
        )


def batch_size(text: str) -> int | None:
    if text == "max":
        return None
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"--batch {text!r}: a whole number >= 1, or max")
    return int(text)


def records(frame: Any) -> list[dict[str, Any]]:
    """Rows of a table as JSON objects; missing numbers become null."""
    return json.loads(frame.to_json(orient="records", double_precision=15))


def gpu_rows() -> list[dict[str, Any]]:
    rows = []
    for name in available_gpus():
        g = load_accelerator(name, engine="ideal")
        row = {"name": name, "vendor": g.vendor, "memory_gb": g.memory_bytes / 1e9}
        row |= {"memory_tb_per_s": g.memory_bytes_per_s / 1e12, "bf16_tflops": g.peak_flops["bf16"] / 1e12}
        row |= {"formats": " ".join(g.native_formats), "usd_per_gpu_hour": g.usd_per_gpu_hour}
        rows.append(row)
    return rows


LISTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "gpus": gpu_rows,
    "models": lambda: [{"name": name} for name in available_models()],
    "presets": lambda: [{"name": name} for name in available_presets()],
    "engines": lambda: [{"name": name} for name in available_engines()],
    "recipes": lambda: [
        {"name": name, "attention": FORMATS[RECIPE_ATTENTION[i]], "ffn": FORMATS[RECIPE_FFN[i]]}
        for i, name in enumerate(RECIPES)
    ],
}


@app.command("measure")
def measure_command(out: Annotated[Path, typer.Option(help="Empty directory for the measured CSV files.")]) -> None:
    """Time this machine's GPU over the grid that `calibrate` reads."""
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("measure")

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        counts = measure(out, progress=show)
    console.print(f"{out}: {readable(counts)}")


@app.command("calibrate")
def calibrate_command(
    data: Annotated[Path, typer.Argument(help="Directory of measured CSV files.")],
    base: Annotated[str, typer.Option(help="GPU whose data sheet and other constants are kept.")],
    out: Annotated[Path, typer.Option(help="The .toml to write; every --gpu takes it.")],
    as_json: Json = False,
) -> None:
    """Fit kernel constants to a machine's own measurements."""
    fits = calibrate_own(data, base, out)
    if as_json:
        print_json({"path": str(out), "fits": fits})
        return
    console.print(
        rows_table([{"constants of": key, **{k: str(v) for k, v in fit.items()}} for key, fit in fits.items()])
    )
    console.print(f"[bold]{out}[/bold]: use it as --gpu {out}")


@app.command("list")
def list_command(
    what: Annotated[str, typer.Argument(help="gpus, models, presets, engines or recipes.")], as_json: Json = False
) -> None:
    """List what the tool knows by name."""
    if what not in LISTS:
        raise ValueError(f"list {what!r}: valid: {', '.join(LISTS)}")
    rows = LISTS[what]()
    if as_json:
        print_json(rows)
        return
    console.print(rows_table(rows))


if __name__ == "__main__":
    main()
