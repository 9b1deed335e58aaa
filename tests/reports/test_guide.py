"""The guide's claims: all there, each answered by code or by what the product does; arithmetic ones meet the print."""

from __future__ import annotations

import re

import pytest

from benchmarks.guide import check, sections

CLAIMS = [claim for section in sections() for claim in section["claims"]]


def test_all_48_claims_of_the_articles_and_seven_guidelines_are_there():
    named = " ".join(claim["id"] for claim in CLAIMS)
    covered = set()
    for low, high in re.findall(r"S(\d+)(?:-S(\d+))?", named):
        covered |= set(range(int(low), int(high or low) + 1))
    assert covered == set(range(1, 49))
    assert {f"G{i}" for i in range(1, 8)} <= set(re.findall(r"G\d", named))


def test_every_claim_has_one_answer():
    for claim in CLAIMS:
        assert ("check" in claim) != ("ours" in claim), claim["id"]
        assert "ours" in claim or callable(check(claim["check"]))


@pytest.mark.parametrize(
    "name",
    [
        *("amdahl", "tile_efficiency", "wave_efficiency", "two_waves", "ridge", "limit_intensity", "output_writes"),
        *("expert_concurrency", "fp8_weights", "decode_intensity", "attention_flops", "prefill_intensity", "kv_copies"),
    ],
)
def test_arithmetic_meets_the_published_number(name):
    answer = check(name)()
    assert answer.evidence == "arithmetic" and answer.agrees
