from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from gangctl.cluster.kube import client as requests
from gangctl.cluster.kube import paths
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.watch import reflector
from gangctl.cluster.kube.watch.projections import NODES, PODS, KubeNode, KubePod
from gangctl.cluster.kube.watch.reflector import Reflector
from tests.cluster.kube.fakeapi import FakeApi, eventually, serving, status
from tests.cluster.kube.objects import node, pod


class Fixture:
    """A reflector of nodes that runs, and what it told."""

    def __init__(self, api: FakeApi, client: Client) -> None:
        self.api = api
        self.notified: list[tuple[str, str]] = []
        self.reflector = Reflector(client, paths.NODES, NODES, self._changed)

    def _changed(self, old: KubeNode | None, new: KubeNode | None) -> None:
        self.notified.append(("" if old is None else old.name, "" if new is None else new.name))

    def names(self) -> set[str]:
        return {one.name for one in self.reflector.items.values()}

    async def sees(self, *names: str) -> None:
        await eventually(lambda: self.names() == set(names))

    async def watches(self, times: int = 1) -> None:
        await eventually(lambda: self.api.watches() >= times and self.reflector.stale_seconds == 0)


@asynccontextmanager
async def kept(*names: str) -> AsyncIterator[Fixture]:
    async with serving() as (api, client):
        for name in names:
            await api.put("nodes", node(name))
        found = Fixture(api, client)
        async with running(found.reflector):
            yield found


@asynccontextmanager
async def running(one: Reflector[KubeNode]) -> AsyncIterator[None]:
    task = asyncio.create_task(one.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_what_is_there_and_what_comes_changes_and_goes_is_seen() -> None:
    async with kept("a", "b") as one:
        await one.sees("a", "b")
        await one.watches()
        await one.api.put("nodes", node("c"))
        await one.sees("a", "b", "c")
        await one.api.remove("nodes", "", "a")
        await one.sees("b", "c")
        await one.api.put("nodes", node("c", ready="Unknown"))
        await eventually(lambda: any(found.lost for found in one.reflector.items.values()))
    assert one.notified == [("", "a"), ("", "b"), ("", "c"), ("a", ""), ("c", "c")]
    assert one.api.count("GET", "nodes") == 2


async def test_a_change_of_nothing_that_matters_is_not_told() -> None:
    async with kept("a") as one:
        await one.watches()
        before = one.reflector.items[next(iter(one.reflector.items))].resource_version
        await one.api.put("nodes", one.api.objects["nodes", "", "a"])
        await eventually(lambda: next(iter(one.reflector.items.values())).resource_version != before)
    assert one.notified == [("", "a")]


async def test_a_long_list_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "PAGE_SIZE", 3)
    names = [f"n{at}" for at in range(10)]
    async with kept(*names) as one:
        await one.sees(*names)
    assert sum("continue" in query for _, _, query in one.api.requests) == 3
    assert [query.get("resourceVersion") for _, _, query in one.api.requests[:4]] == [None] * 4


async def test_a_list_that_expires_between_its_parts_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "PAGE_SIZE", 3)
    async with serving() as (api, client):
        for at in range(10):
            await api.put("nodes", node(f"n{at}"))

        async def expire(request: web.Request) -> web.Response | None:
            return status(410, "Expired", "too old") if "continue" in request.query else None

        api.faults.append(expire)
        one = Fixture(api, client)
        async with running(one.reflector):
            await eventually(lambda: len(one.names()) == 10)


async def test_a_watch_that_is_cut_goes_on_where_it_was_and_is_no_break() -> None:
    async with kept("a") as one:
        await one.watches()
        since = one.reflector.synced_since
        await one.api.cut()
        await one.api.put("nodes", node("b"))
        await one.sees("a", "b")
        await one.watches(2)
        assert one.reflector.synced_since == since
    assert one.api.count("GET", "nodes") - one.api.watches() == 1


async def test_a_watch_that_is_away_for_long_is_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "BREAK_SECONDS", 0.05)
    async with kept("a") as one:
        await one.watches()
        since = one.reflector.synced_since

        async def away(_request: web.Request) -> web.Response:
            return status(503, "ServiceUnavailable", "the server is starting")

        one.api.faults.append(away)
        await one.api.cut()
        await eventually(lambda: one.reflector.synced_since == 0)
        one.api.faults.clear()
        await eventually(lambda: one.reflector.synced_since > since)
        assert one.reflector.stale_seconds == 0


@pytest.mark.parametrize("as_event", [True, False])
async def test_when_its_place_is_forgotten_everything_is_listed_again(*, as_event: bool) -> None:
    async with kept("a", "b") as one:
        await one.watches()
        since = one.reflector.synced_since
        if as_event:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            await one.api.tell("nodes", "ERROR", gone)
        else:
            # A deletion in the gap: nobody ever tells of it.
            del one.api.objects["nodes", "", "a"]
            await one.api.put("pods", pod())
            one.api.forget()
            await one.api.cut()
        await one.watches(2)
        await eventually(lambda: one.api.count("GET", "nodes") - one.api.watches() == 2)
        await one.sees("a", "b") if as_event else await one.sees("b")
        assert one.reflector.synced_since == since


async def test_the_place_moves_on_with_bookmarks() -> None:
    async with kept("a") as one:
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


@pytest.mark.parametrize("code", [500, 503, 429, 403])
async def test_a_storm_of_errors_is_not_answered_with_a_storm_of_requests(code: int) -> None:
    async with serving() as (api, client):

        async def refuse(_request: web.Request) -> web.Response:
            return status(code, "Whatever", "not now")

        api.faults.append(refuse)
        one = Fixture(api, client)
        async with running(one.reflector):
            await eventually(lambda: len(api.requests) > 2)
            seen = len(api.requests)
            await asyncio.sleep(1.5)
            assert len(api.requests) - seen < 12
            assert one.reflector.synced_since == 0
            await api.put("nodes", node("a"))
            api.faults.clear()
            await one.sees("a")


async def test_streams_that_are_empty_are_not_asked_for_in_a_tight_loop() -> None:
    async with serving() as (api, client):

        async def empty(request: web.Request) -> web.Response | None:
            return web.Response(text="") if "watch" in request.query else None

        api.faults.append(empty)
        one = Fixture(api, client)
        async with running(one.reflector):
            await asyncio.sleep(1.5)
        assert 2 < len(api.requests) < 20


async def test_a_stream_in_which_nothing_is_said_is_given_up_and_is_no_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SILENCE_SECONDS", 0.1)
    async with kept("a") as one:
        await one.watches()
        since = one.reflector.synced_since
        await one.watches(3)
        assert one.reflector.synced_since == since


async def test_a_line_that_is_cut_off_is_read_again() -> None:
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
        one = Fixture(api, client)
        async with running(one.reflector):
            await one.watches(2)
            await api.put("nodes", node("b"))
            await one.sees("a", "b")


async def test_an_object_that_can_not_be_read_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (api, client):
        wrong = pod("worker-1")
        wrong["metadata"]["labels"]["gangctl.io/index"] = "many"
        await api.put("pods", wrong)
        await api.put("pods", pod("worker-0"))
        found = Reflector(client, paths.pods(), PODS, lambda _old, _new: None)
        task = asyncio.create_task(found.run())
        await eventually(lambda: len(found.items) == 1)
        await eventually(lambda: api.watches() == 1)
        worse = pod("worker-2")
        worse["spec"] = "none"
        await api.put("pods", worse)
        await api.put("pods", pod("worker-3"))
        await eventually(lambda: {one.pod.member for one in found.items.values()} == {"worker-0", "worker-3"})
        task.cancel()
    assert [text.replace("a valid dictionary or instance of RawPodSpec", "an object") for text in caplog.messages] == [
        "default/g-worker-1-0 can't be read and is ignored: invalid literal for int() with base 10: 'many'",
        "default/g-worker-2-0 can't be read and is ignored: spec: Input should be an object",
    ]


def _pod(version: str, phase: str) -> KubePod:
    raw = pod()
    raw["metadata"]["resourceVersion"] = version
    raw["status"]["phase"] = phase
    made = PODS.item(json.dumps(raw).encode())
    assert made is not None
    return made


async def test_what_a_write_returned_is_seen_at_once_and_older_news_do_not_undo_it() -> None:
    async with serving() as (api, client):
        found = Reflector(client, paths.pods(), PODS, lambda _old, _new: None)
        task = asyncio.create_task(found.run())
        await eventually(lambda: api.watches() == 1)
        found.put(_pod("900", "Running"))
        assert found.items["uid-g-worker-0-0"].phase == "Running"
        await api.put("pods", pod())  # version 101
        await api.put("pods", pod("worker-1"))
        await eventually(lambda: len(found.items) == 2)
        assert found.items["uid-g-worker-0-0"].phase == "Running"
        found.put(_pod("899", "Pending"))
        assert found.items["uid-g-worker-0-0"].phase == "Running"
        task.cancel()


async def test_a_late_answer_does_not_bring_back_what_was_deleted() -> None:
    async with serving() as (api, client):
        await api.put("pods", pod())
        found = Reflector(client, paths.pods(), PODS, lambda _old, _new: None)
        task = asyncio.create_task(found.run())
        await eventually(lambda: api.watches() == 1)
        await api.remove("pods", "default", "g-worker-0-0")
        await eventually(lambda: not found.items)
        found.put(_pod("101", "Pending"))
        assert not found.items
        task.cancel()


async def test_what_was_written_after_a_list_was_made_is_not_lost_by_it() -> None:
    async with serving() as (api, client):
        found = Reflector(client, paths.pods(), PODS, lambda _old, _new: None)
        arrived = asyncio.Event()
        go_on = asyncio.Event()

        async def slow(request: web.Request) -> web.Response | None:
            if request.method == "GET" and "watch" not in request.query:
                arrived.set()
                await go_on.wait()
                return web.json_response({"metadata": {"resourceVersion": "100"}, "items": []})
            return None

        api.faults.append(slow)
        task = asyncio.create_task(found.run())
        await arrived.wait()
        found.put(_pod("150", "Pending"))
        go_on.set()
        await eventually(lambda: api.watches() == 1)
        assert len(found.items) == 1
        task.cancel()


async def test_a_list_does_not_bring_back_what_a_watch_has_told_to_be_gone_meanwhile() -> None:
    async with kept("a", "b") as one:
        await one.watches()
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def slow(request: web.Request) -> web.Response | None:
            if request.method != "GET" or "watch" in request.query:
                return None
            listed = [item for (kind, _, _), item in one.api.objects.items() if kind == "nodes"]
            version = str(one.api.history[-1][0])
            answer = web.json_response(
                {"metadata": {"resourceVersion": version}, "items": json.loads(json.dumps(listed))}
            )
            arrived.set()
            await go_on.wait()
            return answer

        one.api.faults.append(slow)
        refreshing = asyncio.create_task(one.reflector.refresh())
        await arrived.wait()
        await one.api.remove("nodes", "", "b")
        await one.sees("a")
        go_on.set()
        await refreshing
        assert one.names() == {"a"}


async def test_a_refresh_overtakes_a_watch_that_lags_behind() -> None:
    async with kept("a", "b") as one:
        await one.watches()
        await one.api.put("nodes", node("c"))
        await one.sees("a", "b", "c")
        behind = list(one.api.history)
        one.api.objects["nodes", "", "a"]["status"]["conditions"][0]["status"] = "Unknown"
        await one.api.put("pods", pod())
        newer = str(one.api.history[-1][0])
        one.api.objects["nodes", "", "a"]["metadata"]["resourceVersion"] = newer
        gone = one.api.objects.pop(("nodes", "", "b"))
        await one.reflector.refresh()
        assert one.names() == {"a", "c"}
        assert [found.lost for found in one.reflector.items.values() if found.name == "a"] == [True]
        # What the watch tells late was known already.
        gone["metadata"]["resourceVersion"] = str(behind[-1][0])
        await one.api.tell("nodes", "MODIFIED", gone)
        await one.api.put("nodes", node("d"))
        await one.sees("a", "c", "d")
