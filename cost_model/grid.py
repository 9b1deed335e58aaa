"""Evaluate a kernel once per distinct key of the plans, then gather: the trick that makes a million points cheap.

In the product layout (designs along axis 0, plans along the last axis) hundreds of plans share few
distinct (shard, tokens) pairs, so a kernel runs on (designs, unique keys) and its result is gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def is_product(*design_side: Any) -> bool:
    """Whether design-side values lie along axis 0 of an (A, 1) layout, or are single numbers."""
    return all(np.ndim(v) == 0 or (np.ndim(v) == 2 and np.shape(v)[1] == 1) for v in design_side)


def gathered(function: Callable[..., Any], product: bool, *requests: tuple[Any, ...]) -> list[Any]:
    """function(*keys) of every request (a tuple of plan-side arrays), sharing equal keys between requests.

    Args:
        function: takes plan-side keys, broadcasts against design-side values it closes over.
        product: the layout allows gathering; otherwise the function is called as it is.
        requests: tuples of the same number of plan-side arrays, each () or (P,).
    Returns:
        One result per request, broadcast to (..., P).
    """
    if not product or any(np.ndim(key) > 1 for keys in requests for key in keys):
        return [function(*keys) for keys in requests]
    columns = [np.broadcast_arrays(*(np.atleast_1d(np.asarray(k, dtype=float)) for k in keys)) for keys in requests]
    table = np.concatenate([np.stack(column) for column in columns], axis=1)
    order = np.lexsort(table)
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any(table[:, order[1:]] != table[:, order[:-1]], axis=0)
    inverse = np.empty(len(order), dtype=np.intp)
    inverse[order] = np.cumsum(new) - 1
    results = function(*table[:, order[new]])
    ends = np.cumsum([column[0].size for column in columns])
    scalar = [all(np.ndim(k) == 0 for k in keys) for keys in requests]
    parts = [results[..., inverse[end - column[0].size : end]] for column, end in zip(columns, ends, strict=True)]
    return [part[..., 0] if single and part.ndim == 1 else part for part, single in zip(parts, scalar, strict=True)]
