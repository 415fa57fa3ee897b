"""Devices that fail under a gang: one costs one pod, a flap costs little, and the next device may be bad as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.accelerators import gang_of
from e2e.cluster.device_plugin import Devices
from e2e.clusters import Cluster
from e2e.gangs import Gang
from e2e.whys import why
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]


def device(gang: Gang, member: str) -> str:
    """The device of a member."""
    pod = gang.pods()[member]["metadata"]["name"]
    return gang.kubectl("exec", pod, "-c", "main", "-n", gang.namespace, "--", "printenv", "FAKE_DEVICES").strip()


def at_work(directory: Path, ranks: int) -> str:
    """A member that runs a rank: at the first start a spare may have been ready before one of the others."""

    def begun() -> list[str] | None:
        found = sorted(path.name for path in directory.glob("worker-*"))
        return found if len(found) == ranks else None

    return until("every rank has begun", begun)[-1]


def handed_over(gang: Gang, node: str) -> str:
    """What those who repair the node read."""
    lines = gang.kubectl("describe", "node", node).splitlines()
    return "\n".join(line for line in lines if "NodeAtFault" in line)


def running(gang: Gang) -> int:
    """Number of its pods that run."""
    return sum(pod["status"].get("phase") == "Running" for pod in gang.pods().values())


@pytest.mark.parametrize("spares", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_device_that_fails_costs_one_pod(
    spares: int,
    plugged: dict[str, Devices],
    cluster: Cluster,
    submit: Submit,
    shared_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gang = submit(gang_of("sick", shared_dir, 3, spares=spares))
    gang.runs(1)
    until("all pods run, spares too", lambda: running(gang) == 3 + spares)
    member = at_work(shared_dir, 3)
    before, broken = gang.uids(), device(gang, member)
    node = gang.pods()[member]["spec"]["nodeName"]
    began = time.monotonic()
    plugged[broken].mark(broken, healthy=False)
    status = gang.runs(2, 120)
    seconds = time.monotonic() - began
    cause = status["incidents"][0]["cause"]
    assert (cause["reason"], cause["member"], cause["device"]) == ("DeviceLost", member, broken)
    until("it has a new pod", lambda: gang.uids().get(member) not in {None, before[member]})
    after = gang.uids()
    assert {name for name in before if after.get(name) != before[name]} == {member}
    last = why(cluster, gang)["restarts"]["last"]
    incident = last["incident"]
    assert (incident["reason"], incident["level"], incident["charged"]) == ("DeviceLost", "Pod", True)
    assert {f"device {broken}", f"node {node}"} <= set(incident["evidence"])
    until("the node has an Event of it", lambda: f"device {broken}" in handed_over(gang, node))
    with capsys.disabled():
        print(f"\n  {spares} spares: all workers run {seconds:.1f} s after a device turned unhealthy ", end="")


@pytest.mark.nightly
def test_a_device_that_flaps_costs_one_restart_at_most(
    plugged: dict[str, Devices], submit: Submit, shared_dir: Path
) -> None:
    gang = submit(gang_of("flaps", shared_dir, 2))
    gang.runs(1)
    flapping = device(gang, "worker-1")
    for _ in range(5):
        for healthy in (False, True):
            plugged[flapping].mark(flapping, healthy=healthy)
            time.sleep(0.1)  # what the world does, not what the test waits for
    status = gang.runs(gang.status["attempt"])
    assert status["attempt"] <= 2
    assert {one["cause"]["member"] for one in status.get("incidents", [])} <= {"worker-1"}


@pytest.mark.nightly
def test_a_device_that_is_bad_on_the_replacement_too_is_left_as_well(
    plugged: dict[str, Devices], submit: Submit, shared_dir: Path
) -> None:
    gang = submit(gang_of("twice", shared_dir, 2))
    gang.runs(1)
    seen = {device(gang, "worker-0")}
    for attempt in (2, 3):
        broken = device(gang, "worker-1")
        assert broken not in seen
        seen.add(broken)
        plugged[broken].mark(broken, healthy=False)
        status = gang.runs(attempt, 120)
        assert status["incidents"][0]["cause"]["device"] == broken
    assert device(gang, "worker-1") not in seen
    assert gang.pods()["worker-0"]["metadata"]["name"].endswith("-0"), "it kept its pod"


@pytest.mark.nightly
def test_a_node_whose_devices_all_fail_is_left_by_two_gangs_with_one_restart_each(
    plugged: dict[str, Devices], submit: Submit, shared_dir: Path
) -> None:
    gangs = []
    for name in ("first", "second"):
        (shared_dir / name).mkdir()
        (shared_dir / name).chmod(0o777)
        document = gang_of(name, shared_dir / name, 2)
        document["spec"]["placement"] = {"strategy": "Spread", "mode": "Preferred"}
        gangs.append(submit(document))
    for gang in gangs:
        gang.runs(1)
    node = gangs[0].pods()["worker-1"]["spec"]["nodeName"]
    hit = {
        gang.name: {member for member, pod in gang.pods().items() if pod["spec"]["nodeName"] == node} for gang in gangs
    }
    assert all(hit.values()), "each gang has a member on both nodes"
    number = node.removeprefix("node-")
    for name, at in plugged.items():
        if name.startswith(f"accelerator-{number}-"):
            at.mark(name, healthy=False)
    for gang in gangs:
        status = gang.runs(2, 120)
        assert len(status["incidents"]) == 1
        assert {pod["spec"]["nodeName"] for pod in gang.pods().values()} == {f"node-{3 - int(number)}"}


@pytest.mark.nightly
def test_a_node_that_rejects_a_pod_is_named_with_what_to_check(
    plugged: dict[str, Devices], submit: Submit, shared_dir: Path
) -> None:
    mine = {name: at for name, at in plugged.items() if name.startswith("accelerator-2-")}
    for name, at in mine.items():
        at.mark(name, healthy=False)
    document = gang_of("rejected", shared_dir, 1)
    document["spec"]["roles"][0]["template"]["spec"]["nodeName"] = "node-2"  # as if the scheduler had not heard of it
    gang = submit(document)
    text = "its node node-2 rejected its pod: UnexpectedAdmissionError"
    found = gang.until("it says why", lambda status: status.get("message") if text in str(status) else None)
    assert "check the device plugin on that node" in found
    for name, at in mine.items():
        at.mark(name, healthy=True)
    status = gang.runs(1, 120)
    assert status["restarts"]["counted"] == 0
