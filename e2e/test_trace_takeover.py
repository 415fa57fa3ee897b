"""A trace is one whole tree although the controllers that wrote it were killed in the middle of the restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.api_proxy import ApiProxy
from e2e.controllers import LocalControllers
from e2e.failpoints import WRITE_1, WRITE_2, Failpoint, writes
from e2e.gangs import Gang
from e2e.jaeger import ROOT, Jaeger
from e2e.traced_gangs import CLOSE, assert_sound, traced, training
from tests.wait import until_async

pytestmark = pytest.mark.nightly

Submit = Callable[[dict[str, Any]], Gang]


async def test_a_controller_killed_during_a_restart_leaves_one_whole_trace(
    local_controllers: LocalControllers, api_proxy: ApiProxy, jaeger: Jaeger, submit: Submit, shared_dir: Path
) -> None:
    first = await local_controllers.start("first", api_proxy.url, OTEL_EXPORTER_OTLP_ENDPOINT=jaeger.endpoint)
    gang = await asyncio.to_thread(submit, traced("mid", shared_dir, jaeger))
    found = await asyncio.to_thread(training, gang, shared_dir)
    after_write_1 = Failpoint(lambda: first, writes(WRITE_1), after=True)
    api_proxy.faults.append(after_write_1)
    await asyncio.to_thread(found.kill, "worker-1")
    first_fault = found.fault
    await until_async("the first controller is killed", lambda: after_write_1.done)
    second = await local_controllers.start("second", api_proxy.url, OTEL_EXPORTER_OTLP_ENDPOINT=jaeger.endpoint)
    await asyncio.to_thread(gang.runs, 2)
    # A fault may overtake the report of a first step, and then the trace ends with the first steps that were reported.
    await asyncio.to_thread(found.until_timed, 2)
    after_write_2 = Failpoint(lambda: second, writes(WRITE_2, 3), after=True)
    api_proxy.faults.append(after_write_2)
    await asyncio.to_thread(found.kill, "worker-1")
    await until_async("the second controller is killed", lambda: after_write_2.done)
    await local_controllers.start("third", api_proxy.url, OTEL_EXPORTER_OTLP_ENDPOINT=jaeger.endpoint)
    await asyncio.to_thread(gang.runs, 3)
    await asyncio.to_thread(found.until_timed, 3)
    for attempt, fault in ((3, found.fault), (2, first_fault)):
        incident = await asyncio.to_thread(found.incident, attempt)
        trace = await asyncio.to_thread(jaeger.whole, incident["traceID"])
        assert_sound(trace, incident)
        assert trace.only(ROOT).begin == pytest.approx(fault, abs=CLOSE), trace
        assert trace.only(ROOT).end == pytest.approx(found.first_step(attempt), abs=CLOSE), trace
