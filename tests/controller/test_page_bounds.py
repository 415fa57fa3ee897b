"""The page has bounds: viewers, pictures, slow readers, large gangs."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.decide import job as large_job
from bench.decide import observed as large_world
from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.controller.loop import Loop
from gangctl.controller.page import feeds, routes
from gangctl.core.facts.world import Observed
from gangctl.story.page import LARGEST_BYTES, gang
from gangsidecar.wire import Phase
from tests.controller.fake_cluster import FakeCluster
from tests.controller.fake_sidecars import job
from tests.controller.pages import page_of
from tests.wait import until_async


async def test_pictures_of_many_gangs_are_bounded_and_one_that_is_drawn_for_long_is_drawn_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "MAX_PICTURES", 2)
    monkeypatch.setattr(routes, "DRAWN_SECONDS", 0.0)
    go, drawn = threading.Event(), []

    def slow(_now: float, given: GangJob, _observed: Observed) -> str:
        go.wait(20)
        drawn.append(given.metadata.name)
        return "<svg/>"

    monkeypatch.setattr(routes, "drawing", slow)
    world = FakeCluster()
    for name in ("a", "b", "c"):
        metadata = job().metadata.model_copy(update={"name": name, "uid": name})
        world.jobs[name] = changed(job(), metadata=metadata)
    async with page_of(world) as page:

        async def picture(name: str) -> tuple[str, int]:
            async with page.session.get(f"{page.url}gangs/default/{name}/timeline.svg") as found:
                if found.status == 503:
                    assert found.headers["Retry-After"] == "2"
                    assert await found.text() == "timelines of 2 gangs are drawn already\n"
                return name, found.status

        asking = [asyncio.create_task(picture(name)) for name in "aabbcc"]
        try:
            await until_async("two are refused", lambda: [one for one in asking if one.done()][1:])
        finally:
            go.set()
        found = [await one for one in asking]
        assert sorted(status for _, status in found) == [200, 200, 200, 200, 503, 503]
        assert sorted(drawn) == sorted({name for name, status in found if status == 200})
        assert [status for _, status in [await picture(name) for name in "abc"]] == [200] * 3, "there is room again"


async def test_the_number_of_viewers_is_bounded_and_one_that_leaves_makes_room_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "MAX_STREAMS", 8)
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", 3600)
    async with page_of(FakeCluster()) as page:
        answers = [await page.session.get(f"{page.url}gangs/default/g") for _ in range(8)]
        for answer in answers:
            await answer.content.readuntil(b"event: gang")
        async with page.session.get(f"{page.url}gangs") as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
            assert await refused.text() == "8 viewers watch already\n"
        for answer in answers:
            answer.close()

        async def is_admitted() -> bool:
            async with page.session.get(f"{page.url}gangs") as answer:
                return answer.status == 200

        await until_async("those who left make room", is_admitted, every=0.05)


@pytest.mark.nightly
async def test_a_viewer_that_reads_nothing_is_dropped_and_others_hear_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "LEAST_SECONDS", 0.001)
    monkeypatch.setattr(feeds, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(routes, "SLOW_SECONDS", 0.3)
    monkeypatch.setattr(routes, "MAX_STREAMS", 2)
    world = FakeCluster()
    world.jobs["uid-g"] = changed(world.jobs["uid-g"], spec=large_job(150).spec)
    number = 0

    async def change() -> None:
        nonlocal number
        while True:
            number += 1
            world.change("uid-g", changed(world.jobs["uid-g"].status, message=f"change {number}"))
            await asyncio.sleep(0.001)  # the rate of changes

    async with page_of(world) as page, page.viewer("gangs/default/g") as reader:
        place = urlsplit(page.url)
        assert place.port is not None
        with socket.create_connection(("127.0.0.1", place.port)) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"GET /ui/gangs/default/g HTTP/1.1\r\nHost: a\r\n\r\n")
            changing = asyncio.create_task(change())

            async def is_dropped() -> bool:
                await reader.event()
                async with page.session.get(f"{page.url}gangs") as answer:
                    return answer.status == 200

            await until_async("the slow one made room", is_dropped)
            before = (await reader.event())[1]["message"]
            assert (await reader.event())[1]["message"] != before
            changing.cancel()
            await asyncio.wait((changing,))


async def test_a_document_about_ten_thousand_members_is_small_and_made_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = large_job(10_000)
    seen = large_world(given, Phase.RUNNING, 2)
    threads: list[threading.Thread] = []

    def make(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return gang(*arguments)

    def observe(_self: Loop, _uid: str) -> Observed:
        return seen

    async with page_of(FakeCluster({"u": given})) as page:
        monkeypatch.setattr(Loop, "observed", observe)
        monkeypatch.setattr(routes, "gang", make)
        async with page.viewer("gangs/default/g") as one, page.viewer("gangs/default/g") as other:
            _, document = await one.event()
            assert (await other.event())[1] == document
    assert document["counts"] == [{"role": "worker", "state": "Running", "members": 10_000}]
    assert len(str(document)) < LARGEST_BYTES
    assert len(threads) == 1, "two viewers share one document"
    assert threads[0] is not threading.main_thread()
