"""Two releases in one namespace, which share the namespaces of gangs: each controls those that its selector selects.

A gang whose label changes goes from one controller to the
other while it trains: no worker ends because of it, and the next fault is the new controller's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import installation, process_faults
from e2e.clusters import Cluster
from e2e.gangs import Gang, Kubectl, sleepers
from e2e.installation import CHART, RELEASE, Installed
from gangctl.api.names import ANNOTATION_HUB_URL
from tests.wait import until

pytestmark = pytest.mark.nightly

COLOURS = {"red": "colour=red", "rest": "colour!=red"}
"""Release -> selector."""


@pytest.fixture
def two(cluster: Cluster, idle: Installed, namespace: str) -> Iterator[str]:
    """The namespace of the two; that of their gangs."""
    for name, selector in COLOURS.items():
        install(cluster, idle, name, namespace, watchNamespaces=[namespace], selector=selector)
    yield namespace
    for name in COLOURS:
        installation.helm(cluster, "uninstall", name, "--namespace", namespace, "--wait", "--timeout=120s")


def install(cluster: Cluster, images: Installed, release: str, namespace: str, **values: object) -> None:
    """Install one more release, beside that of the CRD and the aggregated roles."""
    named = {"image": images.controller, "sidecar.image": images.sidecar}
    words = [word for value, name in named.items() for word in installation.image_values(value, name)]
    more = {"replicaCount": 1, "crds.enabled": False, "rbac.aggregatedRoles": False, **values}
    words += [word for name, value in more.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]
    installation.helm(
        cluster, "install", release, str(CHART), "--namespace", namespace, "--wait", "--timeout=120s", *words
    )


def test_two_controllers_with_selectors_share_namespaces_and_a_changed_label_moves_a_gang_that_trains(
    kubectl: Kubectl, two: str, shared_dir: Path
) -> None:
    red, rest = (Gang(kubectl, two, name) for name in ("of-red", "of-rest"))
    for gang, labels in ((red, {"colour": "red"}), (rest, {})):
        document = sleepers(gang.name, replicas=2, directory=str(shared_dir / gang.name), steps=True)
        document["metadata"]["labels"] = labels
        gang.apply(document)
    for gang, release in ((red, "red"), (rest, "rest")):
        gang.runs(1)
        assert {_hub(pod) for pod in gang.pods().values()} == {f"{release}-{RELEASE}"}
    for kind in ("leases", "services", "secrets"):
        found = kubectl("get", kind, "-n", two, "-o", "name").split()
        assert all(any(f"/{release}-{RELEASE}" in name for name in found) for release in COLOURS), (kind, found)

    before, starts = red.uids(), red.container_starts()
    began = time.monotonic()
    kubectl("label", "gangjob", red.name, "-n", two, "--overwrite", "colour=blue")
    until("its pods know the other hub", lambda: {_hub(pod) for pod in red.pods().values()} == {f"rest-{RELEASE}"})
    told = time.monotonic() - began
    words = ("logs", "-n", two, f"deployment/rest-{RELEASE}")
    process_faults.kill(process_faults.worker(before["worker-1"]))
    status = red.runs(2)
    print(
        f"the pods of a moved gang were told after {told:.1f} s, and it ran attempt 2 after "
        f"{time.monotonic() - began:.1f} s, since its label changed"
    )
    assert red.uids() == before, "the new controller restarts it in place: it is connected to the pods"
    assert red.container_starts() == starts
    assert status["incidents"][0]["cause"]["member"] == "worker-1"
    assert red.name in kubectl(*words)
    assert rest.status["attempt"] == 1
    assert rest.status["phase"] == "Running"
    for gang in (red, rest):
        kubectl("delete", "gangjob", gang.name, "-n", two, "--timeout=60s")


def _hub(pod: dict[str, Any]) -> str:
    """The Service that the pod's sidecar dials."""
    url: str = pod["metadata"]["annotations"][ANNOTATION_HUB_URL]
    return url.removeprefix("wss://").partition(".")[0]
