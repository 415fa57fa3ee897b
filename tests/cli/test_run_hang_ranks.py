"""`gangctl run` with four ranks in one pod, of which one is stopped while the others go on: it is named."""

from __future__ import annotations

import sys

import pytest

from tests.cli.here import Here, manifest

SCRIPT = """
import os, signal, threading
import gangclient

gang = gangclient.connect()
rank, first = os.environ["RANK"], os.environ["GANG_ATTEMPT"] == "1"
for step in range(1, 2_000 if first else 5):
    gang.progress(step)
    threading.Event().wait(0.05)
    if first and rank == "2" and step == 40:
        threading.Event().wait(2)  # Until its last step is reported.
        print("stopped", os.getpid(), flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.nightly
def test_a_stopped_rank_is_named_though_the_others_of_its_pod_go_on(folder: Here) -> None:
    progress = {"timeoutSeconds": 4, "startupTimeoutSeconds": 60, "onHang": "Restart"}
    made = manifest((sys.executable, "-c", SCRIPT), 1, progress=progress)
    made["spec"]["roles"][0] |= {"processesPerPod": 4, "launch": "PerProcess"}
    folder.write(made)
    run = folder.run()
    assert run.wait() == 0, run.said
    (incident,) = folder.job.status.incidents
    cause = incident.cause
    assert (cause.reason, cause.member, cause.rank) == ("Hang", "worker-0", 2)
    pid = cause.message.removeprefix("process ").partition(" ")[0]
    assert cause.message.startswith(
        f"process {pid} makes no progress, and the others of its pod do; its last step was 40"
    )
    assert incident.stacks is not None
    assert incident.stacks.text.startswith(f"process {pid} "), "the process at fault comes first"
    assert "stopped by a signal" in incident.stacks.text.partition("\nprocess ")[0]
