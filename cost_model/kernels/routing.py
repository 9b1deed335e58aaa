"""Where tokens go among experts: how many experts a batch wakes, and what the busiest rank receives.

Four routings, named as in measured tables:
- balanced: every expert gets the same number of tokens; a batch wakes min(experts, tokens x top_k);
- random: each token picks top_k different experts uniformly, experts x (1 - (1 - k/E)^T) wake (coupon collector);
- power_law_1.01, power_law_1.2: the popularity of an expert is drawn from a bounded power law of that exponent,
  as in the aiconfigurator-core 0.12.0 collector (Apache-2.0): over [1, 0.8 tokens] when tokens x top_k > experts,
  over [0.01, 2] below; counts are rounded, no expert gets more than `tokens`, and the rank that received most is timed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spaces.formats import code

SKEWS = ("balanced", "power_law_1.01", "power_law_1.2", "random")
_EXPONENT = (0.0, 1.0, 1.2, 0.0)
_SMALL_BATCH_SPAN = 200.0  # 2 / 0.01, the popularity range of a batch smaller than the number of experts
# imbalance = 1 + a cv^b (experts per rank)^-c (2 ln ranks)^d, saturating at its bound: fitted to 1,782 simulated
# cases of the collector's sampling (8-896 experts, 2-256 ranks, 1-8,192 tokens): median error 2.4 %
_IMBALANCE = (0.516, 1.204, 0.566, 0.853, 5.6)


class RankLoad(NamedTuple):
    """What the busiest rank of an expert-parallel group works on.

    Attributes:
        assignments: (token, expert) pairs that it computes. activated: experts whose weights it reads.
        hottest: tokens of its most popular expert. span: popularity ratio of its most and least popular expert.
    """

    assignments: Any
    activated: Any
    hottest: Any
    span: Any


def skew_code(value: Any) -> Any:
    """Integer code(s) of a routing.

    Raises:
        ValueError: unknown name or code, with the valid names.
    """
    return code(value, SKEWS, "skew")


def activated_experts(tokens: Any, experts: Any, top_k: Any, skew: Any = "random") -> Any:
    """Expected number of distinct experts that a batch of `tokens` wakes in the whole model.

    Shapes broadcast. Coupon collector for random routing; for power laws the mean of the collector's sampling.
    Raises:
        ValueError: unknown skew.
    """
    return busiest_rank(tokens, experts, top_k, 1, skew).activated


def busiest_rank(tokens: Any, experts: Any, top_k: Any, ep: Any, skew: Any) -> RankLoad:
    """Load of the rank that receives most, `tokens` entering an expert-parallel group of `ep` ranks.

    Raises:
        ValueError: unknown skew.
    """
    chosen = skew_code(skew)
    tokens, experts, top_k, ep = (np.asarray(value, dtype=float) for value in (tokens, experts, top_k, ep))
    if np.ndim(chosen) == 0:
        return _LOADS[int(chosen)](tokens, experts, top_k, ep)
    loads = [load(tokens, experts, top_k, ep) for load in _LOADS]
    return RankLoad(*(np.choose(chosen, np.broadcast_arrays(*parts)) for parts in zip(*loads, strict=True)))


def row_tiles(load: RankLoad, tile: Any) -> Any:
    """M tiles of `tile` rows that the rank's experts fill: the sum over its experts of ceil(tokens / tile).

    Where all experts hold the same number this is exact; for skewed loads the sum over tiles is an integral
    (Euler-Maclaurin): assignments / tile + activated x (1 - share of experts above one tile / 2).
    """
    even = load.activated * np.ceil(load.assignments / (load.activated * tile) - 1e-9)
    above = np.log(np.maximum(load.hottest / tile, 1.0)) / np.log(np.maximum(load.span, 1.0 + 1e-9))
    uneven = load.assignments / tile + load.activated * (1.0 - 0.5 * np.minimum(above, 1.0))
    return np.where(load.span > 1.0, np.maximum(uneven, load.activated), even)


def _balanced(tokens: Any, experts: Any, top_k: Any, ep: Any) -> RankLoad:
    assignments = np.maximum(tokens * top_k / ep, 1.0)
    activated = np.minimum(experts / ep, assignments)
    return RankLoad(assignments, activated, assignments / activated, np.ones_like(assignments))


def _random(tokens: Any, experts: Any, top_k: Any, ep: Any) -> RankLoad:
    mean = tokens * top_k / ep
    spread = np.sqrt(2.0 * np.log(ep) * (1.0 - 1.0 / ep) * mean)  # largest of ep near-Gaussian loads
    assignments = np.clip(mean + spread, 1.0, tokens * np.minimum(top_k, experts / ep))
    share = np.minimum(assignments * ep / (tokens * experts), 1.0)  # chance that a token picks a given expert there
    activated = experts / ep * (1.0 - (1.0 - share) ** tokens)
    activated = np.minimum(np.maximum(activated, 1.0), assignments)
    return RankLoad(assignments, activated, 2.0 * assignments / activated, np.full_like(assignments, np.e))


def _power_law(tokens: Any, experts: Any, top_k: Any, ep: Any, exponent: float) -> RankLoad:
    pairs = tokens * top_k
    per_expert = pairs / experts
    span = np.where(pairs > experts, np.maximum(0.8 * tokens, 2.0), _SMALL_BATCH_SPAN)
    if exponent == 1.0:
        log_span = np.log(span)
        mean = (span - 1.0) / log_span
        square = (span * span - 1.0) / (2.0 * log_span)
        rank = np.log(0.5 * mean / per_expert) / log_span
    else:
        root = span**0.2
        mean = 0.25 * (span / root - 1.0) / (1.0 - 1.0 / root)
        square = (0.2 / 1.8) * (span * span / root - 1.0) / (1.0 - 1.0 / root)
        rank = 1.0 - ((0.5 * mean / per_expert) ** -0.2 - 1.0 / root) / (1.0 - 1.0 / root)
    variation = np.sqrt(np.maximum(square / (mean * mean) - 1.0, 1e-6))
    above_half = 1.0 - np.clip(rank, 0.0, 1.0)  # share of experts whose count rounds to one or more
    a, b, c, d, p = _IMBALANCE
    local = experts / ep
    excess = a * variation**b * local**-c * (2.0 * np.log(ep)) ** d
    bound = np.minimum(ep, experts / top_k)
    imbalance = (1.0 + excess) * (1.0 + ((1.0 + excess) / bound) ** p) ** (-1.0 / p)
    imbalance = np.where(ep > 1.0, np.maximum(imbalance, 1.0), 1.0)
    assignments = np.maximum(pairs / ep * imbalance, 1.0)
    activated = np.minimum(np.maximum(local * above_half, np.minimum(assignments, 1.0)), assignments)
    hottest = np.minimum(per_expert * imbalance * span / mean, tokens)
    return RankLoad(assignments, activated, np.maximum(hottest, 1.0), span)


_LOADS = (
    _balanced,
    lambda *a: _power_law(*a, 1.0),
    lambda *a: _power_law(*a, 1.2),
    _random,
)
