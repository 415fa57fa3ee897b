from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import astuple

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Received
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.telemetry.spans import Span, incident_spans
from gangctl.telemetry.tracing.tracer import tracer_from_environment
from tests.cluster.local import until
from tests.telemetry.otlp_receiver import Receiver, attributes, receiving
from tests.telemetry.traced_restart import environment, restarted, traced


def last(jobs: list[GangJob]) -> tuple[Span, ...]:
    return incident_spans(jobs[-1], jobs[-1].status.incidents[0])


def seen(span: Received) -> tuple[object, ...]:
    """As core tells it."""
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


async def test_a_restart_is_one_trace_just_as_the_status_tells_it() -> None:
    jobs = restarted()
    expected = last(jobs)
    assert [span.name for span in expected if not span.name.startswith("member.")] == [
        *("gang.restart", "detect", "stop", "barrier", "start", "first_step")
    ]
    async with traced(OTEL_RESOURCE_ATTRIBUTES="k8s.cluster.name=here") as (made, receiver):
        for job in jobs:
            made.round_began(job)
        await until(lambda: len(receiver.spans) == len(expected))
    told = {span.span_id: astuple(span) for span in expected}
    for span in receiver.spans:
        assert told[span.span_id.hex()] == seen(span)
    assert made.counts().exported == len(expected)
    assert receiver.resource["service.name"] == "gangctl"
    assert receiver.resource["k8s.cluster.name"] == "here"
    assert "service.instance.id" not in receiver.resource, "two leaders send the same"
    root = attributes(receiver.named("gang.restart").attributes)
    assert (root["gang.attempt.from"], root["gang.attempt.to"], root["gang.cause.exit_code"]) == (1, 2, 3)


async def test_each_phase_is_sent_when_it_is_stored_and_the_root_when_nothing_can_change() -> None:
    before, write_1, write_2, *rest = restarted()
    async with traced() as (made, receiver):
        made.round_began(before)
        made.round_began(write_1)
        await until(lambda: receiver.spans)
        assert set(receiver.names) == {"detect"}
        made.round_began(write_2)
        await until(lambda: {"stop", "barrier", "member.stop"} <= set(receiver.names))
        assert not {"gang.restart", "start"} & set(receiver.names)
        for job in rest:
            made.round_began(job)
        await until(lambda: receiver.names["gang.restart"])
        await until(lambda: is_whole(receiver, rest))
        assert not receiver.differing()


async def test_what_was_looked_at_before_costs_nothing_and_is_sent_once() -> None:
    jobs = restarted()
    async with traced() as (made, receiver):
        for job in [*jobs, jobs[-1]]:
            made.round_began(job)
        await until(lambda: is_whole(receiver, jobs))
        began = time.perf_counter()
        for _ in range(1000):
            made.round_began(jobs[-1])
        assert time.perf_counter() - began < 0.05
        again = jobs[-1].model_copy(update={"status": jobs[-1].status.model_copy(update={"message": "it runs"})})
        made.round_began(again)
    assert len(receiver.spans) == len(last(jobs))


@pytest.mark.parametrize("cut", range(5))
@pytest.mark.parametrize("flushed", [True, False])
async def test_two_leaders_give_one_whole_trace_wherever_the_first_one_ends(cut: int, flushed: bool) -> None:  # noqa: FBT001
    jobs = restarted()
    assert len(jobs) == 4
    async with receiving() as receiver:
        first = tracer_from_environment(environment(receiver, OTEL_BSP_SCHEDULE_DELAY="20" if flushed else "3600000"))
        for job in jobs[:cut]:
            first.round_began(job)
        if flushed:
            await first.close()  # else it dies with all that it has not sent
        second = tracer_from_environment(environment(receiver))
        for job in jobs[max(0, cut - 1) :]:  # it begins with what the first one saw last
            second.round_began(job)
        await second.close()
        assert is_whole(receiver, jobs)
        assert not receiver.differing()


async def test_a_term_begins_anew_in_the_same_process() -> None:
    jobs = restarted()
    async with traced() as (made, receiver):
        made.round_began(jobs[1])
        made.term_ended()
        made.round_began(jobs[-1])
        await until(lambda: is_whole(receiver, jobs))
        assert not receiver.differing()


async def test_what_was_complete_long_before_a_term_is_not_sent_again() -> None:
    jobs = restarted(began=3600)
    async with traced() as (made, receiver):
        made.round_began(jobs[-1])
    assert not receiver.spans
    assert made.counts().exported == 0


async def test_what_is_complete_at_once_in_this_term_is_sent_whenever_it_was() -> None:
    jobs = restarted(began=3600)
    async with traced() as (made, receiver):
        made.round_began(jobs[0])
        made.round_began(jobs[-1])
        await until(lambda: is_whole(receiver, jobs))


async def test_while_stronger_evidence_may_come_neither_root_nor_members_are_sent_and_then_time_alone_does_it() -> None:
    jobs = restarted(window=17, began=16)  # write 2 was 14.5 seconds ago
    async with traced() as (made, receiver):
        running = asyncio.create_task(made.run())
        for job in jobs:
            made.round_began(job)
        await until(lambda: receiver.names["first_step"])
        assert set(receiver.names) == {"detect", "stop", "barrier", "start", "first_step"}
        corrected = jobs[-1].status.incidents[0]
        better = corrected.model_copy(update={"cause": corrected.cause.model_copy(update={"message": "a device"})})
        status = jobs[-1].status.model_copy(update={"incidents": (better,)})
        jobs.append(jobs[-1].model_copy(update={"status": status}))
        made.round_began(jobs[-1])
        await until(lambda: is_whole(receiver, jobs))
        assert attributes(receiver.named("gang.restart").attributes)["gang.cause.message"] == "a device"
        assert not receiver.differing()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_a_gang_that_is_gone_in_mid_incident_may_come_back_and_its_trace_goes_on() -> None:
    _, write_1, *rest = jobs = restarted()
    async with traced() as (made, receiver):
        made.round_began(write_1)
        made.gang_gone("uid-g")
        made.gang_gone("uid-g")
        made.gang_gone("nobody's")
        await until(lambda: receiver.names["detect"])
        for job in (write_1, *rest):
            made.round_began(job)
        await until(lambda: is_whole(receiver, jobs))
    assert not receiver.differing()
    assert receiver.names["gang.restart"] == 1


async def test_a_gang_that_is_gone_after_it_has_failed_leaves_a_whole_trace() -> None:
    jobs = restarted(window=300)
    status = jobs[-1].status.model_copy(update={"phase": GangPhase.FAILED})
    async with traced() as (made, receiver):
        made.round_began(jobs[-1].model_copy(update={"status": status}))
        made.gang_gone("uid-g")
        await until(lambda: is_whole(receiver, jobs))


async def test_an_incident_that_is_not_kept_any_more_is_finished_first() -> None:
    jobs = restarted(window=300)
    async with traced() as (made, receiver):
        made.round_began(jobs[-1])
        assert not receiver.names["gang.restart"]
        status = jobs[-1].status.model_copy(update={"incidents": ()})
        made.round_began(jobs[-1].model_copy(update={"status": status}))
        await until(lambda: is_whole(receiver, jobs))
        assert not receiver.differing()


@pytest.mark.parametrize("ago", [10, 1000])
async def test_what_the_end_of_its_attempt_completed_a_moment_ago_is_sent_however_old_it_is(ago: int) -> None:
    jobs = restarted(began=3600)
    ended = {"phase": GangPhase.SUSPENDED, "phase_time": time.time() - ago}
    status = jobs[-1].status.model_copy(update=ended)
    async with traced() as (made, receiver):
        made.round_began(jobs[-1].model_copy(update={"status": status}))
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
async def test_a_sampler_takes_a_trace_whole_or_not_at_all(sampler: dict[str, str], sent: bool) -> None:  # noqa: FBT001
    jobs = restarted()
    async with traced(**sampler) as (made, receiver):
        for job in jobs:
            made.round_began(job)
    assert len(receiver.spans) == (len(last(jobs)) if sent else 0)
    assert made.counts().dropped == 0


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
async def test_headers_path_and_compression_are_as_they_were_set(compression: str) -> None:
    jobs = restarted()
    async with receiving() as receiver:
        more = {
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20abc",
            "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        }
        settings = environment(receiver, **more)
        settings["OTEL_EXPORTER_OTLP_ENDPOINT"] += "/collector/"
        made = tracer_from_environment(settings)
        for job in jobs:
            made.round_began(job)
        await made.close()
    assert set(receiver.paths) == {"/collector/v1/traces"}
    assert {one["authorization"] for one in receiver.headers} == {"Basic abc"}
    assert is_whole(receiver, jobs)
