"""Advice as a page and as terminal tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.html import Safe, join, table, tag
from reports.words import count, nats, number, percent, sentence

_HERE = Path(__file__).parent
_MARKS = {True: ("follows", "mark yes"), False: ("does not", "mark no"), None: ("n/a", "mark")}


def advice_page(advice: dict[str, Any]) -> str:
    """One self-contained HTML page, no script."""
    title = f"Advice for {advice['model']} on {advice['gpu']}"
    body = join(
        [
            tag("header", tag("div", _header(advice), class_="wrap"), class_="top"),
            tag("main", *_sections(advice), class_="wrap"),
            tag(
                "footer",
                tag(
                    "p",
                    "Made by Ridgeline. Predictions of an analytic cost model; loss is a proxy from "
                    "published scaling laws.",
                ),
                class_="wrap foot",
            ),
        ]
    )
    style = Safe((_HERE / "page.css").read_text(encoding="utf-8"))
    head = join(
        [
            Safe('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", title),
            Safe('<link rel="icon" href="data:,">'),
            tag("style", style),
        ]
    )
    return "<!DOCTYPE html>\n" + Safe(f'<html lang="en"><head>{head}</head><body>{body}</body></html>\n')


def _header(advice: dict[str, Any]) -> Safe:
    return join(
        [
            tag("p", "Ridgeline advice", class_="eyebrow"),
            tag("h1", "How ", tag("em", advice["model"]), f" serves on {advice['gpu']}"),
            tag(
                "p", f"{advice['shape']}; {setting(advice)}. Loss is a proxy from published scaling laws.", class_="sub"
            ),
        ]
    )


def setting(advice: dict[str, Any]) -> str:
    w = advice["workload"]
    cached = f"{count(w['cached'])} cached + " if w["cached"] else ""
    return (
        f"{advice['recipe']} weights, {advice['kv_format']} KV cache, {cached}{count(w['isl'])} tokens in, "
        f"{count(w['osl'])} out, {advice['engine']}"
    )


def _sections(advice: dict[str, Any]) -> list[Safe]:
    heads = [f"at {t:g}" for t in advice["targets"]]
    right = range(1, 1 + len(heads))
    return [
        _section(
            "Nearby shapes that serve better",
            "Same parameters, held shape loss, same formats; gains in tokens/s/GPU at tokens/s/user. "
            "Grey: within model error.",
            _changes(advice, heads),
        ),
        _section(
            "Guidelines, measured",
            "What each guideline is worth for this model here.",
            table(["guideline", "this model", "worth"], _guideline_rows(advice), "Guidelines G1 to G7"),
        ),
        _section(
            "Four questions before buying",
            "Each answered with this cost model's numbers.",
            *_buyer(advice, heads, right),
        ),
        _section(
            "Where the time goes, and the most each part could give",
            "Share of the token time at the best plan; in brackets the gain if it cost nothing (Amdahl).",
            table(["component", *heads], _amdahl_rows(advice), "Amdahl bounds", numeric=right),
        ),
        _section(
            "Shards",
            f"{advice['kv_heads']['text']}. "
            f"{sentence(advice['experts']['text']) + '.' if advice['experts'] else ''} Idle: empty tile "
            "slots in the last wave at 2,048 tokens.",
            table(
                ["matrix", "TP", "n", "k", "alignment", "idle"],
                _shard_rows(advice),
                "Weight matrices after sharding",
                numeric=[1, 2, 3, 5],
            ),
        ),
        _section(
            "Explore further",
            "The study of this neighbourhood.",
            tag("p", tag("code", advice.get("command", "ridgeline run study.toml"))),
            tag("details", tag("summary", "The study file"), tag("pre", advice["study"], tabindex="0")),
        ),
    ]


def _section(title: str, intro: str, *body: Any) -> Safe:
    return tag("section", tag("div", tag("h2", title), tag("p", intro), class_="section-head"), *body)


def _gain(value: float | None, noise: bool = False) -> Safe:
    if value is None:
        return tag("span", "–", class_="noise")
    return tag("span", percent(value), class_="noise" if noise else "up" if value > 0 else "down")


def _changes(advice: dict[str, Any], heads: list[str]) -> Safe:
    if not advice["changes"]:
        return tag("p", "No nearby shape of the same parameters and held loss serves better.")
    rows = [
        [
            sentence(c["change"]),
            *(_gain(g, n) for g, n in zip(c["gain"], c["within_error"], strict=True)),
            nats(c["shape_loss_difference"]),
        ]
        for c in advice["changes"]
    ]
    return table(["change", *heads, "nats"], rows, "Nearby shapes", numeric=range(1, 2 + len(heads)))


def _guideline_rows(advice: dict[str, Any]) -> list[list[Any]]:
    rows = []
    for f in advice["guidelines"]:
        word, style = _MARKS[f["followed"]]
        rows.append(
            [
                join([tag("strong", f["guideline"]), " ", f["title"]]),
                join([tag("span", word, class_=style), " ", f["state"]]),
                f["effect"],
            ]
        )
    return rows


def _amdahl_rows(advice: dict[str, Any]) -> list[list[Any]]:
    by_target = {row["target"]: row for row in advice["amdahl"]}
    names = next(iter(by_target.values()))["shares"] if by_target else {}
    rows = []
    for name in names:
        cells = [
            "–"
            if (row := by_target.get(t)) is None
            else f"{percent(row['shares'][name], sign=False)} (≤ {row['bounds'].get(name, 1):.2f}×)"
            for t in advice["targets"]
        ]
        rows.append([name.replace("_", " "), *cells])
    return rows


def _shard_rows(advice: dict[str, Any]) -> list[list[Any]]:
    rows = []
    for s in advice["shards"]:
        state = "format cannot take it" if not s["legal"] else "; ".join(s["off"]) or "aligned"
        style = "mark no" if s["off"] or not s["legal"] else "mark yes"
        rows.append(
            [
                s["name"],
                s["tp"],
                count(s["n"]),
                count(s["k"]),
                tag("span", state, class_=style),
                percent(s["wasted"], sign=False),
            ]
        )
    return rows


def answers(advice: dict[str, Any]) -> list[tuple[str, str]]:
    """The four buyer's questions and their answers in a sentence each."""
    buyer, fit = advice["buyer"], advice["buyer"]["fit"]
    options = {f["recipe"]: f for f in buyer["format"]["options"]}
    best = buyer["format"]["best"]
    first = "No format fits within the loss limit."
    if best is not None:
        o = options[best]
        first = (
            f"{best}: {percent(o['at_most_throughput'])} maximum throughput over bf16, "
            f"{percent(o['at_batch_1'] or 0.0)} for one user, predicted loss {nats(o['quant_loss'])} nats. "
            "Accuracy not measured here."
        )
    engines = ", ".join(
        f"{e['engine']} {'–' if e['most'] is None else number(e['most'], 4)} ({e['evidence']})"
        for e in buyer["engines"]
    )
    one, most = buyer["concurrency"]["one_user"], buyer["concurrency"]["most_throughput"]
    third = (
        f"Alone: {number(one['tokens_per_s_per_user'])} tokens/s on {one['gpus']:.0f} GPUs, bound by "
        f"{one['bound_by'].split(':')[0]}. "
        f"In batches: {number(most['tokens_per_s_per_gpu'], 4)} tokens/s/GPU at "
        f"{number(most['tokens_per_s_per_user'])} tokens/s/user, bound by "
        f"{most['bound_by'].split(':')[0]}."
    )
    fourth = (
        f"Weights {fit['weight_bytes'] / 1e9:.0f} GB, {fit['kv_bytes_per_sequence'] / 1e6:.0f} MB of KV "
        "per user at full length; the smallest replica is "
        f"{fit['least_gpus']} × {fit['memory_bytes'] / 1e9:.0f} GB with up to "
        f"{count(fit['most_sequences_on_least_gpus'])} users; {fit['scale_up_domain']} GPUs share the "
        "fast links."
    )
    return [
        ("Which precision format?", first),
        ("Who serves it efficiently?", f"Maximum tokens/s/GPU by engine: {engines}."),
        ("Low concurrency or batches?", third),
        (f"Does {advice['gpu']} fit at this scale?", fourth),
    ]


def _buyer(advice: dict[str, Any], heads: list[str], right: Any) -> list[Safe]:
    blocks = [tag("div", tag("h3", question), tag("p", answer), class_="block") for question, answer in answers(advice)]
    rows = [
        [
            e["engine"],
            *("–" if v is None else number(v, 4) for v in e["throughput"]),
            "–" if e["most"] is None else number(e["most"], 4),
            e["evidence"],
        ]
        for e in advice["buyer"]["engines"]
    ]
    engines = table(
        ["engine", *heads, "most", "evidence"],
        rows,
        "Tokens/s/GPU by engine at tokens/s/user",
        numeric=range(1, 2 + len(heads)),
    )
    return [tag("div", join(blocks), class_="grid2"), tag("div", engines, style="margin-top:18px")]


def print_advice(advice: dict[str, Any], console: Console) -> None:
    """Advice on a terminal."""
    heading = f"{advice['model']} on {advice['gpu']}: {advice['shape']}"
    console.print(Text(heading, style="bold"))
    console.print(setting(advice), markup=False)
    heads = [f"at {t:g}" for t in advice["targets"]]
    near = Table(title="Nearby shapes that serve better (same parameters, held loss; dim: within model error)")
    near.add_column("change")
    for head in [*heads, "nats"]:
        near.add_column(head, justify="right")
    for c in advice["changes"]:
        gains = [
            Text("-" if g is None else percent(g), style="dim" if g is None or n else "")
            for g, n in zip(c["gain"], c["within_error"], strict=True)
        ]
        near.add_row(Text(c["change"]), *gains, nats(c["shape_loss_difference"]))
    console.print(near)
    checked = Table(title="Guidelines, measured")
    for head in ("", "guideline", "this model", "worth"):
        checked.add_column(head)
    for f in advice["guidelines"]:
        checked.add_row(f["guideline"], f"{f['title']} ({_MARKS[f['followed']][0]})", f["state"], f["effect"])
    console.print(checked)
    for question, answer in answers(advice):
        console.print(Text.assemble((question + " ", "bold"), answer))
    off: dict[str, list[int]] = {}
    for shard in advice["shards"]:
        if shard["off"]:
            off.setdefault(shard["name"], []).append(shard["tp"])
    text = "; ".join(f"{name} at TP {', '.join(map(str, tps))}" for name, tps in off.items()) or "none"
    console.print(Text.assemble(("Shards off multiples of 128: ", "bold"), text))
    console.print(Text.assemble(("KV heads: ", "bold"), advice["kv_heads"]["text"]))
    if advice["experts"]:
        console.print(Text.assemble(("Experts: ", "bold"), advice["experts"]["text"]))
