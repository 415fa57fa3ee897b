"""A release for some namespaces controls the gangs in these, with rights in these alone.

All of it runs as OpenShift's restricted-v2 would have it: the level restricted is enforced, and the cluster assigns a
user that no image knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from e2e import installation
from e2e.clusters import Cluster
from e2e.gangs import Gang, Kubectl, sleepers
from e2e.installation import CHART, RELEASE, Installed
from tests.wait import until

pytestmark = pytest.mark.nightly

SECOND = "second"
ASSIGNED = 1_000_690_000
ENFORCE = "pod-security.kubernetes.io/enforce=restricted"
OF_PODS = {
    "runAsNonRoot": True,
    "runAsUser": ASSIGNED,
    "fsGroup": ASSIGNED,
    "seccompProfile": {"type": "RuntimeDefault"},
}
OF_CONTAINERS = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def restricted() -> dict[str, Any]:
    """A gang that the level restricted admits: it has no folder of the host."""
    made = sleepers("mine", replicas=2, directory="/unused")
    spec = made["spec"]["roles"][0]["template"]["spec"]
    spec |= {"securityContext": OF_PODS, "volumes": [{"name": "checkpoints", "emptyDir": {}}]}
    spec["containers"][0]["securityContext"] = OF_CONTAINERS
    return made


@pytest.fixture
def namespaces(cluster: Cluster) -> Iterator[list[str]]:
    """Three of them."""
    with ExitStack() as stack:
        found = [stack.enter_context(cluster.namespace(f"watched-{name}")) for name in "abc"]
        cluster.kubectl("label", "namespace", *found, ENFORCE)
        yield found


@pytest.fixture
def second(cluster: Cluster, idle: Installed, namespace: str, namespaces: list[str]) -> Iterator[str]:
    """A second release, for the first two namespaces; the name of its Deployment."""
    images = {"image": idle.controller, "sidecar.image": idle.sidecar}
    words = [word for value, name in images.items() for word in installation.image_values(value, name)]
    watched = ",".join(namespaces[:2])
    cluster.kubectl("label", "namespace", namespace, ENFORCE)
    installation.helm(
        cluster,
        *("install", SECOND, str(CHART), "--namespace", namespace, "--wait", "--timeout=120s", *words),
        *("--set", f"watchNamespaces={{{watched}}},replicaCount=1,crds.enabled=false,rbac.aggregatedRoles=false"),
        *("--set", f"podSecurityContext.runAsUser={ASSIGNED},podSecurityContext.fsGroup={ASSIGNED}"),
    )
    yield f"{SECOND}-{RELEASE}"
    installation.helm(cluster, "uninstall", SECOND, "--namespace", namespace, "--wait", "--timeout=120s")


def test_a_release_for_two_namespaces_runs_the_gangs_in_these_and_no_others(
    cluster: Cluster, kubectl: Kubectl, second: str, namespace: str, namespaces: list[str]
) -> None:
    gangs = [Gang(kubectl, one, "mine") for one in namespaces]
    for gang in gangs:
        gang.apply(restricted())
    for gang in gangs[:2]:
        gang.runs(1)
    assert gangs[2].status == {}
    assert gangs[2].pods() == {}
    account = f"system:serviceaccount:{namespace}:{second}"

    def may(what: str, where: str) -> bool:
        words = ("auth", "can-i", *what.split(), "-n", where, f"--as={account}")
        return not cluster.run("kubectl", *words).returncode

    assert [may("create pods", one) for one in namespaces] == [True, True, False]
    assert [may("list gangjobs.gangctl.io", one) for one in namespaces] == [True, True, False]
    kubectl("delete", "pod", "-n", namespaces[1], gangs[1].pods()["worker-0"]["metadata"]["name"])
    until("the gang restarts", lambda: gangs[1].runs(2)["attempt"] == 2, 120)
    assert gangs[0].status["attempt"] == 1
    for gang in gangs:
        kubectl("delete", "gangjob", "mine", "-n", gang.namespace, "--timeout=60s")
