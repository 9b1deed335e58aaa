"""The page below the plot, in reading order: why, guidelines, how far to trust it, where it came from."""

from __future__ import annotations

from typing import Any

from reports.blocks import section
from reports.guidelines import Finding, guidelines
from reports.html import Safe, join, table, tag
from reports.lead import Lead, architecture_of
from reports.trust import within_error
from reports.trust_section import provenance_section, trust_section
from reports.why_section import why_section


def sections(run: Any, found: Lead) -> list[Safe]:
    """The sections of a run's page, in reading order."""
    parts = [why_section(run, found), guideline_section(run, found), trust_section(run), provenance_section(run)]
    return [part for part in parts if part is not None]


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
    return section(
        "guidelines",
        "Guidelines, measured",
        f"The seven guidelines of hardware-friendly design at {at:g} tokens/s/user: not whether a rule "
        "holds, but what it is worth here.",
        guideline_table(ours, theirs, run.reference_name, found.chosen_errors[targets.index(at)]),
    )


def guideline_table(
    ours: list[Finding], theirs: list[Finding] | None, reference: str, error: float | None = None
) -> Safe:
    """Findings of a design, beside the reference's where given.

    Args:
        error: the model's error of a difference; effects within it are grey and say so.
    """

    def mark(finding: Finding) -> Safe:
        word = {True: "follows", False: "does not", None: "n/a"}[finding.followed]
        return tag("span", word, class_={True: "mark yes", False: "mark no", None: "mark"}[finding.followed])

    def cell(finding: Finding) -> Safe:
        noise = finding.worth is not None and not finding.exact and within_error(finding.worth, error)
        effect = tag(
            "small", finding.effect, "; within model error" if noise else None, class_="noise" if noise else None
        )
        return join([mark(finding), " ", finding.state, effect])

    heads = ["guideline", "chosen design" if theirs else "this model", *([reference] if theirs else [])]
    rows = []
    for i, finding in enumerate(ours):
        name = join([tag("strong", finding.guideline), " ", finding.title])
        rows.append([name, cell(finding), *([cell(theirs[i])] if theirs else [])])
    return table(heads, rows, "Guidelines G1 to G7")
