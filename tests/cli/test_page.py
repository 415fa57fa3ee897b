"""`gangctl ui` lets only the browser of its user see the page, and reaches the controller that leads."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gangctl.api.status import Endpoint
from gangctl.cli.errors import UserError
from gangctl.cli.page import LocalController, PageProxy, check_page
from gangctl.cluster.local.layout import StateDirectory
from tests.cli.here import Here, manifest
from tests.ports import free_port
from tests.wait import SECONDS, until_async

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Of every answer that is not the controller's."""


@dataclass
class Controller:
    """Stands for a controller: it answers each path with the path, if it gets the token."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    refused: bool = False
    watching: int = 0
    """Streams of ``/ui/gangs`` that are open. Nothing is sent in them."""

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            yield answer

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async def answer(request: web.Request) -> web.Response:
            self.asked.append(request.rel_url.raw_path)
            if self.refused:
                return web.Response(status=503, text="it stands by", headers={"Retry-After": "2"})
            return web.Response(text="page", headers={"Content-Security-Policy": "own", "Set-Cookie": "a=b"})

        async def stream(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"event")
            self.watching += 1
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.watching -= 1
            return response

        application = web.Application()
        application.router.add_get("/ui/gangs", stream)
        application.router.add_get("/ui/{path:.*}", answer)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            yield
        finally:
            await runner.cleanup()


@dataclass
class Browser:
    """A browser that keeps cookies."""

    session: aiohttp.ClientSession
    base: str

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        url = path if path.startswith("http") else f"{self.base}{path}"
        async with self.session.get(url, headers=headers) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def browser(address: str) -> AsyncIterator[Browser]:
    jar = aiohttp.CookieJar(unsafe=True)  # for an address without a name
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield Browser(session, address.partition("/enter/")[0])


@asynccontextmanager
async def proxied(upstream: Any = None) -> AsyncIterator[tuple[PageProxy, Controller]]:
    controller = Controller()
    proxy = PageProxy(upstream or controller)
    async with controller.serving(), proxy.serving():
        yield proxy, controller


async def test_a_browser_is_known_after_it_opened_the_address_once() -> None:
    async with proxied() as (proxy, controller):
        address = proxy.address("default", "demo")
        assert address.endswith("#/default/demo")
        async with browser(address) as one:
            assert (await one.get("/ui/"))[0] == 403
            assert controller.asked == []
            assert await one.get(address) == (200, "page")
            assert await one.get("/ui/gangs/a%2Fb/c%20d") == (200, "page")
            assert await one.get("/") == (200, "page")
            assert await one.get(address) == (200, "page"), "the same browser may come again"
        assert controller.asked == ["/ui/", "/ui/gangs/a%2Fb/c%20d", "/ui/", "/ui/"]


async def test_an_address_that_was_used_lets_no_other_browser_in() -> None:
    async with proxied() as (proxy, controller):
        address = proxy.address()
        async with browser(address) as first, browser(address) as second:
            assert (await first.get(address))[0] == 200
            code, text = await second.get(address)
            assert (code, "has been used" in text) == (403, True)
            assert (await second.get("/ui/"))[0] == 403
            assert (await second.get("/enter/guess"))[0] == 403
            assert (await second.get("/ui/", Cookie=f"gangctl-{first.base.rpartition(':')[2]}=guess"))[0] == 403
        assert controller.asked == ["/ui/"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.1", "127.0.0.1.evil.example", ""])
async def test_a_request_with_another_host_name_is_refused_even_with_the_cookie(host: str) -> None:
    async with proxied() as (proxy, controller):
        address = proxy.address()
        async with browser(address) as one:
            await one.get(address)
            assert (await one.get("/ui/", Host=host))[0] == 400
            assert (await one.get("/ui/", Host="localhost:8000"))[0] == 200, "through ssh -L"
        assert len(controller.asked) == 2


async def test_headers_of_the_controller_are_passed_on_and_its_cookies_are_not() -> None:
    async with proxied() as (proxy, _):
        address = proxy.address()
        async with browser(address) as one:
            await one.get(address)
            async with one.session.get(f"{one.base}/ui/") as answer:
                assert answer.headers["Content-Security-Policy"] == "own"
                assert "Set-Cookie" not in answer.headers
            for method, path, status in (
                ("GET", "/elsewhere", 404),
                ("POST", "/ui/", 405),
                ("GET", "/enter/guess", 200),
            ):
                async with one.session.request(method, one.base + path) as answer:
                    assert answer.status == status
                    for name, value in HEADERS.items():
                        own = name == "Content-Security-Policy" and status == 200
                        assert answer.headers.getall(name) == ["own" if own else value]


async def test_a_refusal_of_the_controller_comes_with_the_time_to_try_again() -> None:
    async with proxied() as (proxy, controller):
        controller.refused = True
        address = proxy.address()
        async with browser(address) as one:
            await one.get(address)
            async with one.session.get(f"{one.base}/ui/") as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
                assert await answer.text() == "it stands by"


async def test_the_controller_hears_at_once_that_the_browser_has_left() -> None:
    async with proxied() as (proxy, controller):
        address = proxy.address()
        async with browser(address) as one:
            await one.get(address)
            stream = await one.session.get(f"{one.base}/ui/gangs")
            assert await stream.content.readany() == b"event"
            assert controller.watching == 1
            stream.close()
            await until_async("the stream has ended", lambda: controller.watching == 0)


async def test_the_cookie_is_closed_to_scripts_and_to_other_sites() -> None:
    async with proxied() as (proxy, _):
        address = proxy.address()
        async with browser(address) as one, one.session.get(address, allow_redirects=False) as answer:
            cookie = answer.headers["Set-Cookie"]
            assert answer.status == 303
            assert {"HttpOnly", "SameSite=Lax"} < set(cookie.split("; "))


async def test_a_port_that_is_taken_is_named() -> None:
    async with proxied() as (proxy, _):
        port = int(proxy.address().split(":")[2].partition("/")[0])
        with pytest.raises(UserError, match=f"port {port} of 127.0.0.1 can't be used: .*; choose another --port"):
            PageProxy(Controller(), port)


async def test_without_a_controller_the_browser_is_told_and_the_page_comes_back_with_it(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    upstream = LocalController(state)
    absent = f"no controller runs for {tmp_path}: gangctl run FILE starts one with a gang"
    with pytest.raises(UserError, match=absent):
        await check_page(upstream)
    state.live.write_text(Endpoint(url=f"http://127.0.0.1:{free_port()}/v1/gangs/", token="t").model_dump_json())
    with pytest.raises(UserError, match=absent):
        await check_page(upstream)
    async with proxied(upstream) as (proxy, controller):
        address = proxy.address()
        async with browser(address) as one:
            assert await one.get(address) == (502, f"{absent}\n")
            url = f"http://127.0.0.1:{controller.port}/v1/gangs/"
            state.live.write_text(Endpoint(url=url, token="t").model_dump_json())
            assert await one.get("/ui/") == (200, "page")


async def test_gangctl_ui_prints_an_address_that_shows_the_gang_until_ctrl_c(folder: Here) -> None:
    folder.write(manifest())
    assert "no controller runs" in folder.gangctl("ui").stderr
    run = folder.run("--ui", "--plain")
    await until_async("the gang runs", folder.is_seen_running, every=0.1)
    printed = next(word for word in run.said.split() if "/enter/" in word)
    async with browser(printed) as one:
        assert (await one.get(printed))[0] == 200
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gangctl", "ui", "g"),
        cwd=folder.path,
        env=folder.env(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    async with asyncio.timeout(SECONDS):
        address = (await child.stdout.readline()).decode().strip()
        assert address.endswith("#/default/g")
        async with browser(address) as one:
            assert (await one.get(address))[0] == 200
            async with one.session.get(f"{one.base}/ui/gangs/default/g") as stream:
                assert b'"name":"worker-2"' in await stream.content.readuntil(b'"worker-2"')
        child.send_signal(signal.SIGINT)
        assert await child.wait() == 130
    unknown = folder.gangctl("ui", "h")
    assert (unknown.returncode, "there is no gang 'h'" in unknown.stderr) == (2, True)
    os.kill(run.child.pid, signal.SIGINT)
    assert run.wait() == 130
