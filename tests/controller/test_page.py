"""The page: what it sends, to how many, how fast, and what a browser may do with it."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.decide import job as large_job
from bench.decide import observed as large_world
from gangctl.api.changes import changed
from gangctl.api.status import GangPhase
from gangctl.controller.loop import Loop
from gangctl.controller.page import feeds, routes
from gangctl.core.facts.world import Observed
from gangctl.explain.page.documents import LARGEST_BYTES
from gangctl.explain.page.gang import gang
from gangsidecar.wire import Phase
from tests.controller.fake_cluster import FakeCluster
from tests.controller.fake_sidecars import job
from tests.controller.pages import page_of
from tests.wait import until_async


async def test_every_file_forbids_the_browser_all_content_that_is_not_the_page_s_own() -> None:
    async with page_of(FakeCluster()) as page:
        for path in ("", "page.js", "tree.js", "page.css", "icon.svg"):
            async with page.session.get(page.url + path) as found:
                assert found.status == 200
                text = await found.text()
                policy = dict(one.strip().split(" ", 1) for one in found.headers["Content-Security-Policy"].split(";"))
                assert policy["default-src"] == "'none'"
                assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
                assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
                assert found.headers["X-Content-Type-Options"] == "nosniff"
                assert found.headers["Referrer-Policy"] == "no-referrer"
                assert found.headers["Cache-Control"] == "no-store"
                for unsafe in (
                    "innerHTML",
                    "outerHTML",
                    "insertAdjacentHTML",
                    "eval(",
                    "<style",
                    " style=",
                    " onclick=",
                ):
                    assert unsafe not in text, path
                assert set(re.findall(r"https?://[^\s\"]+", text)) <= {"http://www.w3.org/2000/svg"}, path


async def test_the_page_answers_nothing_but_get() -> None:
    async with page_of(FakeCluster()) as page:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for path in ("", "gangs", "gangs/default/g"):
                async with page.session.request(method, page.url + path) as found:
                    assert found.status == 405


async def test_a_viewer_gets_the_list_and_one_gang_and_each_change() -> None:
    world = FakeCluster()
    async with page_of(world) as page, page.viewer("gangs") as everything, page.viewer("gangs/default/g") as one:
        kind, document = await everything.event()
        assert (kind, [row["name"] for row in document["rows"]]) == ("list", ["g"])
        kind, document = await one.event()
        assert (kind, document["name"], document["phase"]) == ("gang", "g", "Gathering")
        world.change("uid-g", job(phase=GangPhase.HELD, message="<b>held</b>").status)
        assert (await everything.event())[1]["rows"][0]["phase"] == "Held"
        _, document = await one.event()
        assert (document["phase"], document["message"]) == ("Held", "<b>held</b>")


async def test_a_viewer_hears_nothing_but_heartbeats_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", 0.2)
    world = FakeCluster()
    async with page_of(world) as page, page.viewer("gangs/default/g") as one:
        await one.event()
        assert [await one.content.readuntil(b"\n\n") for _ in range(3)] == [b": \n\n"] * 3


async def test_a_gang_that_does_not_exist_yet_appears_once_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "LEAST_SECONDS", 0.01)
    world = FakeCluster({})
    async with page_of(world) as page, page.viewer("gangs/default/g") as one:
        assert await one.event() == ("missing", {"namespace": "default", "name": "g"})
        world.jobs["uid-g"] = job()
        assert (await one.event())[0] == "gang"
        del world.jobs["uid-g"]
        assert (await one.event())[0] == "missing"


async def test_a_name_with_markup_comes_back_as_text_in_json() -> None:
    async with page_of(FakeCluster()) as page, page.viewer("gangs/%3Cscript%3E/a%1b%22") as one:
        assert await one.event() == ("missing", {"namespace": "<script>", "name": 'a\\x1b"'})


async def test_the_timeline_is_a_picture_that_may_run_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FakeCluster()
    async with page_of(world) as page:
        async with page.session.get(f"{page.url}gangs/default/g/timeline.svg?1") as found:
            assert (found.status, found.content_type) == (200, "image/svg+xml")
            assert found.headers["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'"
            text = await found.text()
            assert "Timeline of g" in text
        world.change("uid-g", job(phase=GangPhase.HELD).status)
        async with page.session.get(f"{page.url}gangs/default/g/timeline.svg?2") as found:
            assert await found.text() == text, "viewers share it for some seconds"
        monkeypatch.setattr(routes, "DRAWN_SECONDS", 0.0)
        async with page.session.get(f"{page.url}gangs/default/g/timeline.svg?3") as found:
            assert "Held" in await found.text()
        async with page.session.get(f"{page.url}gangs/default/other/timeline.svg") as found:
            assert found.status == 404


async def test_a_standby_says_who_leads_and_ends_the_stream() -> None:
    leader = "https://10.0.0.7:8445/ui/"
    async with page_of(FakeCluster(), lambda _loop: None, leader) as page, page.viewer("gangs") as one:
        assert await one.event() == ("standby", {"leader": leader})
        assert await one.content.read() == b""


async def test_a_leader_that_stops_leading_tells_its_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", 0.05)
    leads = True

    def loop(found: Loop) -> Loop | None:
        return found if leads else None

    async with page_of(FakeCluster(), loop) as page, page.viewer("gangs/default/g") as one:
        assert (await one.event())[0] == "gang"
        leads = False
        assert await one.event() == ("standby", {"leader": ""})


async def test_a_stream_ends_after_a_minute_so_that_a_right_that_was_taken_away_ends_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(routes, "STREAM_SECONDS", 0.1)
    async with page_of(FakeCluster()) as page, page.viewer("gangs") as one:
        rest = await one.content.read()
        assert rest.startswith(b"retry: 1000\n")
        assert b"event: standby" not in rest


async def test_the_number_of_viewers_is_bounded_and_one_that_leaves_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "MAX_STREAMS", 8)
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", 0.05)
    async with page_of(FakeCluster()) as page:
        answers = [await page.session.get(f"{page.url}gangs/default/g") for _ in range(8)]
        for answer in answers:
            await answer.content.readuntil(b"event: gang")
        async with page.session.get(f"{page.url}gangs") as refused:
            assert (refused.status, await refused.text()) == (503, "8 viewers watch already\n")
        for answer in answers:
            answer.close()

        async def is_admitted() -> bool:
            async with page.session.get(f"{page.url}gangs") as answer:
                return answer.status == 200

        await until_async("those who left make room", is_admitted, every=0.05)


async def test_a_viewer_that_reads_nothing_is_dropped_and_others_hear_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "LEAST_SECONDS", 0.001)
    monkeypatch.setattr(feeds, "PAUSE", 0.0)
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


async def test_what_can_not_be_shown_is_told_and_logged_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def crash(*_arguments: object) -> object:
        raise RuntimeError("a bug")

    async with page_of(FakeCluster()) as page:
        monkeypatch.setattr(routes, "gang", crash)
        async with page.viewer("gangs/default/g") as one, page.viewer("gangs") as everything:
            assert await one.event() == ("broken", {})
            assert (await everything.event())[0] == "list"
    assert "which is a bug" in caplog.text
