from __future__ import annotations

import asyncio
import random

import pytest
from aiohttp import web

from gangctl.cluster.kube import client as requests
from gangctl.cluster.kube import paths, reflector
from gangctl.cluster.kube.projections import PODS
from gangctl.cluster.kube.reflector import Reflector
from tests.cluster.kube.fakeapi import serving, status
from tests.cluster.kube.objects import node, pod
from tests.cluster.kube.watch.reflectors import NodeReflector, reflecting, running
from tests.wait import until_async


async def test_existing_new_changed_and_deleted_objects_are_seen() -> None:
    async with reflecting("a", "b") as one:
        await one.sees("a", "b")
        await one.watches()
        await one.api.put("nodes", node("c"))
        await one.sees("a", "b", "c")
        await one.api.remove("nodes", "", "a")
        await one.sees("b", "c")
        await one.api.put("nodes", node("c", ready="Unknown"))
        await until_async("the node is lost", lambda: any(found.is_lost for found in one.reflector.items.values()))
    assert one.notified == [("", "a"), ("", "b"), ("", "c"), ("a", ""), ("c", "c")]
    assert one.api.count("GET", "nodes") == 2


async def test_a_change_of_other_fields_is_not_notified() -> None:
    async with reflecting("a") as one:
        await one.watches()
        before = one.reflector.items[next(iter(one.reflector.items))].resource_version
        await one.api.put("nodes", one.api.objects["nodes", "", "a"])
        await until_async(
            "the new version is read", lambda: next(iter(one.reflector.items.values())).resource_version != before
        )
    assert one.notified == [("", "a")]


async def test_a_closed_watch_resumes_at_its_version_without_a_break() -> None:
    async with reflecting("a") as one:
        await one.watches()
        since = one.reflector.synced_since
        await one.api.cut()
        await one.api.put("nodes", node("b"))
        await one.sees("a", "b")
        await one.watches(2)
        assert one.reflector.synced_since == since
    assert one.api.count("GET", "nodes") - one.api.watches() == 1


async def test_a_long_outage_of_the_watch_is_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "BREAK_SECONDS", 0.05)
    async with reflecting("a") as one:
        await one.watches()
        since = one.reflector.synced_since

        async def away(_request: web.Request) -> web.Response:
            return status(503, "ServiceUnavailable", "the server is starting")

        one.api.faults.append(away)
        await one.api.cut()
        await until_async("the watch is broken", lambda: one.reflector.synced_since == 0)
        one.api.faults.clear()
        await until_async("the watch works again", lambda: one.reflector.synced_since > since)
        assert one.reflector.stale_seconds == 0


@pytest.mark.parametrize("as_event", [True, False])
async def test_an_expired_version_makes_the_reflector_list_again(*, as_event: bool) -> None:
    async with reflecting("a", "b") as one:
        await one.watches()
        since = one.reflector.synced_since
        if as_event:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            await one.api.send_event("nodes", "ERROR", gone)
        else:
            # A deletion in the gap: no event ever reports it.
            del one.api.objects["nodes", "", "a"]
            await one.api.put("pods", pod())
            one.api.forget()
            await one.api.cut()
        await one.watches(2)
        await until_async("the nodes are listed again", lambda: one.api.count("GET", "nodes") - one.api.watches() == 2)
        await one.sees("a", "b") if as_event else await one.sees("b")
        assert one.reflector.synced_since == since


async def test_bookmarks_advance_the_version() -> None:
    async with reflecting("a") as one:
        await one.watches()
        await one.api.put("pods", pod())
        await one.api.bookmark("nodes")
        place = str(one.api.history[-1][0])
        one.api.forget()
        await one.api.put("nodes", node("b"))
        await one.sees("a", "b")
        await one.api.cut()
        await one.watches(2)
        await one.api.cut()
        await one.watches(3)
    asked = [query["resourceVersion"] for _, _, query in one.api.requests if "watch" in query]
    assert all(int(at) >= int(place) for at in asked[1:])
    assert one.api.count("GET", "nodes") - one.api.watches() == 1


@pytest.fixture
def backoffs(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The back-offs that the reflector draws from, in seconds: each wait takes all of its limit."""
    limits: list[float] = []

    def longest(_low: float, high: float) -> float:
        limits.append(high)
        return high

    monkeypatch.setattr(reflector, "FIRST_BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(reflector, "LONGEST_BACKOFF_SECONDS", 0.016)
    monkeypatch.setattr(random, "uniform", longest)
    return limits


GROWING = [0.002, 0.004, 0.008, 0.016, 0.016, 0.016]


@pytest.mark.parametrize("code", [500, 503, 429, 403])
async def test_errors_are_retried_with_a_growing_back_off(code: int, backoffs: list[float]) -> None:
    async with serving() as (api, client):

        async def refuse(_request: web.Request) -> web.Response:
            return status(code, "Whatever", "not now")

        api.faults.append(refuse)
        one = NodeReflector(api, client)
        async with running(one.reflector):
            await until_async("six requests are retried", lambda: len(backoffs) >= len(GROWING))
            assert backoffs[: len(GROWING)] == GROWING
            assert len(api.requests) <= len(backoffs) + 1
            assert one.reflector.synced_since == 0
            await api.put("nodes", node("a"))
            api.faults.clear()
            await one.sees("a")


async def test_empty_streams_are_retried_with_a_growing_back_off(backoffs: list[float]) -> None:
    async with serving() as (api, client):

        async def empty(request: web.Request) -> web.Response | None:
            return web.Response(text="") if "watch" in request.query else None

        api.faults.append(empty)
        one = NodeReflector(api, client)
        async with running(one.reflector):
            await until_async("six watches are retried", lambda: len(backoffs) >= len(GROWING))
            assert backoffs[: len(GROWING)] == GROWING
            assert api.watches() <= len(backoffs) + 1


async def test_a_silent_watch_is_closed_and_resumed_without_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SILENCE_SECONDS", 0.1)
    async with reflecting("a") as one:
        await one.watches()
        since = one.reflector.synced_since
        await one.watches(3)
        assert one.reflector.synced_since == since


async def test_a_truncated_line_is_read_again() -> None:
    async with serving() as (api, client):
        await api.put("nodes", node("a"))
        broken: list[int] = []

        async def half(request: web.Request) -> web.StreamResponse | None:
            if "watch" not in request.query or broken:
                return None
            broken.append(1)
            answer = web.StreamResponse()
            await answer.prepare(request)
            await answer.write(b'{"type":"ADDED","object":{"metadata":{"na')
            return answer

        api.faults.append(half)
        one = NodeReflector(api, client)
        async with running(one.reflector):
            await one.watches(2)
            await api.put("nodes", node("b"))
            await one.sees("a", "b")


async def test_an_unreadable_object_does_not_block_others(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (api, client):
        wrong = pod("worker-1")
        wrong["metadata"]["labels"]["gangctl.io/index"] = "many"
        await api.put("pods", wrong)
        await api.put("pods", pod("worker-0"))
        found = Reflector(client, paths.pods(), PODS, lambda _old, _new: None)
        task = asyncio.create_task(found.run())
        await until_async("the readable pod is listed", lambda: len(found.items) == 1)
        await until_async("the watch begins", lambda: api.watches() == 1)
        worse = pod("worker-2")
        worse["spec"] = "none"
        await api.put("pods", worse)
        await api.put("pods", pod("worker-3"))
        await until_async(
            "the readable pods are seen",
            lambda: {one.pod.member for one in found.items.values()} == {"worker-0", "worker-3"},
        )
        task.cancel()
    assert [text.replace("a valid dictionary or instance of RawPodSpec", "an object") for text in caplog.messages] == [
        "default/g-worker-1-0 can't be read and is ignored: invalid literal for int() with base 10: 'many'",
        "default/g-worker-2-0 can't be read and is ignored: spec: Input should be an object",
    ]
