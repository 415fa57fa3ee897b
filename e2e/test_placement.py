"""`gangctl placement`, `why` and `doctor` on real nodes whose devices are slices of MIG that do not exist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.device_plugin import devices
from e2e.cluster.lab import Lab
from e2e.clusters import Cluster
from e2e.gangs import Gang, sleepers
from e2e.whys import why
from tests.wait import until

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
PROFILE = "nvidia.com/mig-3g.20gb"
ZONE = "topology.kubernetes.io/zone"
EACH = 4


@pytest.fixture
def sliced(lab: Lab, cluster: Cluster) -> Iterator[None]:
    """Two nodes in two zones, each with four slices of one profile."""
    with ExitStack() as stack:
        for number in (1, 2):
            node = f"node-{number}"
            stack.enter_context(devices(lab.node(number), PROFILE, [f"slice-{number}-{at}" for at in range(EACH)]))
            cluster.kubectl("label", "node", node, f"{ZONE}=zone-{number}")
            stack.callback(cluster.kubectl, "label", "node", node, f"{ZONE}-")
            path = rf"{{.status.allocatable.{PROFILE.replace('.', chr(92) + '.')}}}"
            cluster.kubectl("wait", f"--for=jsonpath={path}={EACH}", f"node/{node}", "--timeout=60s")
        yield


def printed(cluster: Cluster, folder: Path, *words: str) -> dict[str, Any]:
    """What a verb prints as JSON."""
    env = {key: value for key, value in cluster.env.items() if key != "GANGCTL_STATE_DIR"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", "gangctl", *words, "-o", "json"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def gang_of(name: str, directory: Path, replicas: int, each: int) -> dict[str, Any]:
    document = sleepers(name, replicas=replicas, directory=str(directory), steps=True)
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {PROFILE: each}}
    document["spec"]["placement"] = {"strategy": "Spread", "mode": "Preferred"}
    return document


@pytest.mark.usefixtures("sliced")
def test_slices_that_no_pod_can_use_are_counted_with_what_packing_would_leave(
    cluster: Cluster, submit: Submit, shared_dir: Path, namespace: str, tmp_path: Path
) -> None:
    spread = submit(gang_of("spread", shared_dir, 2, 2))
    spread.runs(1)
    waits = submit(gang_of("waits", shared_dir, 1, 3))

    def fragmented() -> dict[str, Any] | None:
        return next((one for one in why(cluster, waits)["findings"] if one["kind"] == "Fragmented"), None)

    finding = until("it waits for slices", fragmented, every=0.5)
    (room,) = finding["rooms"]
    assert (room["resource"], room["needs"], room["free"], room["most"]) == (PROFILE, "3", "4", "2")

    found = printed(cluster, tmp_path, "placement", "--domain", ZONE)
    (use,) = (one for one in found["resources"] if one["resource"] == PROFILE)
    assert (use["nodes"], use["total"], use["free"], use["largestPod"]) == (2, 2 * EACH, 4, 3)
    assert (use["stranded"], use["podsWaiting"]) == (4, 1)
    (gang,) = (one for one in found["gangs"] if one["gang"] == f"{namespace}/spread")
    assert (gang["pods"], gang["nodes"], gang["domains"], gang["most"]) == (2, 2, 2, 1)
    assert {"zone-1", "zone-2"} <= {one["name"] for one in found["domains"]}
    stranded = {one["placed"]: one.get("stranded", 0) for one in found["alternatives"]}
    assert (stranded["as it was"], stranded["as Pack"], stranded["as Spread"]) == (4, 1, 4)

    links = {
        one["link"]: one["seen"]
        for one in printed(cluster, tmp_path, "doctor", "node-1", "-n", namespace)["links"]
        if one.get("resource") == PROFILE
    }
    assert links["Capacity"] == str(EACH)
    assert links["Allocations"].startswith(f"2 of {EACH}: {namespace}/spread-worker-")
