"""What the model is asked to do: lengths, cached prefix, and how load arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LOADS = ("closed-loop", "static", "offline")
MOST_TOKENS = 1e9


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
            if not np.all((value >= least) & (value <= MOST_TOKENS)):
                wanted = f"a finite number >= {least} and at most {MOST_TOKENS:g}"
                raise ValueError(f"{name} = {getattr(self, name)!r}: must be {wanted}")
        if self.load not in LOADS:
            raise ValueError(f"load = {self.load!r}; valid: {', '.join(LOADS)}")
