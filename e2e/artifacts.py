"""Artifacts of a failed test: objects, Events, and the logs of every pod and of every component of the cluster."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from e2e.cluster.machines import host_path
from e2e.clusters import Cluster

FOLDER = Path(__file__).parent / ".artifacts"
NAMESPACES = re.compile(r"e2e-|gangctl-system")
KINDS = "gangjobs,pods,services,endpointslices,leases,events,poddisruptionbudgets,deployments"
TAIL_BYTES = 2 << 20


def keep(cluster: Cluster, test: str) -> Path:
    """Write all of them into a folder with the test's name; what cannot be read is left out."""
    folder = FOLDER / re.sub(r"[^\w.-]+", "-", test).strip("-")[:120]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _write(folder / "nodes.yaml", cluster, "get", "nodes", "-o", "yaml")
    _write(folder / "pods.txt", cluster, "get", "pods", "-A", "-o", "wide")
    _write(folder / "events.txt", cluster, "get", "events", "-A", "--sort-by=.metadata.creationTimestamp")
    names = cluster.run("kubectl", "get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}").stdout
    for namespace in filter(NAMESPACES.match, names.split()):
        _namespace(cluster, namespace, folder / namespace)
    if cluster.lab is not None:
        for log in (cluster.lab.home / "log").glob("*.log"):
            _tail(log, folder / "cluster" / log.name)
        for node in cluster.lab.nodes:
            logs = host_path(node.machine, "/var/log/pods")
            for log in (path for path in logs.rglob("*.log") if path.is_file()):
                _tail(log, folder / "cluster" / node.name / "-".join(log.relative_to(logs).parts))
    return folder


def _namespace(cluster: Cluster, namespace: str, folder: Path) -> None:
    folder.mkdir()
    for kind in KINDS.split(","):
        _write(folder / f"{kind}.yaml", cluster, "get", kind, "-n", namespace, "-o", "yaml")
    try:
        pods = json.loads(cluster.run("kubectl", "get", "pods", "-n", namespace, "-o", "json").stdout)["items"]
    except ValueError:
        return
    for pod in pods:
        name, status = pod["metadata"]["name"], pod["status"]
        for one in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
            words = ("logs", name, "-n", namespace, "-c", one["name"], "--timestamps")
            _write(folder / f"{name}-{one['name']}.log", cluster, *words)
            if one["restartCount"]:
                _write(folder / f"{name}-{one['name']}-previous.log", cluster, *words, "--previous")


def _write(path: Path, cluster: Cluster, *words: str) -> None:
    done = cluster.run("kubectl", *words, "--request-timeout=10s")
    path.write_text(done.stdout or done.stderr)


def _tail(log: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        to.write_bytes(file.read())
