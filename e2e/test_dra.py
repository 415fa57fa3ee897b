"""Devices of resource claims: one that fails, or is tainted, costs one pod, whose new claim gets another device."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e import installation
from e2e.cluster.dra_driver import DRIVER, TAINT, ClaimedDevices, allocation, claim_template, claimed_devices
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.gangs import Gang, has_stepped, sleepers
from e2e.installation import Installed
from e2e.whys import why
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
EACH = 4
"""Devices of each of the two nodes."""
SECONDS = 150.0
"""A kubelet may miss a change of a device just after the start of its pod; it looks again after 60 to 90 s."""


@pytest.fixture
def claimable(lab: Lab, cluster: Cluster, namespace: str) -> Iterator[dict[str, ClaimedDevices]]:
    """Both nodes with a driver, and a template for claims: the name of each device, and where to set its health."""
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(claim_template("one-device")))
    with ExitStack() as stack:
        found: dict[str, ClaimedDevices] = {}
        for number in (1, 2):
            names = [f"accelerator-{number}-{at}" for at in range(EACH)]
            opened = claimed_devices(lab.node(number), cluster.kubectl, names)
            found |= dict.fromkeys(names, stack.enter_context(opened))
        yield found


def gang_of(name: str, directory: Path, **role: Any) -> dict[str, Any]:
    """Three workers with a claim each, which a template makes."""
    document = sleepers(name, replicas=3, directory=str(directory), steps=True)
    document["spec"]["roles"][0] |= role
    spec = document["spec"]["roles"][0]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "accelerator", "resourceClaimTemplateName": "one-device"}]
    spec["containers"][0]["resources"] = {"claims": [{"name": "accelerator", "request": "one"}]}
    return document


def device(gang: Gang, member: str) -> str:
    """The device of a member, by the claim of its pod."""
    status = gang.pods()[member]["status"]
    claim = status["resourceClaimStatuses"][0]["resourceClaimName"]
    found = allocation(json.loads(gang.kubectl("get", "resourceclaim", claim, "-n", gang.namespace, "-o", "json")))
    return found[0].device


def health(gang: Gang, member: str) -> dict[str, str]:
    """Device -> health, as the status of a member's pod tells."""
    return {
        one["resourceID"]: one["health"]
        for container in gang.pods()[member]["status"].get("containerStatuses", [])
        for allocated in container.get("allocatedResourcesStatus", [])
        if allocated["name"] == "claim:accelerator/one"
        for one in allocated["resources"]
    }


def begun(gang: Gang, directory: Path, pods: int) -> str:
    """Wait until it trains with so many pods; a member that runs a rank, and whose device is known to be healthy.

    At the first start a spare may have been ready before one of the others.
    """
    gang.runs(1)
    phases = ["Running"] * pods
    until("all pods run, spares too", lambda: [one["status"]["phase"] for one in gang.pods().values()] == phases)
    until("rank 0 has made a step", lambda: has_stepped(directory, 1))
    member = max(path.name for path in directory.glob("worker-*"))
    until("its device is healthy", lambda: set(health(gang, member).values()) == {"Healthy"}, SECONDS, every=0.25)
    return member


def only_replaced(gang: Gang, before: dict[str, str], member: str) -> None:
    """Wait until this member alone has a new pod."""
    until("it has a new pod", lambda: gang.uids().get(member) not in {None, before[member]})
    after = gang.uids()
    assert {name for name in before if after.get(name) != before[name]} == {member}


@pytest.mark.parametrize("spares", [0, 1])
def test_a_device_of_a_claim_that_fails_costs_one_pod(
    spares: int,
    claimable: dict[str, ClaimedDevices],
    submit: Submit,
    shared_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gang = submit(gang_of("sick", shared_dir, spares=spares))
    member = begun(gang, shared_dir, 3 + spares)
    before, broken = gang.uids(), device(gang, member)
    node = gang.pods()[member]["spec"]["nodeName"]
    began = time.monotonic()
    claimable[broken].mark(broken, "too many ECC errors")
    status = gang.runs(2, SECONDS)
    seconds = time.monotonic() - began
    cause = status["incidents"][0]["cause"]
    named = f"{DRIVER}/{node}/{broken}"
    assert (cause["reason"], cause["member"], cause["device"]) == ("DeviceLost", member, named)
    assert f"device {named} (claim:accelerator/one) is unhealthy: too many ECC errors" in cause["message"]
    only_replaced(gang, before, member)
    assert device(gang, member) != broken
    with capsys.disabled():
        print(f"\n  {spares} spares: all workers run {seconds:.1f} s after a device turned unhealthy ", end="")


def test_a_pod_that_is_deleted_for_the_taint_of_its_device_is_replaced_and_not_charged(
    claimable: dict[str, ClaimedDevices], submit: Submit, shared_dir: Path
) -> None:
    gang = submit(gang_of("tainted", shared_dir))
    member = begun(gang, shared_dir, 3)
    before, tainted = gang.uids(), device(gang, member)
    claimable[tainted].taint(tainted, "NoExecute")
    status = gang.runs(2, 120)
    incident = status["incidents"][0]
    assert (incident["cause"]["reason"], incident["cause"]["member"]) == ("DeviceTainted", member)
    assert f"/{tainted}" in incident["cause"]["message"]
    assert incident["planned"]
    assert status["restarts"]["counted"] == 0
    only_replaced(gang, before, member)
    assert device(gang, member) != tainted


@pytest.fixture(scope="module")
def _following(cluster: Cluster, gangctl_installed: Installed) -> Iterator[None]:  # noqa: ARG001 - this release
    """The installed release, which reads the taints of devices."""
    installation.enable(cluster, "deviceTaints")
    yield
    installation.enable(cluster, "deviceTaints", wanted=False)


@pytest.fixture
def rule(cluster: Cluster) -> Iterator[Callable[[str, str], None]]:
    """Taint a device of a node as an administrator does."""
    version = next(
        line.split()[-3]
        for line in cluster.kubectl("api-resources", "--api-group=resource.k8s.io", "--no-headers").splitlines()
        if line.startswith("devicetaintrules")
    )

    def taint(node: str, name: str) -> None:
        selected = {"driver": DRIVER, "pool": node, "device": name}
        spec = {"deviceSelector": selected, "taint": {"key": TAINT, "effect": "NoSchedule"}}
        made = {"apiVersion": version, "kind": "DeviceTaintRule", "metadata": {"name": "sick"}, "spec": spec}
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made))

    yield taint
    cluster.kubectl("delete", "devicetaintrule", "sick", "--ignore-not-found")


def test_tainted_devices_are_named_for_pods_that_wait_for_one(
    rule: Callable[[str, str], None],
    claimable: dict[str, ClaimedDevices],
    cluster: Cluster,
    submit: Submit,
    shared_dir: Path,
) -> None:
    first, *others = claimable
    for name in others:
        claimable[name].taint(name, "NoSchedule")
    rule("node-1", first)
    gang = submit(gang_of("waits", shared_dir))

    def told() -> list[str] | None:
        found = [one["tainted"] for one in why(cluster, gang)["findings"] if "tainted" in one]
        return found[0] if found and len(found[0]) == len(claimable) else None

    named = until("all are named", told, every=0.5)
    assert f"{DRIVER}/node-1/{first} ({TAINT}:NoSchedule)" in named
    assert f"{DRIVER}/node-2/{others[-1]} ({TAINT}:NoSchedule)" in named


@pytest.mark.usefixtures("_following")
@pytest.mark.parametrize("by", ["driver", "administrator"])
def test_a_pod_whose_device_takes_no_new_pods_leaves_it_at_the_next_restart(
    by: str,
    rule: Callable[[str, str], None],
    claimable: dict[str, ClaimedDevices],
    submit: Submit,
    shared_dir: Path,
) -> None:
    gang = submit(gang_of("soft", shared_dir))
    member = begun(gang, shared_dir, 3)
    before, tainted = gang.uids(), device(gang, member)
    node = gang.pods()[member]["spec"]["nodeName"]
    if by == "driver":
        claimable[tainted].taint(tainted, "NoSchedule")
    else:
        rule(node, tainted)

    def told() -> str | None:
        found = {one["type"]: one for one in gang.status["conditions"]}.get("Degraded", {})
        return found.get("message") if found.get("reason") == "NodeSuspect" else None

    message = until("the gang tells of the taint", told)
    assert f"{TAINT}:NoSchedule of device {DRIVER}/{node}/{tainted}" in message
    assert gang.uids() == before, "it trains on"
    gang.patch(restartToken="again")
    status = gang.runs(2, 120)
    assert status["incidents"][0]["cause"]["reason"] == "RestartRequested"
    only_replaced(gang, before, member)
    assert device(gang, member) != tainted
