"""What the panel tells of a point adds up: bounds to its time, memory to its bytes, loss parts to its loss."""

from __future__ import annotations

import numpy as np
import pytest

from cost_model import load_accelerator
from cost_model.bounds import BOUNDS
from reports.detail import details, evidence_of_terms, loss_parts
from reports.trust import PARTS


@pytest.fixture(scope="module")
def own(small_run):
    return small_run.points[small_run.points["kind"] == "own"].head(60).reset_index(drop=True)


@pytest.fixture(scope="module")
def columns(small_run, own):
    return details(small_run, own)


def column(columns, name, n):
    return np.array([0.0 if value is None else value for value in columns.get(name, [0.0] * n)])


def test_bounds_of_a_component_add_up_to_its_share_of_the_token(own, columns):
    assert columns["of"] == list(range(len(own)))
    for part in PARTS:
        share = sum(column(columns, f"bound_{part}_{bound}", len(own)) for bound in BOUNDS)
        assert share == pytest.approx(own[f"{part}_s"] / own["tpot_s"], abs=0.006)


def test_more_users_turn_linears_from_memory_to_compute(own, columns):
    few, many = own["batch"].idxmin(), own["batch"].idxmax()
    math, memory = (column(columns, f"bound_ffn_{bound}", len(own)) for bound in ("math", "memory"))
    assert memory[few] > 5 * math[few] and math[many] > memory[many]


def test_one_gpu_waits_for_no_network(own, columns):
    alone = own["gpus"] == 1
    assert alone.any() and not alone.all()
    network = column(columns, "bound_communication_network", len(own))
    assert not network[alone].any() and network[~alone].any()


def test_memory_parts_add_up_to_the_point(small_run, own, columns):
    reserved = small_run.objective.cells[0].gpu.engine.reserved_bytes
    parts = sum(column(columns, f"memory_{name}", len(own)) for name in ("weights", "kv_cache", "activations"))
    assert parts + reserved == pytest.approx(own["memory_bytes_per_gpu"], rel=0.005)


def test_loss_parts_add_up_to_the_designs_loss(small_run):
    parts = loss_parts(small_run, small_run.designs)
    assert parts[:, :4].sum(axis=1) == pytest.approx(small_run.designs["shape_loss_difference"], abs=1e-9)
    assert parts[:, 4:].sum(axis=1) == pytest.approx(small_run.designs["quant_loss"], abs=1e-9)


def test_every_term_says_what_it_rests_on():
    measured = {
        row["part"]: row for row in evidence_of_terms(load_accelerator("h200-sxm"), "fp8", "bf16", False, False)
    }
    assert set(measured) == set(PARTS)
    assert measured["ffn"]["constants"].startswith("measured: median error")
    assert measured["ffn"]["form"].startswith("general principle")
    assert measured["communication"]["form"].startswith("vendor-specific")
    borrowed = evidence_of_terms(load_accelerator("mi300x", engine="vllm"), "fp8", "bf16", moe=True, mla=True)
    assert all(row["constants"].startswith("extrapolated: ") for row in borrowed if row["part"] != "overhead")
