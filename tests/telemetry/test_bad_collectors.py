"""Collectors that are no good cost spans, which are counted, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from urllib.parse import quote

import pytest
from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase, Incident
from gangctl.controller.directives import DirectiveCache
from gangctl.core.lifecycle.decide import decide
from gangctl.telemetry.port import TelemetryFanout
from gangctl.telemetry.spans import incident_spans
from gangctl.telemetry.tracing.batch_exporter import SdkErrors
from gangctl.telemetry.tracing.otlp import CLOSE_SECONDS
from gangctl.telemetry.tracing.settings import read
from gangctl.telemetry.tracing.tracer import IncidentTracer, tracer_from_environment
from gangsidecar import wire
from tests.controller.fake_cluster import FakeCluster, Running, running
from tests.controller.fake_sidecars import Sidecar, job, report
from tests.telemetry.otlp_receiver import Receiver, hangs, receiving
from tests.telemetry.traced_restart import environment, restarted, traced
from tests.wait import until_async

SLY = r"sec'ret\x"
SECRET = "hunter2-the-token"


@asynccontextmanager
async def down() -> AsyncIterator[str]:
    """A port where nobody listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


def answering(answer: Callable[[], Awaitable[web.Response | None]]) -> Callable[[], AbstractAsyncContextManager[str]]:
    """A collector that answers so."""

    @asynccontextmanager
    async def found() -> AsyncIterator[str]:
        async with receiving() as receiver:
            receiver.answer = answer
            yield receiver.url

    return found


def refusing(status: int) -> Callable[[], AbstractAsyncContextManager[str]]:
    """A collector that answers with this status, and words that are none of the log's business."""

    async def refuse() -> web.Response:
        return web.Response(status=status, text="\x1b[2J no spans here")

    return answering(refuse)


async def moved() -> web.Response:
    """It points elsewhere."""
    return web.Response(status=302, headers={"Location": "/elsewhere"})


@asynccontextmanager
async def garbage() -> AsyncIterator[str]:
    """What is there doesn't speak HTTP."""

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\xff\x1b[2J no HTTP \r\n" * 20)
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def later() -> None:
    """An answer that takes its time: this is a collector that is slow."""
    await asyncio.sleep(0.5)


COLLECTORS = {
    "down": down,
    "hanging": answering(hangs),
    "moved": answering(moved),
    "304": refusing(304),
    "307": refusing(307),
    "400": refusing(400),
    "401": refusing(401),
    "500": refusing(500),
    "503": refusing(503),
    "garbage": garbage,
}


def hurried(url: str, **more: str) -> dict[str, str]:
    """Settings that give up soon."""
    return environment(Receiver(url), OTEL_EXPORTER_OTLP_TIMEOUT="200", **more)


@pytest.mark.parametrize("collector", COLLECTORS)
async def test_lost_spans_are_counted_and_logged_in_one_line_with_the_reason_and_no_secret(
    collector: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    jobs = restarted()
    expected = len(incident_spans(jobs[-1], jobs[-1].status.incidents[0]))
    async with COLLECTORS[collector]() as url:
        headers = f"authorization=Bearer%20{SECRET}"
        tracer = tracer_from_environment(
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
    assert len(told) == 2, "that they are sent, and that they can't be"
    assert "and nothing else is affected: they could not be exported to http://***@127.0.0.1" in told[1]
    assert not told[1].endswith("the SDK gave no reason")
    assert tracer.counts().exported == tracer.counts().dropped == 0
    assert SECRET not in caplog.text
    assert all(line.isprintable() for line in told)


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
    settings = read({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_HEADERS": f"a={quote(value)}"})
    assert settings is not None
    heard = SdkErrors(settings)
    heard.emit(logging.LogRecord("opentelemetry", logging.ERROR, "", 0, text, (), None))
    heard.release()
    assert heard.first == shown


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
        tracer = tracer_from_environment(
            environment(receiver, OTEL_BSP_MAX_QUEUE_SIZE="5", OTEL_EXPORTER_OTLP_TIMEOUT="60000")
        )
        for one in jobs:
            tracer.round_began(one)
        assert tracer.counts().dropped == expected - 5
        began = time.monotonic()
        await tracer.close()
        assert time.monotonic() - began < CLOSE_SECONDS + 0.5
        assert tracer.counts().failed == 5, "what could not be sent is lost"


@pytest.mark.parametrize("collector", COLLECTORS)
async def test_closing_waits_only_a_moment_for_the_collector(collector: str) -> None:
    async with COLLECTORS[collector]() as url:
        tracer = tracer_from_environment(
            environment(Receiver(url), OTEL_BSP_SCHEDULE_DELAY="60000", OTEL_EXPORTER_OTLP_TIMEOUT="60000")
        )
        for one in restarted():
            tracer.round_began(one)
        began = time.monotonic()
        await tracer.close()
        assert time.monotonic() - began < CLOSE_SECONDS + 0.5
        assert tracer.counts().exported == 0


async def test_closing_sends_waiting_spans_to_a_slow_collector() -> None:
    jobs = restarted()

    async def slowly() -> web.Response | None:
        await later()
        return None

    async with receiving() as receiver:
        receiver.answer = slowly
        tracer = tracer_from_environment(environment(receiver, OTEL_BSP_SCHEDULE_DELAY="60000"))
        for one in jobs:
            tracer.round_began(one)
        await tracer.close()
        assert receiver.names["gang.restart"] == 1
        assert tracer.counts().exported == len(receiver.spans)


async def test_a_process_ends_at_once_while_its_collector_hangs() -> None:
    """Neither a thread nor anything at the interpreter's exit waits for the collector."""
    code = """
import asyncio, sys
from gangctl.telemetry.tracing.tracer import tracer_from_environment
from tests.telemetry.traced_restart import restarted
async def main():
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": sys.argv[1], "OTEL_EXPORTER_OTLP_TIMEOUT": "60000"}
    tracer = tracer_from_environment(environment)
    for job in restarted():
        tracer.round_began(job)
    print("ready", flush=True)
    await tracer.close()
asyncio.run(main())
"""
    async with receiving() as receiver:
        receiver.answer = hangs
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, receiver.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        began = time.monotonic()
        assert await process.wait() == 0
        assert time.monotonic() - began < CLOSE_SECONDS + 5, "its timeout is 60 s"
        assert receiver.requests == 1


async def restart(here: Running, members: list[Sidecar], seq: int) -> float:
    """End a worker, and play all members until all run again; from the fault to the last start, in seconds."""
    attempt = here.world.jobs["uid-g"].status.attempt
    began = time.monotonic()
    end = wire.End(attempt, 0, 0, rank=1, exit_code=3)
    await members[1].say(report(1, seq=seq, attempt=attempt, phase=wire.Phase.RUNNING, ends=(end,)))
    await directed(members, attempt + 1, wire.Verb.HOLD)
    for at, member in enumerate(members):
        ready = report(
            at, seq=seq + 1, attempt=attempt + 1, phase=wire.Phase.READY, address="127.0.0.1", ports=(29400,)
        )
        await member.say(replace(ready, ends=(end,) if at == 1 else ()))
    await directed(members, attempt + 1, wire.Verb.RUN)
    took = time.monotonic() - began
    for at, member in enumerate(members):
        await member.say(report(at, seq=seq + 2, attempt=attempt + 1, phase=wire.Phase.RUNNING))
    return took


async def directed(members: list[Sidecar], attempt: int, verb: wire.Verb) -> None:
    """Wait until everybody was told so."""
    for member in members:
        while True:
            said = await member.hear()
            if isinstance(said, wire.Directive) and (said.attempt, said.verb) == (attempt, verb):
                break


@pytest.mark.parametrize("collector", [*COLLECTORS, "well"])
async def test_a_bad_collector_does_not_slow_down_restarts(collector: str) -> None:
    stored = job(version="1", attempt=0, phase=GangPhase.NEW)
    recovery = stored.spec.recovery.model_copy(update={"evidence_window_seconds": 0, "replace_after": 100})
    world = FakeCluster(
        jobs={"uid-g": stored.model_copy(update={"spec": stored.spec.model_copy(update={"recovery": recovery})})}
    )
    async with receiving() as receiver, COLLECTORS.get(collector, down)() as url:
        tracer = tracer_from_environment(environment(receiver) if collector == "well" else environment(Receiver(url)))
        looks: list[float] = []
        async with (
            running(world, decide, Timed(tracer, looks), tell=DirectiveCache().directive) as here,
            asyncio.TaskGroup() as tasks,
        ):
            looking = tasks.create_task(tracer.run())
            members = await started(here)
            took = [await restart(here, members, seq) for seq in (10, 20, 30)]
            # A gang that reports no steps is done with a restart when the next one has begun.
            await until_async("three incidents are stored", lambda: len(_incidents(world)) == 3)
            if collector == "well":
                await until_async("two root spans arrive", lambda: receiver.names["gang.restart"] == 2)
                assert not receiver.differing()
            looking.cancel()
        await tracer.close()
    assert max(took) < 2, "a collector that hangs would take 10 s"
    assert max(looks) < 0.25


async def started(here: Running) -> list[Sidecar]:
    """All members of the gang, which run attempt 1."""
    world = here.world
    await until_async("four pods are created", lambda: len(world.shown.get("uid-g", ())) == 4)
    now = time.time()
    world.shown["uid-g"] = tuple(
        replace(pod, uid=f"pod-{at}", started_at=now, scheduled_at=now) for at, pod in enumerate(world.shown["uid-g"])
    )
    members = [await here.member(at) for at in range(4)]
    for at, member in enumerate(members):
        await directed([member], 1, wire.Verb.HOLD)
        await member.say(report(at, seq=2, attempt=1, phase=wire.Phase.READY, address="127.0.0.1", ports=(29400,)))
    await directed(members, 1, wire.Verb.RUN)
    for at, member in enumerate(members):
        await member.say(report(at, seq=3, attempt=1, phase=wire.Phase.RUNNING))
    return members


class Timed:
    """Measures how long each look takes of the loop's time."""

    def __init__(self, inner: IncidentTracer, looks: list[float]) -> None:
        self._inner = inner
        self._looks = looks

    def round_began(self, stored: GangJob) -> None:
        began = time.perf_counter()
        self._inner.round_began(stored)
        self._looks.append(time.perf_counter() - began)

    def decided(self, seconds: float) -> None:
        self._inner.decided(seconds)

    def status_written(self, before: GangJob, after: GangJob, seconds: float) -> None:
        self._inner.status_written(before, after, seconds)

    def action_finished(self, action: str, seconds: float, *, done: bool) -> None:
        self._inner.action_finished(action, seconds, done=done)

    def gang_gone(self, uid: str) -> None:
        self._inner.gang_gone(uid)


def _incidents(world: FakeCluster) -> tuple[Incident, ...]:
    return world.jobs["uid-g"].status.incidents


async def test_an_error_in_telemetry_is_logged_once_and_affects_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Mistaken(IncidentTracer):
        """It is wrong."""

        def round_began(self, job: GangJob) -> None:
            raise LookupError(job.metadata.name)

    jobs = restarted()
    async with traced() as (tracer, receiver):
        both = TelemetryFanout(Mistaken(tracer._exporter), tracer)  # noqa: SLF001
        for one in jobs:
            both.round_began(one)
        await until_async("the root span arrives", lambda: receiver.names["gang.restart"])
    assert caplog.text.count("Mistaken has failed, which is a bug") == 1


def test_no_exporter_thread_can_block_the_interpreters_exit() -> None:
    assert not [one for one in threading.enumerate() if one.name.startswith(("Otel", "spans")) and not one.daemon]
