"""The top of the page: what was found, where it holds, by how much, and which axes did it, in plain sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.ablation import Ablation, Change, ablation
from reports.html import Safe, join, tag
from reports.trust import errors_at, within_error
from reports.words import SOLVED, count, finite, listed, nats, number, percent, seconds, shape
from spaces.architecture import FIELDS, Architecture

PROXY = "loss is a proxy from published scaling laws"


@dataclass(frozen=True)
class Best:
    """The best design at one interactivity target, against the reference under the same recipe and KV format."""

    target: float
    row: dict[str, Any]
    throughput: float
    gain: float
    error: float

    @property
    def reference_throughput(self) -> float:
        return self.throughput / (1 + self.gain)

    @property
    def noise(self) -> bool:
        return within_error(self.gain, self.error)


@dataclass(frozen=True)
class Lead:
    """What a reader must know first.

    Attributes:
        best: per target that some design and the reference reach, the design that serves most there. chosen: row of the
            design of largest mean gain. why: its ablation. All empty or None where no design is comparable.
    """

    best: tuple[Best, ...]
    chosen: dict[str, Any] | None
    chosen_gains: tuple[float | None, ...]
    chosen_errors: tuple[float | None, ...]
    why: Ablation | None


def architecture_of(row: dict[str, Any]) -> Architecture:
    """The Architecture of a table row."""
    return Architecture(**{name: int(row[name]) for name in FIELDS})


def lead(run: Any) -> Lead:
    """Find the headline of a run."""
    targets = [float(t) for t in run.meta["interactivity_targets"]]
    errors = {t: errors_at(run, t) for t in targets}
    best = []
    for target in targets:
        gains = run.designs[f"gain_at_{target:g}"].astype(float)
        rates = run.designs[f"tokens_per_s_per_gpu_at_{target:g}"].astype(float).where(gains.notna())
        if rates.notna().any():  # the largest gain may be that of a format which serves less than another
            row = run.designs.loc[rates.idxmax()].to_dict()
            gain = float(row[f"gain_at_{target:g}"])
            best.append(Best(target, row, float(rates.max()), gain, errors[target].get(_key(row), 0.0)))
    chosen = chosen_design(run, targets)
    if chosen is None:
        return Lead(tuple(best), None, (), (), None)
    found = tuple(finite(chosen[f"gain_at_{t:g}"]) for t in targets)
    noise = tuple(errors[t].get(_key(chosen)) for t in targets)
    return Lead(tuple(best), chosen, found, noise, explain(run, chosen))


def explain(run: Any, row: dict[str, Any]) -> Ablation:
    """The ablation of one row of the designs table."""
    table = run.study.table
    solve = table.get("budget", {}).get("solve", "ffn")
    align = int(table.get("space", {}).get("align", 128))
    solve = (solve,) if isinstance(solve, str) else tuple(solve)
    return ablation(run.objective, architecture_of(row), row["recipe"], row["kv_format"], solve, align)


def chosen_design(run: Any, targets: list[float]) -> dict[str, Any] | None:
    """The design of largest mean log gain over the targets; what it cannot reach counts as the worst gain seen."""
    gains = np.stack([run.designs[f"gain_at_{t:g}"].to_numpy(dtype=float) for t in targets], axis=1)
    known = ~np.isnan(gains).all(axis=0)
    if not len(gains) or not known.any():
        return None
    logs = np.log1p(gains[:, known])
    logs = np.where(np.isnan(logs), np.nanmin(logs, axis=0), logs)
    return dict(run.designs.iloc[int(np.argmax(logs.mean(axis=1)))].to_dict())


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["design"], row["recipe"], row["kv_format"]


def where(run: Any) -> str:
    """Workloads, GPUs and engines of a run in words."""
    cells = run.meta["cells"]
    gpus = sorted({f"{c['gpu']} ({c['engine']}, replicas of {listed(c['gpus'])} GPUs)" for c in cells})
    loads = sorted({workload_text(c) for c in cells})
    return f"{listed(loads)} on {listed(gpus)}"


def workload_text(cell: dict[str, Any]) -> str:
    cached = f"{count(cell['cached'])} cached + " if cell["cached"] else ""
    return f"{cell['workload']} ({cached}{count(cell['isl'])} tokens in, {count(cell['osl'])} out)"


def limit_text(run: Any) -> str:
    limit = run.meta["max_ttft_s"]
    return "no limit on the time to first token" if limit is None else f"first token within {seconds(float(limit))}"


def sentences(run: Any, found: Lead) -> list[Safe]:
    """The short version, one paragraph per thought."""
    reference = tag("strong", run.reference_name)
    if found.chosen is None or found.why is None:
        return [
            tag(
                "p",
                "No design of this search can be compared with ",
                reference,
                " at the interactivity targets: either none reaches a target, or the reference does not.",
                class_="first",
            )
        ]
    row, targets = found.chosen, [float(t) for t in run.meta["interactivity_targets"]]
    wins = [
        i
        for i, g in enumerate(found.chosen_gains)
        if g is not None and g > 0 and not within_error(g, found.chosen_errors[i])
    ]
    name = tag(
        "button",
        shape(row),
        class_="link",
        type="button",
        data_design=f"{row['design']}|{row['recipe']}|{row['kv_format']}",
    )
    opening = _opening(found, targets, wins, name, reference)
    size = row["non_embedding_total"] / _reference_parameters(run) - 1
    more = f"{percent(abs(size), sign=False)} {'more' if size > 0 else 'fewer'}" if abs(size) >= 0.0005 else "as many"
    loss = tag(
        "p",
        f"It has {more} non-embedding parameters{'' if more == 'as many' else ' than the reference'}; its predicted "
        f"loss differs by {nats(row['shape_loss_difference'])} ± {row['loss_sigma']:.3f} nats from the reference's "
        f"(allowed: {nats(run.study.accuracy.tolerance_nats)}). {PROXY.capitalize()}, not a measurement.",
    )
    return [opening, tag("p", *_axes(found, targets, wins)), tag("p", *_where_not(found, targets)), loss]


def _reference_parameters(run: Any) -> float:
    from cost_model.counts import parameters

    return float(parameters(run.objective.space.reference).non_embedding_total)


def _opening(found: Lead, targets: list[float], wins: list[int], name: Safe, reference: Safe) -> Safe:
    row = found.chosen
    assert row is not None
    formats = f"{row['recipe']} weights and {row['kv_format']} KV cache"
    if not wins:
        return tag(
            "p",
            "No design beats ",
            reference,
            " by more than the model's own error. The closest is ",
            name,
            f" with {formats}.",
            class_="first",
        )
    more = [percent(found.chosen_gains[i] or 0.0, sign=False) for i in wins]
    rest = [f"{gain} at {targets[i]:g}" for gain, i in zip(more[1:], wins[1:], strict=True)]
    return tag(
        "p",
        name,
        " serves ",
        tag("strong", f"{more[0]} more tokens per GPU", class_="gain"),
        " than ",
        reference,
        f" at {targets[wins[0]]:g} tokens/s/user",
        f", and {listed(rest)}" if rest else None,
        f"; both with {formats}, each under its own best deployment.",
        class_="first",
    )


def _axes(found: Lead, targets: list[float], wins: list[int]) -> list[Any]:
    """Which axes did it, at the target of the largest gain."""
    assert found.why is not None
    gains = [-np.inf if g is None else g for g in found.chosen_gains]
    at = int(np.argmax(gains))
    known = [(c, float(np.expm1(c.gain[at]))) for c in found.why.changes if np.isfinite(c.gain[at])]
    if not known:
        return ["Some mixtures of the two designs do not reach the target, so the gain cannot be split by axis."]
    error = found.chosen_errors[at]

    def said(change: Change, gain: float) -> str:
        return f"{change.text} ({percent(gain)}{', within model error' if within_error(gain, error) else ''})"

    helped = [said(c, g) for c, g in known if g > 0.005]
    cost = [said(c, g) for c, g in known if g < -0.005]
    text: list[Any] = [
        f"What did it, at {targets[at]:g} tokens/s/user: ",
        tag("strong", listed(helped) if helped else "no single axis"),
        ".",
    ]
    if cost:
        text.append(f" What it paid to hold the loss: {listed(cost)}.")
    if found.why.solved:
        text.append(f" {SOLVED[found.why.solved]} follows from the parameter budget at every step.")
    return text


def _where_not(found: Lead, targets: list[float]) -> list[Any]:
    """Targets at which the chosen design gains nothing that the model can tell."""
    notes = []
    for i, (gain, error) in enumerate(zip(found.chosen_gains, found.chosen_errors, strict=True)):
        if gain is None:
            notes.append(f"at {targets[i]:g} tokens/s/user one of the two has no plan that fast")
        elif within_error(gain, error):
            notes.append(
                f"at {targets[i]:g} tokens/s/user the difference of {percent(gain)} is within model error "
                f"(± {percent(error or 0, sign=False)})"
            )
        elif gain < 0:
            notes.append(f"at {targets[i]:g} tokens/s/user it is {percent(abs(gain), sign=False)} behind")
    if not notes:
        return ["It is ahead at every target by more than the model's error of a difference."]
    return ["Where it does not help: ", listed(notes), "."]


def cards(run: Any, found: Lead) -> Safe:
    """One card per interactivity target: the best design there."""
    return tag("div", join(_card(b, run.reference_name) for b in found.best), class_="cards")


def _card(best: Best, reference: str) -> Safe:
    row = best.row
    note = "within model error" if best.noise else f"model error of a difference ± {percent(best.error, sign=False)}"
    return tag(
        "button",
        tag("span", f"at {best.target:g} tokens/s/user", class_="where"),
        tag("span", percent(best.gain), class_="big noise" if best.noise else "big"),
        tag("span", shape(row), class_="what"),
        tag("span", f"{row['recipe']}, KV {row['kv_format']}", class_="formats"),
        tag(
            "span",
            f"{number(best.throughput, 4)} tokens/s/GPU; {reference} {number(best.reference_throughput, 4)}",
            class_="against",
        ),
        tag("span", note, class_="note"),
        class_="card",
        type="button",
        data_design=f"{row['design']}|{row['recipe']}|{row['kv_format']}",
    )
