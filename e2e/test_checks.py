"""Checks before an attempt: a bad node found by pairs inside one restart, checks that pass, and a check that fails."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.gangs import CHECKPOINTS, WORKERS, Gang, sleepers

Submit = Callable[[dict[str, Any]], Gang]
LINK = {"name": "link", "when": "Fault", "scope": "Pair", "command": ["python3", f"{CHECKPOINTS}/link.py"]}


def checked(name: str, directory: Path, *checks: dict[str, Any]) -> dict[str, Any]:
    """Three members on as many nodes as there are, with these checks."""
    shutil.copy(WORKERS / "link.py", directory)
    recovery = {"replaceAfter": 100, "checks": list(checks)}
    document = sleepers(name, replicas=3, directory=str(directory), steps=True, recovery=recovery)
    document["spec"]["placement"] = {"strategy": "Spread", "mode": "Preferred"}
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    return document


def kill(gang: Gang, member: str) -> dict[str, Any]:
    """A worker is killed, which names no culprit; returns the status of the next attempt."""
    attempt = gang.status["attempt"]
    process_faults.kill(process_faults.worker(gang.uids()[member]))
    return gang.runs(attempt + 1)


@pytest.mark.nightly
@pytest.mark.usefixtures("third_node")
def test_a_bad_node_is_found_by_pairs_inside_one_restart(submit: Submit, shared_dir: Path) -> None:
    gang = submit(checked("pairs", shared_dir, LINK))
    gang.runs(1)
    uids, node = gang.uids(), gang.pods()["worker-1"]["spec"]["nodeName"]
    (shared_dir / "sick").write_text(node)
    status = kill(gang, "worker-2")
    incident, after = status["incidents"][0], gang.uids()
    assert [member for member in uids if uids[member] != after[member]] == ["worker-1"]
    assert gang.pods()["worker-1"]["spec"]["nodeName"] != node
    cause = incident["cause"]
    assert (cause["reason"], cause["member"], cause["node"]) == ("CheckFailed", "worker-1", node)
    assert (status["attempt"], status["restarts"]["counted"]) == (2, 1)
    (result,) = incident["checks"]
    assert (result["name"], result["result"], result["failures"], result["members"]) == ("link", "Failed", 1, 3)
    assert "is sick" in result["failed"][0]["detail"]
    assert incident["milliseconds"]["check"] > 0


def test_checks_that_pass_run_before_their_attempts_and_no_others(submit: Submit, shared_dir: Path) -> None:
    boot = {"name": "boot", "when": "Start", "scope": "Gang", "command": ["sh", "-c", 'test "$GANG_CHECK_SIZE" = 3']}
    memory = {"name": "memory", "when": "Fault", "builtin": "Memory"}
    gang = submit(checked("passing", shared_dir, boot, LINK, memory))
    first = gang.runs(1)["checks"]["results"]
    assert [(one["name"], one["result"], one["members"]) for one in first] == [("boot", "Passed", 3)]
    uids = gang.uids()
    found = kill(gang, "worker-1")["incidents"][0]
    assert found["cause"]["reason"] == "Signal"
    assert {one["name"]: one["result"] for one in found["checks"]} == {"link": "Passed", "memory": "Passed"}
    gang.patch(restartToken="again")
    planned = gang.runs(3)["incidents"][0]
    assert planned.get("checks", []) == []
    assert "check" not in planned["milliseconds"]
    assert gang.uids() == uids


def test_a_check_that_fails_in_all_members_replaces_none(submit: Submit, shared_dir: Path) -> None:
    broken = {"name": "broken", "when": "Fault", "command": ["sh", "-c", "echo no such device; exit 1"]}
    gang = submit(checked("faulty", shared_dir, broken))
    gang.runs(1)
    uids = gang.uids()
    status = kill(gang, "worker-0")
    (result,) = status["incidents"][0]["checks"]
    assert (result["result"], result["failures"]) == ("CheckFaulty", 3)
    assert gang.uids() == uids
    events = gang.kubectl("get", "events", "-n", gang.namespace, "-o", "jsonpath={.items[*].reason}")
    assert "CheckFaulty" in events.split()
