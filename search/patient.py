"""An Optuna storage that outlasts its database: while the database is away, calls wait instead of failing."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy.exc import InterfaceError, OperationalError, PendingRollbackError

# the last is what Optuna runs into where it goes on with a connection that was cut
LOST = (OperationalError, InterfaceError, PendingRollbackError)

PATIENCE_SECONDS = 900.0  # a restart or a failover takes minutes; what is away longer needs a person
PAUSE_SECONDS = 1.0

# what a worker calls, through Optuna's cache as well; written again, each gives the same state
_CALLS = (
    "get_study_id_from_name",
    "get_study_directions",
    "get_study_user_attrs",
    "get_study_system_attrs",
    "set_study_user_attr",
    "set_study_system_attr",
    "get_trial",
    "get_all_trials",
    "_get_trials",
    "_create_new_trial",
    "_set_trial_param",
    "set_trial_user_attr",
    "set_trial_system_attr",
    "record_heartbeat",
    "_get_stale_trial_ids",
)


class PatientStorage(RDBStorage):
    """An RDBStorage whose calls try again while the database does not answer.

    Raises:
        ConnectionError: by any call, when it has not answered for PATIENCE_SECONDS.
    """

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """As RDBStorage's; False also where the trial is finished, perhaps by a commit whose answer was lost."""
        try:
            return bool(_finish(self, trial_id, state, values))
        except UpdateFinishedTrialError:
            return False


def _patient(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def trying(self: PatientStorage, *args: Any, **kwargs: Any) -> Any:
        deadline = 0.0
        while True:
            try:
                return call(self, *args, **kwargs)
            except (StorageInternalError, *LOST) as error:
                if not unreachable(error):
                    raise
                if not deadline:
                    print("the storage does not answer; waiting for it", file=sys.stderr, flush=True)
                    deadline = time.monotonic() + PATIENCE_SECONDS
                if time.monotonic() > deadline:
                    raise ConnectionError(f"the storage has not answered for {PATIENCE_SECONDS:g} s") from error
                time.sleep(PAUSE_SECONDS)

    return trying


def unreachable(error: BaseException | None) -> bool:
    """Whether the database could not be reached or went away, as opposed to refusing what it was asked."""
    while error is not None:
        if isinstance(error, LOST):
            return True
        error = error.__cause__
    return False


_finish = _patient(RDBStorage.set_trial_state_values)
for _name in _CALLS:
    setattr(PatientStorage, _name, _patient(getattr(RDBStorage, _name)))
