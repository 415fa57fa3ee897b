"""The live endpoint needs its token."""

from __future__ import annotations

from urllib.parse import urljoin

import aiohttp
import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Endpoint, Snapshot
from gangctl.controller import local
from gangctl.controller.page import routes
from gangctl.controller.page.routes import GangSource, Page
from gangctl.core.facts.world import Observed
from tests.cli.here import manifest
from tests.controller.fake_cluster import FakeCluster, running
from tests.controller.pages import nothing
from tests.wait import until_async


def look(name: str) -> tuple[GangJob, Observed] | None:
    return (GangJob.model_validate(manifest()), Observed()) if name == "g" else None


def page() -> Page:
    return Page(GangSource(FakeCluster(), lambda: None))


async def asked(endpoint: Endpoint, name: str, token: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.get(endpoint.url + name, headers=headers) as response:
        return response.status, await response.text()


async def test_a_request_with_the_token_gets_a_snapshot() -> None:
    async with local.serve_live("127.0.0.1", look, page()) as endpoint:
        status, text = await asked(endpoint, "g", endpoint.token)
    assert status == 200
    assert [one.member for one in Snapshot.model_validate_json(text).members] == ["worker-0", "worker-1", "worker-2"]


async def test_a_request_without_the_token_learns_nothing_not_even_which_gangs_exist() -> None:
    async with local.serve_live("127.0.0.1", look, page()) as endpoint:
        for name in ("g", "other"):
            assert (await asked(endpoint, name, "guess"))[0] == 401


async def test_a_request_without_the_token_gets_no_file_and_no_stream_of_the_page() -> None:
    async with local.serve_live("127.0.0.1", look, page()) as endpoint, aiohttp.ClientSession() as session:
        for path in ("/ui/", "/ui/page.js", "/ui/gangs", "/ui/gangs/default/g", "/nothing"):
            async with session.get(urljoin(endpoint.url, path)) as found:
                assert found.status == 401, path


async def test_a_viewer_that_leaves_makes_room_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_STREAMS", 1)
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", 3600)
    world = FakeCluster()
    async with (
        running(world, nothing) as here,
        local.serve_live("127.0.0.1", look, Page(GangSource(world, lambda: here.loop))) as endpoint,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {endpoint.token}"}) as session,
    ):

        async def is_admitted() -> bool:
            async with session.get(urljoin(endpoint.url, "/ui/gangs")) as stream:
                return stream.status == 200 and bool(await stream.content.readuntil(b"event: list"))

        for _ in range(3):
            await until_async("there is room for it", is_admitted)


async def test_an_unknown_gang_is_not_found() -> None:
    async with local.serve_live("127.0.0.1", look, page()) as endpoint:
        assert (await asked(endpoint, "other", endpoint.token))[0] == 404
