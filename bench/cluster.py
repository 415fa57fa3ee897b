"""Restart latency on a real cluster, compared with two other ways, and API requests of a restart.

    make bench                                          what docs/benchmarks.md quotes
    python -m bench.cluster --members 4 --restarts 10   one size

It starts its own cluster (as root; see e2e/), installs the chart and submits gangs of sleepers, whose start costs
nothing. Three ways, on the same pods in the same run:

* *in place*: a worker is killed; gangctl restarts all workers inside their containers;
* *containers*: every supervisor is killed, so that the kubelet restarts the containers (RestartAllContainers);
* *pods*: a rule has level Gang, so that every pod is deleted and recreated.

The total is from just before the kill to the exec of the last worker, according to the incident. Requests are those
counted by the API server, minus its count for the same time in an idle cluster.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from e2e import clusters, installation, process_faults
from e2e.cluster.processes import Process, everything
from e2e.clusters import Cluster
from e2e.gangs import STEP, Gang, sleepers
from tests.wait import until

NAMESPACE: Final = "bench"
DEADLINE_SECONDS: Final = 600.0
IDLE_SECONDS: Final = 20.0
SETTLED_SECONDS: Final = 2.0
"""Pause between two restarts."""
OTHERS: Final = 3
"""Number of measurements of the two slower ways."""
MANY: Final = 200
"""Pods for the controller's own figures."""
OURS: Final = frozenset({"gangjobs", "pods", "events", "poddisruptionbudgets", "tokenreviews", "secrets"})
"""Resources that gangctl requests; without Leases, which the election renews all the time."""
_COUNTED: Final = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Restart:
    """One restart. Times in milliseconds."""

    total: float
    detect: float
    stop: float
    barrier: float
    start: float


@dataclass
class Bench:
    """A gang on the cluster."""

    cluster: Cluster
    gang: Gang
    members: int

    def requests(self) -> Counter[str]:
        """Requests that the API server has answered since its start, by verb and resource."""
        found: Counter[str] = Counter()
        for match in _COUNTED.finditer(self.cluster.kubectl("get", "--raw", "/metrics")):
            labels = dict(_LABEL.findall(match["labels"]))
            if labels["resource"] in OURS and labels["verb"] not in {"WATCH", "CONNECT"}:
                found[f"{labels['verb']} {labels['resource']}"] += int(float(match["count"]))
        return found

    def idle(self) -> Counter[str]:
        """Requests in :data:`IDLE_SECONDS` of an idle cluster."""
        before = self.requests()
        time.sleep(IDLE_SECONDS)  # measures a period of time
        return self.requests() - before

    def fault(self, inject: Callable[[], None], attempt: int) -> float:
        """Inject a fault and wait until the attempt runs. Return the time of the fault in seconds since the epoch.

        The watch stands before: a kubectl that starts meanwhile would take the processors from what is measured.
        """
        stands = threading.Event()

        def holds(job: dict[str, Any]) -> bool:
            stands.set()
            status = job.get("status", {})
            done = (status.get("attempt"), status.get("phase"), status.get("ready"))
            return done == (attempt, "Running", f"{self.members}/{self.members}")

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(self._watch, holds)
            stands.wait(DEADLINE_SECONDS)
            done = time.time()
            inject()
            waiting.result()
        time.sleep(SETTLED_SECONDS)  # by then, all requests of the restart are done
        return done

    def restarts(self, faults: list[float]) -> list[Restart]:
        """The restarts after these faults, the latest ones."""
        newest = self._watch(_is_told)["status"]["incidents"][: len(faults)]
        return [_restart(incident, fault) for incident, fault in zip(reversed(newest), faults, strict=True)]

    def started(self) -> None:
        """Wait until its first attempt runs."""
        self._watch(lambda job: job.get("status", {}).get("phase") == "Running")

    def _watch(self, holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        def found(job: dict[str, Any]) -> dict[str, Any] | None:
            return job if holds(job) else None

        return self.cluster.watch("gj", self.gang.name, "-n", NAMESPACE, holds=found, seconds=DEADLINE_SECONDS)


def _is_told(job: dict[str, Any]) -> bool:
    """Whether the newest incident has the start of its last worker, which the next status write adds."""
    return "start" in job["status"]["incidents"][0]["milliseconds"]


def _restart(incident: dict[str, Any], fault: float) -> Restart:
    times = incident["milliseconds"]
    return Restart(
        total=(_seconds(incident["settledTime"]) - fault) * 1000 + times.get("start", 0),
        detect=(_seconds(incident["time"]) - fault) * 1000,
        stop=times.get("stop", 0),
        barrier=times.get("barrier", 0),
        start=times.get("start", 0),
    )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def resident(process: Process) -> float:
    """Resident memory in MB."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu(process: Process) -> float:
    """CPU time of a process in seconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def submitted(cluster: Cluster, members: int, folder: str) -> Bench:
    """A running gang with this number of sleepers."""
    rules = [{"name": "all-anew", "action": "Ignore", "level": "Gang", "onSignals": ["SIGUSR1"]}]
    recovery = {"budget": {"type": "Unlimited"}, "replaceAfter": 100}
    document = sleepers("bench", replicas=members, directory=folder, recovery=recovery)
    document["spec"]["podFailurePolicy"] = {"rules": rules}
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][0]
    container["command"] = ["sh", "-c", f"({STEP}) & exec sleep 1000000"]
    bench = Bench(cluster, Gang(cluster.kubectl, NAMESPACE, "bench").apply(document), members)
    bench.started()
    return bench


def removed(bench: Bench) -> None:
    """Delete the gang, and wait until its pods are gone."""
    bench.gang.kubectl("delete", "gj", "bench", "-n", NAMESPACE)
    until("its pods are gone", lambda: not bench.gang.pods(), DEADLINE_SECONDS, every=1.0)


def in_place(bench: Bench, restarts: int) -> int:
    """Print the row of restarts in place; return the attempt that runs afterwards."""
    uids = list(bench.gang.uids().values())
    workers = [process_faults.worker(uid) for uid in uids]
    bench.fault(lambda: workers[0].send(signal.SIGKILL), 2)  # warm-up
    idle = bench.idle()
    before, began = bench.requests(), time.monotonic()
    faults = []
    for at in range(restarts):
        worker = process_faults.worker(uids[at % len(uids)])
        faults.append(bench.fault(partial(worker.send, signal.SIGKILL), 3 + at))
    asked, seconds = bench.requests() - before, time.monotonic() - began
    each = {what: max(0.0, count - idle[what] * seconds / IDLE_SECONDS) / restarts for what, count in asked.items()}
    found = bench.restarts(faults)
    half = len(found) // 2
    totals = [one.total for one in found]
    flat = statistics.median(totals[half:]) / statistics.median(totals[:half])

    def median(name: str) -> float:
        return float(statistics.median(getattr(one, name) for one in found))

    print(
        f"{bench.members:8} {'in place':>11} {median('total'):8.0f} {min(totals):7.0f} {max(totals):7.0f} "
        f"{median('detect'):7.0f} {median('stop'):6.0f} {median('barrier'):8.0f} {median('start'):6.0f} {flat:6.2f}",
        flush=True,
    )
    said = ", ".join(f"{count:.1f} {what}" for what, count in sorted(each.items()) if round(count, 1))
    print(f"         API requests a restart: {sum(each.values()):.1f} ({said})", flush=True)
    return 2 + restarts


def _send_all(processes: list[Process], number: signal.Signals) -> None:
    for process in processes:
        process.send(number)


def other_ways(bench: Bench, attempt: int) -> None:
    """Print the rows of container restarts and of recreated pods."""
    taken: dict[str, list[float]] = {"containers": [], "pods": []}
    for way, found in taken.items():
        faults = []
        for _ in range(OTHERS):
            attempt += 1
            uids = list(bench.gang.uids().values())
            if way == "containers":
                supervisors = [process_faults.supervisor(uid) for uid in uids]
                faults.append(bench.fault(partial(_send_all, supervisors, signal.SIGKILL), attempt))
            else:
                faults.append(bench.fault(partial(process_faults.worker(uids[0]).send, signal.SIGUSR1), attempt))
        found += [one.total for one in bench.restarts(faults)]
    for way, found in taken.items():
        print(
            f"{bench.members:8} {way:>11} {statistics.median(found):8.0f} {min(found):7.0f} {max(found):7.0f}",
            flush=True,
        )


def controller_with(cluster: Cluster, pods: int, folder: str) -> None:
    """Print the figures of the controller and the sidecars."""
    bench = submitted(cluster, pods, folder)
    controllers = [one for one in everything() if "gangctl.controller.kube" in one.command and one.inner_pid == 1]
    before, began = [cpu(one) for one in controllers], time.monotonic()
    time.sleep(IDLE_SECONDS)  # measures a period of time
    seconds = time.monotonic() - began
    leader = max(zip(controllers, before, strict=True), key=lambda one: cpu(one[0]) - one[1])
    share = (cpu(leader[0]) - leader[1]) / seconds
    sidecars = [resident(one) for one in everything() if "gangsidecar.agent" in one.command and one.inner_pid == 1]
    supervisors = [resident(process_faults.supervisor(uid)) for uid in list(bench.gang.uids().values())[:10]]
    print(
        f"{pods} pods: the controller has {resident(leader[0]):.0f} MB and takes {100 * share:.1f} % of a core while "
        f"nothing happens; sidecars {statistics.median(sidecars):.1f} MB (largest {max(sidecars):.1f}), supervisors "
        f"{statistics.median(supervisors):.1f} MB",
        flush=True,
    )
    removed(bench)


def main() -> None:
    """Print the tables."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--members", type=int, nargs="*", default=[4, 16, 64])
    flags.add_argument("--restarts", type=int, default=10)
    flags.add_argument("--pods", type=int, default=MANY, help="for the controller's own figures; 0 = leave them out")
    options = flags.parse_args()
    with clusters.open_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        installation.install(cluster)
        cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, "--timeout=30s")
        print(f"{options.restarts} restarts each, {os.cpu_count()} cores; milliseconds, medians")
        print(
            f"{'members':>8} {'way':>11} {'total':>8} {'min':>7} {'max':>7} {'detect':>7} {'stop':>6} {'barrier':>8} "
            f"{'start':>6} {'flat':>6}"
        )
        for members in options.members:
            bench = submitted(cluster, members, folder)
            other_ways(bench, in_place(bench, options.restarts))
            removed(bench)
        if options.pods:
            controller_with(cluster, options.pods, folder)
        cluster.kubectl("delete", "namespace", NAMESPACE)


if __name__ == "__main__":
    main()
