"""Workers on a real PostgreSQL: one dies, the database goes away, and no trial is lost or counted twice.

RIDGELINE_SLOW=1 takes the database away for 30 seconds instead of 3.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.trust import postgres

pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'ridgeline[distributed]'")
pytestmark = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing() or "PostgreSQL is there")

ROOT = Path(__file__).parents[2]
STUDY = ["worker", "8b-h200", "--set", "target.0.gpus=[1]", "--set", "serving.batches=[1,32]"]
AWAY_SECONDS = 30 if os.environ.get("RIDGELINE_SLOW") else 3


@pytest.fixture(scope="module")
def server():
    running = postgres.Server()
    yield running
    running.close()


class Workers:
    """Worker processes of one study, started together."""

    def __init__(self, url, name, tmp_path, trials, pause, grace, stuck=None):
        out = ["--storage", url, "--set", f"name={name}", "--trials", str(trials), "--out", str(tmp_path / "out")]
        plan = {"path": str(ROOT), "heartbeat": 1, "grace": grace, "pause": pause, "stuck": stuck or {}}
        plan["workers"] = [[*STUDY, *out, "--seed", str(seed)] for seed in range(3)]
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "nursery.py"), json.dumps(plan)],
            stdout=subprocess.PIPE,
            stderr=(tmp_path / "stderr").open("w"),
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        self.errors = tmp_path / "stderr"

    def ids(self):
        return json.loads(self.process.stdout.readline())

    def exit_codes(self):
        output, _ = self.process.communicate(timeout=300)
        return json.loads(output.splitlines()[-1])


def trials_of(url, name):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.load_study(study_name=name, storage=url).get_trials(deepcopy=False)


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def test_a_killed_workers_trial_is_done_by_another(server, tmp_path):
    marker = tmp_path / "in-trial"
    workers = Workers(server.url, "killed", tmp_path, 22, pause=0.5, grace=3, stuck={"0": [3, str(marker)]})
    victim = workers.ids()[0]
    wait_for(marker.exists)
    os.kill(victim, signal.SIGKILL)
    assert workers.exit_codes() == [-signal.SIGKILL, 0, 0], workers.errors.read_text()
    trials = trials_of(server.url, "killed")
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    assert len(failed) == 1 and len(complete) == len(trials) - 1
    assert 22 <= len(complete) <= 22 + 1  # the other survivor had one in hand
    assert [trial.params for trial in complete].count(failed[0].params) == 1
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert {path.name for path in (tmp_path / "out").glob("frontier_*")} == {f"frontier_{i}.npz" for i in range(3)}


def test_workers_outlast_a_database_that_goes_away(server, tmp_path):
    workers = Workers(server.url, "away", tmp_path, 15, pause=0.2, grace=AWAY_SECONDS + 60)
    workers.ids()

    def busy():
        try:
            return len(trials_of(server.url, "away")) >= 4
        except KeyError:  # the study is not there yet
            return False

    wait_for(busy)
    server.stop()
    time.sleep(AWAY_SECONDS)
    server.start()
    assert workers.exit_codes() == [0, 0, 0], workers.errors.read_text()
    assert "the storage does not answer; waiting for it" in workers.errors.read_text()
    trials = trials_of(server.url, "away")
    assert 15 <= sum(trial.state == TrialState.COMPLETE for trial in trials) <= 15 + 2
    # a trial whose making was cut off by the stop stays behind unfinished, at most one per worker
    assert all(trial.state in (TrialState.COMPLETE, TrialState.RUNNING) for trial in trials) and len(trials) <= 17 + 3
