"""Commands about one model or one machine: predict, advise, list, measure, calibrate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cost_model import Accelerator, load_accelerator, predict
from cost_model.accelerator import available as available_gpus
from cost_model.engine import available as available_engines
from cost_model.fit.own_gpu import calibrate_own
from cost_model.measure import measure
from cost_model.memory import SHARDING, memory, nearest_fit, why_not
from reports.advice import advise
from reports.advice_page import advice_page, print_advice
from reports.export_files import write_folder
from reports.terminal import frontier_table, line, prediction_table, print_json, readable, rows_table
from spaces import Architecture, Deployment, Workload, available_models, load_architecture, load_recipe
from spaces.formats import FORMATS, RECIPE_ATTENTION, RECIPE_FFN, RECIPES
from studies.plans import plan_frontier
from studies.study import available_presets

commands = typer.Typer()
console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@commands.command("predict")
def predict_command(
    model: Annotated[str, typer.Argument(help="Bundled model name or config.json.")],
    gpu: Annotated[str, typer.Option(help="GPU name or TOML file.")],
    isl: Annotated[int, typer.Option(help="Prompt tokens.")],
    osl: Annotated[int, typer.Option(help="Output tokens.")],
    engine: Annotated[str, typer.Option()] = "trtllm",
    recipe: Annotated[str | None, typer.Option(help="Number formats; default: the checkpoint's own.")] = None,
    kv: Annotated[str | None, typer.Option(help="KV-cache format.")] = None,
    tp: Annotated[int | None, typer.Option(min=1, help="Tensor parallelism, as engines spell it.")] = None,
    ep: Annotated[int | None, typer.Option(min=1, help="Expert parallelism inside --tp.")] = None,
    pp: Annotated[int | None, typer.Option(min=1)] = None,
    attention_tp: Annotated[int | None, typer.Option(min=1)] = None,
    attention_dp: Annotated[int | None, typer.Option(min=1)] = None,
    kvp: Annotated[int | None, typer.Option(min=1)] = None,
    ffn_tp: Annotated[int | None, typer.Option(min=1)] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Without a plan: at most so many GPUs.")] = None,
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
        if draft_tokens or acceptance:
            raise ValueError("--draft-tokens and --acceptance are priced under a plan; state one, e.g. --tp 1")
        count = gpus or accelerator.link_domain
        sizes = [n for n in (1, 2, 4, 8, 16, 32, 64, 72) if n <= count]
        frame = plan_frontier(architecture, recipe, kv, workload, accelerator, sizes)
        if as_json:
            print_json({"model": model, "gpu": gpu, "recipe": recipe, "kv_format": kv, "frontier": records(frame)})
        else:
            console.print(frontier_table(f"{model} on {gpu}, {recipe}, KV {kv}, {isl}/{osl}", frame))
        return
    if gpus is not None:
        raise ValueError("--gpus bounds the plans that are tried; the plan stated here says how many GPUs it needs")
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
        assumed = {"price_source": accelerator.price_source, "engine_note": accelerator.engine.note}
        print_json({**vars(prediction), "recipe": recipe, "kv_format": kv, "plan": plan.as_dict(), **assumed})
    else:
        title = f"{model} on {prediction.gpus} x {gpu} ({engine}), {recipe}, KV {kv}"
        unfit = "" if prediction.fits else _unfit(architecture, recipe, plan, workload, accelerator, kv)
        console.print(prediction_table(title, prediction, accelerator, unfit))


def _unfit(
    architecture: Architecture, recipe: str, plan: Deployment, workload: Workload, gpu: Accelerator, kv: str
) -> str:
    """Why the plan does not fit, and the nearest one that does."""
    arguments = (architecture, recipe, plan, workload, gpu, kv)
    reason, near = why_not(memory(*arguments)), nearest_fit(*arguments)
    if near is None:
        return f"{reason}; no plan of up to 64 GPUs fits"
    plans = ", ".join(f"{name} = {value}" for name, value in near.as_dict().items() if name in SHARDING[:6])
    return f"{reason}; fits: {plans}"


def batch_size(text: str) -> int | None:
    if text == "max":
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise ValueError(f"--batch {text!r}: a whole number >= 1, or max")
    return int(text)


def records(frame: Any) -> list[dict[str, Any]]:
    """Rows of a table as JSON objects; missing numbers become null."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


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


@commands.command("advise")
def advise_command(
    model: Annotated[str, typer.Argument(help="Bundled model name or config.json.")],
    gpu: Annotated[str, typer.Option(help="GPU name or TOML file.")],
    engine: Annotated[str, typer.Option()] = "trtllm",
    isl: Annotated[int, typer.Option(help="Prompt tokens.")] = 1024,
    osl: Annotated[int, typer.Option(help="Output tokens.")] = 1024,
    cached: Annotated[int, typer.Option()] = 0,
    recipe: Annotated[str | None, typer.Option(help="Number formats; default: the checkpoint's own.")] = None,
    kv: Annotated[str | None, typer.Option(help="KV-cache format.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the HTML page.")] = None,
    as_json: Json = False,
) -> None:
    """Say what a model's shape costs on a GPU, and which nearby shape serves better."""
    advice = advise(model, gpu, engine, isl, osl, cached, recipe, kv)
    page = None if out is None else str(write_folder(out, {"advice.html": advice_page(advice)}, force=True)[0])
    if as_json:
        print_json({**advice, "page": page})
        return
    print_advice(advice, console)
    if page is not None:
        console.print(line("page", page))


@commands.command("measure")
def measure_command(out: Annotated[Path, typer.Option(help="Empty directory for the measured CSV files.")]) -> None:
    """Time this machine's GPU over the grid that `calibrate` reads."""
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("measure")

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        counts = measure(out, progress=show)
    console.print(line(out, readable(counts)))


@commands.command("calibrate")
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
    console.print(line(out, f"use it as --gpu {out}"))


@commands.command("list")
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
