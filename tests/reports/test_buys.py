"""What a gain buys: each way of spending it, priced again, gives back what the reference serves."""

from __future__ import annotations

import numpy as np
import pytest

from reports.buys import bought, bought_block
from reports.lead import architecture_of, lead
from reports.pricing import serve, with_workload
from spaces.formats import KV_FORMATS, RECIPES


@pytest.fixture(scope="module")
def found(small_run):
    return lead(small_run)


@pytest.fixture(scope="module")
def spent(small_run, found):
    row = found.chosen
    codes = RECIPES.index(row["recipe"]), KV_FORMATS.index(row["kv_format"])
    return architecture_of(row), codes, bought(small_run.objective, architecture_of(row), *codes)


def test_throughput_is_the_gain_of_the_table_and_price_its_inverse(found, spent):
    gains = [g for g in found.chosen_gains if g is not None]
    assert [b.throughput for b in spent[2]] == pytest.approx(gains, rel=1e-5)
    for b in spent[2]:
        assert b.usd[1] / b.usd[0] == pytest.approx(1 + b.throughput)


def test_at_the_higher_speed_the_design_gives_the_references_throughput(small_run, spent):
    design, codes, rows = spent
    b = rows[-1]  # the reference's curve reaches this target: its speed there is the target itself
    assert b.throughput > 0.03 and b.speed > 0
    faster = [b.target * (1 + b.speed) * factor for factor in (0.97, 1.03)]
    ours = serve(small_run.objective, [design], *codes, targets=faster).log_throughput[0]
    theirs = serve(small_run.objective, [small_run.objective.space.reference], *codes, targets=[b.target])
    low, high = np.exp(ours - theirs.log_throughput[0, 0])
    assert high < 1.02 and low > 0.98  # curves of the two interpolations agree within a few percent


def test_at_the_longer_prompt_the_design_still_serves_as_much(small_run, spent):
    design, codes, rows = spent
    b = next(row for row in rows if row.throughput > 0.05)
    assert b.prompt > small_run.objective.cells[0].workload.isl
    cell = with_workload(small_run.objective.cells[0], isl=b.prompt)
    ours = serve(small_run.objective, [design], *codes, cell, targets=[b.target]).log_throughput[0, 0]
    base = serve(small_run.objective, [small_run.objective.space.reference], *codes, targets=[b.target])
    assert ours >= base.log_throughput[0, 0]


def test_the_reference_buys_nothing(small_run, found):
    rows = bought(small_run.objective, small_run.objective.space.reference, RECIPES.index("fp8"), 0)
    assert rows and all(abs(b.throughput) < 1e-9 and abs(b.speed) < 1e-6 for b in rows)
    text = bought_block(small_run, found, rows)
    assert "+0.0 %" in text and "instead of $" in text
    assert bought_block(small_run, found, []) is None
