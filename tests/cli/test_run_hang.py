"""`gangctl run` with a worker that hangs: the status says where, and the restart waits little for that."""

from __future__ import annotations

import sys

import pytest
import yaml

from tests.cli.here import Here, manifest
from tests.wait import until

SCRIPT = """
import os, signal, sys, threading
import gangclient

lock = threading.Lock()
lock.acquire()

def wait_for_peer():
    lock.acquire()

def leave():
    threading.Event().wait()

gang = gangclient.connect()
if "aborts" in sys.argv:
    gang.on_stop(lambda stop: lock.release())
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in range(1, 4 if os.environ["RANK"] == "1" else 9):
    gang.progress(step)
if os.environ["GANG_ATTEMPT"] == "1":
    if "frozen" in sys.argv:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGSTOP)).start()  # When the steps are reported.
    wait_for_peer()
    leave()
"""
SLOW = """
import os, sys, threading
import gangclient

gang = gangclient.connect()
for step in range(1, 10_000):
    gang.progress(step)
    if os.environ["GANG_ATTEMPT"] == "1":
        if os.path.exists("enough"):
            threading.Event().wait()
    elif step == 3:
        sys.exit()
    threading.Event().wait(0.2)
"""
PROGRESS = {"timeoutSeconds": 4, "startupTimeoutSeconds": 60, "onHang": "Restart"}
"""A sidecar sends progress once a second at most, so a shorter timeout may pass before the last steps are heard."""
GRACE_SECONDS = 2
PATIENT_SECONDS = 60
"""The grace of workers that need none: those that end within it were not killed, however slow the machine is."""


@pytest.mark.parametrize(
    "how", ["heeds", *(pytest.param(how, marks=pytest.mark.nightly) for how in ("deaf", "aborts"))]
)
def test_the_status_names_the_function_in_which_the_gang_hung(folder: Here, how: str) -> None:
    grace = GRACE_SECONDS if how == "deaf" else PATIENT_SECONDS
    recovery = {"stopGracePeriodSeconds": grace}
    folder.write(manifest((sys.executable, "-c", SCRIPT, how), 2, progress=PROGRESS, recovery=recovery))
    run = folder.run()
    assert run.wait() == 0, run.said
    (incident,) = folder.job.status.incidents
    assert (incident.cause.reason, incident.cause.member) == ("Hang", "worker-1"), incident.cause
    shown = folder.gangctl("status", "g").stdout
    assert "hung: worker-1 in wait_for_peer (<string>:9); " in shown
    whole = yaml.safe_load(folder.gangctl("status", "g", "-o", "yaml").stdout)["status"]["incidents"][0]["stacks"]
    assert whole["member"] == "worker-1"
    lines = whole["text"].splitlines()
    assert "    wait_for_peer (<string>:9)" in lines
    assert "    <module> (<string>:24)" in lines
    drawn = folder.gangctl("trace", "g").stdout
    assert "What the processes of worker-1 were doing before they were stopped:" in drawn
    assert set(lines) <= set(drawn.splitlines())
    stop = incident.milliseconds.stop
    assert stop is not None
    if how == "deaf":
        assert stop >= 1000 * grace, "the look is a part of the grace"
        assert stop < 1000 * grace + 1_000
    else:
        assert stop < 1000 * grace


@pytest.mark.nightly
def test_a_worker_that_a_signal_has_stopped_is_told_as_such(folder: Here) -> None:
    folder.write(manifest((sys.executable, "-c", SCRIPT, "frozen"), 2, progress=PROGRESS))
    run = folder.run()
    assert run.wait() == 0, run.said
    (incident,) = folder.job.status.incidents
    assert incident.stacks is not None
    assert "stopped by a signal" in incident.stacks.text
    assert "hung: worker-1 in thread " in folder.gangctl("status", "g").stdout


@pytest.mark.nightly
def test_a_deadline_that_follows_the_steps_finds_a_hang_long_before_the_timeout(folder: Here) -> None:
    progress = {"timeoutSeconds": 600, "adaptive": {"factor": 3}, "onHang": "Restart"}
    folder.write(manifest((sys.executable, "-c", SLOW), 1, progress=progress))
    run = folder.run()
    until("a deadline in force", lambda: "hangs: the deadline is " in folder.gangctl("status", "g").stdout, every=0.5)
    (folder.path / "enough").touch()
    assert run.wait() == 0, run.said  # Within seconds: the timeout is ten minutes.
    (incident,) = folder.job.status.incidents
    assert incident.cause.reason == "Hang"
    assert "times the longest time between two reported steps (" in incident.cause.message
