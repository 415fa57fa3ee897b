"""A release for some namespaces controls the gangs in these, with rights in these alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e import installation
from e2e.clusters import Cluster
from e2e.gangs import Gang, Kubectl, sleepers
from e2e.installation import CHART, NAMESPACE, RELEASE, Installed
from tests.wait import until

SECOND = "second"


@pytest.fixture
def idle(cluster: Cluster, gangctl_installed: Installed) -> Iterator[Installed]:
    """The installed release, which watches all namespaces, without replicas."""
    words = ("-n", NAMESPACE, "deployment", RELEASE)
    cluster.kubectl("scale", *words, "--replicas=0")
    pods = ("-n", NAMESPACE, "pod", "-l", "app.kubernetes.io/component=controller")
    cluster.kubectl("wait", "--for=delete", *pods, "--timeout=60s")
    yield gangctl_installed
    cluster.kubectl("scale", *words, "--replicas=2")
    cluster.kubectl("rollout", "status", *words, "--timeout=120s")


@pytest.fixture
def namespaces(cluster: Cluster) -> Iterator[list[str]]:
    """Three of them."""
    with ExitStack() as stack:
        yield [stack.enter_context(cluster.namespace(f"watched-{name}")) for name in "abc"]


@pytest.fixture
def second(cluster: Cluster, idle: Installed, namespace: str, namespaces: list[str]) -> Iterator[str]:
    """A second release, for the first two namespaces; the name of its Deployment."""
    images = {"image": idle.controller, "sidecar.image": idle.sidecar}
    words = [word for value, name in images.items() for word in installation.image_values(value, name)]
    watched = ",".join(namespaces[:2])
    installation.helm(
        cluster,
        *("install", SECOND, str(CHART), "--namespace", namespace, "--wait", "--timeout=120s", *words),
        *("--set", f"watchNamespaces={{{watched}}},replicaCount=1,crds.enabled=false,rbac.aggregatedRoles=false"),
    )
    yield f"{SECOND}-{RELEASE}"
    installation.helm(cluster, "uninstall", SECOND, "--namespace", namespace, "--wait", "--timeout=120s")


def test_a_release_for_two_namespaces_runs_the_gangs_in_these_and_no_others(
    cluster: Cluster, kubectl: Kubectl, second: str, namespace: str, namespaces: list[str], shared_dir: Path
) -> None:
    gangs = [Gang(kubectl, one, "mine") for one in namespaces]
    for at, gang in enumerate(gangs):
        gang.apply(sleepers("mine", replicas=2, directory=str(shared_dir / str(at))))
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
