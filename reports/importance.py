"""Which axes decide a search's outcome: PED-ANOVA over its trials (Watanabe et al. 2023, arXiv 2304.10255)."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState, create_trial

MOST_TRIALS = 500
_PREFIX, _VALUE = "axis_", "value_"


def importance(run: Any, value: str) -> dict[str, float]:
    """Share of each searched axis in what sets the best tenth of feasible trials apart, largest first.

    Args:
        value: one of the trials table's values, without its prefix.
    Returns:
        Empty where fewer than 50 trials are feasible: too few to tell.
    """
    trials = run.trials[run.trials["feasible"]].drop_duplicates([c for c in run.trials if c.startswith(_PREFIX)])
    axes = [str(c) for c in trials if c.startswith(_PREFIX) and trials[c].nunique() > 1]
    if len(trials) < 50 or not axes:
        return {}
    trials = trials.sample(min(len(trials), MOST_TRIALS), random_state=0)
    spread: dict[str, BaseDistribution] = {c: IntDistribution(int(trials[c].min()), int(trials[c].max())) for c in axes}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    study.add_trials(
        [
            create_trial(
                state=TrialState.COMPLETE,
                params={c: int(row[c]) for c in axes},
                distributions=spread,
                value=float(row[_VALUE + value]),
            )
            for row in trials.to_dict("records")
        ]
    )
    shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {name.removeprefix(_PREFIX): float(share) for name, share in shares.items()}
