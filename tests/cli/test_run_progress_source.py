"""`gangctl run` with progress that is read from the output or from a file: no hang where there is progress."""

from __future__ import annotations

import sys
import time

import pytest

from gangctl.api.incident import Incident
from tests.cli.here import Here, manifest
from tests.wait import until

STEPS = {"type": "Log", "pattern": "step (?P<step>[0-9]+)"}
TOUCHED = {"type": "File", "path": "touched"}
SCRIPT = """
import os, time
attempt, rank = int(os.environ["GANG_ATTEMPT"]), os.environ["RANK"]
print("begins attempt", attempt)
for step in range(1000 * attempt, 1000 * attempt + 1000):
    if rank == "0":
        %s
    while step == 1040 and not os.path.exists("stop-" + str(attempt)):
        %s
    while os.path.exists("stop-" + str(attempt)):
        time.sleep(1)
    time.sleep(0.1)
"""
PRINTS = SCRIPT % ('print("at step", step, "of many")', 'print("at step", step, "again"); time.sleep(0.3)')
TOUCHES = SCRIPT % ('open("touched", "w").close()', 'open("touched", "w").close(); time.sleep(0.3)')


@pytest.mark.nightly
@pytest.mark.parametrize(("script", "source"), [(PRINTS, STEPS), (TOUCHES, TOUCHED)], ids=["Log", "File"])
def test_a_job_that_goes_on_is_left_alone_and_one_that_stops_is_restarted(
    folder: Here, script: str, source: dict[str, str]
) -> None:
    progress = {"source": source, "timeoutSeconds": 4, "startupTimeoutSeconds": 60, "onHang": "Restart"}
    folder.write(manifest((sys.executable, "-c", script), 2, progress=progress))
    folder.run()
    until("the workers run", lambda: len(folder.workers()) == 2)
    first = until("the first step is in the status", lambda: folder.job.status.first_step)
    assert first.step == (1000 if source is STEPS else None)
    later = first.time + 12
    until("three times the timeout passes", lambda: time.time() > later or folder.job.status.attempt > 1)
    assert folder.job.status.attempt == 1, "a healthy job is left alone"
    if source is STEPS:
        log = folder.state.gang("g").pod(folder.pods()["worker-0"].name).worker_log
        assert "at step 1000 of many\n" in log.read_text()
    (folder.path / "stop-1").touch()
    until("it is restarted", lambda: folder.job.status.attempt == 2)
    incident = until("the incident has its first step", lambda: _stepped(folder))
    assert incident.cause.reason == "Hang"
    assert "the stacks of its members do not tell which of them holds the others up" in incident.cause.message
    assert incident.lost_steps is None, "without a tier, the script may have found a checkpoint by itself"
    assert (folder.job.status.progress is None) == (source is TOUCHED)


def _stepped(folder: Here) -> Incident | None:
    found = folder.job.status.incidents[0]
    return found if found.milliseconds.first_step is not None else None
