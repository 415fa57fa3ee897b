"""The device guard on a real cluster: a Deployment's pods leave unhealthy devices, as far as their budget allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from e2e import installation
from e2e.cluster.device_plugin import Devices, devices
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.gangs import Kubectl
from e2e.installation import Installed
from tests.wait import until

pytestmark = pytest.mark.nightly

RESOURCE = "example.com/guarded"
LABELS = {"app": "inference"}
SECONDS = 150
"""A new leader evicts nothing for its first minute."""


@pytest.fixture(scope="module")
def guarding(cluster: Cluster, gangctl_installed: Installed) -> Iterator[Installed]:
    """The installed release with the device guard."""
    installation.enable(cluster, "deviceGuard")
    yield gangctl_installed
    installation.enable(cluster, "deviceGuard", wanted=False)


class Service:
    """A Deployment of two pods with a device each, and its budget."""

    def __init__(self, kubectl: Kubectl, namespace: str, plugged: dict[str, Devices]) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._plugged = plugged

    def apply(self, image: str, *, available: int) -> None:
        """Create it, and wait until its pods are ready and its budget is known."""
        container = {
            "name": "main",
            "image": image,
            "command": ["sleep", "1000000"],
            "resources": {"limits": {RESOURCE: 1}},
        }
        template = {
            "metadata": {"labels": {**LABELS, "gangctl.io/device-guard": "true"}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
        }
        spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template}
        self._create("apps/v1", "Deployment", spec)
        self._create("policy/v1", "PodDisruptionBudget", {"minAvailable": available, "selector": spec["selector"]})
        self("rollout", "status", "deployment/inference", "--timeout=60s")
        self("wait", "--for=jsonpath={.status.currentHealthy}=2", "pdb/inference", "--timeout=60s")

    def __call__(self, *words: str, stdin: str = "") -> str:
        """What kubectl prints, in the namespace."""
        return self._kubectl("-n", self._namespace, *words, stdin=stdin)

    def pods(self) -> dict[str, str]:
        """UID of each pod that is not being deleted, by name."""
        items = json.loads(self("get", "pods", "-l", "app=inference", "-o", "json"))["items"]
        found = (one["metadata"] for one in items)
        return {one["name"]: one["uid"] for one in found if "deletionTimestamp" not in one}

    def device(self, pod: str) -> str:
        """The device of a pod."""
        return self("exec", pod, "--", "printenv", "FAKE_DEVICES").strip()

    def mark(self, pod: str, *, healthy: bool) -> str:
        """Set the health of the device of a pod, and wait until its status has it; the device."""
        name, health = self.device(pod), "Healthy" if healthy else "Unhealthy"
        self._plugged[name].mark(name, healthy=healthy)
        path = "{.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health}"
        self("wait", f"--for=jsonpath={path}={health}", f"pod/{pod}", "--timeout=60s")
        return name

    def events(self, reason: str) -> list[dict[str, Any]]:
        """The Events with this reason."""
        found = json.loads(self("get", "events.events.k8s.io", "-o", "json"))["items"]
        return [one for one in found if one["reason"] == reason]

    def _create(self, version: str, kind: str, spec: dict[str, Any]) -> None:
        made = {"apiVersion": version, "kind": kind, "metadata": {"name": "inference"}, "spec": spec}
        self("apply", "-f", "-", stdin=json.dumps(made))


@pytest.fixture
def service(lab: Lab, cluster: Cluster, namespace: str, guarding: Installed) -> Iterator[Service]:  # noqa: ARG001
    """The service, not yet created: each of the two nodes has two devices."""
    with ExitStack() as stack:
        plugged: dict[str, Devices] = {}
        for number in (1, 2):
            names = (f"device-{number}-a", f"device-{number}-b")
            plugged |= dict.fromkeys(names, stack.enter_context(devices(lab.node(number), RESOURCE, names)))
            path = rf"{{.status.allocatable.{RESOURCE.replace('.', chr(92) + '.')}}}"
            cluster.kubectl("wait", f"--for=jsonpath={path}=2", f"node/node-{number}", "--timeout=60s")
        made = Service(cluster.kubectl, namespace, plugged)
        yield made
        made("delete", "deployment,pdb", "--all", "--cascade=foreground", "--timeout=60s")


def test_a_pod_leaves_an_unhealthy_device_once_and_a_flap_moves_none(service: Service, guarding: Installed) -> None:
    service.apply(guarding.examples, available=1)
    before = service.pods()
    stays, leaves = before
    service.mark(stays, healthy=False)
    service.mark(stays, healthy=True)
    broken = service.mark(leaves, healthy=False)
    service("wait", "--for=delete", f"pod/{leaves}", f"--timeout={SECONDS}s")
    service("rollout", "status", "deployment/inference", "--timeout=60s")
    after = service.pods()
    assert after[stays] == before[stays], "its device was unhealthy for less than ten seconds"
    (new,) = after.keys() - {stays}
    assert service.device(new) not in {broken, service.device(stays)}
    until("the Event of the eviction is stored", lambda: service.events("DeviceGuardEvicted"))
    (event,) = service.events("DeviceGuardEvicted")
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": leaves,
        "namespace": event["metadata"]["namespace"],
        "uid": before[leaves],
    }
    assert broken in event["note"]
    assert "series" not in event
    assert not service.events("DeviceGuardRefused")


def test_a_budget_that_allows_none_keeps_the_pod_and_one_event_says_so(service: Service, guarding: Installed) -> None:
    service.apply(guarding.examples, available=2)
    before = service.pods()
    pod = min(before)
    broken = service.mark(pod, healthy=False)
    until("an Event says why it is not evicted", lambda: service.events("DeviceGuardRefused"), SECONDS)
    assert service.pods() == before
    (event,) = service.events("DeviceGuardRefused")
    assert event["regarding"]["uid"] == before[pod]
    assert broken in event["note"]
    assert "The disruption budget inference needs 2 healthy pods and has 2 currently" in event["note"]

    service("patch", "pdb/inference", "--type=merge", "-p", json.dumps({"spec": {"minAvailable": 1}}))
    service("wait", "--for=delete", f"pod/{pod}", f"--timeout={SECONDS}s")
    (event,) = service.events("DeviceGuardRefused")
    assert "series" not in event, "each try is refused, and it is told once"
