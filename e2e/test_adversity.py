"""What befalls a gang that restarts: pods are refused, an image, a claim or the CRD goes, etcd is full, others fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import process_faults
from e2e.cluster.control_plane import ETCD
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.gangs import Gang, gang, sleepers
from e2e.installation import CRDS, NAMESPACE
from e2e.whys import asked
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
IMAGE = "localhost:1/gangctl/lost:1"
WORDS = "no new pods here today"
FAILS_AGAIN = """
import os, time, gangclient
gang = gangclient.connect()
for step in range(12):
    gang.progress(1000 * gang.attempt + step)
    time.sleep(0.25)
raise SystemExit(1)
"""


@pytest.fixture
def lost_image(lab: Lab) -> Iterator[Callable[[], None]]:
    """An image that no registry has and all nodes have, until this is called."""

    def remove() -> None:
        for node in lab.nodes:
            node.ctr("images", "rm", IMAGE, check=False)

    for node in lab.nodes:
        node.ctr("images", "tag", "--force", "docker.io/gangctl/examples:e2e", IMAGE)
    yield remove
    remove()


@pytest.fixture
def denial(cluster: Cluster, namespace: str) -> Iterator[Callable[[], None]]:
    """A policy that denies new pods in the test's namespace, from the first call to the second."""
    kind, spec = "ValidatingAdmissionPolicy", {"policyName": namespace, "validationActions": ["Deny"]}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    policy = {
        "matchConstraints": {"resourceRules": [pods]},
        "validations": [{"expression": f"object.metadata.namespace != '{namespace}'", "message": WORDS}],
    }
    text = yaml.safe_dump_all(
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": one, "metadata": {"name": namespace}, "spec": spec}
        for one, spec in ((kind, policy), (f"{kind}Binding", spec))
    )
    verbs = iter(("apply", "delete"))
    yield lambda: print(cluster.kubectl(next(verbs), "-f", "-", stdin=text))
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=text)


@pytest.fixture
def space(lab: Lab, shared_dir: Path) -> Iterator[Callable[[str], None]]:
    """ACTIVATE raises etcd's alarm that it has no space left, with which it takes no writes; DEACTIVATE ends it."""

    def alarm(action: str) -> None:
        (shared_dir / "alarm").write_text(json.dumps({"action": action, "alarm": "NOSPACE"}))
        words = ("create", "--raw", "/v3/maintenance/alarm", "-f", str(shared_dir / "alarm"))
        lab.control_plane.machine.run("kubectl", f"--server={ETCD}", *words)

    yield alarm
    alarm("DEACTIVATE")


def lose_pod(gang: Gang) -> None:
    """Delete the pod of worker-1."""
    gang.kubectl("delete", "pod", gang.pods()["worker-1"]["metadata"]["name"], "-n", gang.namespace, "--wait=false")


def says(gang: Gang, words: str) -> str:
    """Wait until the status says these words; its whole message."""
    return gang.until(f"it says {words!r}", lambda status: said if words in (said := str(status["message"])) else None)


def test_a_restart_whose_new_pod_is_denied_says_so_and_goes_on_when_it_is_allowed(
    cluster: Cluster, submit: Submit, shared_dir: Path, denial: Callable[[], None]
) -> None:
    gang = submit(sleepers("denied", replicas=2, directory=str(shared_dir), steps=True))
    gang.runs(1)
    denial()
    attempt = ("kubectl", "run", "x", "--image=x", "-n", gang.namespace, "--dry-run=server")
    until("it is in force", lambda: WORDS in cluster.run(*attempt).stderr)
    lose_pod(gang)
    assert "worker-1 " in says(gang, WORDS)
    assert WORDS in " ".join(asked(cluster, gang).split())
    denial()
    status = gang.runs(2)
    assert status["restarts"]["counted"] == 0


def test_a_new_pod_without_its_image_is_told(
    cluster: Cluster, submit: Submit, shared_dir: Path, lost_image: Callable[[], None]
) -> None:
    document = sleepers("imageless", replicas=2, directory=str(shared_dir), recovery={"podStartTimeoutSeconds": 60})
    document["spec"]["roles"][0]["template"]["spec"]["containers"][0] |= {"image": IMAGE}
    gang = submit(document)
    gang.runs(1)
    lost_image()
    lose_pod(gang)
    assert "worker-1" in says(gang, f'failed to resolve reference "{IMAGE}"')
    assert "registry" in " ".join(asked(cluster, gang).split())


def test_a_new_pod_whose_claim_is_being_deleted_is_told(
    cluster: Cluster, submit: Submit, shared_dir: Path, namespace: str
) -> None:
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "none"}
    size, folder = {"storage": "1Mi"}, {"path": str(shared_dir)}
    volume = {"kind": "PersistentVolume", "metadata": {"name": namespace}}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": namespace}}
    volume["spec"] = spec | {"capacity": size, "hostPath": folder}
    claim["spec"] = spec | {"resources": {"requests": size}, "volumeName": namespace}
    text = yaml.safe_dump_all({"apiVersion": "v1", **one} for one in (volume, claim))
    cluster.kubectl("apply", "-f", "-", stdin=text)
    document = sleepers("claiming", replicas=2, directory=str(shared_dir))
    pod = document["spec"]["roles"][0]["template"]["spec"]
    pod["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})
    pod["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})
    gang = submit(document)
    gang.runs(1)
    cluster.kubectl("delete", "pvc", "data", "-n", namespace, "--wait=false")
    cluster.kubectl("delete", "pv", namespace, "--wait=false")
    lose_pod(gang)
    assert "worker-1" in says(gang, 'persistentvolumeclaim "data" is being deleted')
    text = " ".join(asked(cluster, gang).split())
    assert "create or correct the claim" in text
    assert "would fit" not in text


def test_a_fault_while_etcd_is_full_is_handled_once_when_it_has_space_again(
    cluster: Cluster, submit: Submit, shared_dir: Path, space: Callable[[str], None]
) -> None:
    gang = submit(sleepers("unstored", replicas=2, directory=str(shared_dir), steps=True))
    gang.runs(1)
    uids = gang.uids()
    space("ACTIVATE")
    process_faults.kill(process_faults.worker(uids["worker-1"]))
    assert "space exceeded" in cluster.run("kubectl", "create", "ns", gang.namespace + "-more").stderr
    until("the controller's log tells", lambda: "until the status can be stored" in _logs(cluster), every=1.0)
    assert process_faults.worker(uids["worker-0"]).alive
    assert gang.status["attempt"] == 1
    space("DEACTIVATE")
    assert gang.runs(2)["restarts"]["counted"] == 1
    assert gang.uids() == uids


def _logs(cluster: Cluster) -> str:
    words = ("-n", NAMESPACE, "-l", "app.kubernetes.io/component=controller", "--since=60s", "--tail=-1")
    return cluster.kubectl("logs", *words)


@pytest.mark.usefixtures("lab")  # all GangJobs of the cluster are deleted
def test_gangs_of_a_deleted_crd_end_and_new_ones_run_when_it_is_back(
    cluster: Cluster, submit: Submit, shared_dir: Path
) -> None:
    controllers = ("get", "pods", "-A", "-l", "app.kubernetes.io/component=controller", "-o", "json")

    def restarts() -> dict[str, int]:
        pods = json.loads(cluster.kubectl(*controllers))["items"]
        return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}

    before, document = restarts(), sleepers("gone", replicas=2, directory=str(shared_dir))
    gang = submit(document)
    gang.runs(1)
    cluster.kubectl("delete", "crd", "gangjobs.gangctl.io", "--timeout=60s")
    until("its pods are gone", lambda: not gang.pods())
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    cluster.until_served("gangjobs.gangctl.io")
    gang.apply(document).runs(1)
    assert restarts() == before


def test_gangs_that_fail_again_and_again_keep_no_other_tenant_from_new_pods(
    submit: Submit, cluster: Cluster, shared_dir: Path
) -> None:
    container = {"name": "main", "image": "gangctl/examples:e2e", "command": ["python3", "-c", FAILS_AGAIN]}
    budget = {"type": "Windowed", "maxRestarts": 200, "windowSeconds": 3600}
    with cluster.namespace("crowd") as crowd:
        others = [Gang(cluster.kubectl, crowd, f"fails-{at}") for at in range(8)]
        for one in others:
            document = gang(one.name, container, replicas=1, directory=str(shared_dir), recovery={"budget": budget})
            one.apply(document)
        victim = submit(
            sleepers("victim", replicas=2, directory=str(shared_dir), steps=True, recovery={"replaceAfter": 1})
        )
        victim.runs(1)
        before = victim.uids()

        def restarts() -> int:
            return sum(int(one.status.get("attempt", 1)) - 1 for one in others)

        until("the crowd fails in waves", lambda: restarts() >= 24, every=1)
        process_faults.kill(process_faults.worker(before["worker-1"]))
        status = victim.runs(2)
        after = victim.uids()
        assert restarts() > 24, "they still fail"
    assert status["incidents"][0]["level"] == "Pod"
    assert after["worker-0"] == before["worker-0"]
    assert after["worker-1"] != before["worker-1"]
