"""The four questions of a buyer, answered with numbers: which format, which engine, one user or many, does it fit."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from cost_model import counts, load_accelerator
from reports.pricing import serve
from reports.why import by_format
from reports.words import finite
from search.cells import Cell
from search.objective import ServingObjective
from spaces.architecture import Architecture
from studies.study import Study

ENGINES = ("trtllm", "vllm", "sglang")


def buyer_answers(study: Study, objective: ServingObjective, codes: tuple[int, int]) -> dict[str, Any]:
    """The four buyer's questions: format, engines, low concurrency against batch, fit at scale."""
    base, cell = study.reference, objective.cells[0]
    formats = [asdict(g) for g in by_format(objective, base, codes[1])]
    allowed = [
        f for f in formats if f["at_most_throughput"] is not None and f["quant_loss"] <= study.accuracy.quant_limit
    ]
    best = max(allowed, key=lambda f: f["at_most_throughput"]) if allowed else None
    return {
        "format": {"options": formats, "best": None if best is None else best["recipe"]},
        "engines": [_engine(study, objective, codes, engine) for engine in ENGINES],
        "concurrency": _concurrency(objective, base, codes),
        "fit": _fit(objective, base, codes, cell),
    }


def _engine(study: Study, objective: ServingObjective, codes: tuple[int, int], engine: str) -> dict[str, Any]:
    """The same model, GPU and plans under another engine."""
    cell = objective.cells[0]
    target = study.table["target"][0]
    other = replace(cell, gpu=load_accelerator(target["gpu"], engine))
    served = serve(objective, [study.reference], *codes, cell=other)
    if not served.eligible.any():
        return {
            "engine": engine,
            "throughput": [None] * len(objective.targets),
            "most": None,
            "evidence": "no plan fits",
        }
    at = int(np.argmax(np.where(served.eligible[0], served.prediction.tokens_per_s_per_gpu[0], -1.0)))
    evidence = served.prediction.as_columns()["evidence"][at]
    values = [finite(np.exp(v)) if np.isfinite(v) else None for v in served.log_throughput[0]]
    return {
        "engine": engine,
        "throughput": values,
        "most": finite(served.most_throughput[0]),
        "evidence": str(evidence),
    }


def _concurrency(objective: ServingObjective, base: Architecture, codes: tuple[int, int]) -> dict[str, Any]:
    """One user alone, and as many as pay."""
    served = serve(objective, [base], *codes)
    p, where = served.prediction, served.eligible[0]
    words = p.as_columns()["regime"]
    result = {}
    for name, measure in (("one_user", p.tokens_per_s_per_user[0]), ("most_throughput", p.tokens_per_s_per_gpu[0])):
        at = int(np.argmax(np.where(where, measure, -1.0)))
        result[name] = {
            "tokens_per_s_per_user": finite(p.tokens_per_s_per_user[0, at]),
            "tokens_per_s_per_gpu": finite(p.tokens_per_s_per_gpu[0, at]),
            "batch": finite(p.batch[0, at]),
            "gpus": finite(p.gpus[0, at]),
            "bound_by": str(words[at]),
        }
    return result


def _fit(objective: ServingObjective, base: Architecture, codes: tuple[int, int], cell: Cell) -> dict[str, Any]:
    """Weights, KV per user, and the smallest replica that serves."""
    served = serve(objective, [base], *codes)
    sizes = np.asarray(served.prediction.gpus[0])[served.eligible[0]]
    batch = np.asarray(served.prediction.batch[0])[served.eligible[0]]
    least = int(sizes.min())
    context = cell.workload.cached + cell.workload.isl + cell.workload.osl
    return {
        "weight_bytes": finite(counts.weight_bytes(base, codes[0]).total),
        "kv_bytes_per_sequence": finite(counts.kv_bytes_per_sequence(base, codes[1], context)),
        "memory_bytes": cell.gpu.memory_bytes,
        "least_gpus": least,
        "most_sequences_on_least_gpus": finite(batch[sizes == least].max()),
        "scale_up_domain": int(cell.gpu.link_domain),
    }
