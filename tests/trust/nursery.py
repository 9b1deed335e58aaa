"""Worker processes for test_workers.py, forked from one interpreter: `python nursery.py JSON`.

JSON: {"path": repository, "heartbeat": s, "grace": s, "pause": s, "workers": [[arguments of ridgeline...], ...],
"stuck": {worker: [trial, file]}}. Every pricing takes `pause` seconds longer; a stuck worker makes `file` and then
prices its n-th trial for ever. Prints one line with the processes' ids, and one with their exit codes.
"""

import json
import os
import sys
import time
from pathlib import Path

plan = json.loads(sys.argv[1])
sys.path.insert(0, plan["path"])

import ridgeline  # noqa: E402
from search import worker  # noqa: E402
from search.objective import ServingObjective  # noqa: E402

worker.open_study.__defaults__ = (plan["heartbeat"], plan["grace"])
score = ServingObjective.score


def work(number: int, arguments: list[str]) -> None:
    priced = 0

    def slowly(self, indices):
        nonlocal priced
        priced += 1
        at, file = plan["stuck"].get(str(number), (0, ""))
        if priced == at:
            Path(file).touch()
            time.sleep(600)
        time.sleep(plan["pause"])
        return score(self, indices)

    ServingObjective.score = slowly
    sys.argv = ["ridgeline", *arguments]
    ridgeline.main()


children = []
for number, arguments in enumerate(plan["workers"]):
    pid = os.fork()
    if not pid:
        try:
            work(number, arguments)
        except SystemExit as end:
            os._exit(int(end.code or 0))
        except BaseException as error:
            print(f"worker {number}: {error!r}", file=sys.stderr, flush=True)
            os._exit(70)
        os._exit(0)
    children.append(pid)
print(json.dumps(children), flush=True)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]), flush=True)
