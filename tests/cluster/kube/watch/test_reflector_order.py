"""Which version of an object wins: pages, lists, watches and writes overlap."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from gangctl.cluster.kube import paths, reflector
from gangctl.cluster.kube.projections import PODS, KubePod
from gangctl.cluster.kube.reflector import Reflector
from tests.cluster.kube.fakeapi import serving, status
from tests.cluster.kube.objects import node, pod
from tests.cluster.kube.watch.reflectors import NodeReflector, reflecting, running
from tests.wait import until_async


def pod_of_version(version: str, phase: str) -> KubePod:
    raw = pod()
    raw["metadata"]["resourceVersion"] = version
    raw["status"]["phase"] = phase
    made = PODS.item(json.dumps(raw).encode())
    assert made is not None
    return made


async def test_a_long_list_is_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "PAGE_SIZE", 3)
    names = [f"n{at}" for at in range(10)]
    async with reflecting(*names) as one:
        await one.sees(*names)
    assert sum("continue" in query for _, _, query in one.api.requests) == 3
    assert [query.get("resourceVersion") for _, _, query in one.api.requests[:4]] == [None] * 4


async def test_a_page_that_is_too_large_is_read_in_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "PAGE_SIZE", 16)
    monkeypatch.setattr(reflector, "PAGE_BYTES", 4000)
    names = [f"n{at}" for at in range(10)]
    async with serving() as (api, client):
        for name in names:
            await api.put("nodes", node(name, spec={"padding": "x" * (6000 if name == "n5" else 300)}))
        found = NodeReflector(api, client)
        await found.reflector.refresh()
        assert found.names() == set(names)
        limits = [int(query["limit"]) for _, _, query in api.requests]
        assert limits[0] == 16
        assert limits == sorted(limits, reverse=True)
        assert limits[-1] == 1, "an object that is larger than a page is read alone"


async def test_a_list_that_expires_between_pages_is_read_in_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "PAGE_SIZE", 3)
    async with serving() as (api, client):
        for at in range(10):
            await api.put("nodes", node(f"n{at}"))

        async def expire(request: web.Request) -> web.Response | None:
            return status(410, "Expired", "too old") if "continue" in request.query else None

        api.faults.append(expire)
        one = NodeReflector(api, client)
        async with running(one.reflector):
            await until_async("all nodes are listed", lambda: len(one.names()) == 10)


async def test_a_written_object_is_not_replaced_by_an_older_version() -> None:
    async with serving() as (api, client):
        found = Reflector(client, paths.pods(), PODS, lambda _old, _new: None)
        task = asyncio.create_task(found.run())
        await until_async("the watch begins", lambda: api.watches() == 1)
        found.put(pod_of_version("900", "Running"))
        assert found.items["uid-g-worker-0-0"].phase == "Running"
        await api.put("pods", pod())  # version 101
        await api.put("pods", pod("worker-1"))
        await until_async("the new pod is seen", lambda: len(found.items) == 2)
        assert found.items["uid-g-worker-0-0"].phase == "Running"
        found.put(pod_of_version("899", "Pending"))
        assert found.items["uid-g-worker-0-0"].phase == "Running"
        task.cancel()


async def test_a_late_answer_does_not_bring_back_a_deleted_object() -> None:
    async with serving() as (api, client):
        await api.put("pods", pod())
        found = Reflector(client, paths.pods(), PODS, lambda _old, _new: None)
        task = asyncio.create_task(found.run())
        await until_async("the watch begins", lambda: api.watches() == 1)
        await api.remove("pods", "default", "g-worker-0-0")
        await until_async("the pod is gone", lambda: not found.items)
        found.put(pod_of_version("101", "Pending"))
        assert not found.items
        task.cancel()


async def test_an_older_list_does_not_drop_a_newer_object() -> None:
    async with serving() as (api, client):
        found = Reflector(client, paths.pods(), PODS, lambda _old, _new: None)
        arrived = asyncio.Event()
        release = asyncio.Event()

        async def slow(request: web.Request) -> web.Response | None:
            if request.method == "GET" and "watch" not in request.query:
                arrived.set()
                await release.wait()
                return web.json_response({"metadata": {"resourceVersion": "100"}, "items": []})
            return None

        api.faults.append(slow)
        task = asyncio.create_task(found.run())
        await arrived.wait()
        found.put(pod_of_version("150", "Pending"))
        release.set()
        await until_async("the watch begins", lambda: api.watches() == 1)
        assert len(found.items) == 1
        task.cancel()


async def test_a_list_does_not_bring_back_an_object_that_the_watch_deleted() -> None:
    async with reflecting("a", "b") as one:
        await one.watches()
        arrived, release = asyncio.Event(), asyncio.Event()

        async def slow(request: web.Request) -> web.Response | None:
            if request.method != "GET" or "watch" in request.query:
                return None
            listed = [item for (kind, _, _), item in one.api.objects.items() if kind == "nodes"]
            version = str(one.api.history[-1][0])
            answer = web.json_response(
                {"metadata": {"resourceVersion": version}, "items": json.loads(json.dumps(listed))}
            )
            arrived.set()
            await release.wait()
            return answer

        one.api.faults.append(slow)
        refreshing = asyncio.create_task(one.reflector.refresh())
        await arrived.wait()
        await one.api.remove("nodes", "", "b")
        await one.sees("a")
        release.set()
        await refreshing
        assert one.names() == {"a"}


async def test_a_refresh_is_newer_than_a_delayed_watch() -> None:
    async with reflecting("a", "b") as one:
        await one.watches()
        await one.api.put("nodes", node("c"))
        await one.sees("a", "b", "c")
        earlier = list(one.api.history)
        one.api.objects["nodes", "", "a"]["status"]["conditions"][0]["status"] = "Unknown"
        await one.api.put("pods", pod())
        newer = str(one.api.history[-1][0])
        one.api.objects["nodes", "", "a"]["metadata"]["resourceVersion"] = newer
        gone = one.api.objects.pop(("nodes", "", "b"))
        await one.reflector.refresh()
        assert one.names() == {"a", "c"}
        assert [found.is_lost for found in one.reflector.items.values() if found.name == "a"] == [True]
        # The late event of the watch is older than the list.
        gone["metadata"]["resourceVersion"] = str(earlier[-1][0])
        await one.api.send_event("nodes", "MODIFIED", gone)
        await one.api.put("nodes", node("d"))
        await one.sees("a", "c", "d")
