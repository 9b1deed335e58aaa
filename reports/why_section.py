"""Why the chosen design wins: ablation, importance, tolerance, formats, alignment, regimes. All text, no script."""

from __future__ import annotations

from typing import Any

import numpy as np

from reports import why
from reports.blocks import block, gain_cell, section
from reports.buys import bought, bought_block
from reports.html import Safe, join, table, tag
from reports.importance import importance
from reports.lead import Lead, architecture_of
from reports.trust import within_error
from reports.words import SOLVED, count, label, nats, number, percent, shape
from spaces.formats import KV_FORMATS, RECIPES


def why_section(run: Any, found: Lead) -> Safe | None:
    """Ablation, importance, alignment, formats, tolerance and the 2x2 of the chosen design."""
    if found.chosen is None or found.why is None:
        return None
    row, objective = found.chosen, run.objective
    design = architecture_of(row)
    codes = RECIPES.index(row["recipe"]), KV_FORMATS.index(row["kv_format"])
    blocks = [
        bought_block(run, found, bought(objective, design, *codes)),
        ablation_block(run, found),
        importance_block(run),
        tolerance_block(run, found, why.by_tolerance(run, row["recipe"], row["kv_format"])),
        format_block(why.by_format(objective, design, codes[1]), row["kv_format"], run),
        alignment_block(run, found, why.by_alignment(objective, design, *codes, found.why.solved)),
        quadrant_block(
            run, why.quadrants(objective, objective.space.reference, *codes), why.quadrants(objective, design, *codes)
        ),
    ]
    return section(
        "why",
        "Why",
        f"What the gain of {shape(row)} ({row['recipe']}, KV {row['kv_format']}) is made of. Everything "
        "here is priced again under the study's own limits.",
        tag("div", join(b for b in blocks if b is not None), class_="grid2"),
    )


def ablation_block(run: Any, found: Lead) -> Safe:
    """Gain per axis, at every target."""
    assert found.why is not None
    targets = [float(t) for t in run.meta["interactivity_targets"]]
    biggest = max((abs(float(np.expm1(g))) for c in found.why.changes for g in c.gain if np.isfinite(g)), default=1.0)

    def bar(log: float, error: float | None) -> Any:
        if not np.isfinite(log):
            return tag("span", "–", class_="noise")
        gain = float(np.expm1(log))
        noise = within_error(gain, error)
        width = min(abs(gain) / max(biggest, 0.02), 1) * 50
        side = f"left:50%;width:{width:.1f}%" if gain >= 0 else f"left:{50 - width:.1f}%;width:{width:.1f}%"
        text = tag(
            "span",
            percent(gain),
            class_="number noise" if noise else "number",
            title="within model error" if noise else None,
        )
        colour = "noise" if noise else None if gain >= 0 else "neg"
        return tag(
            "div",
            tag("div", tag("i", style=side, class_=colour), class_="track"),
            text,
            class_="mini-bar",
        )

    rows: list[list[Any]] = [
        [c.text, *(bar(float(g), e) for g, e in zip(c.gain, found.chosen_errors, strict=True)), nats(c.loss)]
        for c in found.why.changes
    ]
    total = [gain_cell(float(np.expm1(g)), e) for g, e in zip(found.why.total, found.chosen_errors, strict=True)]
    rows.append([tag("strong", "all together"), *total, nats(sum(c.loss for c in found.why.changes))])
    solved = (
        f" {SOLVED[found.why.solved]} is computed again at every step, so all mixtures have the reference's parameters."
        if found.why.solved
        else ""
    )
    heads = ["change", *(f"at {t:g} tokens/s/user" for t in targets), "nats"]
    stale = any(
        g is not None and abs(np.log1p(g) - total) > 0.005
        for g, total in zip(found.chosen_gains, found.why.total, strict=True)
        if np.isfinite(total)
    )
    warning = (
        "The cost model has changed since this run was priced: run the study again for numbers that agree."
        if stale
        else None
    )
    return tag(
        "div",
        tag("h3", "Which axes did it"),
        tag(
            "p",
            "Each axis changed from the reference's value to the design's, averaged over every order of "
            f"changing them (Shapley values); factors multiply to the whole.{solved} Grey: within model error.",
        ),
        tag("p", warning, class_="warn") if warning else None,
        table(heads, rows, "Gain per axis", numeric=[len(heads) - 1]),
        class_="block full",
    )


def importance_block(run: Any) -> Safe | None:
    """PED-ANOVA of the trials at the middle target."""
    values = [c.removeprefix("value_") for c in run.trials if c.startswith("value_")]
    if not values:
        return None
    value = values[min(len(values) // 2, len(values) - 1)]
    shares = importance(run, value)
    if not shares:
        return None
    bars = [
        tag(
            "div",
            tag("span", label(name)),
            tag("div", tag("i", style=f"left:0;width:{100 * share:.1f}%"), class_="track plain"),
            tag("span", percent(share, sign=False), class_="number"),
            class_="effect",
        )
        for name, share in shares.items()
    ]
    what = value.replace("throughput_at_", "throughput at ").replace("_", " ")
    return block(
        "Which axes matter in this space",
        f"Share of each searched axis in what sets the best tenth of all {count(len(run.trials))} trials "
        f"apart ({what} tokens/s/user; PED-ANOVA). It says where to look, not which way.",
        tag("div", join(bars), class_="effects"),
    )


def tolerance_block(run: Any, found: Lead, gains: dict[float, np.ndarray]) -> Safe:
    targets = [float(t) for t in run.meta["interactivity_targets"]]
    rows = [
        [f"+{tolerance:g} nats", *(gain_cell(float(g), e) for g, e in zip(values, found.chosen_errors, strict=True))]
        for tolerance, values in gains.items()
    ]
    row = found.chosen
    assert row is not None
    return block(
        "What held accuracy costs",
        f"Best gain in {row['recipe']} over the reference if the predicted loss may exceed the reference's by so much. "
        f"The search ran at +{run.study.accuracy.tolerance_nats:g}; other rows add a random sample of the "
        "space, so beyond it they are lower bounds.",
        table(
            ["allowed loss", *(f"at {t:g}" for t in targets)],
            rows,
            "Gain against loss tolerance",
            numeric=range(1, 1 + len(targets)),
        ),
    )


def format_block(gains: list[why.FormatGain], kv_format: str, run: Any) -> Safe:
    rows = [
        [
            g.recipe,
            *(_over_bf16(g, *pair) for pair in zip((g.at_batch_1, g.at_most_throughput), g.errors, strict=True)),
            f"{g.quant_loss:+.3f}".replace("-", "−"),
        ]
        for g in gains
    ]
    gpu = run.objective.cells[0].gpu.name
    return block(
        "What formats are worth",
        f"The same shape on {gpu} with a {kv_format} KV cache, over bf16: speed of one user at batch 1 on "
        "equal GPUs, and the highest throughput. Grey: within model error.",
        table(["recipe", "batch 1", "most throughput", "quant loss, nats"], rows, "Gain per format", numeric=[1, 2, 3]),
    )


def _over_bf16(gain: why.FormatGain, value: float | None, error: float | None) -> Any:
    return tag("span", "baseline", class_="noise") if gain.recipe == "bf16" else gain_cell(value, error)


def alignment_block(run: Any, found: Lead, gains: dict[int, np.ndarray]) -> Safe | None:
    if not gains:
        return None
    targets = [float(t) for t in run.meta["interactivity_targets"]]
    rows = [
        [
            f"multiples of {align}" + (" and no better" if align < 512 else ""),
            *(gain_cell(float(np.expm1(g)), e) for g, e in zip(values, found.chosen_errors, strict=True)),
        ]
        for align, values in gains.items()
    ]
    spreads = np.expm1(np.ptp(np.array(list(gains.values())), axis=0))
    known = np.flatnonzero(np.isfinite(spreads))  # a target that some alignment does not reach has no spread
    said = ""
    if len(known):
        at = int(known[np.argmax(spreads[known])])
        noise = ", within model error" if within_error(float(spreads[at]), found.chosen_errors[at]) else ""
        said = f" From worst to best alignment: {percent(float(spreads[at]))} at most{noise}."
    return block(
        "What alignment is worth",
        "The best neighbour of the design (same parameters) whose widths are aligned exactly so, over the "
        f"reference.{said}",
        table(
            ["widths", *(f"at {t:g}" for t in targets)], rows, "Gain by alignment", numeric=range(1, 1 + len(targets))
        ),
    )


def quadrant_block(run: Any, reference: list[why.Quadrant], design: list[why.Quadrant]) -> Safe:
    def words(q: why.Quadrant) -> Any:
        if q.value is None:
            return "no plan fits"
        unit = "tokens/s/user" if q.latency else "tokens/s/GPU"
        parts = ", ".join(f"{name} {percent(share, sign=False)}" for name, share in q.parts[:2])
        return join([tag("strong", f"{number(q.value)} {unit}"), tag("small", f"{parts}; {q.regime}")])

    rows = []
    for ours, theirs in zip(design, reference, strict=True):
        gain = None if ours.value is None or theirs.value is None else ours.value / theirs.value - 1
        errors = [q.error for q in (ours, theirs) if q.error is not None]
        corner = f"{count(ours.context)} in, {'latency' if ours.latency else 'throughput'}"
        rows.append([corner, words(theirs), words(ours), gain_cell(gain, max(errors, default=None))])
    return tag(
        "div",
        tag("h3", "Where the time goes: context × service"),
        tag(
            "p",
            "The guide's 2×2. Latency: the fastest plan for one user; throughput: the plan of most "
            "tokens per GPU, without a limit on the first token; 1,024 tokens out.",
        ),
        table(
            ["context, service", run.reference_name, "chosen design", "gain"],
            rows,
            "Regimes by context and service",
            numeric=[3],
        ),
        class_="block full",
    )
