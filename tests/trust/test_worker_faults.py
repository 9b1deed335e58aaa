"""What else happens to a worker: taken for dead, met by another study, its storage failing for a moment."""

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy.exc import OperationalError

from benchmarks.toy import ToyScorer, ToySpace
from search import patient
from search.worker import open_study, work

optuna.logging.set_verbosity(optuna.logging.WARNING)
INNER = ("kv_heads", "experts", "top_k", "attention_ratio", "recipe", "kv_format")
SCORER = ToyScorer(ToySpace(INNER, hidden_step=1024, layer_step=8), batches=2)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


def states(url):
    return [trial.state for trial in optuna.load_study(study_name="x", storage=url).get_trials(deepcopy=False)]


@pytest.mark.parametrize("when", ["while it prices", "before it reports"])
def test_a_worker_that_was_taken_for_dead_goes_on(url, when):
    """Another worker has failed its trial, to be done again: this one drops the outcome and takes the next."""
    study = open_study(SCORER, url, "x", seed=0)
    begun = []

    def fail_first():
        if not begun:
            running = next(t for t in study.get_trials(deepcopy=False) if t.state == TrialState.RUNNING)
            assert RDBStorage(url).set_trial_state_values(running._trial_id, TrialState.FAIL)
        begun.append(1)

    class Slow(ToyScorer):
        def score(self, indices):
            if when == "while it prices":
                fail_first()
            return super().score(indices)

    scorer = Slow(SCORER.space, batches=2)
    work(scorer, study, trials=2, on_trial=lambda _: fail_first() if when == "before it reports" else None)
    assert states(url) == [TrialState.FAIL, TrialState.COMPLETE, TrialState.COMPLETE]


def test_an_error_of_the_scorer_is_not_taken_for_a_lost_trial(url):
    class Broken(ToyScorer):
        def score(self, indices):
            raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        work(Broken(SCORER.space, batches=2), open_study(SCORER, url, "x", seed=0), trials=3)
    assert states(url) == [TrialState.FAIL]


def test_another_study_of_the_same_name_is_refused(url):
    open_study(SCORER, url, "x", seed=0)
    open_study(SCORER, url, "x", seed=1)
    other = ToyScorer(ToySpace(INNER, hidden_step=2048, layer_step=8), batches=2)
    with pytest.raises(ValueError, match="study 'x' of this storage has other axes, objectives or constraints"):
        open_study(other, url, "x", seed=2)


def test_a_storage_that_fails_for_a_moment_is_asked_again(url, monkeypatch, capsys):
    study = open_study(SCORER, url, "x", seed=0)
    monkeypatch.setattr(patient, "PAUSE_SECONDS", 0.0)
    away = [StorageInternalError("commit"), OperationalError("SELECT 1", None, Exception("server closed")), None]
    away[0].__cause__ = away[1]
    commit = RDBStorage.set_trial_user_attr

    def failing(self, *arguments, **named):
        if (error := away.pop(0) if away else None) is not None:
            raise error
        return commit(self, *arguments, **named)

    monkeypatch.setattr(patient.PatientStorage, "set_trial_user_attr", patient._patient(failing))
    work(SCORER, study, trials=2)
    assert states(url) == [TrialState.COMPLETE] * 2
    assert capsys.readouterr().err.count("the storage does not answer; waiting for it") == 1


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(patient, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(patient, "PATIENCE_SECONDS", 0.01)

    def away(self):
        raise OperationalError("SELECT 1", None, Exception("server closed"))

    with pytest.raises(ConnectionError, match=r"has not answered for 0\.01 s"):
        patient._patient(away)(None)


def test_what_the_database_refuses_is_not_waited_for():
    def refused(self):
        raise StorageInternalError("value too long")

    with pytest.raises(StorageInternalError):
        patient._patient(refused)(None)
