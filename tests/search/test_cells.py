"""A cell prices plans under the limits of formats."""

import numpy as np

from cost_model import load_accelerator
from search.cells import Cell
from spaces import Workload, enumerate_deployments, load_architecture
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
