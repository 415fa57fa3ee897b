"""From a fault of a device or a node to the last worker's start, on a real cluster of three nodes.

    python -m bench.nodes                          5 rounds of each, and one lost node (root; see e2e/)
    python -m bench.nodes --resize                 one lost node, for an elastic gang beside one of fixed size

Six workers, two on each node; they are shells that note when they start, so a framework's imports are not in it.
The device plugin is a fake one that speaks the kubelet's API; the devices don't exist. A lost node is one whose power
is cut: most of its time is Kubernetes' own, which calls a node unreachable after 40 s. The time begins when the device
plugin has been told, the condition is stored, the first eviction is accepted, or the power is cut.

With ``--resize``, two gangs have a member on each of the three nodes. The elastic one goes on with two members after
``shrinkAfterSeconds``; the other waits. Then another node comes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.steps import wait_until
from e2e import clusters, installation
from e2e.accelerators import RESOURCE
from e2e.cluster.device_plugin import Devices, devices
from e2e.cluster.lab import Lab
from e2e.cluster.nodes import Node
from e2e.cluster.progress import announce
from e2e.clusters import Cluster
from e2e.gangs import Gang, sleepers
from e2e.test_devices import at_work, device
from e2e.test_elastic import begun, elastic
from e2e.test_node_signals import NODE, on, show

NODES, MEMBERS, EACH = 3, 6, 4
Fault = Callable[[Gang, Path], None]


def workers(name: str, folder: Path, spares: int) -> dict[str, Any]:
    """Six members with a device each, spread over the nodes."""
    recovery = {"lostPodGraceSeconds": 5, "budget": {"type": "Unlimited"}}
    document = sleepers(name, replicas=MEMBERS, directory=str(folder), steps=True, recovery=recovery)
    document["spec"]["placement"] = {"strategy": "Spread", "mode": "Preferred"}
    role = document["spec"]["roles"][0] | {"spares": spares}
    role["template"]["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: 1}}
    document["spec"]["roles"] = [role]
    return document


def started(folder: Path, attempt: int) -> int:
    """How many workers have started in the attempt."""
    words = (line.split() for path in folder.glob("worker-*") for line in path.read_text().splitlines())
    return sum(len(line) > 1 and line[1] == str(attempt) for line in words)


def seconds(
    cluster: Cluster, namespace: str, name: str, fault: Fault, spares: int = 0, heal: Callable[[], None] = lambda: None
) -> float:
    """Run a gang, do this to it, and wait until all its workers have started again.

    ``heal``: what must be done so that its pods can go.
    """
    with tempfile.TemporaryDirectory(prefix="gangctl-bench-", ignore_cleanup_errors=True) as text:
        folder = Path(text)
        folder.chmod(0o777)
        gang = Gang(cluster.kubectl, namespace, name).apply(workers(name, folder, spares))
        try:
            gang.runs(1)
            wait_until(lambda: len(gang.uids()) == MEMBERS + spares, lambda: f"pods: {gang.uids()}", 0.5)
            fault(gang, folder)
            began = time.monotonic()
            wait_until(lambda: started(folder, 2) == MEMBERS, lambda: str(gang.status), 0.005)
            return time.monotonic() - began
        finally:
            heal()
            cluster.kubectl("delete", "gj", name, "-n", namespace, "--cascade=foreground", "--timeout=120s")


@contextmanager
def plugged(cluster: Cluster, lab: Lab) -> Iterator[dict[str, Devices]]:
    """Each node with its devices."""
    with ExitStack() as stack:
        found: dict[str, Devices] = {}
        for number in range(1, NODES + 1):
            names = [f"accelerator-{number}-{at}" for at in range(EACH)]
            found |= dict.fromkeys(names, stack.enter_context(devices(lab.node(number), RESOURCE, names)))
            path = rf"{{.status.allocatable.{RESOURCE.replace('.', chr(92) + '.')}}}"
            cluster.kubectl("wait", f"--for=jsonpath={path}={EACH}", f"node/node-{number}", "--timeout=60s")
        yield found


def add_node(lab: Lab, number: int) -> Node:
    """A new node, with the images."""
    node = lab.add_node(number)
    lab.load(lab.images.controller(), lab.images.sidecar(), lab.images.examples(), nodes=[node])
    lab.wait_ready(number)
    return node


def measured(cluster: Cluster, lab: Lab, namespace: str, rounds: int) -> dict[str, list[float]]:
    """The seconds of each kind of fault."""
    node = add_node(lab, NODES)
    found: dict[str, list[float]] = {}
    with plugged(cluster, lab) as at:
        broken: list[str] = []

        def sicken(gang: Gang, folder: Path) -> None:
            broken[:] = [device(gang, at_work(folder, MEMBERS))]
            at[broken[0]].mark(broken[0], healthy=False)

        def drain(gang: Gang, _folder: Path) -> None:
            cluster.kubectl("cordon", NODE)
            pod = gang.pods()[min(on(gang, NODE))]["metadata"]["name"]  # The others of the node leave with it.
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
            path = f"/api/v1/namespaces/{gang.namespace}/pods/{pod}/eviction"
            cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

        def note(what: str, name: str, fault: Fault, spares: int = 0) -> None:
            found.setdefault(what, []).append(seconds(cluster, namespace, name, fault, spares))
            announce(f"{what}: {found[what][-1]:.1f} s")

        for number in range(rounds):
            for spares in (0, 1):
                note(f"a device turns unhealthy, {spares} spares", f"device-{number}-{spares}", sicken, spares)
                at[broken[0]].mark(broken[0], healthy=True)
            note("a condition of a node with 2 members", f"condition-{number}", lambda *_: show(cluster.kubectl, NODE))
            show(cluster.kubectl, NODE, status="False")
            note("a drain of a node with 2 members", f"drain-{number}", drain)
            cluster.kubectl("uncordon", NODE)
        lost = seconds(cluster, namespace, "lost", lambda *_: node.machine.kill(), heal=lambda: lab.remove_node(NODES))
        found["a node with 2 members loses its power"] = [lost]
    return found


def resized(cluster: Cluster, lab: Lab, namespace: str) -> dict[str, float]:
    """Seconds from a lost node, and from the next node's Ready, to the moment when both gangs train again."""
    third = add_node(lab, NODES)
    with tempfile.TemporaryDirectory(prefix="gangctl-bench-", ignore_cleanup_errors=True) as text:
        Path(text).chmod(0o777)
        folders = {name: Path(text) / name for name in ("elastic", "fixed")}
        for name, folder in folders.items():
            folder.mkdir()
            document = elastic(folder)
            document["metadata"]["name"] = name
            if name == "fixed":
                document["spec"]["roles"][0]["minReplicas"] = NODES
            gang = Gang(cluster.kubectl, namespace, name).apply(document)
            folder.chmod(0o777)
            gang.runs(1)

        def after(began: float, **starts: int) -> dict[str, float]:
            """Wait until rank 0 of each gang has begun so often; after how many seconds each had."""
            found: dict[str, float] = {}

            def all_have() -> bool:
                for name in starts.keys() - found.keys():
                    if len(begun(folders[name], 0)) >= starts[name]:
                        found[name] = time.monotonic() - began
                return found.keys() == starts.keys()

            wait_until(all_have, lambda: f"{starts} starts awaited, {found} came")
            return found

        third.machine.kill()
        shrunk = after(time.monotonic(), elastic=2)
        add_node(lab, NODES + 1)
        grown = after(time.monotonic(), elastic=3, fixed=2)
        lab.remove_node(NODES)
        status = Gang(cluster.kubectl, namespace, "elastic").status
    announce(f"growing cost {status['incidents'][0].get('lostSteps', 0)} steps")
    return {
        "power cut, elastic: trains with two of three": shrunk["elastic"],
        "next node Ready, elastic: trains with three": grown["elastic"],
        "next node Ready, fixed size: trains again": grown["fixed"],
    }


def main() -> None:
    """Print the table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--resize", action="store_true", help="instead: a lost node, elastic beside fixed size")
    options = flags.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # It ends with everything taken down, as by Ctrl-C.
    with clusters.open_cluster() as cluster:
        if cluster.lab is None:
            raise SystemExit("faults of nodes need a cluster of our own: run without KUBECONFIG")
        installation.install(cluster)
        with cluster.namespace("bench") as namespace:
            if options.resize:
                took = resized(cluster, cluster.lab, namespace)
                found = {what: [after] for what, after in took.items()}
            else:
                found = measured(cluster, cluster.lab, namespace, options.rounds)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seconds until the last worker starts")
    print(f"{'':<42} {'median':>6} {'min':>6} {'max':>6}")
    for what, times in found.items():
        print(f"{what:<42} {statistics.median(times):6.1f} {min(times):6.1f} {max(times):6.1f}")


if __name__ == "__main__":
    main()
