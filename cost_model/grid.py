"""Evaluate a kernel once per distinct key of the plans, then gather: the trick that makes a million points cheap.

In the product layout (designs along axis 0, plans along the last axis) hundreds of plans share few
distinct (shard, tokens) pairs, so a kernel runs on (designs, unique keys) and its result is gathered.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np


def _keep_freed_memory() -> None:
    """Let the C library reuse freed arrays: a quarter of a batch's time went into page faults, half on Dask workers.

    glibc hands freed blocks above a limit back to the kernel, and freed memory at the end of the heap above another
    (mallopt(3): parameters -3 and -1). It raises both by itself up to these values, unless the environment states one,
    as Dask does for its workers. Other C libraries have no such call.
    """
    with suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 32 << 20)
        mallopt(-1, 64 << 20)


_keep_freed_memory()


def is_product(*design_side: Any) -> bool:
    """Whether design-side values lie along axis 0 of an (A, 1) layout, or are single numbers."""
    return all(np.ndim(v) == 0 or (np.ndim(v) == 2 and np.shape(v)[1] == 1) for v in design_side)


def gathered(function: Callable[..., tuple[Any, ...]], product: bool, *requests: tuple[Any, ...]) -> list[Any]:
    """function(*keys) of every request (a tuple of plan-side arrays), sharing equal keys between requests.

    Args:
        function: takes plan-side keys, broadcasts against design-side values it closes over, returns a tuple.
        product: the layout allows gathering; otherwise the function is called as it is.
        requests: tuples of the same number of plan-side arrays, each () or (P,).
    Returns:
        One tuple of results per request, each broadcast to (..., P).
    """
    shapes = [np.broadcast(*keys) for keys in requests]
    if not product or any(shape.ndim > 1 for shape in shapes):
        return [function(*keys) for keys in requests]
    table = np.empty((len(requests[0]), sum(shape.size for shape in shapes)))
    pieces, start = [], 0
    for keys, shape in zip(requests, shapes, strict=True):
        pieces.append(slice(start, start := start + shape.size))
        for row, key in enumerate(keys):
            table[row, pieces[-1]] = key
    unique, inverse = _unique(table.tobytes(), table.shape)
    results = [np.asarray(value) for value in function(*unique)]
    return [
        tuple([_take(value, inverse[piece], shape.ndim == 0) for value in results])
        for piece, shape in zip(pieces, shapes, strict=True)
    ]


def split_by(mask: Any, yes: Callable[..., Any], no: Callable[..., Any], product: bool, *keys: Any) -> Any:
    """yes(*keys) where the mask holds, no(*keys) elsewhere; in the product layout each is evaluated on its own keys.

    Keys are the plans', (P,), or differ between designs too, (A, P).
    """
    if np.all(mask):
        return yes(*keys)
    if not np.any(mask):
        return no(*keys)
    if not product or np.ndim(mask) != 1 or any(np.shape(key)[-1:] != np.shape(mask) for key in keys):
        return np.where(mask, yes(*keys), no(*keys))
    first, second = yes(*(key[..., mask] for key in keys)), no(*(key[..., ~mask] for key in keys))
    out = np.empty((*np.broadcast_shapes(np.shape(first)[:-1], np.shape(second)[:-1]), len(mask)))
    out[..., mask], out[..., ~mask] = first, second
    return out


def _take(value: np.ndarray, index: np.ndarray, single: bool) -> Any:
    """Values of some keys; a single key of a single design gives a scalar."""
    if value.ndim == 0:
        return value
    if single and value.ndim == 1:
        return value[index[0]]
    return value.take(index, axis=-1) if value.shape[-1] > 1 else value


def distinct_columns(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(indices of the distinct columns of a table, which of these every column equals)."""
    order = np.lexsort(table)
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any(table[:, order[1:]] != table[:, order[:-1]], axis=0)
    inverse = np.empty(len(order), dtype=np.intp)
    inverse[order] = np.cumsum(new) - 1
    return order[new], inverse


@lru_cache(maxsize=512)
def _unique(content: bytes, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(distinct columns, where each column lies among them) of a table; searches ask for the same plans again."""
    table = np.frombuffer(content).reshape(shape)
    first, inverse = distinct_columns(table)
    return table[:, first], inverse
