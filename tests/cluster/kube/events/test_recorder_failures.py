from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from aiohttp import web

from gangctl.api.reasons import Reason
from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube import events as event_module
from gangctl.cluster.kube.events import EventRecorder
from tests.cluster.kube.events.eventcases import (
    JOB,
    PENDING,
    TRACE,
    events,
    has_one_event,
    namespace_held,
    recording,
    with_status,
)
from tests.cluster.kube.fakeapi import serving, status
from tests.messages import words
from tests.wait import until_async


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_module, "LONGEST_RETRY_SECONDS", 0.01)


async def test_an_event_is_created_once_when_the_answer_is_lost() -> None:
    async with serving() as (api, client), recording(client) as one:
        lost: list[str] = []

        async def lose_the_answer(request: web.Request) -> web.Response | None:
            if request.method == "POST" and not lost:
                lost.append(request.path)
                await api.put("events", await request.json())
                return status(504, "Timeout", "the answer was lost")
            return None

        api.faults.append(lose_the_answer)
        one.record(JOB, PENDING, "")
        await until_async("the Event is sent", lambda: one.counts == Counter(sent=1))
        assert lost
        assert [event.get("series") for event in events(api)] == [None]


async def test_a_repeat_is_counted_once_when_the_answer_is_lost() -> None:
    async with serving() as (api, client), recording(client) as one:
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
        await until_async("the Event is sent", lambda: one.counts["sent"] == 1)
        one.record(JOB, PENDING, "")
        await until_async("the repeat is sent twice", lambda: api.count("PATCH", "events") == 2)
        await until_async("the repeat is counted", lambda: [event["series"]["count"] for event in events(api)] == [2])


async def test_a_rejected_event_is_logged_and_counted_and_delays_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (api, client), recording(client) as one:

        async def refuse(request: web.Request) -> web.Response | None:
            wanted = await request.json()
            return status(403, "Forbidden", "no events today") if wanted["reason"] == "Pending" else None

        api.faults.append(refuse)
        one.record(JOB, PENDING, "")
        one.record(JOB, replace(PENDING, reason=Reason.RUNNING), "")
        await until_async("one Event is sent and one is lost", lambda: one.counts == Counter(sent=1, lost=1))
        assert "an event of gang g was lost" in caplog.text
        assert "no events today" in caplog.text
        assert api.count("POST", "events") == 2


async def test_an_answer_that_is_no_event_delays_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (api, client), recording(client) as one:

        async def answer_with_a_page(request: web.Request) -> web.Response | None:
            if request.method == "PATCH":
                return web.Response(text="<html>a proxy's page</html>")
            return status(409, "AlreadyExists", "it is there")

        api.faults.append(answer_with_a_page)
        one.record(JOB, PENDING, "")
        await until_async("the Event is lost", lambda: one.counts["lost"] == 1)
        api.faults.clear()
        one.record(JOB, replace(PENDING, reason=Reason.RUNNING), "")
        await until_async("the Event is sent", lambda: one.counts["sent"] == 1)
        assert "isn't an Event" in caplog.text


async def test_queued_events_are_dropped_when_the_process_loses_the_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (api, client):
        one = EventRecorder(client)
        one.record(JOB, PENDING, "")
        one.record(JOB, replace(PENDING, message=words("and more")), "")
        one.drop_waiting()
        assert one.counts["lost"] == 2
        assert caplog.text.count("events dropped from the queue: 2") == 1
        task = asyncio.create_task(one.run())
        one.record(JOB, PENDING, "")
        await until_async("the Event is sent", lambda: one.counts["sent"] == 1)
        task.cancel()
        assert [(event["note"], event.get("series")) for event in events(api)] == [(PENDING.message, None)]


async def test_a_process_that_leads_again_continues_the_count_of_the_leader_in_between() -> None:
    async with serving() as (api, client), recording(client) as first, recording(client) as between:
        for leader, count in ((first, None), (between, 2), (between, 3), (first, 4)):
            leader.record(JOB, PENDING, "")
            await until_async("the leader's Event is counted", partial(has_one_event, api, count))
            if leader is first:
                first.drop_waiting()


async def test_a_lost_event_is_not_counted_when_it_is_repeated() -> None:
    async with serving() as (api, client), recording(client) as one:

        async def refuse(_request: web.Request) -> web.Response | None:
            return status(403, "Forbidden", "no events today")

        api.faults.append(refuse)
        one.record(JOB, PENDING, "")
        await until_async("the Event is lost", lambda: one.counts["lost"] == 1)
        api.faults.clear()
        one.record(JOB, PENDING, "")
        await until_async("the Event is sent", lambda: one.counts["sent"] == 1)
        assert [event.get("series") for event in events(api)] == [None]


async def test_a_namespace_that_does_not_answer_delays_no_other() -> None:
    async with serving() as (api, client), recording(client) as one:
        full, hold = namespace_held(api, "full")
        for at in range(3):
            one.record(full, replace(PENDING, message=words(f"number {at}")), "")
        await hold.reached.wait()
        one.record(JOB, PENDING, "")
        await until_async("the Event is sent", lambda: one.counts["sent"] == 1)
        assert [event["metadata"]["namespace"] for event in events(api)] == ["default"]
        hold.release.set()
        await until_async("the other namespace's Events are sent", lambda: one.counts["sent"] == 4)
        notes = [event["note"] for event in events(api) if event["metadata"]["namespace"] == "full"]
        assert notes == ["number 0", "number 1", "number 2"]


async def test_a_namespace_that_does_not_answer_leaves_capacity_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_module, "NAMESPACE_CAPACITY", 2)
    async with serving() as (api, client), recording(client) as one:
        full, hold = namespace_held(api, "full")
        one.record(full, replace(PENDING, message=words("is being sent")), "")
        await hold.reached.wait()
        for at in range(2):
            one.record(full, replace(PENDING, message=words(f"number {at}")), "")
        with pytest.raises(Retryable, match="3 events wait to be sent, 2 of them in namespace full"):
            one.record(full, replace(PENDING, message=words("one too many")), "")
        one.record(JOB, PENDING, "")
        await until_async("one Event is sent and one is lost", lambda: one.counts == Counter(sent=1, lost=1))
        hold.release.set()
        await until_async("the other namespace's Events are sent", lambda: one.counts["sent"] == 4)


@pytest.mark.parametrize(("code", "reason"), [(429, "TooManyRequests"), (500, "InternalError")])
async def test_an_event_is_given_up_after_repeated_failures(
    monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    async with serving() as (api, client), recording(client) as one:

        async def postpone(_request: web.Request) -> web.Response | None:
            return status(code, reason, "later")

        api.faults.append(postpone)
        one.record(JOB, PENDING, "")
        await until_async("the Event is retried", lambda: api.count("POST", "events") > 2)
        assert one.counts["lost"] == 0
        monkeypatch.setattr(event_module, "RETRYING_SECONDS", 0.0)
        await until_async("the Event is lost", lambda: one.counts["lost"] == 1)


async def test_an_unanswered_event_is_retried_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_module, "RETRYING_SECONDS", 0.0)
    async with serving() as (api, client), recording(client) as one:
        broken = iter(range(5))

        async def drop_connection(request: web.Request) -> web.Response | None:
            if next(broken, None) is not None:
                assert request.transport is not None
                request.transport.close()
            return None

        api.faults.append(drop_connection)
        one.record(JOB, PENDING, "")
        await until_async("the Event is sent", lambda: one.counts == Counter(sent=1))


async def test_the_log_entry_of_a_lost_event_names_its_gang(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (api, client), recording(client) as one:

        async def refuse(_request: web.Request) -> web.Response | None:
            return status(403, "Forbidden", "no events today")

        api.faults.append(refuse)
        with caplog.at_level(logging.WARNING):
            one.record(with_status(attempt=3), replace(PENDING, trace_id=TRACE), "")
            await until_async("the Event is lost", lambda: one.counts["lost"] == 1)
    (line,) = [vars(record) for record in caplog.records if "was lost" in record.message]
    assert (line["namespace"], line["gang"], line["attempt"], line["traceID"]) == ("default", "g", 3, TRACE)
