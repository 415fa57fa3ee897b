from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import astuple
from types import SimpleNamespace

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Received
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cluster import clock
from gangctl.story.spans import Span, incident_spans
from gangctl.telemetry.tracing import tracer as tracing
from tests.telemetry.otlp_receiver import Receiver, attributes, receiving
from tests.telemetry.traced_restart import environment, restarted, traced, tracer_with
from tests.wait import until_async

pytestmark = pytest.mark.usefixtures("patient")


def last(jobs: list[GangJob]) -> tuple[Span, ...]:
    return incident_spans(jobs[-1], jobs[-1].status.incidents[0])


def seen(span: Received) -> tuple[object, ...]:
    """The fields of :class:`Span`, as they were received."""
    link = span.links[0].trace_id.hex() if span.links else ""
    begin, end = span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9
    found = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    failed = span.status.message if span.status.code == Status.STATUS_CODE_ERROR else ""
    return (
        span.name,
        *found,
        pytest.approx(begin, abs=1e-6),
        pytest.approx(end, abs=1e-6),
        tuple(attributes(span.attributes).items()),
        link,
        failed,
    )


def is_whole(receiver: Receiver, jobs: list[GangJob]) -> bool:
    return {span.span_id.hex() for span in receiver.spans} == {span.span_id for span in last(jobs)}


async def test_a_restart_is_one_trace_with_the_spans_of_the_status() -> None:
    jobs = restarted()
    expected = last(jobs)
    assert [span.name for span in expected if not span.name.startswith("member.")] == [
        *("gang.restart", "detect", "stop", "barrier", "start", "first_step")
    ]
    async with traced(OTEL_RESOURCE_ATTRIBUTES="k8s.cluster.name=here") as (tracer, receiver):
        for job in jobs:
            tracer.round_began(job)
        await until_async("every span arrives", lambda: len(receiver.spans) == len(expected))
    told = {span.span_id: astuple(span) for span in expected}
    for span in receiver.spans:
        assert told[span.span_id.hex()] == seen(span)
    assert tracer.counts().exported == len(expected)
    assert receiver.resource["service.name"] == "gangctl"
    assert receiver.resource["k8s.cluster.name"] == "here"
    assert "service.instance.id" not in receiver.resource, "two leaders send the same"
    root = attributes(receiver.named("gang.restart").attributes)
    assert (root["gang.attempt.from"], root["gang.attempt.to"], root["gang.cause.exit_code"]) == (1, 2, 3)


async def test_a_phase_is_exported_when_it_is_stored_and_the_root_when_it_is_final() -> None:
    before, write_1, write_2, *rest = restarted()
    async with traced() as (tracer, receiver):
        tracer.round_began(before)
        tracer.round_began(write_1)
        await until_async("a span arrives", lambda: receiver.spans)
        assert set(receiver.names) == {"detect"}
        tracer.round_began(write_2)
        await until_async(
            "the spans of the barrier arrive", lambda: {"stop", "barrier", "member.stop"} <= set(receiver.names)
        )
        assert not {"gang.restart", "start"} & set(receiver.names)
        for job in rest:
            tracer.round_began(job)
        await until_async("the root span arrives", lambda: receiver.names["gang.restart"])
        await until_async("the whole trace arrives", lambda: is_whole(receiver, rest))
        assert not receiver.differing()


async def test_an_unchanged_object_is_not_looked_at_and_exports_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = restarted()
    async with traced() as (tracer, receiver):
        for job in [*jobs, jobs[-1]]:
            tracer.round_began(job)
        await until_async("the whole trace arrives", lambda: is_whole(receiver, jobs))
        with monkeypatch.context() as patched:
            patched.setattr(tracing, "incident_spans", lambda *_: pytest.fail("it is looked at"))
            tracer.round_began(jobs[-1])
        again = jobs[-1].model_copy(update={"status": jobs[-1].status.model_copy(update={"message": "it runs"})})
        tracer.round_began(again)
    assert len(receiver.spans) == len(last(jobs))


@pytest.mark.parametrize("cut", range(5))
@pytest.mark.parametrize("flushed", [True, False])
async def test_two_leaders_export_one_whole_trace_wherever_the_first_one_ends(cut: int, flushed: bool) -> None:  # noqa: FBT001
    jobs = restarted()
    assert len(jobs) == 4
    async with receiving() as receiver:
        first = tracer_with(environment(receiver, OTEL_BSP_SCHEDULE_DELAY="20" if flushed else "3600000"))
        for job in jobs[:cut]:
            first.round_began(job)
        if flushed:
            await first.close()  # else it dies with all that it has not sent
        second = tracer_with(environment(receiver))
        for job in jobs[max(0, cut - 1) :]:  # it begins with what the first one saw last
            second.round_began(job)
        await second.close()
        assert is_whole(receiver, jobs)
        assert not receiver.differing()


async def test_a_new_term_in_the_same_process_completes_the_trace() -> None:
    jobs = restarted()
    async with traced() as (tracer, receiver):
        tracer.round_began(jobs[1])
        tracer.term_ended()
        tracer.round_began(jobs[-1])
        await until_async("the whole trace arrives", lambda: is_whole(receiver, jobs))
        assert not receiver.differing()


async def test_an_incident_complete_long_before_the_term_is_not_exported_again() -> None:
    jobs = restarted(began=3600)
    async with traced() as (tracer, receiver):
        tracer.round_began(jobs[-1])
    assert not receiver.spans
    assert tracer.counts().exported == 0


async def test_an_incident_that_becomes_complete_in_this_term_is_exported_however_old_it_is() -> None:
    jobs = restarted(began=3600)
    async with traced() as (tracer, receiver):
        tracer.round_began(jobs[0])
        tracer.round_began(jobs[-1])
        await until_async("the whole trace arrives", lambda: is_whole(receiver, jobs))


async def test_root_and_members_are_exported_when_the_evidence_window_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = restarted(window=17, began=16)  # write 2 was 14.5 seconds ago
    now = clock.now()
    monkeypatch.setattr(tracing, "clock", SimpleNamespace(now=lambda: now))
    async with traced() as (tracer, receiver):
        running = asyncio.create_task(tracer.run())
        for job in jobs:
            tracer.round_began(job)
        await until_async("the span of the first step arrives", lambda: receiver.names["first_step"])
        assert set(receiver.names) == {"detect", "stop", "barrier", "start", "first_step"}
        corrected = jobs[-1].status.incidents[0]
        better = corrected.model_copy(update={"cause": corrected.cause.model_copy(update={"message": "a device"})})
        status = jobs[-1].status.model_copy(update={"incidents": (better,)})
        jobs.append(jobs[-1].model_copy(update={"status": status}))
        tracer.round_began(jobs[-1])
        now += 4
        await until_async("the whole trace arrives", lambda: is_whole(receiver, jobs))
        assert attributes(receiver.named("gang.restart").attributes)["gang.cause.message"] == "a device"
        assert not receiver.differing()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_the_trace_of_a_gang_that_disappears_and_returns_goes_on() -> None:
    _, write_1, *rest = jobs = restarted()
    async with traced() as (tracer, receiver):
        tracer.round_began(write_1)
        tracer.gang_gone("uid-g")
        tracer.gang_gone("uid-g")
        tracer.gang_gone("unknown")
        await until_async("the span of the detection arrives", lambda: receiver.names["detect"])
        for job in (write_1, *rest):
            tracer.round_began(job)
        await until_async("the whole trace arrives", lambda: is_whole(receiver, jobs))
    assert not receiver.differing()
    assert receiver.names["gang.restart"] == 1


async def test_a_gang_that_failed_and_was_deleted_leaves_a_whole_trace() -> None:
    jobs = restarted(window=300)
    status = jobs[-1].status.model_copy(update={"phase": GangPhase.FAILED})
    async with traced() as (tracer, receiver):
        tracer.round_began(jobs[-1].model_copy(update={"status": status}))
        tracer.gang_gone("uid-g")
        await until_async("the whole trace arrives", lambda: is_whole(receiver, jobs))


async def test_the_trace_of_an_incident_that_leaves_the_status_is_finished_first() -> None:
    jobs = restarted(window=300)
    async with traced() as (tracer, receiver):
        tracer.round_began(jobs[-1])
        assert not receiver.names["gang.restart"]
        status = jobs[-1].status.model_copy(update={"incidents": ()})
        tracer.round_began(jobs[-1].model_copy(update={"status": status}))
        await until_async("the whole trace arrives", lambda: is_whole(receiver, jobs))
        assert not receiver.differing()


@pytest.mark.parametrize("ago", [10, 1000])
async def test_an_old_incident_that_its_attempts_end_completed_is_exported_if_the_end_is_recent(ago: int) -> None:
    jobs = restarted(began=3600)
    ended = {"phase": GangPhase.SUSPENDED, "phase_time": time.time() - ago}
    status = jobs[-1].status.model_copy(update=ended)
    async with traced() as (tracer, receiver):
        tracer.round_began(jobs[-1].model_copy(update={"status": status}))
    assert receiver.names["gang.restart"] == (ago == 10)


@pytest.mark.parametrize(
    ("sampler", "sent"),
    [
        ({"OTEL_TRACES_SAMPLER": "always_off"}, False),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}, False),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.0"}, True),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, True),
    ],
)
async def test_the_sampler_decides_for_a_trace_as_a_whole(sampler: dict[str, str], sent: bool) -> None:  # noqa: FBT001
    jobs = restarted()
    async with traced(**sampler) as (tracer, receiver):
        for job in jobs:
            tracer.round_began(job)
    assert len(receiver.spans) == (len(last(jobs)) if sent else 0)
    assert tracer.counts().dropped == 0


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
async def test_requests_have_the_configured_headers_path_and_compression(compression: str) -> None:
    jobs = restarted()
    async with receiving() as receiver:
        more = {
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20abc",
            "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        }
        settings = environment(receiver, **more)
        settings["OTEL_EXPORTER_OTLP_ENDPOINT"] += "/collector/"
        tracer = tracer_with(settings)
        for job in jobs:
            tracer.round_began(job)
        await tracer.close()
    assert set(receiver.paths) == {"/collector/v1/traces"}
    assert {one["authorization"] for one in receiver.headers} == {"Basic abc"}
    assert is_whole(receiver, jobs)
