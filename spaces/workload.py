"""What the model is asked to do: lengths, cached prefix, and how load arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LOADS = ("closed-loop", "static", "offline")


@dataclass(frozen=True)
class Workload:
    """Requests of `isl` new prompt tokens after `cached` prefix tokens, each answered with `osl` tokens.

    Attributes:
        isl: mean prompt tokens to prefill. osl: mean output tokens; 1 prices prefill only.
        cached: prompt tokens found in the prefix cache: they cost KV memory and attention, not prefill.
        load: closed-loop (fixed concurrency), static (one batch, start to end), offline (maximum rate).
    """

    isl: Any
    osl: Any
    cached: Any = 0
    load: str = "closed-loop"

    def __post_init__(self) -> None:
        for name, least in (("isl", 1), ("osl", 1), ("cached", 0)):
            value = np.asarray(getattr(self, name), dtype=float)
            if not np.all(np.isfinite(value)) or np.any(value < least):
                raise ValueError(f"{name} = {getattr(self, name)!r}: must be a finite number >= {least}")
        if self.load not in LOADS:
            raise ValueError(f"load = {self.load!r}; valid: {', '.join(LOADS)}")
