"""The steady state of a serving engine: from seconds of passes to what a user feels.

Aggregated continuous batching with chunked prefill. Each attention-DP rank and pipeline micro-batch holds
`s` sequences; a request needs R mixed passes for its prompt and n = (osl - 1) / E passes to decode (E tokens per
pass). With X requests finished per second and rank, the share of mixed passes is f = X R t, the mean pass takes
t = t_decode + f (t_mixed - t_decode), and Little's law closes the loop: X = s / (W + n t), W the time to the first
token. Eliminating X gives a quadratic in t.

Disaggregated: the prefill pool bounds the rate, the decode pool runs decode passes only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BURST_SHARE = 0.1  # a closed-loop run starts all its users at once and lasts about ten rounds (InferenceX protocol)


@dataclass(frozen=True)
class Steady:
    """Steady state of one deployment.

    Attributes:
        ttft_s, ttft_median_s, tpot_s, e2e_s: mean and median time to first token, time per output token after
            it, and their sum over a request. requests_per_s: of one decode rank's micro-batch.
        mixed_share: share of passes that carry prompt tokens.
        decode_s, mixed_s: seconds of a pass without and with prompt tokens.
    """

    ttft_s: Any
    ttft_median_s: Any
    tpot_s: Any
    e2e_s: Any
    requests_per_s: Any
    mixed_share: Any
    decode_s: Any
    mixed_s: Any


def expected_tokens(draft_tokens: Any, acceptance: Any) -> Any:
    """Tokens one verify pass yields: (1 - a^(D + 1)) / (1 - a), Leviathan et al. (arXiv 2211.17192), eq. 1."""
    if not np.any(draft_tokens):
        return 1.0
    a = np.asarray(acceptance, dtype=float)
    return (1.0 - a ** (np.asarray(draft_tokens) + 1)) / (1.0 - a)


def continuous(
    decode_s: Any,
    mixed_s: Any,
    sequences: Any,
    isl: Any,
    osl: Any,
    chunk: Any,
    pp: Any,
    yielded: Any,
    arrival_s: float,
    queue: float,
    held_back: Any = 0.0,
) -> Steady:
    """Continuous batching with `sequences` slots that are refilled at once.

    Args:
        decode_s, mixed_s: seconds of a decode-only pass and of one with `chunk` prompt tokens more.
        sequences: slots of one rank's micro-batch. isl, osl: tokens. pp: pipeline stages.
        yielded: output tokens of one pass and sequence. arrival_s: outside the engine's passes.
        queue: how long prompts wait for one another (closed loop), as a multiple of `_wait`; 0 = not at all.
        held_back: passes that every prompt waits before it may start.
    """
    passes = isl / chunk  # mixed passes of one request; several short prompts share one
    steps = np.maximum(osl - 1, 0) / yielded
    work = sequences * passes  # mixed passes until every slot has been filled once
    first = arrival_s + mixed_s * ((np.maximum(passes, 1.0) + pp - 1) / pp)  # later chunks follow one stage behind
    before = first + 0.5 * decode_s  # the pass under way when the request arrives
    extra = work * (mixed_s - decode_s)
    mean = np.minimum(_mean_pass(decode_s, extra, before, np.maximum(steps + held_back, 1e-9)), mixed_s)
    floor = work * mixed_s  # every pass mixed: prompts alone fill the engine
    e2e = np.maximum(before + (steps + held_back) * mean, floor)
    share = np.minimum(work * mean / e2e, 1.0)
    ttft = np.maximum(e2e - steps * mean, before)
    wait, burst = 0.0, 0.0
    if queue:
        wait = queue * _wait(share, passes * mixed_s, sequences)
        burst = BURST_SHARE * 0.5 * np.maximum(work - np.maximum(passes, 1.0), 0.0) * mixed_s
    e2e = e2e + wait + burst
    tpot = np.where(np.equal(osl, 1), e2e, mean / yielded) if np.any(np.equal(osl, 1)) else mean / yielded
    return Steady(ttft + wait + burst, ttft + 0.5 * wait, tpot, e2e, sequences / e2e, share, decode_s, mixed_s)


def _mean_pass(decode_s: Any, extra: Any, before: Any, steps: Any) -> Any:
    """Positive root t of n t^2 + (W - n t_decode - extra) t - t_decode W = 0."""
    half = 0.5 * (steps * decode_s + extra - before)
    return (half + np.sqrt(half * half + steps * decode_s * before)) / steps


def _wait(load: Any, service_s: Any, sequences: Any) -> Any:
    """Mean wait of a prompt for those before it, at this share of the engine's time spent on prompts.

    The users of a closed loop move in cohorts (they all started at once, and answers differ in length by a fifth), so
    at full load the queue is the mean excursion of a Brownian bridge of `sequences` arrivals, sqrt(pi / 32) per root of
    them; below it, in proportion to the load.
    """
    return 0.3133 * load * service_s * np.sqrt(sequences)


def static(decode_s: Any, prefill_s: Any, sequences: Any, isl: Any, osl: Any, chunk: Any, yielded: Any) -> Steady:
    """One batch from start to end: all prompts first, then every sequence decodes to its last token."""
    ttft = np.maximum(sequences * isl / chunk, 1.0) * prefill_s
    steps = np.maximum(osl - 1, 0) / yielded
    e2e = ttft + steps * decode_s
    tpot = np.where(np.equal(osl, 1), e2e, decode_s / yielded)
    return Steady(ttft, ttft, tpot, e2e, sequences / e2e, np.zeros_like(e2e), decode_s, prefill_s)


@dataclass(frozen=True)
class PrefillPool:
    """What the prefill side of a disaggregated deployment offers to one decode rank's micro-batch.

    Attributes:
        first_s: seconds from arrival to first token without a queue, KV transfer included.
        requests_per_s: at most, its share of the pool.
    """

    first_s: Any
    requests_per_s: Any


def disaggregated(
    low: tuple[Any, Any], high: tuple[Any, Any], pool: PrefillPool, osl: Any, yielded: Any, queue: float
) -> Steady:
    """Decode-only passes fed by a prefill pool (rate matching: parallelism.md section 6).

    Args:
        low, high: (sequences, seconds) of two decode passes of one rank's micro-batch; `high` holds every user, and
            the pass in between, with the users that are not in prefill, is interpolated.
    """
    (few, few_s), (users, users_s) = low, high
    slope = (users_s - few_s) / np.maximum(users - few, 1e-9)
    steps = np.maximum(osl - 1, 0) / yielded
    decode_s = users_s
    rate = pool.requests_per_s
    for _ in range(4):
        rate = np.minimum(pool.requests_per_s, users / (pool.first_s + steps * decode_s))
        decode_s = np.clip(few_s + slope * (rate * steps * decode_s - few), 0.5 * few_s, users_s)
    e2e = users / rate
    ttft = np.maximum(e2e - steps * decode_s, pool.first_s)
    load = rate / pool.requests_per_s
    wait, burst = 0.0 * rate, 0.0 * rate
    if queue:
        wait = np.where(load < 0.999, queue * _wait(load, 1.0 / pool.requests_per_s, users), 0.0)
        burst = BURST_SHARE * 0.5 * np.maximum(users - 1.0, 0.0) / pool.requests_per_s
    tpot = np.where(np.equal(osl, 1), e2e, decode_s / yielded)
    return Steady(
        ttft + wait + burst, ttft + 0.5 * wait, tpot, e2e + wait + burst, rate, np.zeros_like(e2e), decode_s, decode_s
    )
