"""The controller uses each right that the chart grants to its service account, and no other."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import rights
from e2e.api_proxy import ApiProxy, Call, Fault, refusal
from e2e.cluster import addresses
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.controllers import METRICS, NAME, NAMESPACE, Controller, LocalControllers
from e2e.gangs import Gang, Kubectl, gang, sleepers
from gangctl.api.names import ANNOTATION_HUB_ADDRESS
from gangctl.cluster.kube.owned import SERVED
from tests.wait import until_async

Submit = Callable[[dict[str, Any]], Gang]
NOT_REQUESTED = {"gangctl.io/gangjobs/finalizers update"}
"""Rights that another request needs: a pod with ``blockOwnerDeletion`` is admitted only from a user who has this."""
DENIED = {401, 403}


def short(name: str, directory: str, **spec: Any) -> dict[str, Any]:
    """A gang that succeeds at once, and goes away a second later."""
    container = {"name": "main", "image": "gangctl/examples:e2e", "command": ["true"]}
    return gang(name, container, replicas=1, directory=directory, ttlSecondsAfterFinished=1, **spec)


@pytest.mark.nightly
def test_a_finished_gang_goes_away_after_its_time_to_live(
    kubectl: Kubectl, namespace: str, submit: Submit, shared_dir: Path
) -> None:
    submit(short("gone", str(shared_dir)))
    kubectl("wait", "--for=delete", "gangjob/gone", "-n", namespace, "--timeout=120s")
    kubectl("wait", "--for=delete", "pod", "-l", "gangctl.io/gang=gone", "-n", namespace, "--timeout=60s")


@pytest.fixture
def group_version(cluster: Cluster) -> str:
    """The version of PodGroups."""
    versions = json.loads(cluster.kubectl("get", "--raw", "/apis/scheduling.k8s.io"))["versions"]
    found = [version for version in SERVED if version in {one["version"] for one in versions}]
    if not found:
        pytest.skip("this release has no PodGroups, so that the controller can't use its rights to them")
    return found[0]


@pytest.fixture
def whole_life(
    cluster: Cluster, submit: Submit, shared_dir: Path, namespace: str, group_version: str
) -> Callable[[], None]:
    """A gang that finds its PodGroup and a disruption budget with a wrong number, is suspended and gets another
    group; one that ends and goes away; one that fails, so that its log is read."""

    def do() -> None:
        grouped = {"type": "PodGroup"}
        life = submit(sleepers("life", replicas=2, directory=str(shared_dir), suspend=True, gangScheduling=grouped))
        life.until("it is suspended", lambda status: status.get("phase") == "Suspended")
        uid = life.read()["metadata"]["uid"]
        owner = {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "name": "life", "uid": uid, "controller": True}
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "life", "namespace": namespace, "ownerReferences": [owner]},
            "spec": {"minAvailable": 7, "selector": {"matchLabels": {"gangctl.io/uid": uid}}},
        }
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(budget))
        group = {
            "apiVersion": f"scheduling.k8s.io/{group_version}",
            "kind": "PodGroup",
            "metadata": {"name": "life-0", "namespace": namespace, "ownerReferences": [owner]},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(group))
        life.patch(suspend=False)
        life.runs(1)
        told = f"{ANNOTATION_HUB_ADDRESS}=192.0.2.1"
        pod = ("pod", "life-worker-0-0", "-n", namespace)
        cluster.kubectl("annotate", *pod, told, "--overwrite")
        cluster.watch(*pod, holds=lambda one: one["metadata"]["annotations"][ANNOTATION_HUB_ADDRESS] != "192.0.2.1")
        life.patch(suspend=True)
        life.until("it is suspended again", lambda status: status.get("phase") == "Suspended")
        life.patch(suspend=False)
        life.runs(2)
        submit(short("short", str(shared_dir)))
        cluster.kubectl("wait", "--for=delete", "gangjob/short", "-n", namespace, "--timeout=120s")
        failing = short("failing", str(shared_dir), recovery={"budget": {"maxRestarts": 0}})
        failing["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"] = ["false"]
        submit(failing)
        cluster.kubectl("wait", "--for=delete", "gangjob/failing", "-n", namespace, "--timeout=120s")

    return do


@pytest.fixture
def scraped(lab: Lab, kubectl: Kubectl, namespace: str) -> Callable[[Controller], int]:
    """Scrape with a token of the test's namespace; the status code."""

    def do(controller: Controller) -> int:
        token = kubectl("create", "token", "default", "-n", namespace).strip()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        host = addresses.entrance(lab.control_plane.number)
        connection = http.client.HTTPSConnection(host, controller.port + METRICS, timeout=10, context=context)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status
        finally:
            connection.close()

    return do


async def test_the_controller_uses_exactly_the_rights_of_its_service_account(
    local_controllers: LocalControllers,
    api_proxy: ApiProxy,
    cluster: Cluster,
    whole_life: Callable[[], None],
    scraped: Callable[[Controller], int],
) -> None:
    denied: list[str] = []

    async def note(call: Call, code: int) -> None:
        if code in DENIED:
            denied.append(f"{call.method} {call.path}: {code}")

    api_proxy.faults += [Fault(after=note), Fault(before=Detours())]
    kubectl, given = cluster.kubectl, granted(cluster)
    await asyncio.to_thread(
        kubectl, "delete", f"lease/{NAME}", f"secret/{NAME}-tls", "-n", NAMESPACE, "--ignore-not-found"
    )
    first = await local_controllers.start("first", api_proxy.url, GANGCTL_METRICS_SECURE="true")
    await asyncio.to_thread(whole_life)
    assert await asyncio.to_thread(scraped, first) == http.client.FORBIDDEN
    # The next controller writes the Secret, since it lacks a certificate.
    broken = [{"op": "remove", "path": "/data/tls.crt"}]
    await asyncio.to_thread(
        kubectl, "patch", "secret", f"{NAME}-tls", "-n", NAMESPACE, "--type=json", "-p", json.dumps(broken)
    )
    await local_controllers.start("second", api_proxy.url)

    def used() -> set[str]:
        return {rights.used(call) for call in api_proxy.calls} | NOT_REQUESTED

    try:
        await until_async("all rights are used", lambda: used() >= given)
    except TimeoutError:
        assert used() == given, "the chart grants what the controller doesn't use"
    assert used() == given
    assert denied == []


class Detours:
    """Answers that make the controller take each of its less usual ways, once or always."""

    def __init__(self) -> None:
        self._left = [
            ("POST", "/pods", refusal_of("AlreadyExists")),
            ("DELETE", "/pods/", refusal_of("Conflict")),
            ("POST", "/events", refusal_of("AlreadyExists")),
            ("PUT", "/gangjobs/", refusal_of("Conflict")),
        ]

    async def __call__(self, call: Call) -> Any:
        """The answer, instead of the API server's."""
        if call.path == "/openid/v1/jwks":  # A cluster that publishes no keys: tokens are reviewed.
            return refusal(403, "Forbidden", "keys are not published here")
        for at, (method, path, answer) in enumerate(self._left):
            if call.method == method and path in call.path and "dryRun" not in call.query:
                del self._left[at]
                return answer()
        return None


def refusal_of(reason: str) -> Callable[[], Any]:
    """Makes a new refusal with code 409."""
    return lambda: refusal(409, reason, "the test says so")


def granted(cluster: Cluster) -> set[str]:
    """The rights of the service account, by the roles that the chart has created."""
    cluster_role = json.loads(cluster.kubectl("get", "clusterrole", f"{NAME}:{NAMESPACE}", "-o", "json"))
    role = json.loads(cluster.kubectl("get", "role", NAME, "-n", NAMESPACE, "-o", "json"))
    rules = cluster_role["rules"] + role["rules"]
    return {right for rule in rules for right in rights.granted(rule, named=False)}
