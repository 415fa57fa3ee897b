"""Gangs on the platforms of others: host network, Guaranteed pods, arbitrary users, a shared process namespace."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import Cluster
from e2e.gangs import Gang, Kubectl, sleepers
from e2e.installation import Installed
from gangctl.api.names import ANNOTATION_HUB_CA
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
ASSIGNED = 1_000_680_000
"""A user as OpenShift assigns one to a namespace: no image knows it."""
CONTAINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
ENOUGH = {"cpu": "100m", "memory": "128Mi"}
RUNTIME_CLASS = "gangctl-e2e"
TEMPLATES: dict[str, dict[str, Any]] = {
    "hostnetwork": {"hostNetwork": True},
    "assigned": {
        "securityContext": {
            "runAsUser": ASSIGNED,
            "fsGroup": ASSIGNED,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "container": {"securityContext": CONTAINED},
    },
    "root": {"securityContext": {"runAsUser": 0}},
    "shared": {"shareProcessNamespace": True},
    "guaranteed": {"container": {"resources": {"limits": ENOUGH}}, "runtimeClassName": RUNTIME_CLASS},
}
"""By the names of the gangs, which run and restart side by side: fields of the template, and of its container."""


def document(name: str, folder: Path, replicas: int = 2) -> dict[str, Any]:
    """A gang with that template."""
    made = sleepers(name, replicas=replicas, directory=str(folder), recovery={"replaceAfter": 100})
    template = made["spec"]["roles"][0]["template"]["spec"]
    fields = dict(TEMPLATES.get(name, {}))
    template["containers"][0] |= fields.pop("container", {})
    template |= fields
    return made


@pytest.fixture
def inject(cluster: Cluster) -> Callable[[Gang], None]:
    """Kill the worker of rank 0."""

    def do(gang: Gang) -> None:
        words = ("inject", gang.name, "--rank", "0", "--signal", "SIGKILL", "-n", gang.namespace)
        command = [sys.executable, "-m", "gangctl", *words]
        done = subprocess.run(command, env=cluster.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return do


@pytest.fixture
def _runtime_class(kubectl: Kubectl) -> Iterator[None]:
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": RUNTIME_CLASS}}
    kubectl("apply", "-f", "-", stdin=json.dumps({**runtime, "handler": "runc"}))
    yield
    kubectl("delete", "runtimeclass", RUNTIME_CLASS)


def users(pod: dict[str, Any]) -> dict[str, int]:
    """Container -> the user of its first process, as the kubelet says."""
    statuses = pod["status"]["initContainerStatuses"] + pod["status"]["containerStatuses"]
    return {one["name"]: one["user"]["linux"]["uid"] for one in statuses}


@pytest.mark.usefixtures("_runtime_class")
def test_gangs_of_other_platforms_run_and_restart_in_place(
    submit: Submit, shared_dir: Path, kubectl: Kubectl, inject: Callable[[Gang], None]
) -> None:
    gangs: dict[str, Gang] = {}
    for name in TEMPLATES:
        (shared_dir / name).mkdir(mode=0o777)
        (shared_dir / name).chmod(0o777)
        # Three members on two nodes: with the host's network two of them have one address.
        gangs[name] = submit(document(name, shared_dir / name, 3 if name == "hostnetwork" else 1))
    pods = {name: (gang.runs(1), gang.pods())[1] for name, gang in gangs.items()}
    uids = {name: gang.uids() for name, gang in gangs.items()}
    for gang in gangs.values():
        inject(gang)
    for name, gang in gangs.items():
        gang.runs(2)
        assert gang.uids() == uids[name]

    first = {name: found["worker-0"] for name, found in pods.items()}
    assert first["guaranteed"]["status"]["qosClass"] == "Guaranteed"
    assert users(first["assigned"]) == {"gangctl": ASSIGNED, "main": ASSIGNED}
    assert users(first["root"]) == {"gangctl": 65532, "main": 0}
    assert users(first["guaranteed"])["gangctl"] == 65532

    hosts = {member: pod["status"]["podIP"] for member, pod in pods["hostnetwork"].items()}
    assert len(set(hosts.values())) < len(hosts)
    assert {pod["spec"]["dnsPolicy"] for pod in pods["hostnetwork"].values()} == {"ClusterFirst"}
    told = (shared_dir / "hostnetwork" / "worker-1").read_text().splitlines()
    assert [line.split()[3].partition(":")[0] for line in told] == [hosts["worker-0"]] * 2

    main = (first["guaranteed"]["metadata"]["name"], "-n", gangs["guaranteed"].namespace, "-c", "main", "--")
    with pytest.raises(RuntimeError, match="Read-only file system"):
        kubectl("exec", *main, "touch", "/run/gang/client/gangclient/__init__.py")
    assert "hostfile" in kubectl("exec", *main, "ls", "/run/gang-state")


def test_a_template_that_takes_what_belongs_to_gangctl_is_refused_with_its_path(
    submit: Submit, shared_dir: Path
) -> None:
    made = document("taken", shared_dir, 1)
    logs = {"name": "logs", "image": "gangctl/examples:e2e", "command": ["sleep", "1000"]}
    mount = {"name": "gangctl-hub", "mountPath": "/stolen"}
    made["spec"]["roles"][0]["template"]["spec"]["containers"].append({**logs, "volumeMounts": [mount]})

    def refusal(status: dict[str, Any]) -> str | None:
        found = {one["type"]: one for one in status.get("conditions", [])}.get("Accepted", {})
        return str(found["message"]) if found.get("status") == "False" else None

    gang = submit(made)
    said = gang.until("a refusal", refusal)
    assert "spec.roles[0].template.spec.containers[1].volumeMounts[0].name: gangctl-hub is a volume of gangctl" in said
    assert gang.pods() == {}


def test_a_gang_goes_on_with_a_new_authority_without_a_restart(
    submit: Submit, shared_dir: Path, kubectl: Kubectl, gangctl_installed: Installed, inject: Callable[[Gang], None]
) -> None:
    """The worst rotation: the old authority is gone, signs nothing of the new one, and no sidecar is connected."""
    gang = submit(document("rotated", shared_dir))
    gang.runs(1)
    uids, starts = gang.uids(), gang.container_starts()
    before = {member: pod["metadata"]["annotations"][ANNOTATION_HUB_CA] for member, pod in gang.pods().items()}
    there = ("-n", gangctl_installed.namespace)
    kubectl("scale", "deployment/gangctl", *there, "--replicas=0")
    kubectl("wait", "--for=delete", "pod", *there, "-l", "app.kubernetes.io/name=gangctl", "--timeout=60s")
    kubectl("delete", "secret", "gangctl-tls", *there)
    kubectl("scale", "deployment/gangctl", *there, "--replicas=2")
    kubectl("rollout", "status", "deployment/gangctl", *there, "--timeout=120s")

    def rotated() -> bool:
        after = {member: pod["metadata"]["annotations"][ANNOTATION_HUB_CA] for member, pod in gang.pods().items()}
        return after.keys() == before.keys() and all(after[member] != before[member] for member in before)

    until("the pods are told the new authority", rotated, every=0.5)
    assert gang.status["attempt"] == 1
    inject(gang)
    gang.runs(2)
    assert (gang.uids(), gang.container_starts()) == (uids, starts)
