"""`gangctl run` with a rule for a line of the log: the end of the worker that has printed it is judged by it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.cli.here import Here, manifest
from tests.wait import until

XID = "NVRM: Xid (PCI:0000:65:00): 79"
SCRIPT = f"""
import os, sys, time
print("begins", os.environ["GANG_ATTEMPT"])
if os.environ["RANK"] == "1" and os.environ["GANG_ATTEMPT"] == "1":
    print({XID!r})
    sys.exit(1)
time.sleep(1000)
"""


def _rules(folder: Here, *rules: dict[str, Any]) -> None:
    folder.write(manifest((sys.executable, "-c", SCRIPT), 2, podFailurePolicy={"rules": list(rules)}))


def test_a_line_in_the_log_replaces_the_pod(folder: Here) -> None:
    _rules(
        folder, {"name": "xid", "action": "Ignore", "level": "Pod", "onLog": {"pattern": r"NVRM: Xid .*: (48|79)\b"}}
    )
    folder.run()
    until("the workers run", lambda: len(folder.workers()) == 2)
    until("attempt 2 runs", lambda: folder.job.status.attempt == 2 and len(folder.workers()) == 2)
    incident = until("it is settled", lambda: next((one for one in folder.job.status.incidents if one.settled), None))
    cause = incident.cause
    assert (cause.member, cause.exit_code, cause.rule, incident.level) == ("worker-1", 1, "xid", "Pod")
    assert not incident.charged
    assert cause.why == rf"its log has the line '{XID}', which matches 'NVRM: Xid .*: (48|79)\b'"
    assert {name: pod.incarnation for name, pod in folder.pods().items()} == {"worker-0": 0, "worker-1": 1}
    assert "xid" in folder.gangctl("status", "g").stdout
    logs = folder.state.gang("g").path.rglob("worker.log")
    assert any(f"{XID}\n" in log.read_text() for log in logs), "the output reaches the log as it is"


@pytest.mark.nightly
@pytest.mark.parametrize("pattern", ["Xid .*: 48", "Xid .*79.*again"])
def test_a_line_that_is_not_there_changes_nothing(folder: Here, pattern: str) -> None:
    _rules(folder, {"name": "xid", "action": "FailJob", "onLog": {"pattern": pattern}})
    folder.run()
    until("the workers run", lambda: len(folder.workers()) == 2)
    until("attempt 2 runs", lambda: folder.job.status.attempt == 2 and len(folder.workers()) == 2)
    incident = until("it is settled", lambda: next((one for one in folder.job.status.incidents if one.settled), None))
    assert (incident.cause.rule, incident.level, incident.charged) == (None, "Process", True)
