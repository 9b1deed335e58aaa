"""Where tokens go among experts: how many experts a batch wakes, and what the busiest rank receives.

Four routings, the first three named as in measured tables:
- balanced: every expert gets the same number of tokens; a batch wakes min(experts, tokens x top_k);
- power_law_1.01, power_law_1.2: the popularity of an expert is drawn from a bounded power law of that exponent, as
  the aiconfigurator-core 0.12.0 collector does (Apache-2.0): over [1, 0.8 tokens] when tokens x top_k > experts,
  over [0.01, 2] below; shares are rounded to whole tokens, no expert gets more than `tokens`, what is cut off goes to
  the emptiest, and the rank that received most is timed;
- random: each token picks top_k different experts uniformly; experts x (1 - (1 - k/E)^T) wake (coupon collector).

The power laws are closed forms of the popularity quantiles; three constants of each and the imbalance of the busiest
rank were fitted to simulations of that sampling (4,217 cases of 8-896 experts, 1-256 ranks, 1-65,536 tokens: median
error 2.9 % of the busiest rank's pairs, 0.7 % of its activated experts, 3.6 % of its row tiles). As `served`, the same
laws keep the popularity of a model and its traffic, which does not widen with the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from spaces.formats import code

SKEWS = ("balanced", "power_law_1.01", "power_law_1.2", "random")
_SMALL_BATCH_SPAN = 200.0  # 2 / 0.01: popularity range of a batch with fewer pairs than experts
# Most over least popular expert in serving. Hot experts stay hot for hundreds of steps, so the collector's range of
# small batches holds in large ones too: at exponent 1.2 the busiest of 32 ranks then gets 2.4 times the mean.
# Published for DeepSeek-R1: 2.56 (mean over layers and steps of 4,096 tokens, nothing replicated; TensorRT-LLM tech
# blog 4, table 1, 2025-06). The collector's range would make that 3.5, and 5.2 in a prefill pass of 131,072 tokens.
SERVED_RANGE = 200.0


class RankLoad(NamedTuple):
    """What the busiest rank of an expert-parallel group works on.

    Attributes:
        assignments: (token, expert) pairs that it computes. activated: experts whose weights it reads.
        tiles: for each tile height asked for, the row tiles that its experts fill: the sum of ceil(tokens / height).
    """

    assignments: Any
    activated: Any
    tiles: tuple[Any, ...]


def skew_code(value: Any) -> Any:
    """Integer code(s) of a routing.

    Raises:
        ValueError: unknown name or code, with the valid names.
    """
    return code(value, SKEWS, "skew")


def activated_experts(tokens: Any, experts: Any, top_k: Any, skew: Any = "random") -> Any:
    """Expected number of distinct experts that a batch of `tokens` wakes in the whole model.

    Shapes broadcast. Sources: the module's docstring.
    Raises:
        ValueError: unknown skew.
    """
    return busiest_rank(tokens, experts, top_k, 1, skew).activated


def busiest_rank(
    tokens: Any,
    experts: Any,
    top_k: Any,
    ep: Any,
    skew: Any,
    tile_rows: tuple[float, ...] = (),
    served: bool = False,
) -> RankLoad:
    """Load of the rank that receives most, `tokens` (at least one) entering an expert-parallel group of `ep` ranks.

    Args:
        served: power laws span SERVED_RANGE; otherwise what the collector of the measured tables lets them.
    Raises:
        ValueError: unknown skew.
    """
    chosen = np.asarray(skew_code(skew))
    tokens, experts, top_k, ep = (np.maximum(value, 1.0) for value in (tokens, experts, top_k, ep))
    laws = _SERVED_LOADS if served else _LOADS
    if chosen.ndim == 0:
        assignments, activated, *tiles = _per_layer(laws[int(chosen)], tokens, experts, top_k, ep, tile_rows)
    else:
        present = np.unique(chosen)
        loads = [_per_layer(laws[one], tokens, experts, top_k, ep, tile_rows) for one in present]
        pick = [chosen == one for one in present]
        assignments, activated, *tiles = (np.select(pick, parts) for parts in zip(*loads, strict=True))
    return RankLoad(assignments, activated, tuple(tiles))


def _per_layer(load: _Load, tokens: Any, experts: Any, top_k: Any, ep: Any, tile_rows: tuple[float, ...]) -> list[Any]:
    """`load` once per distinct layer where designs lie along axis 0 and plans along axis 1: few of them differ."""
    shape = np.broadcast_shapes(experts.shape, top_k.shape)
    if len(shape) != 2 or shape[1] != 1 or any(v.ndim == 2 and v.shape[0] != 1 for v in (tokens, ep)):
        return load(tokens, experts, top_k, ep, tile_rows)
    key = experts * 65536.0 + top_k  # exact: both are small integers
    _, first, row = np.unique(key.ravel(), return_index=True, return_inverse=True)
    experts, top_k = (np.broadcast_to(value, shape)[first] for value in (experts, top_k))
    return [part[row] for part in load(tokens, experts, top_k, ep, tile_rows)]


def _balanced(tokens: Any, experts: Any, top_k: Any, ep: Any, tile_rows: tuple[float, ...]) -> list[Any]:
    assignments = np.maximum(tokens * (top_k / ep), 1.0)
    activated = np.minimum(experts / ep, assignments)
    each = assignments / activated - 1e-9
    return [assignments, activated, *(activated * np.ceil(each * (1.0 / rows)) for rows in tile_rows)]


def _random(tokens: Any, experts: Any, top_k: Any, ep: Any, tile_rows: tuple[float, ...]) -> list[Any]:
    """Uniform routing: the largest of `ep` nearly Gaussian loads, and the coupon collector inside that rank."""
    mean = tokens * top_k / ep
    spread = np.sqrt(2.0 * np.log(ep) * (1.0 - 1.0 / ep) * mean)
    assignments = np.minimum(np.maximum(mean + spread, 1.0), tokens * np.minimum(top_k, experts / ep))
    picked = np.minimum(assignments * ep / (tokens * experts), 1.0)  # chance that a token picks a given local expert
    activated = experts / ep * (1.0 - (1.0 - picked) ** tokens)
    activated = np.minimum(np.maximum(activated, 1.0), assignments)
    padded = (np.maximum(assignments / rows + 0.5 * activated, activated) for rows in tile_rows)  # half a tile each
    return [assignments, activated, *padded]


class _Law(NamedTuple):
    """One power law: its exponent, how its shares round to whole tokens (fitted), and its range if that is fixed."""

    exponent: float
    full: float  # share of experts awake when there are as many pairs as experts
    slope: float  # change of that share per unit of log(pairs)
    sparse: float  # share up to which every pair finds an expert of its own
    span: float | None = None  # most over least popular expert; None: as the collector widens it with the batch


def _power_law(tokens: Any, experts: Any, top_k: Any, ep: Any, tile_rows: tuple[float, ...], law: _Law) -> list[Any]:
    log_tokens = np.log(tokens)
    log_pairs = log_tokens + np.log(top_k / experts)  # pairs per expert
    per_expert = tokens * (top_k / experts)
    # the sampler changes its range at one pair per expert: a ramp keeps times monotone
    large = np.minimum(np.maximum(0.5 * per_expert - 0.5, 0.0), 1.0)
    log_span: Any = np.log(law.span or _SMALL_BATCH_SPAN)
    if law.span is None:
        log_span = log_span + (np.maximum(log_tokens + np.log(0.8), np.log(2.0)) - log_span) * large
    log_mean, log_variation = _moments_at(log_span, law.exponent)
    imbalance = _imbalance(log_variation, per_expert, experts, top_k, ep)
    local = experts / ep
    assignments = np.maximum(per_expert * local * imbalance, 1.0)

    sparse = np.maximum(np.minimum(per_expert, law.sparse), law.full + law.slope * np.minimum(log_pairs, 0.0))
    asleep = np.maximum(log_mean - np.log(2.0) - log_pairs, 0.0)  # log popularity below which a share rounds to zero
    decay = law.exponent - 1.0
    asleep = _one_minus_exp(decay * asleep) / _one_minus_exp(decay * log_span)  # and the share of experts below it
    dense = np.maximum(1.0 - 0.795 * np.minimum(asleep, 1.0) - law.full, 0.0)
    asleep = 1.0 - sparse - np.minimum(8.0 * large, 1.0) * dense
    awake = 1.0 - asleep / imbalance  # more on the busiest rank
    activated = np.minimum(np.maximum(local * awake, 1.0), np.minimum(assignments, local))

    log_hottest = np.minimum(log_pairs + np.log(imbalance) + log_span - log_mean, log_tokens)
    log_range = np.minimum(log_span, np.maximum(log_hottest, 0.0) + np.log(2.0))  # from half a token up
    tiles = (_row_tiles(assignments, activated, log_hottest, 1.0 / log_range, rows) for rows in tile_rows)
    return [assignments, activated, *tiles]


def _row_tiles(assignments: Any, activated: Any, log_hottest: Any, density: Any, rows: float) -> Any:
    """Sum of ceil(tokens / rows) over experts whose tokens are about log-uniform below the hottest one's.

    The sum over tile boundaries j of the number of experts above j x rows is replaced by its integral
    (Euler-Maclaurin). `density`: share of the activated experts per unit of log(tokens).
    """
    log_ratio = np.maximum(log_hottest - np.log(rows), 0.0)
    above = np.minimum(log_ratio * density, 1.0)  # share of the activated experts that fill a tile
    below = np.minimum(density, 1.0 - above)  # mean filling of the others
    extra = assignments * (1.0 / rows) - activated * (0.5 * above + below)
    return activated + np.maximum(extra, 0.0) * (log_ratio > 0.0)


_LOG_SPANS = np.arange(np.log(2.0), 24.0, 1.0 / 16.0)


@cache
def _moments(exponent: float) -> tuple[np.ndarray, ...]:
    """Tables over _LOG_SPANS of popularity on [1, span] with density x^-exponent.

    Returns:
        log of the mean, its step to the next entry; log of the variance over the squared mean, its step.
    """

    def integral(power: float) -> np.ndarray:
        return np.expm1((power - exponent + 1.0) * _LOG_SPANS) / (power - exponent + 1.0)

    mean, square = integral(1.0) / integral(0.0), integral(2.0) / integral(0.0)
    tables = np.log(mean), np.log(square / (mean * mean) - 1.0)
    return tuple(part for table in tables for part in (table, np.append(np.diff(table), 0.0)))


def _moments_at(log_span: Any, exponent: float) -> tuple[Any, Any]:
    """(log of the mean, log of the variance over the squared mean), linearly between table entries."""
    mean, mean_step, variation, variation_step = _moments(exponent)
    place = np.minimum((log_span - _LOG_SPANS[0]) * 16.0, len(_LOG_SPANS) - 1.0)
    cell = place.astype(np.intp)
    rest = place - cell
    return mean[cell] + rest * mean_step[cell], variation[cell] + rest * variation_step[cell]


def _one_minus_exp(x: Any) -> Any:
    """1 - exp(-x) for small x, within 1 % up to 2 (Pade)."""
    return x / (1.0 + x * (0.5 + x * (1.0 / 12.0)))


def _imbalance(log_variation: Any, per_expert: Any, experts: Any, top_k: Any, ep: Any) -> Any:
    """Load of the busiest of `ep` ranks over the mean: 1 + 0.513 cv^1.21 local^-0.58 (2 ln ep)^0.86, saturating.

    cv^2 is the variance of popularity over its squared mean (its log is given); local the experts of a rank. A rank
    cannot hold more than all of the load, nor more than all tokens for each of its experts.
    """
    several = ep > 1.0
    ranks = np.where(several, ep, 2.0)
    grows = np.log(0.513) - 0.576 * np.log(experts / ranks) + 0.858 * np.log(2.0 * np.log(ranks))
    excess = np.exp(0.604 * log_variation + grows) * several
    raw = 1.0 + excess * np.minimum(per_expert * (1.0 / 0.094), 1.0)
    ratio = raw / np.minimum(ep, experts / top_k)
    square = ratio * ratio
    return np.maximum(raw / np.sqrt(np.sqrt(1.0 + square * square)), 1.0)


_Load = Callable[..., list[Any]]
_LAWS = _Law(1.01, full=0.505, slope=0.183, sparse=0.25), _Law(1.2, full=0.46, slope=0.17, sparse=0.2)
_LOADS: tuple[_Load, ...] = (_balanced, *(partial(_power_law, law=law) for law in _LAWS), _random)
_SERVED_LOADS: tuple[_Load, ...] = (
    _balanced,
    *(partial(_power_law, law=law._replace(span=SERVED_RANGE)) for law in _LAWS),
    _random,
)
