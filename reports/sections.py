"""The page below the plot: why, guidelines, how far to trust it, where it came from. All text, no script needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from reports import why
from reports.accuracy import published_accuracy
from reports.guidelines import Finding, guidelines
from reports.html import Safe, join, table, tag
from reports.importance import importance
from reports.lead import PROXY, Lead, architecture_of, workload_text
from reports.trust import calibration_rows, within_error
from reports.words import count, label, nats, number, parameters, percent, sentence, shape
from spaces.architecture import Architecture
from spaces.formats import KV_FORMATS, RECIPES


def sections(run: Any, found: Lead) -> list[Safe]:
    """The sections of a run's page, in reading order."""
    parts = [why_section(run, found), guideline_section(run, found), trust_section(run), provenance_section(run)]
    return [part for part in parts if part is not None]


def _section(identifier: str, title: str, intro: Any, *body: Any) -> Safe:
    head = tag("div", tag("h2", title, id=f"{identifier}-h"), tag("p", intro), class_="section-head")
    return tag("section", head, *body, id=identifier, aria_labelledby=f"{identifier}-h")


def _block(title: str, intro: Any, *body: Any) -> Safe:
    return tag("div", tag("h3", title), tag("p", intro), *body, class_="block")


def gain_cell(gain: float | None, error: float | None = None) -> Any:
    """A gain coloured by sign, grey where the model cannot tell it from nothing."""
    if gain is None or np.isnan(gain):
        return tag("span", "–", class_="noise")
    if within_error(gain, error):
        return tag("span", percent(gain), class_="noise", title="within model error")
    return tag("span", percent(gain), class_="up" if gain > 0 else "down")


def why_section(run: Any, found: Lead) -> Safe | None:
    """Ablation, importance, alignment, formats, tolerance and the 2x2 of the chosen design."""
    if found.chosen is None or found.why is None:
        return None
    row, objective = found.chosen, run.objective
    design = architecture_of(row)
    codes = RECIPES.index(row["recipe"]), KV_FORMATS.index(row["kv_format"])
    blocks = [
        ablation_block(run, found),
        importance_block(run),
        tolerance_block(run, found, why.by_tolerance(run, row["recipe"], row["kv_format"])),
        format_block(why.by_format(objective, design, codes[1]), row["kv_format"], run),
        alignment_block(run, found, why.by_alignment(objective, design, *codes, found.why.solved)),
        quadrant_block(
            run, why.quadrants(objective, objective.space.reference, *codes), why.quadrants(objective, design, *codes)
        ),
    ]
    return _section(
        "why",
        "Why",
        f"What the gain of {shape(row)} ({row['recipe']}, KV {row['kv_format']}) is made of. Everything here is priced again under the study's own limits.",
        tag("div", join(b for b in blocks if b is not None), class_="grid2"),
        context_note(run, found, design, codes),
    )


def ablation_block(run: Any, found: Lead) -> Safe:
    """Gain per axis, at every target."""
    assert found.why is not None
    targets = [float(t) for t in run.meta["interactivity_targets"]]
    biggest = max((abs(float(np.expm1(g))) for c in found.why.changes for g in c.gain if np.isfinite(g)), default=1.0)

    def bar(log: float) -> Any:
        if not np.isfinite(log):
            return tag("span", "–", class_="noise")
        gain = float(np.expm1(log))
        width = min(abs(gain) / max(biggest, 0.02), 1) * 50
        side = f"left:50%;width:{width:.1f}%" if gain >= 0 else f"left:{50 - width:.1f}%;width:{width:.1f}%"
        text = tag("span", percent(gain), class_="number")
        return tag(
            "div",
            tag("div", tag("i", style=side, class_=None if gain >= 0 else "neg"), class_="track"),
            text,
            class_="mini-bar",
        )

    rows: list[list[Any]] = [[c.text, *(bar(float(g)) for g in c.gain), nats(c.loss)] for c in found.why.changes]
    total = [gain_cell(float(np.expm1(g)), e) for g, e in zip(found.why.total, found.chosen_errors, strict=True)]
    rows.append([tag("strong", "all together"), *total, nats(sum(c.loss for c in found.why.changes))])
    solved = (
        f" {sentence(label(found.why.solved))} is solved again at every step, so all mixtures have the reference's parameters."
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
            f"Each axis changed from the reference's value to the design's, averaged over every order of changing them (Shapley values); factors multiply to the whole.{solved}",
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
    return _block(
        "Which axes matter in this space",
        f"Share of each searched axis in what sets the best tenth of all {count(len(run.trials))} trials apart ({what} tokens/s/user; PED-ANOVA). It says where to look, not which way.",
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
    return _block(
        "What held accuracy costs",
        f"Best gain in {row['recipe']} over the reference if the predicted loss may exceed the reference's by so much. "
        f"The search ran at +{run.study.accuracy.tolerance_nats:g}; other rows add a random sample of the space, so beyond it they are lower bounds.",
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
            *(_over_bf16(g, gain) for gain in (g.at_batch_1, g.at_most_throughput)),
            f"{g.quant_loss:+.3f}".replace("-", "−"),
        ]
        for g in gains
    ]
    gpu = run.objective.cells[0].gpu.name
    return _block(
        "What formats are worth",
        f"The same shape on {gpu} with a {kv_format} KV cache, over bf16: speed of one user at batch 1 on equal GPUs, and the highest throughput.",
        table(["recipe", "batch 1", "most throughput", "quant loss, nats"], rows, "Gain per format", numeric=[1, 2, 3]),
    )


def _over_bf16(gain: why.FormatGain, value: float | None) -> Any:
    return tag("span", "baseline", class_="noise") if gain.recipe == "bf16" else gain_cell(value)


def alignment_block(run: Any, found: Lead, gains: dict[int, np.ndarray]) -> Safe | None:
    if not gains:
        return None
    targets = [float(t) for t in run.meta["interactivity_targets"]]
    rows = [
        [
            f"multiples of {align}" + (" and no better" if align < 512 else ""),
            *(gain_cell(float(np.expm1(g)), None) for g in values),
        ]
        for align, values in gains.items()
    ]
    spread = np.nanmax([np.ptp(np.array([v[i] for v in gains.values()])) for i in range(len(targets))])
    return _block(
        "What alignment is worth",
        f"The best neighbour of the design (same parameters) whose widths are aligned exactly so, over the reference. From worst to best alignment: {percent(float(np.expm1(spread)))} at most.",
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
        corner = f"{count(ours.context)} in, {'latency' if ours.latency else 'throughput'}"
        rows.append([corner, words(theirs), words(ours), gain_cell(gain)])
    return tag(
        "div",
        tag("h3", "Where the time goes: context × service"),
        tag(
            "p",
            "The guide's 2×2. Latency: the fastest plan for one user; throughput: the plan of most tokens per GPU, without a limit on the first token; 1,024 tokens out.",
        ),
        table(["", run.reference_name, "chosen design", "gain"], rows, "Regimes by context and service", numeric=[3]),
        class_="block full",
    )


def context_note(run: Any, found: Lead, design: Architecture, codes: tuple[int, int]) -> Safe | None:
    """What the gain buys in context at the same service."""
    targets = [float(t) for t in run.meta["interactivity_targets"]]
    gains = [-1.0 if g is None else g for g in found.chosen_gains]
    at = int(np.argmax(gains))
    if gains[at] <= 0:
        return None
    factor = why.longer_context(run.objective, design, *codes, targets[at])
    if factor is None or factor <= 1:
        return None
    cell = run.objective.cells[0]
    new, old = int(cell.workload.isl * factor), int(cell.workload.isl)
    return tag(
        "p",
        f"Spent on context instead: at {targets[at]:g} tokens/s/user the design serves prompts of {count(new)} tokens at the throughput that the reference gives with {count(old)}.",
        class_="after",
    )


def guideline_section(run: Any, found: Lead) -> Safe | None:
    """G1-G7 for the chosen design and the reference."""
    if found.chosen is None or found.why is None:
        return None
    row = found.chosen
    align = int(run.study.table.get("space", {}).get("align", 128))
    arguments = row["recipe"], row["kv_format"], found.why.solved, align
    served = [g is not None for g in found.chosen_gains]
    targets = [float(t) for t in run.meta["interactivity_targets"]]
    at = [t for t, s in zip(targets, served, strict=True) if s][sum(served) // 2] if any(served) else targets[0]
    try:
        ours = guidelines(run.objective, architecture_of(row), *arguments, target=at)
        theirs = guidelines(run.objective, run.objective.space.reference, *arguments, target=at)
    except ValueError:  # one of the two has no plan at this target: nothing to measure on
        return None
    return _section(
        "guidelines",
        "Guidelines, measured",
        f"The seven guidelines of hardware-friendly design at {at:g} tokens/s/user: not whether a rule holds, but what it is worth here.",
        guideline_table(ours, theirs, run.reference_name),
    )


def guideline_table(ours: list[Finding], theirs: list[Finding] | None, reference: str) -> Safe:
    """Findings of a design, beside the reference's where given."""

    def mark(finding: Finding) -> Safe:
        word = {True: "follows", False: "does not", None: "n/a"}[finding.followed]
        return tag("span", word, class_={True: "mark yes", False: "mark no", None: "mark"}[finding.followed])

    def cell(finding: Finding) -> Safe:
        return join([mark(finding), " ", finding.state, tag("small", finding.effect)])

    heads = ["guideline", "chosen design" if theirs else "this model", *([reference] if theirs else [])]
    rows = []
    for i, finding in enumerate(ours):
        name = join([tag("strong", finding.guideline), " ", finding.title])
        rows.append([name, cell(finding), *([cell(theirs[i])] if theirs else [])])
    return table(heads, rows, "Guidelines G1 to G7")


def trust_section(run: Any) -> Safe:
    """Errors of the kernels used, what is extrapolated, the loss proxy, the certificate."""
    column = tag("div", _loss_block(run), _certificate_block(run), class_="column")
    blocks = [*(_kernel_block(cell.gpu) for cell in _one_per_gpu(run)), column, _accuracy_block(run)]
    return _section(
        "trust",
        "How far to trust it",
        "Serving figures are predictions of an analytic model with fitted kernel constants; none of the designs was built.",
        tag("div", join(blocks), class_="grid2"),
    )


def _one_per_gpu(run: Any) -> list[Any]:
    return list({(c.gpu.name, c.gpu.engine.name): c for c in run.objective.cells}.values())


def _kernel_block(gpu: Any) -> Safe:
    rows = calibration_rows(gpu)
    measured = [r for r in rows if r.get("evidence") == "measured" and "median_error" in r]
    borrowed = sorted({r["operation"].replace("_", " ") for r in rows if r.get("evidence") != "measured"})
    body = [
        [
            r["operation"].replace("_", " "),
            r["key"],
            percent(r["median_error"], sign=False),
            percent(r["p90_error"], sign=False),
            count(r["rows"]),
        ]
        for r in measured
    ]
    intro = f"Error of each kernel on measured shapes kept out of its fit. {gpu.engine.name} on {gpu.name}."
    tail = (
        tag(
            "p",
            f"Borrowed from another GPU or assumed, with a wider band, for some formats or modes: {', '.join(borrowed)}.",
            class_="after",
        )
        if borrowed
        else None
    )
    empty = (
        tag("p", "No kernel was measured on this GPU under this engine: every constant is borrowed.", class_="warn")
        if not body
        else None
    )
    caution = gpu.provenance.get("caution") if isinstance(gpu.provenance, dict) else None
    return _block(
        f"Kernels on {gpu.name}",
        intro,
        table(
            ["operation", "format", "median", "90th percentile", "rows"],
            body,
            f"Kernel errors on {gpu.name}",
            numeric=[2, 3, 4],
        )
        if body
        else empty,
        tail,
        tag("p", f"Data sheet: {caution}.", class_="after") if caution else None,
    )


def _loss_block(run: Any) -> Safe:
    accuracy = run.study.accuracy
    return _block(
        "Predicted loss",
        f"{PROXY.capitalize()}: over-trained Chinchilla law, width, depth and KV terms, a quantisation law, added up across papers. "
        "On 21 published models it orders every family right and is off by 0.042 nats within a family (nothing refitted).",
        tag(
            "p",
            f"All designs are compared after {accuracy.train_tokens / 1e12:g} T training tokens; formats count as {accuracy.quantised.upper()}. "
            f"Allowed: {nats(accuracy.tolerance_nats)} nats of shape over the reference, {accuracy.quant_limit:g} nats for formats.",
        ),
    )


def _certificate_block(run: Any) -> Safe:
    certificate = run.meta.get("certificate")
    if not certificate:
        text = f"No exact sweep of this space was run, so how much the search missed is not known. It stopped after {count(run.meta['trials'])} trials ({run.meta['stop_reason']})."
        return _block(
            "Did the search find it all?",
            text,
            tag("p", tag("code", f"ridgeline sweep {run.path / 'study.toml'} --certify {run.path}")),
        )
    rows = [
        [name.replace("_", " "), str(value)]
        for name, value in certificate.items()
        if not isinstance(value, list | dict)
    ]
    return _block(
        "Did the search find it all?",
        "An exact sweep of the same space certifies this run.",
        table(["measure", "value"], rows, "Certificate of the search"),
    )


def _accuracy_block(run: Any) -> Safe:
    used = sorted(set(run.designs["recipe"])) + [f"kv:{f}" for f in sorted(set(run.designs["kv_format"]))]
    known = published_accuracy()
    rows = [
        [key.replace("kv:", "KV "), d["model"], d["benchmark"], d["result"], d["source"]]
        for key in used
        for d in known.get(key, [])
    ]
    if not rows:
        return _block("Accuracy of the formats", "All designs are bf16: nothing is quantised.")
    return tag(
        "div",
        tag("h3", "Accuracy of the formats, as published"),
        tag(
            "p",
            "Not measured here. Owed before deployment: the trained model in this format on your own evaluations, long context included.",
        ),
        table(["format", "model", "benchmark", "result", "source"], rows, "Published accuracy of formats"),
        class_="block full",
    )


def provenance_section(run: Any) -> Safe:
    """Command, seed, versions and the study as run."""
    meta = run.meta
    facts = {
        "command": meta["command"] or "not recorded",
        "seed": meta["seed"],
        "trials": f"{count(meta['trials'])}, {percent(meta['feasible_share'], sign=False)} feasible; {count(meta['points_priced'])} points priced in {meta['seconds']:.1f} s",
        "served": "; ".join(
            f"{workload_text(c)} on {c['gpu']} ({c['engine']}), {count(c['plans'])} plans" for c in meta["cells"]
        ),
        "reference": f"{run.reference_name}, {parameters(_total(run))} parameters",
        "versions": ", ".join(f"{name} {version}" for name, version in meta["versions"].items()),
        "finished": meta.get("finished", "not recorded"),
    }
    listed = join(part for name, value in facts.items() for part in (tag("dt", name), tag("dd", value)))
    return _section(
        "provenance",
        "Where it came from",
        "Run it again with the same seed and versions and every number here comes out the same.",
        tag(
            "div",
            tag("dl", listed, class_="facts"),
            tag("details", tag("summary", "The study as run"), tag("pre", run.study.toml(), tabindex="0")),
            class_="block",
        ),
    )


def _total(run: Any) -> float:
    from cost_model.counts import parameters as counted

    return float(counted(run.objective.space.reference).total)
