"""The design side of a pass: a batch of architectures with their formats, and what many of them have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any

import numpy as np

from cost_model.accelerator import Accelerator
from cost_model.grid import distinct_columns
from spaces.architecture import Architecture

MANY = 128  # designs: fewer are not worth the look for equal ones


@dataclass(frozen=True)
class Design:
    """The design side of a pass: a batch, its formats, and the GPU and engine it runs on.

    The batch is all GQA or all MLA, all windowed or none; dense and MoE designs mix in the product layout only.
    """

    architecture: Architecture
    attention_format: Any
    ffn_format: Any
    kv_format: Any
    gpu: Accelerator
    skew: Any
    product: bool  # (A, 1) designs against (P,) plans: kernels are evaluated on unique keys

    @cached_property
    def moe(self) -> np.ndarray:
        """Mask over designs."""
        return np.ravel(self.architecture.is_moe)

    @cached_property
    def _alike(self) -> dict[tuple[str, ...], tuple[Design, np.ndarray] | None]:
        return {}

    def alike(self, *names: str) -> tuple[Design, np.ndarray] | None:
        """The designs that differ in these fields, and which of them every design is; None where most differ."""
        if not self.product or len(self.moe) < MANY:
            return None
        if names not in self._alike:
            values = (getattr(self, n) if hasattr(self, n) else getattr(self.architecture, n) for n in names)
            table = np.stack([np.broadcast_to(np.ravel(v), len(self.moe)) for v in values])
            first, row = distinct_columns(table)
            self._alike[names] = (self._take(first), row) if 2 * len(first) <= len(row) else None
        return self._alike[names]

    @cached_property
    def dense_and_moe(self) -> tuple[Design, Design]:
        """The designs of either kind."""
        return self._take(~self.moe), self._take(self.moe)

    def _take(self, rows: np.ndarray) -> Design:
        def take(value: Any) -> Any:
            return value[rows] if getattr(value, "ndim", 0) == 2 else value

        formats = take(self.attention_format), take(self.ffn_format), take(self.kv_format)
        return Design(self.architecture.map(take), *formats, self.gpu, take(self.skew), self.product)


def by_ffn(design: Design, dense: Callable[..., Any], moe: Callable[..., Any], *keys: Any) -> Any:
    """dense(design, *keys) of the dense designs of a batch and moe(design, *keys) of the others."""
    if np.all(design.moe):
        return moe(design, *keys)
    if not np.any(design.moe):
        return dense(design, *keys)

    def rows(mask: np.ndarray) -> list[Any]:  # keys that memory sets differ between designs
        return [key[mask] if np.ndim(key) == 2 else key for key in keys]

    first, second = design.dense_and_moe
    values = dense(first, *rows(~design.moe)), moe(second, *rows(design.moe))
    out = np.empty((len(design.moe), *np.broadcast_shapes(*(np.shape(value)[1:] for value in values))))
    out[~design.moe], out[design.moe] = values
    return out


def once_per(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make f(design, *keys) run once for all designs of a batch that agree in the fields it reads, named here.

    A sweep walks through neighbours: a thousand of them share a few hidden sizes and some dozens of head layouts.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def shared(design: Design, *keys: Any) -> Any:
            alike = design.alike(*names)
            if alike is None or any(np.ndim(key) > 1 for key in keys):  # keys that memory sets differ between designs
                return function(design, *keys)
            few, row = alike
            value = np.asarray(function(few, *keys))
            return value.take(row, axis=0) if value.ndim > 1 else value

        return shared

    return decorate
