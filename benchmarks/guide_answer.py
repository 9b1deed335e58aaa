"""What answers a claim of the guide, and the models and GPUs that the answers share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cost_model import Accelerator, kernels, load_accelerator, predict
from spaces import Architecture, Workload, enumerate_deployments, load_architecture

NEAR = 0.15  # a published number is met within this fraction


@dataclass(frozen=True)
class Answer:
    """Our side of a claim. agrees: None where a claim has nothing to agree with."""

    ours: str
    evidence: str
    agrees: bool | None
    why: str = ""

    @property
    def verdict(self) -> str:
        return {True: "agrees", False: "**disagrees**", None: "-"}[self.agrees]


# four steps per doubling: with powers of two, where a target falls between them would decide who gains
BATCHES = tuple(sorted({round(2 ** (i / 4)) for i in range(45)}))


def near(value: float, published: float) -> bool:
    return abs(value / published - 1) <= NEAR


@cache
def gpu(name: str, engine: str = "trtllm") -> Accelerator:
    return load_accelerator(name, engine)


@cache
def model(name: str) -> Architecture:
    return load_architecture(name)


def gemm(where: Accelerator, m: Any, n: Any, k: Any, format: str) -> np.ndarray:
    return np.asarray(kernels.gemm(where, m, n, k, format, quantise_activations=False))


@dataclass(frozen=True)
class Best:
    """Extremes of a model over every legal plan: values and index of the plan."""

    prediction: Any
    eligible: np.ndarray

    def most(self, name: str, mask: Any = True) -> tuple[float, int]:
        values = np.where(self.eligible & mask, getattr(self.prediction, name), -1.0)
        return float(values.max()), int(values.argmax())

    def at(self, target: float, mask: Any = True) -> float:
        fast = self.prediction.tokens_per_s_per_user >= target
        return self.most("tokens_per_s_per_gpu", mask & fast)[0]

    def share(self, part: str, at: int) -> float:
        return float(self.prediction.breakdown[part][at] / self.prediction.tpot_s[at])


@cache
def served(
    name: str,
    where: str,
    recipe: str,
    kv: str,
    isl: int,
    osl: int,
    gpus: tuple[int, ...] = (1, 2, 4, 8),
    engine: str = "trtllm",
) -> tuple[Best, Any]:
    """A model under every legal plan of a GPU."""
    plans = enumerate_deployments(gpus, model(name), BATCHES, pp=(1,))
    one = model(name).map(lambda v: np.asarray(v).reshape(1, 1))
    p = predict(one, recipe, plans, Workload(isl=isl, osl=osl), gpu(where, engine), kv)
    flat = {
        n: (v if v is None else {k: np.ravel(x) for k, x in v.items()} if isinstance(v, dict) else np.ravel(v))
        for n, v in vars(p).items()
    }
    return Best(type(p)(**flat), np.ravel(p.legal & p.fits)), plans
