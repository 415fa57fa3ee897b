"""A collector that is down, hangs or refuses loses spans, which are counted, and disturbs nothing else."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from e2e import process_faults
from e2e.api_proxy import ApiProxy
from e2e.cluster import addresses
from e2e.cluster.lab import Lab
from e2e.collectors import Collector, down, hanging, refusing
from e2e.controllers import METRICS, Controller, LocalControllers
from e2e.gangs import Gang, has_stepped, sleepers
from tests.wait import until, until_async

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]
TIMEOUT = 30.0
"""Seconds after which the controller gives up on a collector: what waited for one would take longer."""
SPANS = re.compile(r'^gangctl_spans_total\{outcome="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass
class Measured:
    """What a test measured of a controller with a collector."""

    restarts: list[float]
    """Seconds of each restart, from its fault to the last worker's start, as the test measured them."""
    ending: float
    """Seconds from SIGTERM to its end."""
    code: int
    metrics: str
    log: str


@asynccontextmanager
async def no_collector() -> AsyncIterator[Collector]:
    """No endpoint: traces are off."""
    yield Collector("")


async def restarted(gang: Gang, uid: str, attempt: int, directory: Path) -> float:
    """Kill a worker; seconds until all workers have started again."""

    def do() -> float:
        until("a step", partial(has_stepped, directory, attempt - 1))  # Restarts in a row without a step wait.
        process = process_faults.worker(uid)
        began = time.monotonic()
        process_faults.kill(process)
        gang.until(f"attempt {attempt}", lambda status: (status["attempt"], status["phase"]) == (attempt, "Running"))
        took = time.monotonic() - began
        gang.runs(attempt)
        return took

    return await asyncio.to_thread(do)


async def metrics(lab: Lab, controller: Controller) -> str:
    """The metrics of a controller; empty while it does not listen yet."""
    url = f"http://{addresses.entrance(lab.control_plane.number)}:{controller.port + METRICS}/metrics"
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text()
    except aiohttp.ClientConnectionError:
        return ""


async def until_metrics(lab: Lab, controller: Controller, holds: Callable[[str], bool]) -> None:
    """Wait until a condition holds for the metrics of a controller."""

    async def condition() -> bool:
        return holds(await metrics(lab, controller))

    await until_async("a metric", condition, every=0.1)


def spans(metrics: str, *outcomes: str) -> float:
    """The number of spans with one of these outcomes."""
    return sum(float(count) for outcome, count in SPANS.findall(metrics) if outcome in outcomes)


async def measure(
    local_controllers: LocalControllers, server: str, collector: Collector, gang: Gang, lab: Lab, directory: Path
) -> Measured:
    """Run a controller with this collector: three restarts, then SIGTERM."""
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "500"}
    settings["OTEL_EXPORTER_OTLP_TIMEOUT"] = f"{TIMEOUT * 1000:.0f}"
    controller = await local_controllers.start("first", server, **settings)
    first = await asyncio.to_thread(lambda: gang.runs(gang.status.get("attempt") or 1)["attempt"])
    uids = await asyncio.to_thread(gang.uids)
    await until_metrics(lab, controller, lambda text: f"gangctl_hub_connections {len(uids)}.0" in text)
    times = [await restarted(gang, uids["worker-1"], first + more, directory) for more in (1, 2)]
    if collector.url:  # the second incident is over, so its trace is due
        await until_metrics(lab, controller, lambda text: bool(collector.asked or spans(text, "failed", "dropped")))
    times.append(await restarted(gang, uids["worker-1"], first + 3, directory))
    exposed = await metrics(lab, controller)
    began = time.monotonic()
    controller.process.terminate()
    code = await controller.process.wait()
    log = await asyncio.to_thread(controller.log.read_text)
    return Measured(times, time.monotonic() - began, code, exposed, log)


@pytest.mark.timeout(600)  # five controllers, one after the other, with three restarts each
async def test_a_broken_collector_delays_neither_a_restart_nor_the_end_of_the_controller(
    local_controllers: LocalControllers,
    api_proxy: ApiProxy,
    machine_address: str,
    lab: Lab,
    submit: Submit,
    shared_dir: Path,
) -> None:
    document = sleepers("spans", replicas=3, directory=str(shared_dir), steps=True)
    document["spec"]["recovery"] |= {"replaceAfter": 100, "budget": {"type": "Unlimited"}}
    gang = await asyncio.to_thread(submit, document)
    cases: dict[str, AbstractAsyncContextManager[Collector]] = {
        "no collector": no_collector(),
        "down": down(machine_address),
        "hanging": hanging(machine_address),
        "refusing": refusing(machine_address, 503),
        "wrong": refusing(machine_address, 400),
    }
    seen = {}
    for name, case in cases.items():
        async with case as collector:
            seen[name] = await measure(local_controllers, api_proxy.url, collector, gang, lab, shared_dir)
    for name, one in seen.items():
        assert max(one.restarts) < TIMEOUT, (name, seen)
        assert one.ending < TIMEOUT, (name, seen)
        assert one.code == 0, (name, seen)
    for name in ("down", "hanging", "refusing", "wrong"):
        assert spans(seen[name].metrics, "exported") == 0, seen[name].metrics
        assert " spans are lost" in seen[name].log
    assert spans(seen["down"].metrics, "failed") > 0, "the test has waited for this"
    assert spans(seen["no collector"].metrics, "exported", "failed", "dropped") == 0
