from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from aiohttp import web

from gangctl.api.incident import Cause, Incident
from gangctl.api.reasons import Reason
from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube import events as event_module
from gangctl.cluster.kube.events import EventRecorder
from gangctl.core.lifecycle.plan import Event
from tests.cluster.kube.events.eventcases import JOB, PENDING, TRACE, events, has_one_event, namespace_held, recording
from tests.cluster.kube.fakeapi import serving, status
from tests.cluster.kube.livecluster import GANG, live_cluster
from tests.cluster.kube.objects import UID, pod
from tests.messages import words
from tests.wait import until_async


def incident(member: str, number: int, trace: str = TRACE) -> Incident:
    return Incident(
        attempt=2,
        time=1.0,
        trace_id=trace,
        cause=Cause(reason="ExitCode", member=member, incarnation=number, time=1.0),
    )


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_module, "LONGEST_RETRY_SECONDS", 0.01)


async def test_an_event_names_its_gang_and_its_pod() -> None:
    async with live_cluster(GANG, ("pods", pod("worker-0", 0))) as one:
        restarting = Event(Reason.RESTARTING, words("worker-0: ended by SIGKILL"), pod="g-worker-0-0")
        await one.cluster.emit(one.job, restarting)
        await until_async(
            "the Event is sent",
            lambda: one.cluster.recorder.counts == {"sent": 1, "combined": 0, "left_out": 0, "lost": 0},
        )
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


async def test_an_event_about_a_pod_that_is_gone_has_no_uid() -> None:
    async with live_cluster(GANG, ("pods", pod("worker-0", 1))) as one:
        lost = Event(Reason.RESTARTING, words("its node is lost"), pod="g-worker-0-0")
        await one.cluster.emit(one.job, lost)
        await one.cluster.emit(one.job, Event(Reason.SPARE_TOOK_RANK, words("it goes on"), pod="g-worker-0-1"))
        await until_async("both Events are stored", lambda: len(events(one.api)) == 2)
        gone, new = events(one.api)
    assert gone["related"]["name"] == "g-worker-0-0"
    assert "uid" not in gone["related"]
    assert (new["related"]["name"], new["related"]["uid"]) == ("g-worker-0-1", "uid-g-worker-0-1")


async def test_a_repeated_event_is_counted_in_the_existing_event() -> None:
    async with serving() as (api, client), recording(client) as one:
        one.record(JOB, PENDING, "")
        await until_async("the Event is sent", lambda: one.counts["sent"] == 1)
        first = events(api)[0]["eventTime"]
        for _ in range(3):
            one.record(JOB, PENDING, "")
        await until_async("all repeats are counted", lambda: events(api)[0].get("series", {}).get("count") == 4)
        (made,) = events(api)
        assert made["series"]["lastObservedTime"] > made["eventTime"] == first
        assert one.counts == Counter(sent=1, combined=3)


async def test_repeats_of_a_queued_event_are_sent_in_one_request() -> None:
    async with serving() as (api, client):
        waiting = EventRecorder(client)
        for _ in range(5):
            waiting.record(JOB, PENDING, "")
        task = asyncio.create_task(waiting.run())
        await until_async("the Event is sent", lambda: waiting.counts["sent"] == 1)
        task.cancel()
        assert [one["series"]["count"] for one in events(api)] == [5]
        assert [method for method, _, _ in api.requests] == ["POST"]


async def test_the_next_leader_continues_the_series() -> None:
    async with serving() as (api, client):
        for count in (None, 2, 3):
            async with recording(client) as leader:
                leader.record(JOB, PENDING, "")
                await until_async("the leader's Event is counted", partial(has_one_event, api, count))
        assert not [method for method, _, _ in api.requests if method not in {"POST", "PATCH"}], (
            "no right but create and patch is needed"
        )


async def test_an_expired_event_is_created_again_with_its_count() -> None:
    async with serving() as (api, client), recording(client) as one:
        one.record(JOB, PENDING, "")
        await until_async("the Event is sent", lambda: one.counts["sent"] == 1)
        ((_, namespace, name),) = [key for key in api.objects if key[0] == "events"]
        await api.remove("events", namespace, name)
        one.record(JOB, PENDING, "")
        await until_async("the repeat is counted", lambda: [event["series"]["count"] for event in events(api)] == [2])


async def test_events_are_sent_in_order_when_one_is_retried() -> None:
    async with serving() as (api, client), recording(client) as one:
        failures = iter(range(3))

        async def fail(_request: web.Request) -> web.Response | None:
            return status(500, "InternalError", "etcd is away") if next(failures, None) is not None else None

        api.faults.append(fail)
        for at in range(5):
            one.record(JOB, replace(PENDING, message=words(f"number {at}")), "")
        await until_async("all Events are sent", lambda: one.counts["sent"] == 5)
        assert [event["note"] for event in events(api)] == [f"number {at}" for at in range(5)]


async def test_a_flood_of_one_reason_is_filtered_and_blocks_no_other_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (api, client), recording(client) as one:
        for at in range(100):
            one.record(JOB, replace(PENDING, reason=Reason.RESTARTING, message=words(f"crash {at}")), "")
        one.record(JOB, replace(PENDING, reason=Reason.FAILED_BY_RULE, message=words("the end")), "")
        await until_async(
            "the burst and the other reason are sent", lambda: one.counts["sent"] == event_module.BURST + 1
        )
        assert one.counts["left_out"] == 75
        assert events(api)[-1]["note"] == "the end"
        assert caplog.text.count("too many Restarting events at once") == 1


async def test_the_next_event_states_how_many_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (api, client), recording(client) as one:
        for at in range(event_module.BURST + 7):
            one.record(JOB, replace(PENDING, message=words(f"wait {at}")), "")
        monkeypatch.setattr(event_module, "REFILL_SECONDS", 1e-9)
        one.record(JOB, replace(PENDING, message=words("at last")), "")
        one.record(JOB, replace(PENDING, message=words("and on")), "")
        await until_async("the later Events are sent", lambda: one.counts["sent"] == event_module.BURST + 2)
        *_, counted, after = (event["note"] for event in events(api))
        assert counted == "at last (7 more with this reason were left out before)"
        assert after == "and on"


async def test_the_queue_and_the_cache_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_module, "CAPACITY", 10)
    monkeypatch.setattr(event_module, "CACHED_EVENTS", 5)
    async with serving() as (api, client):
        one = EventRecorder(client)
        for at in range(10):
            one.record(JOB, replace(PENDING, message=words(f"wait {at}")), "")
        with pytest.raises(Retryable, match="10 events wait"):
            one.record(JOB, replace(PENDING, message=words("one too many")), "")
        assert one.counts["lost"] == 1
        task = asyncio.create_task(one.run())
        await until_async("all Events are sent", lambda: one.counts["sent"] == 10)
        one.record(JOB, replace(PENDING, message=words("wait 0")), "")  # no longer cached, but stored
        await until_async(
            "the repeat is counted", lambda: sum(event.get("series", {}).get("count", 1) for event in events(api)) == 11
        )
        task.cancel()
        assert len(events(api)) == 10


async def test_a_flush_sends_queued_events_within_its_time_limit() -> None:
    async with serving() as (api, client), recording(client) as one:
        for at in range(5):
            one.record(JOB, replace(PENDING, message=words(f"number {at}")), "")
        await one.flush(10)
        assert len(events(api)) == 5
        full, hold = namespace_held(api, "full")
        one.record(full, PENDING, "")
        await one.flush(0.05)
        assert len(events(api)) == 5
        hold.release.set()
