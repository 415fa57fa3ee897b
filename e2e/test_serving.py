"""examples/serving on a real cluster: planned restarts of all replicas at once never leave their Service empty."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.clusters import Cluster
from e2e.gangs import CHECKPOINTS, Gang
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
EXAMPLE = Path(__file__).parent.parent / "examples" / "serving"
IMAGE = "gangctl/examples:e2e"
NAMES = ("a", "b")
LOAD_SECONDS = 4
"""How long a replica needs until it listens: longer than its probe takes to fail."""
ANSWER_SECONDS = 5
"""A client tries again for so long: a kubelet sees that a port is closed when it probes next."""
CLIENT = f"""
import http.client, os, time, urllib.request
url = f"http://{{os.environ['MODEL_SERVICE_HOST']}}/?x=1,2,3,4"
while True:
    end, said = time.monotonic() + {ANSWER_SECONDS}, "no answer"
    while said != "200" and time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                said = str(answer.status)
                answer.read()
        except (OSError, http.client.HTTPException) as error:
            said = repr(error)
            time.sleep(0.05)
    print(said, flush=True)
    time.sleep(0.05)
"""


def replica(name: str, folder: Path) -> dict[str, Any]:
    """The GangJob of the example, with a server from a directory that all pods mount, which takes a while to load."""
    shutil.copy(EXAMPLE / "server.py", folder)
    document: dict[str, Any] = yaml.safe_load((EXAMPLE / f"replica-{name}.yaml").read_text())
    for role in document["spec"]["roles"]:
        (container,) = role["template"]["spec"]["containers"]
        load = f"sleep {LOAD_SECONDS}; " if role["name"] == "front" else ""
        container["image"] = IMAGE
        container["command"] = ["sh", "-c", f"{load}exec python3 {CHECKPOINTS}/server.py"]
        container["volumeMounts"] = [{"name": "server", "mountPath": CHECKPOINTS, "readOnly": True}]
        role["template"]["spec"]["volumes"] = [{"name": "server", "hostPath": {"path": str(folder)}}]
    return document


class Endpoints:
    """The ready pods of the Service, as its EndpointSlices have shown them: one for each number of the port."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._words = ("endpointslices", "-n", namespace, "-l", "kubernetes.io/service-name=model")
        self._slices: dict[str, set[str]] = {}
        """The ready pods of each."""
        self.ready: set[str] = set()
        self.fewest = len(NAMES)
        self.left: set[str] = set()
        """Those that were not ready at some time."""

    def watch(self, *, until_all_left: bool) -> bool:
        """Watch until all are ready; with ``until_all_left``, after each of them wasn't for a while."""
        return self._cluster.watch(*self._words, holds=lambda seen: self._see(seen, until_all_left), seconds=150)

    def _see(self, seen: dict[str, Any], until_all_left: bool) -> bool:  # noqa: FBT001
        self._slices[seen["metadata"]["name"]] = {
            one["targetRef"]["name"] for one in seen.get("endpoints") or () if one["conditions"].get("ready", False)
        }
        found = set[str]().union(*self._slices.values())
        if until_all_left:
            self.fewest = min(self.fewest, len(found))
            self.left |= self.ready - found
        else:
            self.ready |= found
        return self.ready == found and len(found) == len(NAMES) and (not until_all_left or self.left == self.ready)


class Client:
    """A pod that asks the Service for an answer, again and again."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def start(self) -> None:
        """Create it; the Service exists already, so the pod knows its address."""
        container = {"name": "main", "image": IMAGE, "command": ["python3", "-c", CLIENT]}
        spec = {"terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": spec}
        self._cluster.kubectl("apply", "-n", self._namespace, "-f", "-", stdin=json.dumps(pod))

    def answers(self) -> list[str]:
        """How each request was answered so far."""
        return self._cluster.kubectl("logs", "client", "-n", self._namespace).split("\n")[:-1]


@pytest.fixture
def replicas(submit: Submit, shared_dir: Path, cluster: Cluster, namespace: str) -> Iterator[dict[str, Gang]]:
    """The replicas of the example, and the Service in front of them."""
    cluster.kubectl("apply", "-n", namespace, "-f", str(EXAMPLE / "service.yaml"))
    yield {name: submit(replica(name, shared_dir)) for name in NAMES}
    cluster.kubectl("delete", "pod", "client", "-n", namespace, "--ignore-not-found", "--timeout=60s")


def waited(cluster: Cluster, namespace: str) -> set[str]:
    """The gangs of which an Event says that their restart waited for the group."""
    items = json.loads(cluster.kubectl("get", "events.events.k8s.io", "-n", namespace, "-o", "json"))["items"]
    return {one["regarding"]["name"] for one in items if one["reason"] == "RestartWaits"}


@pytest.mark.timeout(400)
def test_of_two_replicas_that_restart_as_planned_at_once_one_is_always_ready(
    replicas: dict[str, Gang], cluster: Cluster, namespace: str
) -> None:
    endpoints, client = Endpoints(cluster, namespace), Client(cluster, namespace)
    for gang in replicas.values():
        gang.runs(1)
    endpoints.watch(until_all_left=False)
    client.start()
    until("the client is answered", lambda: "200" in _logged(client), every=0.5)
    pods = {name: gang.uids() for name, gang in replicas.items()}
    with ThreadPoolExecutor(1) as beside:
        rolled = beside.submit(endpoints.watch, until_all_left=True)
        for gang in replicas.values():
            gang.patch(restartToken="now")
        rolled.result()
    assert endpoints.fewest == 1, "both leave the Service in turn"
    assert {gang.runs(2)["observedRestartToken"] for gang in replicas.values()} == {"now"}
    assert {name: gang.uids() for name, gang in replicas.items()} == pods
    until("an Event says which of them waited", lambda: waited(cluster, namespace))
    assert len(waited(cluster, namespace)) == 1
    asked = len(client.answers())
    until("the client is answered after that", lambda: len(client.answers()) > asked, every=0.5)
    assert set(client.answers()) == {"200"}


def _logged(client: Client) -> list[str]:
    """The answers so far; none while the container of the client isn't started."""
    try:
        return client.answers()
    except RuntimeError:
        return []
