"""The test cluster of our own does what the other tests rely on."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.containers import containers
from e2e.cluster.device_plugin import devices
from e2e.cluster.lab import Lab
from e2e.cluster.machines import PRIVATE
from e2e.cluster.processes import everything
from e2e.clusters import Cluster
from tests.wait import until

pytestmark = pytest.mark.nightly

SLEEP = ["sleep", "1000000"]
RESYNC = 150.0
"""Seconds. A kubelet may miss a change of a device just after the start of its pod; it looks again after 60 to 90 s."""
Kubectl = Callable[..., str]


@pytest.fixture(scope="session")
def python(cluster: Cluster) -> str:
    """An image with Python."""
    return cluster.image("examples")


def pod(name: str, image: str, command: list[str], **spec: Any) -> str:
    container = {"name": "main", "image": image, "command": command}
    default = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": default | spec})


def uid(kubectl: Kubectl, namespace: str, name: str) -> str:
    return kubectl("get", "pod", name, "-n", namespace, "-o", "jsonpath={.metadata.uid}")


def wait(kubectl: Kubectl, namespace: str, name: str, condition: str, seconds: int = 60) -> None:
    kubectl("wait", f"--for={condition}", f"pod/{name}", "-n", namespace, f"--timeout={seconds}s")


@pytest.fixture
def sleeper(kubectl: Kubectl, namespace: str, python: str) -> Callable[[str, str], str]:
    """Start a pod that sleeps on a node; its UID."""

    def start(name: str, node: str) -> str:
        kubectl("apply", "-n", namespace, "-f", "-", stdin=pod(name, python, SLEEP, nodeName=node))
        wait(kubectl, namespace, name, "condition=Ready")
        return uid(kubectl, namespace, name)

    return start


def test_every_node_is_ready(kubectl: Kubectl) -> None:
    kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")


def test_a_pod_resolves_the_name_of_a_service(kubectl: Kubectl, namespace: str, python: str) -> None:
    asks = "import socket; print(socket.gethostbyname('kubernetes.default.svc'))"
    kubectl("apply", "-n", namespace, "-f", "-", stdin=pod("asks", python, ["python3", "-c", asks]))
    wait(kubectl, namespace, "asks", "jsonpath={.status.phase}=Succeeded")
    address = kubectl("get", "service", "kubernetes", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
    assert kubectl("logs", "asks", "-n", namespace).strip() == address


def test_pods_on_different_nodes_reach_each_other(kubectl: Kubectl, namespace: str, python: str, lab: Lab) -> None:
    serves = ["python3", "-m", "http.server", "8000"]
    for node in lab.nodes:
        text = pod(node.name, python, serves, nodeName=node.name)
        kubectl("apply", "-n", namespace, "-f", "-", stdin=text)
    for node in lab.nodes:
        wait(kubectl, namespace, node.name, "condition=Ready")
    there = kubectl("get", "pod", "node-2", "-n", namespace, "-o", "jsonpath={.status.podIP}")
    reads = f"import urllib.request as r; print(r.urlopen('http://{there}:8000', timeout=10).status)"
    assert kubectl("exec", "node-1", "-n", namespace, "--", "python3", "-c", reads).strip() == "200"


def test_a_pod_reads_from_a_hostpath_what_a_pod_on_another_node_wrote(
    kubectl: Kubectl, namespace: str, python: str, lab: Lab, tmp_path: Path
) -> None:
    volume = {"name": "shared", "hostPath": {"path": str(tmp_path), "type": "Directory"}}
    for node, command in (("node-1", "echo from 1 > /shared/a"), ("node-2", "cat /shared/a")):
        container = {"name": "main", "image": python, "command": ["sh", "-c", command]}
        mounted = container | {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
        text = pod(node, python, [], nodeName=lab.node(int(node[-1])).name, containers=[mounted], volumes=[volume])
        kubectl("apply", "-n", namespace, "-f", "-", stdin=text)
        wait(kubectl, namespace, node, "jsonpath={.status.phase}=Succeeded")
    assert kubectl("logs", "node-2", "-n", namespace) == "from 1\n"


def test_a_test_finds_and_kills_the_processes_of_a_container_by_the_uid_of_its_pod(
    kubectl: Kubectl, namespace: str, lab: Lab, sleeper: Callable[[str, str], str]
) -> None:
    found = containers(lab, sleeper("one", "node-1"))
    assert list(found) == ["main"]
    assert found["main"].first.command == " ".join(SLEEP)
    found["main"].first.send(signal.SIGKILL)
    wait(kubectl, namespace, "one", "jsonpath={.status.phase}=Failed")


def test_the_status_of_a_pod_has_the_health_of_its_device(
    kubectl: Kubectl, cluster: Cluster, namespace: str, python: str, lab: Lab
) -> None:
    resource = "example.com/device"

    def health(pod: dict[str, Any]) -> str | None:
        for container in pod["status"].get("containerStatuses", []):
            for allocated in container.get("allocatedResourcesStatus", []):
                return str(allocated["resources"][0]["health"])
        return None

    with devices(lab.node(2), resource, ["a"]) as found:
        limits = {"name": "main", "image": python, "command": SLEEP, "resources": {"limits": {resource: 1}}}
        kubectl("apply", "-n", namespace, "-f", "-", stdin=pod("one", python, SLEEP, containers=[limits]))
        wait(kubectl, namespace, "one", "condition=Ready")
        assert kubectl("exec", "one", "-n", namespace, "--", "printenv", "FAKE_DEVICES") == "a\n"
        found.mark("a", healthy=False)
        cluster.watch("pod/one", "-n", namespace, holds=lambda pod: health(pod) == "Unhealthy", seconds=RESYNC)
        found.mark("a", healthy=True)
        cluster.watch("pod/one", "-n", namespace, holds=lambda pod: health(pod) == "Healthy", seconds=RESYNC)


def test_a_frozen_node_becomes_unknown_and_goes_on_after_it_thaws(
    kubectl: Kubectl, lab: Lab, sleeper: Callable[[str, str], str]
) -> None:
    process = containers(lab, sleeper("one", "node-2"))["main"].first
    lab.node(2).machine.freeze()
    kubectl("wait", "--for=condition=Ready=Unknown", "node/node-2", "--timeout=60s")
    assert process.alive
    lab.node(2).machine.thaw()
    lab.wait_ready(2)
    assert process.alive


def test_a_node_without_network_becomes_unknown_and_its_pods_go_on(
    kubectl: Kubectl, lab: Lab, sleeper: Callable[[str, str], str]
) -> None:
    process = containers(lab, sleeper("one", "node-2"))["main"].first
    lab.node(2).cut_off()
    kubectl("wait", "--for=condition=Ready=Unknown", "node/node-2", "--timeout=60s")
    assert process.alive
    lab.node(2).plug_in()
    lab.wait_ready(2)
    assert process.alive


def test_a_killed_node_ends_at_once_and_the_others_go_on(
    kubectl: Kubectl, lab: Lab, sleeper: Callable[[str, str], str]
) -> None:
    dead = containers(lab, sleeper("one", "node-2"))["main"].first
    living = containers(lab, sleeper("two", "node-1"))["main"].first
    lab.node(2).machine.kill()
    assert not dead.alive
    kubectl("wait", "--for=condition=Ready=Unknown", "node/node-2", "--timeout=60s")
    ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    assert kubectl("get", "node", "node-1", "-o", ready) == "True"
    assert living.alive


def test_a_restarted_api_server_and_etcd_have_all_objects(
    kubectl: Kubectl, namespace: str, lab: Lab, sleeper: Callable[[str, str], str]
) -> None:
    before = sleeper("one", "node-1")
    lab.control_plane.stop("kube-apiserver")
    lab.control_plane.stop("etcd")
    with pytest.raises(RuntimeError, match="refused"):
        kubectl("get", "nodes")
    lab.control_plane.start("etcd")
    lab.control_plane.start("kube-apiserver")
    lab.control_plane.ready()
    assert uid(kubectl, namespace, "one") == before


def test_taking_down_a_cluster_leaves_nothing_of_it_and_harms_no_other_cluster(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("other") / "cluster"
    host_folders = sorted(Path("/var/lib").iterdir())
    another = Lab.up(home, 1)
    assert another.control_plane.kubectl("get", "nodes", "-o", "name").stdout == "node/node-1\n"
    assert sorted(Path("/var/lib").iterdir()) == host_folders
    device = f"gangctl-e2e{another.control_plane.number}"
    before = [process for node in another.nodes for process in node.machine.everything()]
    another.down()
    assert not home.exists()
    assert not any(process.alive for process in before)
    assert not [process.command for process in everything() if str(home) in process.command]
    assert device not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert str(home) not in Path("/proc/mounts").read_text()
    assert sorted(Path("/var/lib").iterdir()) == host_folders
    for node in lab.nodes:
        assert set(PRIVATE) <= node.machine.mount_points(), f"{node.name} has lost a folder of its own"
    until("the first cluster is unharmed", lambda: not lab.control_plane.kubectl("get", "--raw", "/readyz").returncode)
