"""What one scrape of /metrics costs the controller, by the number of gangs.

    python bench/metrics.py                        the table of the docs
    python bench/metrics.py --gangs 10000

Gangs in memory, in 20 namespaces, each with a restart behind it; a real HTTP server, scraped by another process as
Prometheus does it. *scrape* is from the request to the last byte, as the other process sees it; *take* the part of it
that is done on the loop; *stall* the longest time around a scrape within which the loop did nothing else, and *idle*
the same without scrapes: what the machine adds. Medians of ten. *write* is what counting one status write costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Cause, Incident, PhaseMilliseconds
from gangctl.api.status import GangPhase, ProgressStatus, Spent
from gangctl.cluster.kube.reflector import WatchHealth
from gangctl.controller.endpoints import MetricsServer
from gangctl.core.policy.brake import BrakeState
from gangctl.telemetry.metrics.exposition import KEPT_SECONDS
from gangctl.telemetry.metrics.process import Metrics, Sources

SIZES = (0, 1000, 10_000)
NAMESPACES = 20
ROUNDS = 10
REASONS = ("ExitCode", "Signal", "NodeLost", "DeviceLost", "Preempted")
SCRAPER = """
import http.client, json, sys, time
port, rounds, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
found = []
for _ in range(rounds):
    time.sleep(pause)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    began = time.perf_counter()
    connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    size = len(connection.getresponse().read())
    found.append((time.perf_counter() - began, size))
    connection.close()
print(json.dumps(found))
"""


def gang(number: int) -> GangJob:
    """A gang that trains."""
    spec = {
        "roles": [
            {
                "name": "worker",
                "replicas": 8,
                "template": {"spec": {"containers": [{"name": "w", "command": ["train"]}]}},
            }
        ]
    }
    metadata = {"name": f"g{number}", "namespace": f"team-{number % NAMESPACES}", "uid": f"u{number}"}
    made = GangJob.model_validate(
        {"apiVersion": "gangctl.io/v1alpha1", "kind": "GangJob", "metadata": metadata, "spec": spec}
    )
    now = time.time()
    return _with(
        made,
        phase=GangPhase.RUNNING,
        attempt=1,
        phase_time=now,
        accounted_time=now,
        first_step=ProgressStatus(attempt=1, step=1, time=now),
    )


def restarted(job: GangJob, number: int) -> GangJob:
    """The status of the gang after a restart."""
    incident = Incident(
        attempt=2,
        time=time.time(),
        cause=Cause(reason=REASONS[number % len(REASONS)], time=time.time()),
        settled=True,
        outcome="Restarted",
        lost_steps=10,
        lost_seconds=5.0,
        milliseconds=PhaseMilliseconds(detect=10, stop=200, barrier=10, start=50, first_step=1000 + number),
        trace_id=f"{number:032x}",
    )
    return _with(job, attempt=2, incidents=(incident,), spent=Spent(training=600.0, lost_progress=5.0, recovery=1.3))


def _with(job: GangJob, **status: Any) -> GangJob:
    return job.model_copy(update={"status": job.status.model_copy(update=status)})


def counted(gangs: int) -> tuple[Metrics, float]:
    """Metrics of a leader with this number of gangs, and the median seconds to count one write."""
    watches = tuple(WatchHealth(kind, 0, 1) for kind in ("gangjobs", "pods", "nodes"))
    metrics = Metrics(
        Sources(
            leads=lambda: True,
            connections=lambda: gangs * 8,
            refused=dict,
            pauses=dict,
            stale=dict,
            status_write_failures=dict,
            watches=lambda: watches,
            companions=list,
            events=dict,
            spans=dict,
            brake=BrakeState,
            unreadable=lambda: 0,
        )
    )
    took = [0.0]
    for number in range(gangs):
        before = gang(number)
        after = restarted(before, number)
        metrics.round_began(before)
        began = time.perf_counter()
        metrics.status_written(before, after, 0.01)
        took.append(time.perf_counter() - began)
    return metrics, statistics.median(took)


class Stalls:
    """The longest times, in each stretch of so many seconds, within which a loop did nothing else."""

    def __init__(self, stretch: float) -> None:
        self._stretch = stretch
        self._longest: list[float] = []

    @property
    def median(self) -> float:
        """Of the stretches."""
        return statistics.median(self._longest)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Measure meanwhile."""
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def _look(self) -> None:
        every = 0.0005
        while True:
            end = time.perf_counter() + self._stretch
            self._longest.append(0.0)
            while (began := time.perf_counter()) < end:
                await asyncio.sleep(every)
                self._longest[-1] = max(self._longest[-1], time.perf_counter() - began - every)


async def measured(gangs: int) -> dict[str, float]:
    """Seconds, and bytes."""
    metrics, write = counted(gangs)
    taking = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        tuple(metrics.registry.collect())
        taking.append(time.perf_counter() - began)
    pause = KEPT_SECONDS * 1.05  # otherwise the same cached text is returned
    idle, stalls = Stalls(pause), Stalls(pause)
    async with MetricsServer(metrics.exposition, None).serve("127.0.0.1", 0) as port:
        async with idle.watched():
            await _other_process(port, 0, pause)
            await asyncio.sleep(ROUNDS * pause)
        async with stalls.watched():
            scrapes = await _other_process(port, ROUNDS, pause)
    return {
        "scrape": statistics.median(seconds for seconds, _ in scrapes),
        "bytes": scrapes[-1][1],
        "take": statistics.median(taking),
        "stall": stalls.median,
        "idle": idle.median,
        "write": write,
    }


async def _other_process(port: int, rounds: int, pause: float) -> list[tuple[float, int]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRAPER, str(port), str(rounds), str(pause)), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    return [(float(seconds), int(size)) for seconds, size in json.loads(said)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gangs", type=int, help="default: 0, 1000 and 10000")
    chosen = parser.parse_args().gangs
    print("| gangs | scrape | size | take | stall | idle | write |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for gangs in SIZES if chosen is None else (chosen,):
        found = asyncio.run(measured(gangs))
        cells = (
            f"{gangs:,}",
            f"{found['scrape'] * 1e3:.0f} ms",
            f"{found['bytes'] / 1e3:.0f} KB",
            *(f"{found[name] * 1e3:.1f} ms" for name in ("take", "stall", "idle")),
            f"{found['write'] * 1e6:.0f} µs",
        )
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
