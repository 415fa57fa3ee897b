"""From `kubectl apply` to the last rank's first step, on a real cluster: a gang, a JobSet and a Job with the same pods.

    python -m bench.first_start                   4 members, 3 starts of each kind in turns (root; see e2e/)

The same image and script as bench/first_step.py. The pods of JobSet (``jobset.py``) and Job have one container and
nothing of ours. The Job is Indexed, with a headless Service for the address of rank 0, as JobSet makes one. Below each
row is where the seconds went, by the pods' conditions and containers: the latest of all pods, in seconds after `kubectl
apply`. The API has whole seconds only.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from bench import jobset
from bench.first_step import NAME, WAYS, document
from bench.steps import Steps, wait_until
from e2e import clusters, installation
from e2e.cluster.progress import announce
from e2e.clusters import Cluster
from e2e.gangs import CHECKPOINTS

STEP = "worker: step"


def plain(steps: Steps, coordinator: str) -> dict[str, Any]:
    """The specification of the gang's pods, as a Job makes them."""
    spec = document(WAYS["Fork"], steps)["spec"]["roles"][0]["template"]["spec"]
    return jobset.plain(spec, steps, coordinator, CHECKPOINTS)


def of_jobset(steps: Steps) -> list[dict[str, Any]]:
    """A JobSet with the pods of the gang."""
    return [jobset.manifest(NAME, steps.ranks, plain(steps, f"{NAME}-{jobset.JOB}-0-0.{NAME}"))]


def of_job(steps: Steps) -> list[dict[str, Any]]:
    """A Job with the pods of the gang, and the Service that gives them names."""
    labels = {"app": NAME}
    pods = {"metadata": {"labels": labels}, "spec": plain(steps, f"{NAME}-0.{NAME}") | {"subdomain": NAME}}
    count = {"completions": steps.ranks, "parallelism": steps.ranks, "completionMode": "Indexed", "backoffLimit": 0}
    service = {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": service},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": NAME}, "spec": {**count, "template": pods}},
    ]


def of_gang(steps: Steps) -> list[dict[str, Any]]:
    """The gang."""
    return [document(WAYS["Fork"], steps)]


KINDS = {"gang": of_gang, "JobSet": of_jobset, "Job": of_job}


@contextmanager
def applied(cluster: Cluster, namespace: str, documents: list[dict[str, Any]]) -> Iterator[float]:
    """Gives the time just before `kubectl apply`; what was applied is deleted afterwards."""
    text = yaml.safe_dump_all(documents)
    began = time.time()
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)
    try:
        yield began
    finally:
        cluster.kubectl("delete", "-n", namespace, "-f", "-", "--cascade=foreground", "--timeout=120s", stdin=text)


def started(cluster: Cluster, namespace: str, kind: str, members: int) -> dict[str, float]:
    """Start once; the latest moments of all pods and workers, in seconds after `kubectl apply`."""

    def pods() -> str:
        return cluster.kubectl("get", "pods", "-n", namespace)

    with tempfile.TemporaryDirectory(prefix="gangctl-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        steps = Steps(Path(folder), members)
        with applied(cluster, namespace, KINDS[kind](steps)) as began:
            workers = {f"worker: {name}": at - began for name, at in steps.wait(1, pods).items()}
            found = moments(cluster, namespace, began) | workers
        wait_until(lambda: not pods(), pods, every=0.5)
    return found


def moments(cluster: Cluster, namespace: str, began: float) -> dict[str, float]:
    """When the last pod was created and scheduled, and when the last container of each name was started and ended."""
    found: dict[str, float] = {}

    def note(what: str, text: str | None) -> None:
        if text:
            found[what] = max(found.get(what, 0.0), datetime.fromisoformat(text).timestamp() - began)

    for pod in yaml.safe_load(cluster.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]:
        note("created", pod["metadata"]["creationTimestamp"])
        for one in pod["status"].get("conditions", []):
            if one["type"] == "PodScheduled":
                note("scheduled", one["lastTransitionTime"])
        for one in [*pod["status"].get("initContainerStatuses", []), *pod["status"].get("containerStatuses", [])]:
            for state in one["state"].values():
                note(f"{one['name']} started", state.get("startedAt"))
                note(f"{one['name']} ended", state.get("finishedAt"))
    return found


def main() -> None:
    """Print the table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--members", type=int, default=4)
    flags.add_argument("--starts", type=int, default=3)
    flags.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    options = flags.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # It ends with everything taken down, as by Ctrl-C.
    parts: dict[str, list[dict[str, float]]] = {kind: [] for kind in options.kinds}
    with clusters.open_cluster() as cluster:
        cluster.image("examples-torch")
        installation.install(cluster)
        with jobset.running(cluster), cluster.namespace("bench") as namespace:
            for _ in range(options.starts):
                for kind in options.kinds:
                    parts[kind].append(started(cluster, namespace, kind, options.members))
                    announce(f"{kind}: {parts[kind][-1][STEP]:.1f} s")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seconds after `kubectl apply`")
    print("        members  median    min    max")
    for kind, found in parts.items():
        times = [one[STEP] for one in found]
        print(f"{kind:>6} {options.members:>8} {statistics.median(times):7.1f} {min(times):6.1f} {max(times):6.1f}")
        for name in sorted(found[0], key=found[0].__getitem__):
            print(f"{'':15} {statistics.median(one[name] for one in found if name in one):7.1f}  {name}")


if __name__ == "__main__":
    main()
