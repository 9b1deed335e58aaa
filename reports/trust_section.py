"""How far to trust a run, and where it came from. All text, no script."""

from __future__ import annotations

from typing import Any

import numpy as np

from cost_model.counts import parameters as counted
from reports.accuracy import published_accuracy, serving_accuracy
from reports.blocks import block, section
from reports.html import Safe, join, table, tag
from reports.lead import PROXY, architecture_of, workload_text
from reports.trust import calibration_rows
from reports.words import count, listed, nats, parameters, percent, records
from spaces.formats import FORMATS, RECIPE_ATTENTION, RECIPE_FFN, RECIPES
from studies.sweep import certificate_text


def trust_section(run: Any) -> Safe:
    """Errors of the kernels used, what is extrapolated, the loss proxy, the certificate."""
    column = tag("div", _loss_block(run), _certificate_block(run), class_="column")
    gpus = [cell.gpu for cell in _one_per_gpu(run)]
    blocks = [
        *(serving_block(gpu.name, gpu.engine.name, _classes(run)) for gpu in gpus),
        *(kernel_block(gpu, run) for gpu in gpus),
        column,
        _accuracy_block(run),
    ]
    return section(
        "trust",
        "How far to trust it",
        "Serving figures are predictions of an analytic model with fitted kernel constants; none of the "
        "designs was built.",
        tag("div", join(blocks), class_="grid2"),
    )


def _one_per_gpu(run: Any) -> list[Any]:
    return list({(c.gpu.name, c.gpu.engine.name): c for c in run.objective.cells}.values())


def _classes(run: Any) -> set[str]:
    """Classes of the run's designs and reference, as the serving benchmark names them."""
    shapes = [architecture_of(row) for row in records(run.designs.drop_duplicates("shape"))]
    return {
        "mla-moe" if bool(a.is_mla) else "moe" if bool(a.is_moe) else "dense"
        for a in (run.objective.space.reference, *shapes)
    }


def serving_block(gpu: str, engine: str, classes: set[str]) -> Safe:
    """How far off predicted serving was on measured deployments of these classes, here or on what is nearest."""
    known = serving_accuracy()
    cells, overall = known["cell"], known["overall"]
    here = [c for c in cells if (c["gpu"], c["engine"]) == (gpu, engine)]
    exact = [c for c in here if c["model_class"] in classes]
    missing = classes - {c["model_class"] for c in exact}
    near = [c for c in here if c not in exact] if missing else []
    near += [c for c in cells if c["engine"] == engine and c["model_class"] in missing]
    heads = ["deployments", "rows", "TPOT, median", "90 %", "TTFT", "tokens/s/GPU", "rank"]
    rows = [_serving_row(c, gpu, engine) for c in [*exact, *near]]
    rows.append(_serving_row({**overall, "model_class": "all measured deployments"}, gpu, engine))
    if not here and near:
        rows.append(
            _serving_row({**known["elsewhere"], "model_class": "GPUs left out of their engine's fit"}, gpu, engine)
        )
    caution = (
        f"No {listed(sorted(missing))} deployment was measured on {gpu} with {engine}: predictions there are "
        f"extrapolated{'; the nearest that were measured are shown' if near else ''}."
        if missing
        else None
    )
    return tag(
        "div",
        tag("h3", f"Serving on {gpu} with {engine}"),
        tag(
            "p",
            "Predicted against measured on published deployments kept out of every fit: median errors of time per "
            "output token, time to first token and throughput, and the rank correlation of plans and loads.",
        ),
        tag("p", caution, class_="warn") if caution else None,
        table(heads, rows, f"Serving errors on {gpu} with {engine}", numeric=range(1, len(heads))),
        class_="block full",
    )


def _serving_row(cell: dict[str, Any], gpu: str, engine: str) -> list[Any]:
    """One line of the serving table; a GPU, an engine or a way of serving that is not the run's is named."""
    said = [cell["model_class"], cell.get("mode")]
    said += [cell["gpu"]] if cell.get("gpu", gpu) != gpu else []
    said += [cell.get("measured_on", cell.get("engine", engine))]
    text = ", ".join(str(word) for word in said[:-1] if word) + (f" ({said[-1]})" if said[-1] != engine else "")
    errors = [percent(cell[key], sign=False) if key in cell else "–" for key in _ERRORS]
    rank = f"{cell['rank_correlation']:.3f}" if "rank_correlation" in cell else "–"
    return [text, count(cell["rows"]), *errors, rank]


_ERRORS = ("tpot_median", "tpot_p90", "ttft_median", "throughput_median")


def kernel_block(gpu: Any, run: Any) -> Safe:
    """Errors of the kernels that this run's designs use; the others folded away; what is borrowed."""
    rows = calibration_rows(gpu)
    measured = [r for r in rows if r.get("evidence") == "measured" and "median_error" in r]
    used = [r for r in measured if _used(r, run)]
    many = [r for r in used if r["operation"] == "all_to_all"]  # one per backend, phase and format: folded into one
    shown = [r for r in used if r not in many] + ([_together(many)] if many else [])
    others = many + [r for r in measured if r not in used]
    borrowed = [r for r in rows if r.get("evidence") != "measured" and _used(r, run)]
    names = sorted({f"{r['operation'].replace('_', ' ')} ({r['key']})" for r in borrowed})
    caution = gpu.provenance.get("caution") if isinstance(gpu.provenance, dict) else None
    notes = [
        f"Borrowed from another GPU or assumed, with a wider band: {', '.join(names)}." if names else None,
        engine_note(gpu),
        f"Data sheet: {caution}." if caution else None,
    ]
    return block(
        f"Kernels on {gpu.name}",
        f"Error of each kernel on measured shapes kept out of its fit, {gpu.engine.name} on {gpu.name}.",
        _error_table(shown, gpu.name)
        if shown
        else tag("p", "No kernel of this run was measured on this GPU under this engine.", class_="warn"),
        *(tag("p", note, class_="after") for note in notes if note),
        tag("details", tag("summary", "Other kernels"), _error_table(others, f"{gpu.name}, others"))
        if others
        else None,
    )


def _together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Kernels of one operation as one row: the median kernel's errors, all their rows."""
    middle = {name: float(np.median([row[name] for row in rows])) for name in ("median_error", "p90_error")}
    count_ = sum(row["rows"] for row in rows)
    return {"operation": rows[0]["operation"], "key": f"{len(rows)} kinds, the median one", "rows": count_, **middle}


def _used(row: dict[str, Any], run: Any) -> bool:
    """Whether some design of the run needs this kernel constant."""
    designs, operation, key = run.designs, row["operation"], row["key"]
    recipes = [RECIPES.index(name) for name in designs["recipe"].unique()]
    formats = {FORMATS[table_[r]] for r in recipes for table_ in (RECIPE_ATTENTION, RECIPE_FFN)} | {"bf16"}
    if operation.startswith("mla") and not designs["kv_lora_rank"].any():
        return False
    if operation in ("experts", "all_to_all") and not designs["experts"].any():
        return False
    if operation.startswith(("attention", "mla")):
        return key.split("-")[0] in set(designs["kv_format"])
    return key in formats if operation in ("gemm", "experts") else True


def _error_table(rows: list[dict[str, Any]], where: str) -> Safe:
    body = [
        [
            r["operation"].replace("_", " "),
            r["key"],
            percent(r["median_error"], sign=False),
            percent(r["p90_error"], sign=False),
            count(r["rows"]),
        ]
        for r in rows
    ]
    heads = ["operation", "format", "median", "90th percentile", "rows"]
    return table(heads, body, f"Kernel errors on {where}", numeric=[2, 3, 4])


def engine_note(gpu: Any) -> str | None:
    """What the engine's constants on this GPU were fitted on; None for an engine that was not fitted."""
    fit = gpu.engine.fit
    if "rows" not in fit or "gpus" not in fit:
        return None
    note = f"What {gpu.engine.name} adds to its kernels is fitted on {count(fit['rows'])} measured serving rows"
    others = [name for name in fit["gpus"] if name != gpu.name]
    if len(others) == len(fit["gpus"]):
        return f"{note} ({listed(others)}). {gpu.name} is not among them."
    return f"{note} of {gpu.name}" + (f", held near the constants of {listed(others)}." if others else ".")


def _loss_block(run: Any) -> Safe:
    accuracy = run.study.accuracy
    return block(
        "Predicted loss",
        f"{PROXY.capitalize()}: over-trained Chinchilla law, width, depth and KV terms, a quantisation "
        "law, added up across papers. "
        "On 21 published models it orders every family right and is off by 0.042 nats within a family "
        "(nothing refitted).",
        tag(
            "p",
            f"All designs are compared after {accuracy.train_tokens / 1e12:g} T training tokens; formats "
            f"count as {accuracy.quantised.upper()}. "
            f"Allowed: {nats(accuracy.tolerance_nats)} nats of shape over the reference, "
            f"{accuracy.quant_limit:g} nats for formats.",
        ),
    )


def _certificate_block(run: Any) -> Safe:
    certificate = run.meta.get("certificate")
    if not certificate:
        text = (
            "No exact sweep of this space was run, so how much the search missed is not known. It stopped "
            f"after {count(run.meta['trials'])} trials ({run.meta['stop_reason']})."
        )
        return block(
            "Did the search find it all?",
            text,
            tag("p", tag("code", f"ridgeline sweep {run.path / 'study.toml'} --certify {run.path}")),
        )
    rows = [[name.replace("_", " "), str(v)] for name, v in certificate.items() if not isinstance(v, list | dict)]
    return block(
        "Did the search find it all?",
        f"An exact sweep of the same space certifies this run: {certificate_text(certificate)}.",
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
        return block("Accuracy of the formats", "All designs are bf16: nothing is quantised.")
    return tag(
        "div",
        tag("h3", "Accuracy of the formats, as published"),
        tag(
            "p",
            "Not measured here. Owed before deployment: the trained model in this format on your own "
            "evaluations, long context included.",
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
        "trials": (
            f"{count(meta['trials'])}, {percent(meta['feasible_share'], sign=False)} feasible; "
            f"{count(meta['points_priced'])} points priced in {meta['seconds']:.1f} s"
        ),
        "served": "; ".join(
            f"{workload_text(c)} on {c['gpu']} ({c['engine']}), {count(c['plans'])} plans" for c in meta["cells"]
        ),
        "reference": f"{run.reference_name}, {parameters(_total(run))} parameters",
        "versions": ", ".join(f"{name} {version}" for name, version in meta["versions"].items()),
        "finished": meta.get("finished", "not recorded"),
    }
    listed = join(part for name, value in facts.items() for part in (tag("dt", name), tag("dd", value)))
    return section(
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
    return float(counted(run.objective.space.reference).total)
