"""Checks before an attempt: what they find, what follows from it, and what a check may do that is no check's."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e import process_faults
from e2e.accelerators import gang_of
from e2e.cluster.lab import Lab
from e2e.cluster.processes import everything
from e2e.gangs import CHECKPOINTS, WORKERS, Gang, plain, sleepers
from tests.wait import until

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


KEEPING = (
    "import sys; sys.path.insert(0, '/opt/gangctl/examples'); import train_plain; "
    "train_plain.KEPT = 10**6; train_plain.main()"
)
"""Train, and keep each checkpoint."""
REPORT = "import sys, gangclient; gangclient.connect().corrupt(since_step=int(sys.stdin.read()), why='the sums differ')"
REPORTING = f"""
[ $RANK = 1 ] && (
  until mv {CHECKPOINTS}/since {CHECKPOINTS}/reported; do sleep 0.2; done
  python3 -c "{REPORT}" < {CHECKPOINTS}/reported
) 2> /dev/null &
exec python3 -c "{KEEPING}"
"""
"""The same; rank 1 reports corruption since the step that it finds in a file."""


def keeping(name: str, directory: Path, *command: str, **recovery: Any) -> dict[str, Any]:
    """Three members that train and keep all checkpoints."""
    recovery = {"replaceAfter": 100, **recovery}
    document = plain(name, replicas=3, directory=str(directory), steps=10**6, recovery=recovery)
    document["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"] = list(command)
    return document


def saves(directory: Path, beyond: int = 0) -> int:
    """Wait for a complete checkpoint of a later step; the newest."""

    def newest() -> int:
        steps = [int(done.parent.name.removeprefix("step-")) for done in directory.glob("step-*/DONE")]
        return max(steps, default=0)

    return until(f"a checkpoint beyond {beyond}", lambda: step if (step := newest()) > beyond else None)


def leaves_its_node(gang: Gang, before: dict[str, dict[str, Any]], member: str) -> bool:
    """Whether this member alone has a new pod, which is on another node."""
    after = gang.pods()
    new = [name for name in before if before[name]["metadata"]["uid"] != after[name]["metadata"]["uid"]]
    nodes = {pods[member]["spec"]["nodeName"] for pods in (before, after)}
    return new == [member] and len(nodes) > 1


def test_a_bit_that_flips_in_a_product_is_found_and_the_gang_goes_back_before_it(
    submit: Submit, shared_dir: Path
) -> None:
    words = ["--seconds", "0", "--inject-fault", "/tmp/flip"]
    check = {"name": "matmul", "when": "Fault", "builtin": "MatMul", "args": words}
    gang = submit(keeping("flipped", shared_dir, "python3", "-c", KEEPING, checks=[check]))
    gang.runs(1)
    saves(shared_dir)
    status = kill(gang, "worker-0")
    verified = status["checkedStep"]
    assert status["restorePoint"]["step"] == verified > 0
    assert status["incidents"][0]["checks"][0]["verifies"]
    saves(shared_dir, verified)
    pods = gang.pods()
    process = process_faults.worker(gang.uids()["worker-1"])
    Path(f"/proc/{process.pid}/root/tmp/flip").touch()
    status = kill(gang, "worker-2")
    cause = status["incidents"][0]["cause"]
    assert (cause["reason"], cause["member"]) == ("CheckFailed", "worker-1")
    assert "differs from the stored one" in cause["words"]
    assert leaves_its_node(gang, pods, "worker-1")
    assert status["restorePoint"]["step"] == verified
    assert gang.restored("worker-0", 3) == verified


def test_corruption_that_a_script_reports_costs_its_node_and_goes_back_before_it(
    submit: Submit, shared_dir: Path
) -> None:
    gang = submit(keeping("corrupt", shared_dir, "sh", "-c", REPORTING))
    gang.runs(1)
    older = saves(shared_dir)
    newer = saves(shared_dir, older)
    pods = gang.pods()
    (shared_dir / "new").write_text(str(newer))
    (shared_dir / "new").rename(shared_dir / "since")
    status = gang.runs(2)
    cause = status["incidents"][0]["cause"]
    assert (cause["reason"], cause["member"], cause["rank"]) == ("Corruption", "worker-1", 1)
    assert cause["words"] == "the sums differ"
    assert leaves_its_node(gang, pods, "worker-1")
    assert status["restorePoint"]["step"] == gang.restored("worker-0", 2) == newer - 20  # It saves each 20th.


ON_WORKER_1 = "case $(cat /etc/hostname) in *worker-1*) ;; *) exit 0 ;; esac; "
ODD = (
    {"name": "children", "command": ["sh", "-c", "sleep 1234567 & setsid sleep 1234567 & true"]},
    {"name": "device", "command": ["sh", "-c", 'test -n "$FAKE_DEVICES"']},
    {
        "name": "garbage",
        "command": ["sh", "-c", f"{ON_WORKER_1} head -c 100000 /dev/urandom; exit 1"],
        "onFailure": "Note",
    },
    {"name": "hangs", "command": ["sh", "-c", f"{ON_WORKER_1} exec sleep 1234567"], "timeoutSeconds": 5},
)


@pytest.mark.nightly
@pytest.mark.usefixtures("plugged")
def test_a_check_that_leaves_children_needs_the_device_prints_garbage_or_hangs(
    submit: Submit, shared_dir: Path
) -> None:
    document = gang_of("odd", shared_dir, 3)
    document["spec"]["recovery"]["checks"] = [{"when": "Fault", **one} for one in ODD]
    gang = submit(document)
    gang.runs(1)
    pods = gang.pods()
    found = kill(gang, "worker-0")["incidents"][0]
    results = {one["name"]: one for one in found["checks"]}
    assert {name: one["result"] for name, one in results.items()} == {
        "children": "Passed",
        "device": "Passed",
        "garbage": "Failed",
        "hangs": "Failed",
    }
    assert not [one for one in everything() if "1234567" in one.command]
    (garbage,) = results["garbage"]["failed"]
    assert garbage["member"] == "worker-1"
    assert garbage["detail"].startswith("check garbage failed with exit code 1: ")
    assert garbage["detail"].isascii()
    assert garbage["detail"].isprintable()
    assert found["cause"]["message"] == "check hangs took longer than 5 s"
    assert [name for name, pod in gang.pods().items() if pod["metadata"]["uid"] != pods[name]["metadata"]["uid"]] == [
        "worker-1"
    ]


BUILTIN: tuple[dict[str, Any], ...] = (
    {"builtin": "Memory", "args": ["--mib", "4"]},
    {"builtin": "Disk", "args": ["--mib", "1", "--path", CHECKPOINTS]},
    {"builtin": "MatMul", "args": ["--seconds", "0"]},
    {"builtin": "Mount", "args": ["--path", CHECKPOINTS]},
    {"builtin": "AllReduce", "scope": "Pair", "args": ["--mib", "1", "--floor", "0.01"]},
    {"builtin": "ClockSkew", "scope": "Gang", "args": ["--limit", "60000"]},
)


@pytest.mark.nightly
def test_a_healthy_gang_passes_what_gangctl_brings_along(submit: Submit, shared_dir: Path) -> None:
    checks = [{"name": one["builtin"].lower(), "when": "Fault", **one} for one in BUILTIN]
    gang = submit(checked("builtin", shared_dir, *checks))
    gang.runs(1)
    uids = gang.uids()
    found = kill(gang, "worker-1")["incidents"][0]["checks"]
    assert [(one["name"], one["result"], one["note"]) for one in found] == [
        (one["name"], "Passed", "") for one in checks
    ]
    assert gang.uids() == uids


@pytest.mark.nightly
@pytest.mark.usefixtures("third_node")
def test_a_slow_link_is_found_by_the_pairs_that_gangctl_brings_along(
    submit: Submit, shared_dir: Path, lab: Lab
) -> None:
    words = ["--mib", "1", "--floor", "0.2", "--wait", "15"]
    link = {"name": "link", "when": "Fault", "scope": "Pair", "builtin": "AllReduce", "args": words}
    gang = submit(checked("slow", shared_dir, link))
    gang.runs(1)
    pods = gang.pods()
    with slowed(lab, pods["worker-1"]):
        status = kill(gang, "worker-2")
    cause, (result,) = status["incidents"][0]["cause"], status["incidents"][0]["checks"]
    assert (cause["reason"], cause["member"]) == ("CheckFailed", "worker-1")
    assert (result["result"], result["failures"]) == ("Failed", 1)
    assert leaves_its_node(gang, pods, "worker-1")


@contextmanager
def slowed(lab: Lab, pod: dict[str, Any]) -> Iterator[None]:
    """What this pod sends arrives at 20 kB/s, but for what its sidecar sends to the controller."""
    node = next(one for one in lab.nodes if one.name == pod["spec"]["nodeName"])
    table = "table inet gangctl-e2e-slow"
    rule = f"ip saddr {pod['status']['podIP']} tcp dport != 8443 limit rate over 20 kbytes/second drop"
    node.machine.net("nft", f"{table} {{ chain forward {{ type filter hook forward priority 0; {rule}; }}; }}")
    try:
        yield
    finally:
        node.machine.net("nft", f"delete {table}")


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
