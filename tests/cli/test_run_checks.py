"""`gangctl run` with checks: they work the same without a cluster."""

from __future__ import annotations

import sys

from tests.cli.here import Here, manifest
from tests.wait import until

SCRIPT = """
import os, signal, time
if os.environ["RANK"] == "1" and os.environ["GANG_ATTEMPT"] == "1":
    os.kill(os.getpid(), signal.SIGSEGV)
time.sleep(1000)
"""


def test_who_fails_a_check_gets_a_new_pod_in_the_same_restart(folder: Here) -> None:
    # The first member that tests its disk finds it bad.
    once = folder.path / "tested-once"
    disk = ["sh", "-c", f"mkdir {once} && {{ echo bad blocks; exit 1; }}; exit 0"]
    checks = [
        {"name": "boot", "when": "Start", "scope": "Pair", "command": ["sh", "-c", "test $$GANG_CHECK_SIZE = 2"]},
        {"name": "disk", "when": "Fault", "command": disk},
    ]
    folder.write(manifest((sys.executable, "-c", SCRIPT), 3, recovery={"checks": checks}))
    folder.run()
    until("workers run", folder.workers)
    until("attempt 2 runs", lambda: folder.job.status.attempt == 2 and len(folder.workers()) == 3)
    incident = until("it is settled", lambda: next((one for one in folder.job.status.incidents if one.settled), None))
    assert (incident.cause.reason, incident.cause.words, incident.level) == ("CheckFailed", "bad blocks", "Pod")
    assert [(one.name, one.result) for one in incident.checks] == [("disk", "Failed")]
    incarnations = sorted(pod.incarnation for pod in folder.pods().values())
    assert incarnations == [0, 0, 1]
    told = " ".join(folder.gangctl("trace", "g").stdout.split())
    assert "check disk failed in 1 of 3" in told
    assert "bad blocks" in told
