"""Nothing is NaN or infinite: 10^5 random designs of each preset, each under a random plan."""

import numpy as np
import pytest

from cost_model import predict
from cost_model.quality import predicted_loss
from spaces.deployment import MAX_BATCH
from studies.objective import build_objective
from studies.study import available_presets, load_study

DESIGNS, CHUNK = 100_000, 10_000


@pytest.mark.parametrize("preset", available_presets())
def test_random_designs_under_random_plans(preset):
    study = load_study(preset)
    cell = build_objective(study).cells[0]
    plans = cell.deployments.take(np.flatnonzero(np.asarray(cell.deployments.batch) != MAX_BATCH))
    generator = np.random.default_rng(0)
    for _ in range(DESIGNS // CHUNK):
        proposals = study.space.decode(study.space.random_index(CHUNK, generator))
        plan = plans.take(generator.integers(0, len(np.asarray(plans.batch)), CHUNK))
        p = predict(proposals.architecture, proposals.recipe, plan, cell.workload, cell.gpu, proposals.kv_format)
        for name in ("ttft_s", "ttft_median_s", "tpot_s", "e2e_s", "tokens_per_s_per_gpu", "memory_bytes_per_gpu"):
            values = getattr(p, name)
            assert np.isfinite(values).all() and (values > 0).all(), name
        assert np.isfinite(p.error_low).all() and np.isfinite(p.error_high).all()
        loss = predicted_loss(proposals.architecture, proposals.recipe, proposals.kv_format)
        assert np.isfinite(loss.loss).all() and np.isfinite(loss.sigma).all()
