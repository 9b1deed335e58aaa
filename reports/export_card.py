"""card.md: one page for the meeting that decides on a design, and the serve-fit block for its model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cost_model.counts import kv_bytes_per_sequence, parameters
from reports.export_design import Design, folder_of, spare
from reports.launch_point import TABLE
from reports.recipes import formats
from reports.trust import difference_error, points_at, within_error
from reports.words import count, nats, number, percent, plan, seconds
from reports.words import parameters as size
from spaces.alignment import aligned
from spaces.deployment import FIELDS as PLAN_FIELDS
from spaces.deployment import Deployment, legal, powers_of_two, unchecked

PROXY = "loss is a proxy from published scaling laws, not a measurement"
_MOST_TP = 64


def markdown(text: Any) -> str:
    """Text that cannot end a table cell, a line or open markup: names come from study files."""
    plain = " ".join(str(text).split())
    for character in "\\`*_[]|#<>":
        plain = plain.replace(character, "\\" + character)
    return plain.replace("\\<", "&lt;").replace("\\>", "&gt;")


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'|'.join(['---'] * len(heads))}|"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def card(design: Design, launched: Mapping[str, Mapping[str, str]]) -> str:
    """The page, in Markdown.

    Args:
        launched: role -> engine -> file names, or "refused: ..." with the reason.
    """
    title = f"# {markdown(design.shape)}: serve it?"
    what = f"Design {design.design}, {design.family}, {design.recipe} weights, {design.kv_format} KV cache"
    parts = [
        title,
        f"{what}; study {markdown(design.run.name)}, reference {markdown(design.run.reference_name)}.",
        f"![Throughput against interactivity: this design and {markdown(design.run.reference_name)}](frontier.svg)",
        verdict(design),
        "## Numbers",
        numbers(design),
        "## Deployments",
        deployments(design, launched),
        "## The buyer's questions",
        questions(design, launched),
        "## Caveats",
        bullets(caveats(design)),
        "## Checks owed before training",
        bullets(checks(design)),
        "## Serve-fit block for the model card",
        f"````markdown\n{serve_fit(design)}\n````",
    ]
    return "\n\n".join(parts) + "\n"


def bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def gains(design: Design) -> list[tuple[float, float | None, float | None]]:
    """(target, gain over the reference in the same formats, model error of a difference), None where unreached."""
    result = []
    gpus = {target.gpu.name: target.gpu for target in design.run.study.targets}
    for target in design.run.targets:
        gain = None if design.row is None else _finite(design.row.get(f"gain_at_{target:g}"))
        own = points_at(design.points, target)
        error = float(np.max(difference_error(own, gpus))) if len(own) else None
        result.append((float(target), gain, error))
    return result


def _finite(value: Any) -> float | None:
    return None if value is None or not np.isfinite(float(value)) else float(value)


def verdict(design: Design) -> str:
    """What it gains over the reference, and what of that is within the model's error."""
    known = [(t, g, e) for t, g, e in gains(design) if g is not None]
    reference = markdown(design.run.reference_name)
    if not known:
        return f"No comparison with {reference}: it has no gain at any interactivity target of the study."
    parts = []
    for target, gain, error in known:
        noise = " (within model error)" if within_error(gain, error) else ""
        parts.append(f"{percent(gain or 0.0)} at {target:g} tokens/s/user{noise}")
    error = max(e for _, _, e in known if e is not None)
    return (
        f"Tokens/s/GPU against {reference} under the same formats, each with its own best plan: {', '.join(parts)}. "
        f"Model error of a difference: ± {percent(error, sign=False)}."
    )


def numbers(design: Design) -> str:
    a, counts, row = design.architecture, parameters(design.architecture), design.row
    context = max(int(cell["cached"] + cell["isl"] + cell["osl"]) for cell in design.run.meta["cells"])
    kv = float(np.ravel(kv_bytes_per_sequence(a, design.kv_format, context))[0]) / context
    rows = [["parameters", f"{size(float(counts.total))} ({count(float(counts.total))})"]]
    if a.is_moe:
        rows.append(["active per token", size(float(counts.active))])
    rows.append(["of them embeddings", size(float(counts.embedding))])
    rows.append(["KV cache per token", f"{number(kv / 1e3)} kB at {count(context)} tokens"])
    if row is not None:
        rows.append(["training FLOPs per token against the reference", f"{row['training_flops_ratio']:.3f}"])
        loss = f"{nats(row['shape_loss_difference'])} ± {row['loss_sigma']:.3f} nats"
        rows.append(["predicted loss against the reference", f"{loss}; {PROXY}"])
        rows.append([f"predicted loss of {design.recipe} and {design.kv_format} KV", f"{nats(row['quant_loss'])} nats"])
    return table(["", ""], rows)


def deployments(design: Design, launched: Mapping[str, Mapping[str, str]]) -> str:
    heads = ["point", "plan", "GPUs", "in flight", "tokens/s/user", "tokens/s/GPU", "first token", "GB per GPU"]
    heads += ["USD per million tokens", "launch files"]
    rows = []
    for role, point in design.chosen.items():
        folder = folder_of(design, role)
        done = [TABLE[e]["name"] for e, files in launched[folder].items() if not files.startswith("refused")]
        usd = point.get("usd_per_million_tokens")
        rows.append(
            [
                f"{role} ({point['point']})",
                plan(point) + spare(point),
                f"{int(point['gpus'])} × {markdown(point['gpu'])}",
                count(point["batch"]),
                number(point["tokens_per_s_per_user"]),
                number(point["tokens_per_s_per_gpu"]),
                seconds(point["ttft_s"]),
                number(point["memory_bytes_per_gpu"] / 1e9),
                "no price" if usd is None or not np.isfinite(usd) else number(usd),
                f"launch/{folder}: {', '.join(done) or 'none'}",
            ]
        )
    return table(heads, rows)


def questions(design: Design, launched: Mapping[str, Mapping[str, str]]) -> str:
    points = design.chosen
    first, last = next(iter(points.values())), list(points.values())[-1]
    attention, ffn = formats(design.recipe)
    lines = [
        f"**Which number format?** {attention} attention and {ffn} FFNs, {design.kv_format} KV cache. "
        "Predicted, not measured, accuracy.",
        f"**Do the engines serve it?** {_engines(launched)}",
        f"**Interactive or batch?** {number(first['tokens_per_s_per_user'])} tokens/s/user at "
        f"{count(first['batch'])} in flight; {number(last['tokens_per_s_per_gpu'])} tokens/s/GPU at "
        f"{count(last['batch'])} in flight ({number(last['tokens_per_s_per_user'])} tokens/s/user).",
        f"**Right for the GPUs?** {_hardware(design, first, last)}",
    ]
    return bullets(lines)


def _engines(launched: Mapping[str, Mapping[str, str]]) -> str:
    texts = []
    for engine in dict.fromkeys(e for files in launched.values() for e in files):
        told = [launched[folder][engine] for folder in launched if engine in launched[folder]]
        refused = sum(text.startswith("refused") for text in told)
        name = f"{TABLE[engine]['name']} {TABLE[engine]['version']}"
        texts.append(f"{name}: {len(told) - refused} of {len(told)} points")
    return "; ".join(texts) + ". Reasons for the others are in README.md."


def _hardware(design: Design, first: dict[str, Any], last: dict[str, Any]) -> str:
    target = next((t for t in design.run.study.targets if t.gpu.name == last["gpu"]), None)
    sizes = sorted({int(first["gpus"]), int(last["gpus"])})
    used = number(last["memory_bytes_per_gpu"] / 1e9)
    text = f"Replicas of {' and '.join(map(str, sizes))} {markdown(last['gpu'])}, {used} GB per GPU at most throughput."
    if target is None:
        return text
    own = {f for f in formats(design.recipe) if f != "bf16"}
    other = sorted(own - set(target.gpu.native_formats))
    if other:
        return f"{text} It has no tensor cores for {', '.join(other)}: those weights are dequantised first."
    return f"{text} Its tensor cores multiply these formats as they are."


def caveats(design: Design) -> list[str]:
    rows = list(design.chosen.values())
    evidence = sorted({str(row["evidence"]) for row in rows})
    low, high = min(row["error_low"] for row in rows), max(row["error_high"] for row in rows)
    engines = ", ".join(sorted({str(row["engine"]) for row in rows}))
    lines = [
        f"Times come from a cost model ({', '.join(evidence)}): 80 % band {low:.2f} to {high:.2f} of the prediction.",
        f"Predicted {PROXY}.",
        f"Priced with {engines}; launch files for other engines express the same plan, unpriced.",
    ]
    if design.row is not None and design.row.get("limits_touched"):
        lines.append(f"The shape touches limits of published models: {markdown(design.row['limits_touched'])}.")
    if design.row is not None and not bool(design.row.get("inside_envelope", True)):
        lines.append("The shape lies outside the range of published models that the loss model was checked on.")
    if any(row["draft_tokens"] > 0 for row in rows):
        lines.append("Speculative points assume the study's acceptance rate and a draft head that does not exist yet.")
    return lines


def checks(design: Design) -> list[str]:
    """What to measure before money is spent on training."""
    return [
        "Run the launch files on the GPUs with random weights (`--load-format dummy`): speed needs no training.",
        "Train a small model of the same proportions against the reference's: the loss difference is a proxy.",
        f"Quantise a published model of this family to {design.recipe} and measure its tasks.",
        "Replay your own lengths and concurrency: the points hold for the study's workload only.",
    ]


def serve_fit(design: Design) -> str:
    """A short block for a Hugging Face model card."""
    a = design.architecture.as_dict()
    width = a["expert_ffn"] if a["experts"] else a["ffn"]
    kind = "expert" if a["experts"] else "FFN"
    lines = [
        "### Serving fit",
        f"- dimensions: hidden {a['hidden']} ({_power(a['hidden'])}), {kind} width {width} ({_power(width)})",
        f"- tensor parallel sizes that keep whole blocks: {', '.join(map(str, tp_sizes(design)))}",
    ]
    if a["experts"]:
        sizes = [n for n in powers_of_two(_MOST_TP) if a["experts"] % n == 0]
        lines.append(f"- expert parallel sizes: {', '.join(map(str, sizes))} of {a['experts']} experts")
    lines.append(f"- formats: {design.recipe} weights, {design.kv_format} KV cache")
    for role, point in design.chosen.items():
        lines.append(
            f"- {role}: {int(point['gpus'])} × {markdown(point['gpu'])}, {plan(point)}: "
            f"{number(point['tokens_per_s_per_user'])} tokens/s/user, {number(point['tokens_per_s_per_gpu'])} "
            f"tokens/s/GPU (predicted, {markdown(point['workload'])})"
        )
    rows = design.chosen.values()
    low, high = min(row["error_low"] for row in rows), max(row["error_high"] for row in rows)
    return "\n".join([*lines, f"- model error: {low:.2f} to {high:.2f} of the prediction (80 %); not measured"])


def _power(size_: int) -> str:
    """The largest power of two that divides a dimension, up to 1024."""
    return f"a multiple of {min(size_ & -size_, 1024)}"


def tp_sizes(design: Design) -> list[int]:
    """Plain tensor parallelism (attention and FFN alike) that is legal and cuts no quantisation block."""
    sizes = np.array(powers_of_two(_MOST_TP))
    ones = {name: np.ones_like(sizes) if name in PLAN_FIELDS[:6] else np.zeros_like(sizes) for name in PLAN_FIELDS}
    plans: Deployment = unchecked({**ones, "attention_tp": sizes, "ffn_tp": sizes, "acceptance": 0.0})
    good, _ = legal(design.architecture, plans)
    whole = aligned(design.architecture, design.recipe, sizes, sizes)
    return [int(n) for n in sizes[np.broadcast_to(good & whole, sizes.shape)]]
