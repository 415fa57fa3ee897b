from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web

from gangctl.api.gangjob import GangJob
from gangctl.api.names import ANNOTATION_TRACE_ID
from gangctl.api.reasons import Reason
from gangctl.api.status import Cause, Incident, Replaced, Status
from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube.events import queue, recorder, spam_filter
from gangctl.cluster.kube.events.event import NOTE_BYTES, event_object, related_pod
from gangctl.cluster.kube.events.recorder import EventCounts, EventRecorder
from gangctl.cluster.kube.events.spam_filter import EventSpamFilter
from gangctl.core.facts.world import Device
from gangctl.core.lifecycle.plan import Event, EventType
from tests.cluster.kube.fakeapi import FakeApi, eventually, serving, status
from tests.cluster.kube.objects import UID, gang, pod
from tests.cluster.kube.test_cluster import GANG, world
from tests.core import given
from tests.core.world import World

TRACE = "0123456789abcdef0123456789abcdef"
JOB = GangJob.model_validate(
    {key: value for key, value in gang(status=None).items() if key != "status"}
    | {"metadata": {"name": "g", "namespace": "default", "uid": UID, "resourceVersion": "1"}}
)
PENDING = Event(EventType.NORMAL, Reason.PENDING, "attempt 1 waits for worker-0 to be ready")


def with_status(**fields: Any) -> GangJob:
    return JOB.model_copy(update={"status": Status(**fields)})


def incident(member: str, number: int, trace: str = TRACE) -> Incident:
    return Incident(
        attempt=2,
        time=1.0,
        trace_id=trace,
        cause=Cause(reason="ExitCode", member=member, incarnation=number, time=1.0),
    )


def events(api: FakeApi) -> list[dict[str, Any]]:
    return [value for key, value in api.objects.items() if key[0] == "events"]


@dataclass
class Hold:
    """Fault injection: requests about a namespace that hang."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)


def namespace_held(api: FakeApi, namespace: str) -> tuple[GangJob, Hold]:
    """A gang in a namespace whose requests hang until they are let go."""
    hold = Hold()

    async def hang(request: web.Request) -> web.Response | None:
        if f"/namespaces/{namespace}/" in request.path:
            hold.reached.set()
            await hold.let_go.wait()
        return None

    api.faults.append(hang)
    return JOB.model_copy(update={"metadata": JOB.metadata.model_copy(update={"namespace": namespace})}), hold


@asynccontextmanager
async def sending(api_client: Any) -> AsyncIterator[EventRecorder]:
    """One controller that tells."""
    one = EventRecorder(api_client)
    task = asyncio.create_task(one.run())
    try:
        yield one
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LONGEST_RETRY_SECONDS", 0.01)


async def test_an_event_says_what_was_decided_about_which_gang_and_pod() -> None:
    async with world(GANG, ("pods", pod("worker-0", 0))) as one:
        said = Event(EventType.WARNING, Reason.RESTARTING, "worker-0: ended by SIGKILL", "worker-0")
        await one.cluster.emit(one.job, said)
        await eventually(lambda: one.cluster.event_counts == {"sent": 1, "combined": 0, "left_out": 0, "lost": 0})
        (made,) = events(one.api)
    assert (made["type"], made["reason"], made["action"]) == ("Warning", "Restarting", "StopWorkers")
    assert made["note"] == "worker-0: ended by SIGKILL"
    assert made["reportingController"] == "gangctl.io/gangctl"
    assert (made["regarding"]["kind"], made["regarding"]["name"], made["regarding"]["uid"]) == ("GangJob", "g", UID)
    assert made["related"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "g-worker-0-0",
        "namespace": "default",
        "uid": "uid-g-worker-0-0",
    }


async def test_the_pod_of_a_cause_is_named_though_it_is_gone_and_the_member_has_a_new_one() -> None:
    async with world(GANG, ("pods", pod("worker-0", 1))) as one:
        job = one.job.model_copy(update={"status": Status(incidents=(incident("worker-0", 0),), base_incarnation=1)})
        await one.cluster.emit(job, Event(EventType.WARNING, Reason.RESTARTING, "its node is lost", trace_id=TRACE))
        await one.cluster.emit(job, Event(EventType.NORMAL, Reason.SPARE_TOOK_RANK, "it goes on", "worker-0"))
        await eventually(lambda: len(events(one.api)) == 2)
        lost, new = events(one.api)
    assert lost["related"]["name"] == "g-worker-0-0"
    assert "uid" not in lost["related"]
    assert (new["related"]["name"], new["related"]["uid"]) == ("g-worker-0-1", "uid-g-worker-0-1")


@pytest.mark.parametrize(
    ("job", "event", "expected"),
    [
        (JOB, PENDING, ""),
        (JOB, replace(PENDING, member="worker-1"), "g-worker-1-0"),
        (
            with_status(replaced=(Replaced(member="worker-1", incarnation=4, time=1.0),)),
            replace(PENDING, member="worker-1"),
            "g-worker-1-4",
        ),
        (with_status(incidents=(incident("worker-1", 2),)), replace(PENDING, trace_id=TRACE), "g-worker-1-2"),
        (with_status(incidents=(incident("", 0),)), replace(PENDING, trace_id=TRACE), ""),
        (with_status(incidents=(incident("worker-1", 2, "other"),)), replace(PENDING, trace_id=TRACE), ""),
        (
            with_status(incidents=(incident("worker-1", 2),), base_incarnation=3),
            replace(PENDING, trace_id=TRACE, member="worker-0"),
            "g-worker-0-3",
        ),
    ],
)
def test_an_event_is_about_the_pod_of_the_incarnation_that_is_meant(job: GangJob, event: Event, expected: str) -> None:
    assert related_pod(job, event) == expected


def test_the_events_of_a_restart_are_about_the_pod_that_was_replaced_and_share_its_trace() -> None:
    """With the real core: the member has its new pod in the same plan that tells of the old one."""
    here = World()
    given.runs(here)
    here.pod("worker-1", devices=(Device("example.com/gpu", "gpu-7", "Unhealthy"),))
    plan = here.decide()
    assert plan.status is not None
    assert [entry.incarnation for entry in plan.status.replaced] == [1]
    restarting = [event for event in plan.events if event.reason == Reason.RESTARTING]
    assert [related_pod(here.job, event) for event in restarting] == ["g-worker-1-0"]
    trace = here.job.status.incidents[0].trace_id
    made = event_object(here.job, restarting[0], "", 1.0)
    assert made["metadata"]["annotations"] == {ANNOTATION_TRACE_ID: trace}
    assert made["note"].count(trace) == 1
    assert made["note"].endswith(f" (trace {trace})")
    assert "gpu-7" in made["note"]


def test_the_trace_stands_at_the_end_of_the_note_once_and_in_an_annotation() -> None:
    for message in ("worker-0 ended with 3", f"worker-0 ended with 3 (trace {TRACE})"):
        made = event_object(JOB, replace(PENDING, message=message, trace_id=TRACE), "", 1.0)
        assert made["note"] == f"worker-0 ended with 3 (trace {TRACE})"
        assert made["metadata"]["annotations"] == {ANNOTATION_TRACE_ID: TRACE}
    assert "annotations" not in event_object(JOB, PENDING, "", 1.0)["metadata"]


@pytest.mark.parametrize("text", ["ü" * 1000, "a" * 1100, "👩‍💻" * 300, "\x1b" * 900, "a" * 980 + "漢" * 9])
def test_a_long_note_is_cut_to_what_is_taken_and_keeps_its_trace(text: str) -> None:
    note = event_object(JOB, replace(PENDING, message=text, trace_id=TRACE), "", 1.0)["note"]
    assert len(note.encode()) <= NOTE_BYTES
    assert note.endswith(f"… (trace {TRACE})")
    assert NOTE_BYTES - len(note.encode()) < 16


def test_a_hostile_note_shows_what_it_contains_and_does_nothing() -> None:
    note = event_object(JOB, replace(PENDING, message="a\x1b[2Jb\r\nc\u202ed [red]e[/red] <b>"), "", 1.0)["note"]
    assert note == r"a\x1b[2Jb\x0d\x0ac\u202ed [red]e[/red] <b>"


def test_the_name_follows_from_what_is_said_and_not_from_who_says_it_when() -> None:
    def name(job: GangJob = JOB, event: Event = PENDING, uid: str = "", now: float = 1.0) -> str:
        made: str = event_object(job, event, uid, now)["metadata"]["name"]
        return made

    assert name() == name(now=99.0)
    assert re.fullmatch(r"g\.[0-9a-f]{16}", name())
    other = JOB.model_copy(update={"metadata": JOB.metadata.model_copy(update={"uid": "u-9"})})
    differing = [
        name(job=other),
        name(event=replace(PENDING, type=EventType.WARNING)),
        name(event=replace(PENDING, reason=Reason.GATHERING)),
        name(event=replace(PENDING, message="attempt 1 waits for worker-1 to be ready")),
        name(event=replace(PENDING, member="worker-0")),
        name(event=replace(PENDING, member="worker-0"), uid="x"),
        name(event=replace(PENDING, trace_id=TRACE)),
    ]
    assert len({name(), *differing}) == 8


async def test_what_is_said_again_is_counted_in_the_event_that_says_it() -> None:
    async with serving() as (api, client), sending(client) as one:
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts.sent == 1)
        first = events(api)[0]["eventTime"]
        for _ in range(3):
            one.record(JOB, PENDING, "")
        await eventually(lambda: events(api)[0].get("series", {}).get("count") == 4)
        (made,) = events(api)
        assert made["series"]["lastObservedTime"] > made["eventTime"] == first
        assert one.counts == EventCounts(sent=1, combined=3)


async def test_repeats_of_an_event_that_waits_are_sent_with_it() -> None:
    async with serving() as (api, client):
        waiting = EventRecorder(client)
        for _ in range(5):
            waiting.record(JOB, PENDING, "")
        task = asyncio.create_task(waiting.run())
        await eventually(lambda: waiting.counts.sent == 1)
        task.cancel()
        assert [one["series"]["count"] for one in events(api)] == [5]
        assert [method for method, _, _ in api.requests] == ["POST"]


async def test_the_next_leader_says_the_same_in_the_same_event() -> None:
    async with serving() as (api, client):
        for count in (None, 2, 3):
            async with sending(client) as leader:
                leader.record(JOB, PENDING, "")
                await eventually(lambda n=count: [one.get("series", {}).get("count") for one in events(api)] == [n])  # type: ignore[misc]
        assert not [method for method, _, _ in api.requests if method not in {"POST", "PATCH"}], "no other right"


async def test_an_event_whose_answer_was_lost_is_told_once() -> None:
    async with serving() as (api, client), sending(client) as one:
        lost: list[str] = []

        async def lose_the_answer(request: web.Request) -> web.Response | None:
            if request.method == "POST" and not lost:
                lost.append(request.path)
                await api.put("events", await request.json())
                return status(504, "Timeout", "the answer was lost")
            return None

        api.faults.append(lose_the_answer)
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts == EventCounts(sent=1))
        assert lost
        assert [event.get("series") for event in events(api)] == [None]


async def test_a_count_whose_answer_was_lost_is_counted_once() -> None:
    async with serving() as (api, client), sending(client) as one:
        lost: list[str] = []

        async def lose_the_answer(request: web.Request) -> web.Response | None:
            if request.method == "PATCH" and not lost:
                lost.append(request.path)
                (stored,) = events(api)
                await api.put("events", stored | await request.json())
                return status(504, "Timeout", "the answer was lost")
            return None

        api.faults.append(lose_the_answer)
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts.sent == 1)
        one.record(JOB, PENDING, "")
        await eventually(lambda: api.count("PATCH", "events") == 2)
        await eventually(lambda: [event["series"]["count"] for event in events(api)] == [2])


async def test_an_event_that_has_expired_is_made_anew_with_its_count() -> None:
    async with serving() as (api, client), sending(client) as one:
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts.sent == 1)
        ((_, namespace, name),) = [key for key in api.objects if key[0] == "events"]
        await api.remove("events", namespace, name)
        one.record(JOB, PENDING, "")
        await eventually(lambda: [event["series"]["count"] for event in events(api)] == [2])


async def test_events_are_sent_in_order_and_one_that_fails_is_tried_again_before_the_next() -> None:
    async with serving() as (api, client), sending(client) as one:
        failures = iter(range(3))

        async def fail(_request: web.Request) -> web.Response | None:
            return status(500, "InternalError", "etcd is away") if next(failures, None) is not None else None

        api.faults.append(fail)
        for at in range(5):
            one.record(JOB, replace(PENDING, message=f"number {at}"), "")
        await eventually(lambda: one.counts.sent == 5)
        assert [event["note"] for event in events(api)] == [f"number {at}" for at in range(5)]


async def test_an_event_that_is_refused_is_lost_at_once_said_and_counted_and_holds_nothing_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (api, client), sending(client) as one:

        async def refuse(request: web.Request) -> web.Response | None:
            wanted = await request.json()
            return status(403, "Forbidden", "no events today") if wanted["reason"] == "Pending" else None

        api.faults.append(refuse)
        one.record(JOB, PENDING, "")
        one.record(JOB, replace(PENDING, reason=Reason.RUNNING), "")
        await eventually(lambda: one.counts == EventCounts(sent=1, lost=1))
        assert "an event of gang g was lost" in caplog.text
        assert "no events today" in caplog.text
        assert api.count("POST", "events") == 2


async def test_an_answer_that_is_no_event_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (api, client), sending(client) as one:

        async def mumble(request: web.Request) -> web.Response | None:
            if request.method == "PATCH":
                return web.Response(text="<html>a proxy's page</html>")
            return status(409, "AlreadyExists", "it is there")

        api.faults.append(mumble)
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts.lost == 1)
        api.faults.clear()
        one.record(JOB, replace(PENDING, reason=Reason.RUNNING), "")
        await eventually(lambda: one.counts.sent == 1)
        assert "isn't an Event" in caplog.text


async def test_a_flood_of_one_reason_is_paced_counted_and_said_and_starves_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (api, client), sending(client) as one:
        for at in range(100):
            one.record(JOB, replace(PENDING, reason=Reason.RESTARTING, message=f"crash {at}"), "")
        one.record(JOB, replace(PENDING, reason=Reason.FAILED_BY_RULE, message="the end"), "")
        await eventually(lambda: one.counts.sent == spam_filter.BURST + 1)
        assert one.counts.left_out == 75
        assert events(api)[-1]["note"] == "the end"
        assert caplog.text.count("too many Restarting events at once") == 1


async def test_the_next_event_says_how_many_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (api, client), sending(client) as one:
        for at in range(spam_filter.BURST + 7):
            one.record(JOB, replace(PENDING, message=f"wait {at}"), "")
        monkeypatch.setattr(spam_filter, "REFILL_SECONDS", 1e-9)
        one.record(JOB, replace(PENDING, message="at last"), "")
        one.record(JOB, replace(PENDING, message="and on"), "")
        await eventually(lambda: one.counts.sent == spam_filter.BURST + 2)
        *_, counted, after = (event["note"] for event in events(api))
        assert counted == "at last (7 more with this reason were left out before)"
        assert after == "and on"


async def test_too_many_that_wait_are_refused_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "ROOM", 10)
    monkeypatch.setattr(recorder, "KEPT", 5)
    async with serving() as (api, client):
        one = EventRecorder(client)
        for at in range(10):
            one.record(JOB, replace(PENDING, message=f"wait {at}"), "")
        with pytest.raises(Retryable, match="10 events wait"):
            one.record(JOB, replace(PENDING, message="one too many"), "")
        assert one.counts.lost == 1
        task = asyncio.create_task(one.run())
        await eventually(lambda: one.counts.sent == 10)
        one.record(JOB, replace(PENDING, message="wait 0"), "")  # forgotten here, known there
        await eventually(lambda: sum(event.get("series", {}).get("count", 1) for event in events(api)) == 11)
        task.cancel()
        assert len(events(api)) == 10


async def test_what_waits_when_a_process_leads_no_more_is_not_told_by_it_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (api, client):
        one = EventRecorder(client)
        one.record(JOB, PENDING, "")
        one.record(JOB, replace(PENDING, message="and more"), "")
        one.drop_waiting()
        assert one.counts.lost == 2
        assert caplog.text.count("2 events that waited are not told") == 1
        task = asyncio.create_task(one.run())
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts.sent == 1)
        task.cancel()
        assert [(event["note"], event.get("series")) for event in events(api)] == [(PENDING.message, None)]


async def test_a_process_that_leads_again_counts_on_from_what_the_leader_between_has_counted() -> None:
    async with serving() as (api, client), sending(client) as first, sending(client) as between:
        for leader, count in ((first, None), (between, 2), (between, 3), (first, 4)):
            leader.record(JOB, PENDING, "")
            await eventually(lambda n=count: [one.get("series", {}).get("count") for one in events(api)] == [n])  # type: ignore[misc]
            if leader is first:
                first.drop_waiting()


async def test_an_event_that_was_lost_is_not_counted_when_the_same_is_said_again() -> None:
    async with serving() as (api, client), sending(client) as one:

        async def refuse(_request: web.Request) -> web.Response | None:
            return status(403, "Forbidden", "no events today")

        api.faults.append(refuse)
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts.lost == 1)
        api.faults.clear()
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts.sent == 1)
        assert [event.get("series") for event in events(api)] == [None]


async def test_a_namespace_that_takes_no_events_holds_up_no_other() -> None:
    async with serving() as (api, client), sending(client) as one:
        full, hold = namespace_held(api, "full")
        for at in range(3):
            one.record(full, replace(PENDING, message=f"number {at}"), "")
        await hold.reached.wait()
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts.sent == 1)
        assert [event["metadata"]["namespace"] for event in events(api)] == ["default"]
        hold.let_go.set()
        await eventually(lambda: one.counts.sent == 4)
        notes = [event["note"] for event in events(api) if event["metadata"]["namespace"] == "full"]
        assert notes == ["number 0", "number 1", "number 2"]


async def test_a_namespace_that_takes_no_events_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "ROOM_OF_A_NAMESPACE", 2)
    async with serving() as (api, client), sending(client) as one:
        full, hold = namespace_held(api, "full")
        one.record(full, replace(PENDING, message="is being sent"), "")
        await hold.reached.wait()
        for at in range(2):
            one.record(full, replace(PENDING, message=f"number {at}"), "")
        with pytest.raises(Retryable, match="3 events wait to be sent, 2 of them in namespace full"):
            one.record(full, replace(PENDING, message="one too many"), "")
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts == EventCounts(sent=1, lost=1))
        hold.let_go.set()
        await eventually(lambda: one.counts.sent == 4)


@pytest.mark.parametrize(("code", "reason"), [(429, "TooManyRequests"), (500, "InternalError")])
async def test_an_event_that_is_put_off_again_and_again_is_given_up(
    monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    monkeypatch.setattr(recorder, "RETRYING_SECONDS", 0.2)
    async with serving() as (api, client), sending(client) as one:

        async def put_off(_request: web.Request) -> web.Response | None:
            return status(code, reason, "later")

        api.faults.append(put_off)
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts.lost == 1, 5)
        assert api.count("POST", "events") > 1


async def test_an_event_of_which_no_answer_came_is_tried_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "RETRYING_SECONDS", 0.0)
    async with serving() as (api, client), sending(client) as one:
        broken = iter(range(5))

        async def break_off(request: web.Request) -> web.Response | None:
            if next(broken, None) is not None:
                assert request.transport is not None
                request.transport.close()
            return None

        api.faults.append(break_off)
        one.record(JOB, PENDING, "")
        await eventually(lambda: one.counts == EventCounts(sent=1))


async def test_at_the_end_what_waits_is_sent_unless_that_takes_too_long() -> None:
    async with serving() as (api, client), sending(client) as one:
        for at in range(5):
            one.record(JOB, replace(PENDING, message=f"number {at}"), "")
        await one.flush(10)
        assert len(events(api)) == 5
        full, hold = namespace_held(api, "full")
        one.record(full, PENDING, "")
        await one.flush(0.05)
        assert len(events(api)) == 5
        hold.let_go.set()


async def test_the_line_about_a_lost_event_says_whose_it_was(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (api, client), sending(client) as one:

        async def refuse(_request: web.Request) -> web.Response | None:
            return status(403, "Forbidden", "no events today")

        api.faults.append(refuse)
        with caplog.at_level(logging.WARNING):
            one.record(with_status(attempt=3), replace(PENDING, trace_id=TRACE), "")
            await eventually(lambda: one.counts.lost == 1)
    (line,) = [vars(record) for record in caplog.records if "was lost" in record.message]
    assert (line["namespace"], line["gang"], line["attempt"], line["traceID"]) == ("default", "g", 3, TRACE)


def test_a_bucket_gives_its_burst_and_then_one_in_so_long() -> None:
    paces = EventSpamFilter()
    assert [paces.allow("a", 0.0) for _ in range(spam_filter.BURST + 1)] == [True] * spam_filter.BURST + [False]
    assert paces.allow("b", 0.0)
    assert not paces.allow("a", spam_filter.REFILL_SECONDS / 2)
    assert paces.allow("a", spam_filter.REFILL_SECONDS)
    assert not paces.allow("a", spam_filter.REFILL_SECONDS)
    later = spam_filter.REFILL_SECONDS * 1000
    assert [paces.allow("a", later) for _ in range(spam_filter.BURST + 1)] == [True] * spam_filter.BURST + [False]


def test_buckets_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spam_filter, "KEPT", 3)
    paces = EventSpamFilter()
    for _ in range(spam_filter.BURST):
        paces.allow("a", 0.0)
    assert not paces.allow("a", 0.0)
    for other in "bcd":
        paces.allow(other, 0.0)
    assert paces.allow("a", 0.0)


def test_an_event_is_json_and_small() -> None:
    made = event_object(JOB, replace(PENDING, message="漢" * 2000, trace_id=TRACE, member="worker-0"), "u" * 36, 1.0)
    assert len(json.dumps(made)) < 8192
