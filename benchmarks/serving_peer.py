"""AIConfigurator on the same rows and the same score: `serving.py --peer aiconfigurator`, where it is installed.

Asks `aiconfigurator.cli.api.cli_estimate` for every aggregated row with output tokens on a GPU and engine it has tables
for, with the row's plan and batch. What it refuses counts against its coverage, by reason.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.serving_rows import NAMES, reported

PEER = NAMES["peers"]["aiconfigurator"]
# what the package raises for a configuration it cannot price
REFUSALS = (ValueError, KeyError, RuntimeError, NotImplementedError, AssertionError, TypeError, IndexError)


def estimate(**arguments: Any) -> Any:
    """One estimate of the package; its log is silenced.

    Raises:
        ImportError: aiconfigurator is not installed.
    """
    from aiconfigurator.cli.api import cli_estimate

    logging.disable(logging.WARNING)
    try:
        return cli_estimate(**arguments)
    finally:
        logging.disable(logging.NOTSET)


def question(row: Any) -> dict[str, Any]:
    """Arguments of an estimate for a measured row.

    Raises:
        ValueError: a model, GPU or mode that the package has no name for.
    """
    if row.model_shape not in PEER["models"] or row.gpu not in PEER["gpus"] or row.engine not in PEER["engines"]:
        raise ValueError("model, GPU or engine without tables")
    if row.mode != "aggregated" or row.osl <= 1:
        raise ValueError(f"mode {row.mode}")
    model = PEER["models"][row.model_shape]
    name = model.get(row.precision_weights, "")
    if not name:
        raise ValueError(f"weight format {row.precision_weights} of {row.model_shape}")
    plan = {"tp_size": int(row.attention_tp), "attention_dp_size": int(row.attention_dp), "pp_size": int(row.pp)}
    if row.model_class != "dense":
        plan |= {"moe_tp_size": int(row.ffn_tp), "moe_ep_size": int(row.expert_parallel)}
    return {
        "model_path": name,
        "system_name": PEER["gpus"][row.gpu],
        "backend_name": row.engine,
        "isl": round(row.input_tokens),
        "osl": round(row.output_tokens),
        "batch_size": max(int(row.concurrency_or_batch / row.attention_dp), 1),
        **plan,
    }


def score(rows: pd.DataFrame, summary: Callable[..., Any], scored: Callable[..., Any]) -> dict[str, Any]:
    """The benchmark's summary of the package's estimates of the rows, its refusals, and ours of the rows it prices."""
    ours, rows, refused = rows, rows.copy(), Counter()
    rows[["tpot_s", "ttft_s", "tokens_per_s_per_gpu"]] = np.nan
    known: dict[str, Any] = {}
    for row in rows[rows.refused == ""].itertuples():
        try:
            asked = question(row)
            key = str(asked)
            known[key] = found = known.get(key) or estimate(**asked)
        except REFUSALS as error:
            refused[str(error).splitlines()[0][:80] if str(error) else type(error).__name__] += 1
            continue
        rate = row.concurrency_or_batch * row.output_tokens
        rate /= (found.ttft + (row.output_tokens - 1) * found.tpot) / 1e3 * row.n_gpus
        rows.loc[row.Index, ["tpot_s", "ttft_s", "tokens_per_s_per_gpu"]] = found.tpot / 1e3, found.ttft / 1e3, rate
    rows["tokens_per_s_per_gpu"] *= reported(rows)
    priced = rows[rows.tpot_s.notna()]
    counts = {"rows": len(rows), "priced": len(priced), "refused": dict(refused.most_common(20))}
    if not len(priced):
        return counts
    return counts | summary(scored(priced)) | {"ridgeline": summary(ours.loc[priced.index])}


def architectures_per_s(count: int = 3) -> float:
    """Estimates per second of one model under one plan, after the tables are loaded."""
    asked = {"model_path": PEER["models"]["Llama-3.1-70B"]["fp8"], "system_name": "h200_sxm", "tp_size": 4}
    estimate(**asked, batch_size=16)
    start = time.process_time()
    for batch in range(17, 17 + count):
        estimate(**asked, batch_size=batch)
    return count / (time.process_time() - start)
