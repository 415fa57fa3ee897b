"""A bad collector costs spans, which are counted, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from urllib.parse import quote

import pytest
from aiohttp import web

from gangctl.story.spans import incident_spans
from gangctl.telemetry.tracing.exporter import collector
from gangctl.telemetry.tracing.otlp import SdkErrors
from tests.telemetry.collectors import COLLECTORS, later
from tests.telemetry.otlp_receiver import Receiver, hangs, receiving
from tests.telemetry.traced_restart import environment, restarted, traced, tracer_with
from tests.wait import SECONDS, until_async

TIMEOUT_SECONDS = 2 * SECONDS
"""Of an export: what waits for a collector that hangs waits for so long, and the end of a process must not."""
TIMEOUT = f"{TIMEOUT_SECONDS * 1000:.0f}"
SLY = r"sec'ret\x"
SECRET = "hunter2-the-token"


def hurried(url: str, **more: str) -> dict[str, str]:
    """Settings with a short timeout."""
    return environment(Receiver(url), OTEL_EXPORTER_OTLP_TIMEOUT="200", **more)


@pytest.mark.parametrize("kind", COLLECTORS)
async def test_lost_spans_are_counted_and_logged_in_one_line_with_the_reason_and_no_secret(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    jobs = restarted()
    expected = len(incident_spans(jobs[-1], jobs[-1].status.incidents[0]))
    async with COLLECTORS[kind]() as url:
        headers = f"authorization=Bearer%20{SECRET}"
        tracer = tracer_with(
            hurried(
                url.replace("//", f"//me:{SECRET}@"), OTEL_EXPORTER_OTLP_HEADERS=headers, OTEL_BSP_SCHEDULE_DELAY="1"
            )
        )
        for one in jobs:
            tracer.round_began(one)
        await until_async("every span is counted as failed", lambda: tracer.counts().failed == expected)
        await tracer.close()
    told = [entry.getMessage() for entry in caplog.records if entry.name.startswith("gangctl")]
    assert [line for line in told if "are lost" in line] == told[1:]
    assert len(told) == 2, "one line that traces are on, and one that spans are lost"
    assert "and nothing else is affected: they could not be exported to http://***@127.0.0.1" in told[1]
    assert not told[1].endswith("the SDK gave no reason")
    assert tracer.counts().exported == tracer.counts().dropped == 0
    assert SECRET not in caplog.text
    assert all(line.isprintable() for line in told)


async def test_no_form_of_a_header_is_in_the_warnings_of_the_sdk(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_TRACES_SAMPLER": "some"}
    await tracer_with(settings | {"OTEL_EXPORTER_OTLP_HEADERS": f"a=sly%20\\ {SECRET}"}).close()
    assert [one.getMessage() for one in caplog.records if SECRET in one.getMessage() and "gangctl" in one.name] == []
    assert "OpenTelemetry: " in caplog.text


@pytest.mark.parametrize(
    ("value", "text", "shown"),
    [
        (SLY, f"no value like {SLY!r}", 'no value like "***"'),
        (SLY, repr(f"it has {SLY}"), '"it has ***"'),
        ("1", "error 11 at line 1", "error 11 at line 1"),
        ("1", "Header value must not be 1", "one of its headers is invalid; it is not shown, because it may be secret"),
    ],
)
def test_every_form_of_a_secret_is_hidden_and_nothing_else(value: str, text: str, shown: str) -> None:
    settings = collector({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_HEADERS": f"a={quote(value)}"})
    assert settings is not None
    errors = SdkErrors(settings.secrets)
    errors.emit(logging.LogRecord("opentelemetry", logging.ERROR, "", 0, text, (), None))
    errors.detach()
    assert errors.first == shown


@pytest.mark.usefixtures("patient")
async def test_a_collector_that_recovers_gets_new_spans_and_the_log_notes_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    _, write_1, write_2, last = restarted()

    async def refuse() -> web.Response:
        return web.Response(status=400)

    async with traced() as (tracer, receiver):
        receiver.answer = refuse
        tracer.round_began(write_1)
        await until_async("one span is counted as failed", lambda: tracer.counts().failed == 1)
        receiver.answer = None
        tracer.round_began(write_2)
        tracer.round_began(last)
        await until_async("the root span arrives", lambda: receiver.names["gang.restart"])
        await until_async("the recovery is logged", lambda: "again; 1 were lost so far" in caplog.text)
    assert tracer.counts().failed == 1
    assert tracer.counts().exported == len(receiver.spans)


@pytest.mark.usefixtures("patient")
async def test_a_short_outage_costs_no_span() -> None:
    jobs, answers = restarted(), iter([503, 503])

    async def refuse() -> web.Response | None:
        status = next(answers, None)
        return None if status is None else web.Response(status=status, headers={"Retry-After": "0"})

    async with traced() as (tracer, receiver):
        receiver.answer = refuse
        for one in jobs:
            tracer.round_began(one)
        await until_async("the root span arrives", lambda: receiver.names["gang.restart"])
    assert tracer.counts().failed == 0


async def test_the_queue_is_bounded_and_dropped_spans_are_counted() -> None:
    jobs = restarted()
    expected = len(incident_spans(jobs[-1], jobs[-1].status.incidents[0]))
    async with receiving() as receiver:
        receiver.answer = hangs
        tracer = tracer_with(environment(receiver, OTEL_BSP_MAX_QUEUE_SIZE="5", OTEL_EXPORTER_OTLP_TIMEOUT=TIMEOUT))
        for one in jobs:
            tracer.round_began(one)
        assert tracer.counts().dropped == expected - 5
        await tracer.close()
        assert tracer.counts().failed == 5, "what could not be sent is lost"


@pytest.mark.parametrize("kind", COLLECTORS)
async def test_closing_waits_only_a_moment_for_the_collector(kind: str) -> None:
    async with COLLECTORS[kind]() as url:
        tracer = tracer_with(
            environment(Receiver(url), OTEL_BSP_SCHEDULE_DELAY="60000", OTEL_EXPORTER_OTLP_TIMEOUT=TIMEOUT)
        )
        for one in restarted():
            tracer.round_began(one)
        async with asyncio.timeout(TIMEOUT_SECONDS / 2):
            await tracer.close()
        assert tracer.counts().exported == 0


@pytest.mark.usefixtures("patient")
async def test_closing_sends_waiting_spans_to_a_slow_collector() -> None:
    jobs = restarted()

    async def slowly() -> web.Response | None:
        await later()
        return None

    async with receiving() as receiver:
        receiver.answer = slowly
        tracer = tracer_with(environment(receiver, OTEL_BSP_SCHEDULE_DELAY="60000"))
        for one in jobs:
            tracer.round_began(one)
        await tracer.close()
        assert receiver.names["gang.restart"] == 1
        assert tracer.counts().exported == len(receiver.spans)


async def test_a_process_ends_at_once_while_its_collector_hangs() -> None:
    """Neither a thread nor the interpreter's exit waits for the collector."""
    code = """
import asyncio, sys
from tests.telemetry.traced_restart import restarted, tracer_with
async def main():
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": sys.argv[1], "OTEL_EXPORTER_OTLP_TIMEOUT": sys.argv[2]}
    tracer = tracer_with(environment)
    for job in restarted():
        tracer.round_began(job)
    print("ready", flush=True)
    await tracer.close()
asyncio.run(main())
"""
    async with receiving() as receiver:
        receiver.answer = hangs
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, receiver.url, TIMEOUT), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        async with asyncio.timeout(TIMEOUT_SECONDS / 2):
            assert await process.wait() == 0
        assert receiver.requests == 1


async def test_a_process_ends_after_spans_were_lost_to_a_collector_that_is_down() -> None:
    """What the SDK has logged must not keep a lock that the interpreter takes at its exit."""
    code = """
import asyncio
from tests.telemetry.traced_restart import restarted, tracer_with
from tests.wait import until_async
async def main():
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "200"}
    tracer = tracer_with(environment | {"OTEL_BSP_SCHEDULE_DELAY": "100"})
    for job in restarted():
        tracer.round_began(job)
    await until_async("spans are lost", lambda: tracer.counts().failed > 0)
    await tracer.close()
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert await asyncio.wait_for(process.wait(), SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()


def test_no_exporter_thread_can_block_the_interpreters_exit() -> None:
    assert not [one for one in threading.enumerate() if one.name.startswith(("Otel", "spans")) and not one.daemon]
