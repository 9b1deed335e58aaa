"""A cell prices plans under the limits of formats."""

from dataclasses import replace

import numpy as np
import pytest

from cost_model import load_accelerator
from search.cells import Cell
from spaces import Workload, enumerate_deployments, load_architecture
from spaces.deployment import MAX_BATCH, powers_of_two
from spaces.formats import RECIPES


def test_plans_that_cut_quantisation_blocks_are_not_legal():
    # block fp8 holds 128 x 128 values: experts of 768 split two, three and six ways, not four or eight
    model = load_architecture("qwen3-30b-a3b").map(lambda value: np.asarray(value)[None])
    plans = enumerate_deployments([1, 2, 4, 8], batches=[64], pp=(1,))
    cell = Cell(load_accelerator("h200-sxm"), Workload(1024, 1024), "w", plans)
    legal = {}
    for name in ("fp8", "fp8-block"):
        code = np.array([RECIPES.index(name)])
        legal[name] = np.asarray(cell.price(model, code, np.array([1]), "balanced", np.inf)[0].legal)[0]
    split = np.asarray(plans.ffn_tp)
    assert legal["fp8-block"][split == 2].any() and not legal["fp8-block"][split >= 4].any()
    assert legal["fp8"][split == 8].any()


@pytest.fixture(scope="module")
def chat():
    """Llama-3.1-8B and a design with half the KV heads, in a cell whose plans also fill memory."""
    model = load_architecture("llama-3.1-8b").map(lambda value: np.repeat(np.asarray(value), 2))
    designs = replace(model, kv_heads=np.array([8, 4]), layers=np.array([32, 36]), ffn=np.array([14336, 12800]))
    plans = enumerate_deployments([1, 2], batches=[MAX_BATCH, *powers_of_two(2048)], pp=(1,))
    cell = Cell(load_accelerator("h200-sxm"), Workload(1024, 512), "chat", plans)
    return cell, lambda limit: cell.price(designs, np.zeros(2, int), np.zeros(2, int), "balanced", limit)


@pytest.mark.parametrize("limit", [0.15, 0.2, 0.3, 0.5, 1.0, 2.0])
def test_plans_that_fill_memory_stop_at_the_limit_of_ttft(chat, limit):
    cell, price = chat
    unlimited, (prediction, plans) = price(np.inf)[0], price(limit)
    batch = np.asarray(cell.deployments.batch)
    layout = np.asarray(cell.deployments.attention_tp) * 100 + np.asarray(cell.deployments.ffn_tp)
    sizes, served = np.asarray(cell.deployments.replica_gpus), 0
    for plan in np.flatnonzero(batch == MAX_BATCH):
        stated = (layout == layout[plan]) & (batch != MAX_BATCH) & (sizes == sizes[plan])
        for design in (0, 1) if prediction.legal[0, plan] else ():
            in_time = stated & (prediction.ttft_s[design] <= 0.98 * limit)
            if unlimited.ttft_s[design, plan] <= limit or not in_time.any():
                assert prediction.batch[design, plan] == unlimited.batch[design, plan]  # as many as memory holds
                continue
            served += 1
            assert 0.9 * limit < prediction.ttft_s[design, plan] <= 1.01 * limit
            assert batch[in_time].max() <= prediction.batch[design, plan] <= 2 * batch[in_time].max()
            assert np.asarray(plans.batch)[design, plan] == prediction.batch[design, plan]
    assert served


def test_a_limit_of_ttft_favours_no_design_by_its_powers_of_two(chat):
    # at 0.2 s the reference could run 63 sequences and was given 32, the other design 64: a "gain" of 45 %
    _, price = chat
    gains = []
    for limit in np.geomspace(0.15, 0.6, 15):
        prediction = price(limit)[0]
        in_time = prediction.legal & prediction.fits & (prediction.ttft_s <= limit)
        most = np.where(in_time, prediction.tokens_per_s_per_gpu, 0.0).max(axis=1)
        gains.append(most[1] / most[0] - 1)
    assert np.abs(np.diff(gains)).max() < 0.06  # what steps of tiles still do
