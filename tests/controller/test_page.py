"""The page: what it sends, to whom, and what a browser may do with it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gangctl.api.gangjob import GangJob, ReplicaGroup
from gangctl.api.model import changed
from gangctl.api.status import GangPhase
from gangctl.cluster.errors import Retryable
from gangctl.controller.loop import Loop
from gangctl.controller.page import feeds, routes
from tests.controller.fake_cluster import FakeCluster
from tests.controller.fake_sidecars import job
from tests.controller.pages import page_of


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


async def test_every_answer_has_the_same_headers_and_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refusal(_authorization: str, namespace: str) -> str:
        if namespace == "down":
            raise Retryable("the API server is away")
        return "" if namespace == "default" else "you may not"

    def crash(*_arguments: object) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr(routes, "drawing", crash)
    async with page_of(FakeCluster(), refusal=refusal) as page:
        for method, path, status in (
            ("GET", "", 200),
            ("GET", "gangs", 200),
            ("GET", "gangs/default/g", 200),
            ("GET", "gangs/default/none/timeline.svg", 404),
            ("GET", "gangs/default/g/timeline.svg", 500),
            ("GET", "gangs/other/g", 403),
            ("GET", "groups/other/g", 403),
            ("GET", "groups/other/g/timeline.svg", 403),
            ("GET", "gangs/down/g", 503),
            ("GET", "nothing", 404),
            ("GET", "../elsewhere", 404),
            *((method, path, 405) for method in ("POST", "PUT", "DELETE", "PATCH", "HEAD") for path in ("", "gangs")),
        ):
            async with page.session.request(method, page.url + path) as found:
                assert found.status == status, (method, path)
                for name, value in routes.HEADERS.items():
                    assert found.headers.getall(name) == [value], (method, path)


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
            directives = found.headers["Content-Security-Policy"].split("; ")
            assert sorted(directives) == [
                "base-uri 'none'",
                "default-src 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
                "style-src 'unsafe-inline'",
            ]
            assert found.headers["X-Content-Type-Options"] == "nosniff"
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


async def test_a_replica_group_has_a_list_of_its_gangs_and_one_timeline_with_a_row_for_each() -> None:
    def replica(name: str, index: int, group: str = "train") -> GangJob:
        made = job(phase=GangPhase.RUNNING)
        metadata = changed(made.metadata, name=name, uid=f"uid-{name}")
        spec = changed(made.spec, replica_group=ReplicaGroup(name=group, index=index))
        return changed(made, spec=spec, metadata=metadata)

    gangs = [replica("r-1", 1), replica("r-0", 0), replica("other", 0, "other")]
    async with page_of(FakeCluster({one.metadata.uid: one for one in gangs})) as page:
        async with page.viewer("groups/default/train") as viewer:
            kind, document = await viewer.event()
            assert (kind, document["namespace"], document["group"]) == ("list", "default", "train")
            assert [row["name"] for row in document["rows"]] == ["r-0", "r-1"]
        async with page.session.get(f"{page.url}groups/default/train/timeline.svg") as found:
            text = await found.text()
            assert (found.status, found.content_type) == (200, "image/svg+xml")
            assert "Timeline of train" in text
            assert 0 < text.index(">r-0<") < text.index(">r-1<")
            assert "other" not in text
        async with page.session.get(f"{page.url}groups/default/none/timeline.svg") as found:
            assert found.status == 404


async def test_a_group_is_looked_for_once_for_its_picture() -> None:
    class Counting(FakeCluster):
        scans = 0

        def uids(self) -> tuple[str, ...]:
            self.scans += 1
            return super().uids()

    made = job(phase=GangPhase.RUNNING)
    spec = changed(made.spec, replica_group=ReplicaGroup(name="train"))
    metadata = [changed(made.metadata, name=f"r-{at}", uid=f"u-{at}") for at in range(20)]
    cluster = Counting({one.uid: changed(made, spec=spec, metadata=one) for one in metadata})
    async with page_of(cluster) as page:
        before = cluster.scans
        async with page.session.get(f"{page.url}groups/default/train/timeline.svg") as found:
            assert found.status == 200
        assert cluster.scans - before < 20


async def test_a_standby_answers_nothing_that_only_the_leader_knows_and_names_it() -> None:
    leader = "https://10.0.0.7:8445/ui/"
    for known, said in ((leader, f"the page of the leader is {leader}"), ("", "no leader is known now")):
        async with page_of(FakeCluster(), lambda _loop: None, known) as page:
            for path in ("gangs", "gangs/default/g", "gangs/default/none", "gangs/default/g/timeline.svg"):
                async with page.session.get(page.url + path) as found:
                    assert (found.status, found.headers["Retry-After"]) == (503, "2")
                    assert await found.text() == (
                        f"this controller stands by, and only the leader knows the gangs; {said}\n"
                    )
            async with page.session.get(page.url) as found:
                assert found.status == 200, "its files are those of the leader"


async def test_a_leader_that_stops_leading_ends_the_streams_of_its_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", 0.05)
    leads = True

    def loop(found: Loop) -> Loop | None:
        return found if leads else None

    async with page_of(FakeCluster(), loop) as page, page.viewer("gangs/default/g") as one:
        assert (await one.event())[0] == "gang"
        leads = False
        assert b"event: missing" not in await one.content.read()
        async with page.session.get(f"{page.url}gangs/default/g") as found:
            assert found.status == 503


async def test_a_viewer_sees_the_gangs_of_namespaces_in_which_it_may_list_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_NAMESPACES", 2)
    monkeypatch.setattr(feeds, "LEAST_SECONDS", 0.01)
    rights = {"Bearer sre": {""}, "Bearer jane": {"a", "c"}, "Bearer kim": {"b"}}
    asked: list[tuple[str, str]] = []

    async def refusal(authorization: str, namespace: str) -> str:
        asked.append((authorization, namespace))
        may = rights[authorization]
        return "" if may & {"", namespace} else f"no list in {namespace}"

    world = FakeCluster({})
    for namespace in ("c", "a", "b"):
        metadata = job().metadata.model_copy(update={"namespace": namespace, "uid": namespace})
        world.jobs[namespace] = changed(job(), metadata=metadata)
    world.broken["broken"] = "it has a field of a later release"
    async with page_of(world, refusal=refusal) as page:

        async def shown(who: str) -> tuple[list[str], dict[str, Any]]:
            page.session.headers["Authorization"] = f"Bearer {who}"
            async with page.viewer("gangs") as one:
                kind, document = await one.event()
                assert kind == "list"
                return [row["namespace"] for row in document.pop("rows", [])], document

        assert await shown("sre") == (["a", "b", "c"], {"total": 3})
        assert asked == [("Bearer sre", "")]
        assert await shown("kim") == (["b"], {"total": 1, "isPartial": True, "unseen": 1})
        assert await shown("jane") == (["a"], {"total": 1, "isPartial": True, "unseen": 1})
        for path in ("gangs/b/g", "gangs/b/g/timeline.svg", "gangs/b/none"):
            async with page.session.get(page.url + path) as found:
                assert (found.status, await found.text()) == (403, "no list in b\n"), "also if it doesn't exist"
        async with page.session.get(f"{page.url}gangs/%0d%0aA:%1b[31m/g") as found:
            assert await found.text() == "no list in \\x0d\\x0aA:\\x1b[31m\n"
        async with page.viewer("gangs/c/g") as one:
            assert (await one.event())[0] == "gang"
        async with page.viewer("gangs") as one:
            assert (await one.event())[1]["total"] == 1
            for uid in ("b2", "a2"):
                metadata = world.jobs[uid[0]].metadata.model_copy(update={"name": uid, "uid": uid})
                world.jobs[uid] = changed(job(), metadata=metadata)
            assert [row["name"] for row in (await one.event())[1]["rows"]] == ["a2", "g"]


async def test_a_stream_ends_after_a_minute_so_that_a_right_that_was_taken_away_ends_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(routes, "STREAM_SECONDS", 0.1)
    async with page_of(FakeCluster()) as page, page.viewer("gangs") as one:
        rest = await one.content.read()
        assert rest.startswith(b"retry: 1000\n")


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
