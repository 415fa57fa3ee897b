"""Records docs/pictures/dashboard.svg and dashboard-controller.svg: the chart's dashboard while gangs have faults.

    python -m bench.dashboard_picture        as root; see e2e/

It starts its own cluster, or uses that of `make e2e-up`, installs the chart, lets a real Prometheus scrape the
controllers, and runs gangs for some minutes: workers are killed, exit, or ask for a restart, a device fails, and a gang
waits for devices. Then Prometheus answers each panel's own query, as it stands in the dashboard, and the answers are
drawn. It ends with 1, and names the queries, if one finds nothing that should find something.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.panel_drawing import drawn
from bench.pictures import FOLDER
from e2e import clusters, installation, process_faults
from e2e.accelerators import RESOURCE, plugged_in
from e2e.cluster.device_plugin import Devices
from e2e.cluster.progress import announce
from e2e.clusters import Cluster
from e2e.dashboard import Panel, Range, answer, panels, unanswered
from e2e.gangs import Gang, trainers
from e2e.jaeger import Jaeger
from e2e.prometheus import prometheus_on

RESEARCH: Final = "research"
SEARCH: Final = "search"
PAUSE_SECONDS: Final = 25.0
"""Between two faults."""
POINTS: Final = 150
CONTROLLER: Final = "The controller"
"""The row with which the second picture begins."""
QUIET: Final[Mapping[str, str]] = {
    "Degraded gangs by reason: {{reason}}": "No gang is degraded",
    "Refused connections: {{reason}}": "No connection was refused",
}
"""Queries that find nothing in this recording -> why."""


class Recording:
    """The gangs that are recorded."""

    def __init__(self, cluster: Cluster, folder: Path, traces: str) -> None:
        self._cluster, self._folder, self._traces = cluster, folder, traces

    def submit(self, namespace: str, name: str, replicas: int, **more: Any) -> Gang:
        """A gang that trains with one device for each worker. ``more``: fields of its role."""
        directory = self._folder / name
        directory.mkdir()
        directory.chmod(0o777)
        rules = [{"name": "asked-to-leave", "action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}}]
        policy = {"rules": rules}
        document = trainers(name, replicas=replicas, directory=directory, traces=self._traces, podFailurePolicy=policy)
        role = document["spec"]["roles"][0]
        role |= more
        role["template"]["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: 1}}
        return Gang(self._cluster.kubectl, namespace, name).apply(document)

    def fault(self, gang: Gang, member: str, number: signal.Signals) -> None:
        """Send a signal to a worker, and wait until the next attempt makes steps."""
        attempt = gang.status["attempt"] + 1
        announce(f"{gang.name}: {number.name} to {member}")
        process_faults.worker(gang.uids()[member]).send(number)
        trains(gang, attempt)
        time.sleep(PAUSE_SECONDS)  # what is recorded is time

    def remove(self, gang: Gang) -> None:
        """Delete it, and wait until its pods are gone."""
        words = ("gj", gang.name, "-n", gang.namespace, "--ignore-not-found")
        self._cluster.kubectl("delete", *words, "--cascade=foreground", "--timeout=180s")


def trains(gang: Gang, attempt: int) -> None:
    """Wait until an attempt makes steps."""
    gang.runs(attempt)
    gang.until("a step", lambda status: status.get("firstStep", {}).get("attempt") == attempt or None)


def device_of(gang: Gang, member: str) -> str:
    """The device of a member."""
    pod = gang.pods()[member]["metadata"]["name"]
    return gang.kubectl("exec", pod, "-c", "main", "-n", gang.namespace, "--", "printenv", "FAKE_DEVICES").strip()


@contextmanager
def namespaces(cluster: Cluster) -> Iterator[None]:
    """The two namespaces of the picture."""
    for name in (RESEARCH, SEARCH):
        cluster.kubectl("create", "namespace", name)
        cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")
    try:
        yield
    finally:
        cluster.kubectl("delete", "namespace", RESEARCH, SEARCH, "--timeout=240s")


def faults(recording: Recording, devices: Mapping[str, Devices]) -> list[Gang]:
    """Some minutes of two teams; the gangs that are left."""
    llama = recording.submit(RESEARCH, "llama", 4, start={"type": "Fork"})
    ranker = recording.submit(SEARCH, "ranker", 2)
    trains(llama, 1)
    trains(ranker, 1)
    time.sleep(2 * PAUSE_SECONDS)
    recording.fault(llama, "worker-1", signal.SIGKILL)
    recording.fault(ranker, "worker-0", signal.SIGUSR1)
    recording.fault(llama, "worker-2", signal.SIGUSR2)
    announce("a gang waits for devices")
    sweep = recording.submit(RESEARCH, "sweep", 4)
    time.sleep(PAUSE_SECONDS)
    recording.fault(llama, "worker-3", signal.SIGKILL)
    recording.remove(ranker)
    trains(sweep, 1)
    time.sleep(PAUSE_SECONDS)
    recording.remove(sweep)
    broken, attempt = device_of(llama, "worker-0"), llama.status["attempt"] + 1
    announce(f"{broken} fails")
    devices[broken].mark(broken, healthy=False)
    trains(llama, attempt)
    time.sleep(PAUSE_SECONDS)
    recording.fault(llama, "worker-1", signal.SIGKILL)
    return [llama]


def pictures() -> Iterator[tuple[str, str, tuple[Panel, ...]]]:
    """Name, title and panels of each picture."""
    every = panels()
    cut = next(at for at, panel in enumerate(every) if (panel.kind, panel.title) == ("row", CONTROLLER))
    yield "dashboard", "The dashboard: gangs, restarts, and where the time goes", every[:cut]
    yield "dashboard-controller", "The dashboard: the controller", every[cut:]


def main() -> int:
    """Record the pictures; returns the exit code."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # It ends with everything taken down, as by Ctrl-C.
    with clusters.open_cluster() as cluster, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if cluster.lab is None:
            sys.exit("the faults of this recording need a cluster of our own: run it without KUBECONFIG")
        Path(folder).chmod(0o777)
        jaeger = Jaeger(cluster.lab).start()
        installation.install(cluster, jaeger.endpoint)
        with (
            namespaces(cluster),
            plugged_in(cluster.lab, cluster) as devices,
            prometheus_on(cluster, cluster.lab, RESEARCH, Path(folder)) as seen,
        ):
            begin = time.time()
            recording = Recording(cluster, Path(folder), jaeger.endpoint)
            left = faults(recording, devices)
            end = time.time()
            shown = Range(begin, end, (end - begin) / POINTS)
            empty = unanswered(seen, shown) - QUIET.keys()
            quiet = {name.partition(": ")[0]: why for name, why in QUIET.items()}
            for name, title, some in pictures():
                answers = {panel: [one for it in panel.targets for one in answer(seen, it, shown)] for panel in some}
                (FOLDER / f"{name}.svg").write_text(drawn(answers, shown, title, quiet), encoding="utf-8")
            for gang in left:
                recording.remove(gang)
    for query in sorted(empty):
        print(f"no data: {query}", file=sys.stderr)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
