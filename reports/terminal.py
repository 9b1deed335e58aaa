"""What the command line prints: tables and plain words for results that are JSON elsewhere."""

from __future__ import annotations

import json
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cost_model import Accelerator, Prediction
from studies.results import Run


def print_json(value: Any) -> None:
    """One JSON value on standard output; NaN and infinity are refused."""
    print(json.dumps(value, allow_nan=False))


def line(label: Any, text: Any) -> Text:
    """A bold label and a text, both as they are: no name or path is taken for markup."""
    return Text.assemble((str(label), "bold"), f": {text}")


def summary_table(result: Run) -> Table:
    """The best designs at each interactivity target, against the reference."""
    title = f"{result.name}: best designs against {result.reference_name} under the same recipe"
    table = Table(title=escape(title))
    for heading in ("tokens/s/user", "design", "shape", "recipe", "tokens/s/GPU", "gain"):
        table.add_column(heading, justify="right" if heading in ("tokens/s/user", "tokens/s/GPU", "gain") else "left")
    for row in result.summary()["best"]:
        table.add_row(
            f"{row['interactivity']:g}",
            row["design"],
            row["shape"],
            f"{row['recipe']} / KV {row['kv_format']}",
            f"{row['tokens_per_s_per_gpu']:.1f}",
            "-" if row["gain"] is None else f"{100 * row['gain']:+.1f} %",
        )
    return table


def frontier_table(title: str, frame: Any) -> Table:
    table = Table(title=escape(title))
    columns = ("GPUs", "plan", "batch", "tokens/s/user", "tokens/s/GPU", "TTFT ms", "GB/GPU", "bound by")
    for heading in columns:
        table.add_column(heading, justify="left" if heading in ("plan", "bound by") else "right")
    for row in frame.to_dict("records"):
        plan = f"attention TP{row['attention_tp']} DP{row['attention_dp']}, FFN TP{row['ffn_tp']} EP{row['ep']}"
        plan += f", PP{row['pp']}" if row["pp"] > 1 else ""
        table.add_row(
            f"{row['gpus']:.0f}",
            plan,
            f"{row['batch']:.0f}",
            f"{row['tokens_per_s_per_user']:.1f}",
            f"{row['tokens_per_s_per_gpu']:.1f}",
            f"{1e3 * row['ttft_s']:.0f}",
            f"{row['memory_bytes_per_gpu'] / 1e9:.1f}",
            row["regime"].split(":")[0],
        )
    return table


def prediction_table(title: str, p: Prediction, gpu: Accelerator, unfit: str = "") -> Table:
    """A prediction, what its price and its release rest on, and, in `unfit`, why its plan does not fit memory."""
    table = Table(title=escape(title), show_header=False)
    shares = ", ".join(f"{name.replace('_', ' ')} {100 * s / p.tpot_s:.0f} %" for name, s in p.breakdown.items())
    rows: list[tuple[str, str]] = [
        ("time to first token", f"{1e3 * p.ttft_s:.1f} ms mean, {1e3 * p.ttft_median_s:.1f} ms median"),
        ("time per output token", f"{1e3 * p.tpot_s:.2f} ms  ({p.tokens_per_s_per_user:.1f} tokens/s/user)"),
        ("decode-only step", f"{1e3 * p.decode_step_s:.2f} ms"),
        ("end to end", f"{p.e2e_s:.2f} s"),
        ("throughput", f"{p.tokens_per_s_per_gpu:.1f} output tokens/s/GPU"),
        ("sequences in flight", f"{p.batch:.0f}"),
        ("memory", f"{p.memory_bytes_per_gpu / 1e9:.1f} GB/GPU{'' if p.fits else '  DOES NOT FIT'}"),
        *([("", unfit)] if unfit else []),
        ("cost", _cost(p, gpu)),
        (
            "energy",
            "no TDP"
            if p.joules_per_token is None
            else f"{p.joules_per_token:.2f} J / output token, {p.tokens_per_s_per_mw:,.0f} tokens/s/MW",
        ),
        ("time goes to", shares),
        ("bound by", p.regime),
        ("evidence", f"{p.evidence}; 80 % of measurements within x{p.error_low:.2f} to x{p.error_high:.2f}"),
        *([("engine release", gpu.engine.note)] if gpu.engine.note else []),
    ]
    for name, text in rows:
        table.add_row(f"[bold]{name}[/bold]", escape(text))
    return table


def _cost(p: Prediction, gpu: Accelerator) -> str:
    if p.usd_per_million_tokens is None:
        return "no price"
    dollars = (p.usd_per_million_tokens, p.usd_per_million_input_tokens, p.usd_per_million_total_tokens)
    kinds = ("output", "input", "total")
    text = ", ".join(f"${value:.3f} / M {kind}" for value, kind in zip(dollars, kinds, strict=True))
    return f"{text} tokens at ${gpu.usd_per_gpu_hour:g}/GPU-hour ({gpu.price_source or 'as stated'})"


def rows_table(rows: list[dict[str, Any]]) -> Table:
    """Any list of like rows."""
    table = Table()
    for heading in rows[0]:
        table.add_column(heading.replace("_", " "))
    for row in rows:
        table.add_row(*(f"{value:g}" if isinstance(value, float) else escape(str(value)) for value in row.values()))
    return table


def report_text(report: dict[str, Any]) -> str:
    """A nested report, one heading a line, lists of tables one row a line."""
    lines = []
    for name, value in report.items():
        heading = f"[bold]{name.replace('_', ' ')}[/bold]"
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"{heading}:", *(f"  {escape(readable(item))}" for item in value)]
        elif value is not None:
            lines.append(f"{heading}: {escape(readable(value))}")
    return "\n".join(lines)


def readable(value: Any) -> str:
    """A JSON value as a person reads it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {readable(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(readable(item) for item in value)
    return str(value)
