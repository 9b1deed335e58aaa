"""Advice for any published model: what its shape costs on a GPU, and which nearby shape serves better.

The model is treated as the reference of a small study of its neighbours; the same objective that a search uses
prices everything, so advice and `ridgeline run` of the study it prints agree.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cost_model import counts, load_accelerator
from reports.buyer import buyer_answers
from reports.guidelines import Finding, guidelines
from reports.mixing import variant
from reports.pricing import log_gain, serve
from reports.shards import experts_note, kv_heads_note, shards
from reports.trust import within_error
from reports.words import finite, label, shape
from search.objective import ServingObjective
from spaces import load_recipe
from spaces.architecture import Architecture
from spaces.formats import KV_FORMATS, RECIPES
from studies.objective import build_objective
from studies.study import Study, build_study

TARGETS = (25.0, 50.0, 100.0, 200.0)
TOLERANCE = 0.005
MOST_CHANGES = 8
_SAMPLED = 150


def advise(
    model: str,
    gpu: str,
    engine: str = "trtllm",
    isl: int = 1024,
    osl: int = 1024,
    cached: int = 0,
    recipe: str | None = None,
    kv_format: str | None = None,
) -> dict[str, Any]:
    """Advice on one model, JSON-able.

    Args:
        model: a bundled name or a path to a config.json. gpu, engine: as in a study file.
        isl, osl, cached: tokens of the workload. recipe, kv_format: default: the checkpoint's own, KV bf16.
    Raises:
        ValueError: unknown names, or a model that fits on no replica of the GPU.
    """
    own_recipe, own_kv = load_recipe(model)
    recipe, kv_format = recipe or own_recipe, kv_format or own_kv or "bf16"
    study = neighbourhood(model, gpu, engine, isl, osl, cached, recipe, kv_format)
    objective = build_objective(study)
    base, cell = study.reference, objective.cells[0]
    codes = RECIPES.index(recipe), KV_FORMATS.index(kv_format)
    served = serve(objective, [base], *codes)
    targets = [float(t) for t in objective.targets]
    reached = [t for t, value in zip(targets, served.log_throughput[0], strict=True) if np.isfinite(value)]
    solved = str(study.table["budget"]["solve"])
    findings = guidelines(objective, base, recipe, kv_format, solved, 128)
    return {
        "model": model,
        "shape": shape(base.as_dict()),
        "gpu": gpu,
        "engine": engine,
        "workload": {"isl": isl, "osl": osl, "cached": cached},
        "recipe": recipe,
        "kv_format": kv_format,
        "targets": targets,
        "reached": reached,
        "throughput": [finite(np.exp(v)) if np.isfinite(v) else None for v in served.log_throughput[0]],
        "guidelines": [_finding(f) for f in findings],
        "shards": [asdict(s) for s in shards(base, codes[0], cell.gpu)],
        "kv_heads": kv_heads_note(base),
        "experts": experts_note(base),
        "amdahl": _amdahl(objective, base, codes, targets),
        "changes": changes(study, objective, codes),
        "buyer": buyer_answers(study, objective, codes),
        "study": study.toml(),
        "limits_touched": _limits(study, base),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "title": finding.title}


def neighbourhood(
    model: str, gpu: str, engine: str, isl: int, osl: int, cached: int, recipe: str, kv_format: str
) -> Study:
    """The study whose reference is the model and whose space are shapes near it, at its parameters."""
    from spaces import load_architecture

    base = load_architecture(model)
    v = base.as_dict()
    align = next(a for a in (256, 128, 64) if not v["hidden"] % a or a == 64)
    moe = v["experts"] > 0
    solved = "experts" if moe else "ffn"
    space: dict[str, Any] = {
        "hidden": _around(v["hidden"], align, 0.25),
        "layers": {"min": max(round(0.75 * v["layers"]), 1), "max": round(1.25 * v["layers"])},
        "align": align,
        "recipe": [recipe],
        "kv_format": [kv_format],
        "exportable": False,
    }
    if moe:
        step = 128 if not v["expert_ffn"] % 128 else 64
        space["expert_ffn"] = _around(v["expert_ffn"], step, 0.5)
        space["align"] = min(align, step)
        space["top_k"] = sorted({max(v["top_k"] // 2, 1), v["top_k"], min(2 * v["top_k"], v["experts"])})
    if not v["kv_lora_rank"]:
        space["kv_heads"] = sorted(
            {k for k in (v["kv_heads"] // 2, v["kv_heads"], 2 * v["kv_heads"]) if k and not v["heads"] % k}
        )
    accelerator = load_accelerator(gpu, engine)
    table = {
        "name": _name(model, gpu),
        "reference": model,
        "budget": {
            "tolerance": 0.12 if moe else 0.02,
            "solve": solved,
            **({"active_parameters": "reference"} if moe else {}),
        },
        "accuracy": {"tolerance_nats": TOLERANCE},
        "space": space,
        "target": [{"gpu": gpu, "engine": engine, "gpus": _replicas(base, recipe, accelerator)}],
        "workload": [{"name": f"{isl}/{osl}", "isl": isl, "osl": osl, "cached": cached}],
        "search": {"interactivity_targets": list(TARGETS)},
    }
    return build_study(table, f"advice for {model}")


def _around(value: int, step: int, share: float) -> dict[str, int]:
    low = max(int(value * (1 - share)) // step, 1) * step
    return {"min": low, "max": -(-int(value * (1 + share)) // step) * step, "step": step}


def _name(model: str, gpu: str) -> str:
    stem = Path(model).parent.name if Path(model).name == "config.json" else Path(model).stem
    text = "".join(c if c.isalnum() or c in "._-" else "-" for c in f"{stem or 'model'}-{Path(gpu).stem}")
    return text.lstrip("._-")


def _replicas(base: Architecture, recipe: str, gpu: Any) -> list[int]:
    """Four replica sizes from the smallest whose memory holds the weights with a quarter to spare."""
    need = float(counts.weight_bytes(base, recipe).total) * 1.25
    usable = gpu.memory_bytes * gpu.engine.memory_fraction
    least = 1
    while least * usable < need:
        least *= 2
    most = max(int(gpu.link_domain), 8, least)
    return [n for n in (least, 2 * least, 4 * least, 8 * least) if n <= most] or [least]


def _amdahl(
    objective: ServingObjective, base: Architecture, codes: tuple[int, int], targets: list[float]
) -> list[dict[str, Any]]:
    """Per target: share of each component at the best plan, and the bound if it cost nothing: 1 / (1 - share)."""
    served = serve(objective, [base], *codes)
    rows = []
    for target in targets:
        plan = served.plan_at(0, target)
        if plan is None:
            continue
        total = float(served.prediction.tpot_s[0, plan])
        parts = {name: float(s[0, plan]) / total for name, s in served.prediction.breakdown.items()}
        rows.append(
            {
                "target": target,
                "shares": {name: finite(s) for name, s in parts.items()},
                "bounds": {name: finite(1 / (1 - s)) for name, s in parts.items() if s < 0.999},
            }
        )
    return rows


def changes(study: Study, objective: ServingObjective, codes: tuple[int, int]) -> list[dict[str, Any]]:
    """The best nearby shapes at the same parameters and held shape loss, best mean gain first."""
    base = study.reference
    values = base.as_dict()
    candidates = [*_single_changes(values), *_sampled(objective)]
    unique = list({tuple(a.as_dict().items()): a for a in candidates}.values())
    if not unique:
        return []
    gains = log_gain(objective, unique, *codes)
    loss = [float(objective.losses(a, *codes).shape_loss - objective.reference_loss.shape_loss) for a in unique]
    errors = _difference_errors(objective, base, codes)
    rows: list[dict[str, Any]] = []
    for architecture, gain, excess in zip(unique, gains, loss, strict=True):
        if excess > study.accuracy.tolerance_nats or np.isnan(gain).all():
            continue
        new = architecture.as_dict()
        changed = {name: [values[name], new[name]] for name in values if values[name] != new[name]}
        text = ", ".join(f"{label(n)} {a:,} → {b:,}" for n, (a, b) in changed.items())
        fractions = [finite(np.expm1(g)) if np.isfinite(g) else None for g in gain]
        noise = [within_error(g, e) for g, e in zip(fractions, errors, strict=True)]
        rows.append(
            {
                "change": text,
                "fields": changed,
                "gain": fractions,
                "within_error": noise,
                "shape_loss_difference": finite(excess),
                "mean": float(np.nanmean(gain)),
            }
        )
    best = sorted((r for r in rows if r["mean"] > 0), key=lambda r: -r["mean"])
    simple = [r for r in best if len(r["fields"]) <= 2][: MOST_CHANGES // 2]
    rest = [r for r in best if r not in simple][: MOST_CHANGES - len(simple)]
    return [{k: v for k, v in r.items() if k != "mean"} for r in sorted([*simple, *rest], key=lambda r: -r["mean"])]


def _single_changes(values: dict[str, Any]) -> list[Architecture]:
    """One field moved to its neighbours, the FFN (or expert) width solved again."""
    solved = "expert_ffn" if values["experts"] else "ffn"
    step = 64 if values["experts"] else 128
    moves: list[dict[str, int]] = []
    for factor in (0.75, 0.875, 1.125, 1.25):
        moves.append({"hidden": round(values["hidden"] * factor / 256) * 256})
        moves.append({"layers": max(round(values["layers"] * factor), 1)})
    if not values["kv_lora_rank"]:
        moves += [
            {"kv_heads": k} for k in (values["kv_heads"] // 2, values["kv_heads"] * 2) if k and not values["heads"] % k
        ]
        moves += [
            {"heads": h}
            for h in (values["heads"] // 2, values["heads"] * 2)
            if h >= values["kv_heads"] and not h % values["kv_heads"]
        ]
    if values["experts"]:
        moves += [
            {"experts": values["experts"] // 2, "top_k": max(values["top_k"] // 2, 1)},
            {"experts": values["experts"] * 2, "top_k": values["top_k"] * 2},
        ]
    kept = [
        {
            **move,
            "dense_layers": min(values["dense_layers"], move.get("layers", values["layers"])),
            "full_attention_layers": min(values["full_attention_layers"], move.get("layers", values["layers"])),
        }
        for move in moves
    ]
    found = [variant(values, move, solved, step) for move in kept]
    return [a for a in found if a is not None]


def _sampled(objective: ServingObjective) -> list[Architecture]:
    """Random feasible shapes of the neighbourhood within the loss tolerance."""
    space = objective.space
    proposals = space.decode(space.random_index(40 * _SAMPLED, np.random.default_rng(0)))
    loss = objective.losses(proposals.architecture, proposals.recipe, proposals.kv_format).shape_loss
    good = proposals.feasible & (np.asarray(loss) - float(objective.reference_loss.shape_loss) <= TOLERANCE)
    return [proposals.architecture.take(i) for i in np.flatnonzero(good)[:_SAMPLED]]


def _difference_errors(objective: ServingObjective, base: Architecture, codes: tuple[int, int]) -> list[float | None]:
    """Error of a difference (see `trust.difference_error`) at the model's best plan for each target."""
    import pandas as pd

    from reports.trust import difference_error

    served = serve(objective, [base], *codes)
    errors: list[float | None] = []
    gpu = objective.cells[0].gpu
    for target in objective.targets:
        plan = served.plan_at(0, float(target))
        if plan is None:
            errors.append(None)
            continue
        row = {name: [np.ravel(column)[plan]] for name, column in served.prediction.as_columns().items()}
        named = {"gpu": gpu.name, "recipe": RECIPES[codes[0]], "kv_format": KV_FORMATS[codes[1]]}
        fields = {"experts": base.as_dict()["experts"], "kv_lora_rank": base.as_dict()["kv_lora_rank"]}
        errors.append(float(difference_error(pd.DataFrame({**row, **named, **fields}), {gpu.name: gpu})[0]))
    return errors


def _limits(study: Study, base: Architecture) -> list[str]:
    """Limits of the known range that the model itself touches."""
    from spaces.envelope import envelope_checks
    from spaces.parameters import layer_parameters, parameters

    space = study.space
    checks = envelope_checks(space.limits, base, parameters(base), layer_parameters(base), study.accuracy.train_tokens)
    return [check.name for check in checks if np.any(check.touched())]


def write_advice(advice: dict[str, Any], directory: str | Path) -> list[Path]:
    """advice.html, advice.json and the study file of the neighbourhood.

    Raises:
        ValueError: the directory cannot be made or written.
    """
    import json

    from reports.advice_page import advice_page
    from studies.store import RunDirectory

    path = Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {path}: cannot be made: {error.strerror}") from error
    files = RunDirectory(path)
    study = files.write_text("study.toml", advice["study"])
    shown = {**advice, "command": f"ridgeline run {shlex.quote(str(study))}"}
    return [
        files.write_text("advice.html", advice_page(shown)),
        files.write_text("advice.json", json.dumps(shown, indent=2) + "\n"),
        study,
    ]
