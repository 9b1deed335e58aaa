"""What must be saved of a search so that it goes on as if it had never stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from search.frontier import Scale
from search.scores import Scorer
from search.state import STUDY, Progress, SearchState, new_state, record


def saved(state: SearchState) -> dict[str, np.ndarray]:
    """Plain arrays from which `restored` rebuilds the state; no pickled objects."""
    study_id = state.storage.get_study_id_from_name(STUDY)
    notes = {
        "sampler": state.sampler,
        "seed": state.seed,
        "batch": state.batch,
        "scale": [state.scale.ideal, state.scale.nadir] if state.scale else None,
        "history": [[p.trials, p.feasible, p.hypervolume, p.seconds] for p in state.history],
        "study_attributes": state.storage.get_study_system_attrs(study_id),
        "trial_attributes": [] if state.sampler == "frontier" else _sampler_attributes(state),
    }
    trials = {name: np.concatenate(blocks) for name, blocks in vars(state.trials).items() if blocks}
    frontier = {f"frontier_{name}": column for name, column in (state.frontier or {}).items()}
    return {"notes": np.array(json.dumps(notes)), **trials, **frontier}


def restored(scorer: Scorer, arrays: Mapping[str, np.ndarray]) -> SearchState:
    """The state that `saved` wrote, for the same scorer.

    Raises:
        ValueError: saved by a search over other axes, values or constraints.
    """
    notes = json.loads(str(arrays["notes"]))
    state = new_state(scorer, notes["sampler"], notes["seed"], notes["batch"])
    if "rows" not in arrays:
        return state
    blocks = arrays["rows"], arrays["values"], arrays["violations"], arrays["points"]
    expected = [len(state.grid), len(scorer.value_names), len(scorer.constraint_names)]
    if [block.shape[1] for block in blocks[:3]] != expected:
        raise ValueError("the checkpoint belongs to another study: its axes, values or constraints differ")
    if notes["trial_attributes"]:
        record(state, state.study, *blocks, attributes=notes["trial_attributes"])
    state.trials.add(*blocks)
    state.frontier = {
        name.removeprefix("frontier_"): column for name, column in arrays.items() if name.startswith("frontier_")
    }
    state.scale = Scale(*map(tuple, notes["scale"])) if notes["scale"] else None
    state.history = [Progress(*entry) for entry in notes["history"]]
    keys = [row.tobytes() for row in scorer.canonical(blocks[0])]
    state.memo = dict(zip(keys, zip(blocks[1], blocks[2], strict=True), strict=True))
    study_id = state.storage.get_study_id_from_name(STUDY)
    for key, value in notes["study_attributes"].items():
        state.storage.set_study_system_attr(study_id, key, value)
    return state


def _sampler_attributes(state: SearchState) -> list[dict[str, Any]]:
    """What Optuna's own samplers note on each trial (an NSGA-II generation)."""
    return [
        {key: value for key, value in trial.system_attrs.items() if not key.startswith("constraints")}
        for trial in state.study.get_trials(deepcopy=False)
    ]
