"""The steady state of a serving engine: from seconds of passes to what a user feels.

Aggregated continuous batching with chunked prefill. Each attention-DP rank and pipeline micro-batch holds
`s` sequences; a request needs R mixed passes for its prompt and osl / E passes to decode (E tokens per pass).
With X requests finished per second the share of mixed passes is f = X R t, the mean pass takes
t = t_decode + f (t_mixed - t_decode), and Little's law closes the loop: X = s / (TTFT + (osl - 1) t / E).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_ITERATIONS = 4  # of the closed loop; it contracts by the prefill share each time


@dataclass(frozen=True)
class Steady:
    """Steady state of one replica.

    Attributes:
        ttft_s, ttft_median_s, tpot_s, e2e_s: mean and median time to first token, time per output token after
            it, and their sum over a request. requests_per_s: of one rank's micro-batch.
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
    a = np.asarray(acceptance, dtype=float)
    return (1.0 - a ** (np.asarray(draft_tokens) + 1)) / (1.0 - a)


def continuous(
    decode_s: Any, mixed_s: Any, sequences: Any, isl: Any, osl: Any, chunk: Any, pp: Any, yielded: Any, queue: bool
) -> Steady:
    """Continuous batching with `sequences` slots that are refilled at once.

    Args:
        decode_s, mixed_s: seconds of a decode-only pass and of one with `chunk` prompt tokens more.
        sequences: slots of one rank's micro-batch. isl, osl: tokens. pp: pipeline stages.
        yielded: output tokens of one pass and sequence. queue: prompts wait for one another (closed loop).
    """
    passes = isl / chunk  # mixed passes of one request; several short prompts share one
    own = np.maximum(passes, 1.0)
    first = mixed_s * (own + pp - 1) / pp  # later chunks follow one stage behind
    steps = np.maximum(osl - 1, 0) / yielded
    floor = sequences * passes * mixed_s  # every pass mixed: prompts alone fill the engine
    mean = decode_s
    wait = np.zeros_like(decode_s)
    e2e = np.maximum(first + steps * mean, floor)
    for _ in range(_ITERATIONS):
        rate = sequences / e2e
        share = np.minimum(rate * passes * mean, 1.0)
        mean = decode_s + share * (mixed_s - decode_s)
        if queue:
            wait = _wait(share, first, sequences)
        e2e = np.maximum(first + wait + 0.5 * mean + steps * mean, floor)
    ttft = np.maximum(e2e - steps * mean, first)
    tpot = np.where(np.equal(osl, 1), e2e, mean / yielded)
    return Steady(ttft, ttft - 0.5 * wait, tpot, e2e, sequences / e2e, share, decode_s, mixed_s)


def _wait(load: Any, service_s: Any, sequences: Any) -> Any:
    """Mean wait before a deterministic server at this load (M/D/1), at most half of the other slots' service."""
    return np.minimum(service_s * load / (2.0 * np.maximum(1.0 - load, 1e-3)), 0.5 * (sequences - 1) * service_s)


def static(decode_s: Any, prefill_s: Any, sequences: Any, isl: Any, osl: Any, chunk: Any, yielded: Any) -> Steady:
    """One batch from start to end: all prompts first, then every sequence decodes to its last token."""
    ttft = np.maximum(sequences * isl / chunk, 1.0) * prefill_s
    steps = np.maximum(osl - 1, 0) / yielded
    e2e = ttft + steps * decode_s
    tpot = np.where(np.equal(osl, 1), e2e, decode_s / yielded)
    return Steady(ttft, ttft, tpot, e2e, sequences / e2e, np.zeros_like(e2e), decode_s, prefill_s)
