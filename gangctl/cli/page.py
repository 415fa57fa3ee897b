"""Bring the controller's page to a browser on this machine: it adds the credentials that a browser doesn't have.

The rule: only the browser of the user who runs the command may see the page. The listener is on loopback; an address
with a random code, which works once, gives a browser a cookie; no answer goes to a request without that cookie, or with
another host name than this machine's (DNS rebinding). The cookie is worth nothing after the command has ended.
"""

import hmac
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import quote, urljoin

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from gangctl.api.status import Endpoint
from gangctl.cli.errors import UserError
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local.layout import StateDirectory

HOST: Final = "127.0.0.1"
PAGE_PATH: Final = "/ui/"
"""Path of the page at the controller, and here."""
LIMITS: Final = aiohttp.ClientTimeout(total=None, connect=10, sock_read=45)
"""A stream of the controller has a heartbeat every ten seconds."""
_ENTER: Final = "/enter/"
_NAMES: Final = frozenset({HOST, "localhost"})
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Headers of every answer, unless the controller's has its own."""
_PASSED: Final = (*_HEADERS, "Content-Type", "Retry-After")
_SHUTDOWN_SECONDS: Final = 0.2


class Upstream(Protocol):
    """The controller that has the page."""

    def get(self, path: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Ask the controller for a path, with the user's credentials.

        Raises:
            UserError: there is no controller, or the user can't be known to it.
            ClusterError: the cluster can't be reached.
        """


class LocalController:
    """The controller that runs at this moment: after it was restarted it has another address and another token."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask it for a path."""
        try:
            endpoint = Endpoint.model_validate_json(self._state.live.read_bytes())
        except (OSError, ValueError):
            raise self._absent() from None
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        async with aiohttp.ClientSession(timeout=LIMITS) as session:
            try:
                answer = await session.get(urljoin(endpoint.url, path), headers=headers)
            except aiohttp.ClientConnectorError:  # It has ended, and its address is left.
                raise self._absent() from None
            async with answer:
                yield answer

    def _absent(self) -> UserError:
        return UserError(f"no controller runs for {self._state.path}: gangctl run FILE starts one with a gang")


class PageProxy:
    """A listener for one user's browser. It listens from the start, and answers in :meth:`serving`."""

    def __init__(self, upstream: Upstream, port: int = 0) -> None:
        """``port``: 0 = any free one."""
        self._upstream = upstream
        self._secret = secrets.token_urlsafe(32)
        self._codes: set[str] = set()
        try:
            self._socket = socket.create_server((HOST, port))
        except OSError as error:
            raise UserError(f"port {port} of {HOST} can't be used: {error.strerror}; choose another --port") from None
        self._port: int = self._socket.getsockname()[1]
        self._cookie = f"gangctl-{self._port}"

    def address(self, namespace: str = "", name: str = "") -> str:
        """A new address, which works once. With a name: of one gang."""
        code = secrets.token_urlsafe(16)
        self._codes.add(code)
        gang = f"#/{quote(namespace, safe='')}/{quote(name, safe='')}" if name else ""
        return f"http://{HOST}:{self._port}{_ENTER}{code}{gang}"

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer requests until the end."""
        application = web.Application(middlewares=[self._checked])
        application.router.add_get(_ENTER + "{code}", self._enter, allow_head=False)
        application.router.add_get(PAGE_PATH + "{path:.*}", self._forward, allow_head=False)
        application.router.add_get("/", _to_page, allow_head=False)
        application.on_response_prepare.append(_protect)
        runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            handler_cancellation=True,  # The controller must hear at once that the browser has left.
        )
        await runner.setup()
        try:
            await web.SockSite(runner, self._socket).start()
            yield
        finally:
            await runner.cleanup()

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.url.host not in _NAMES:
            raise web.HTTPBadRequest(text="this is a page of 127.0.0.1; open the address that gangctl printed\n")
        if not request.path.startswith(_ENTER) and not self._has_cookie(request):
            raise web.HTTPForbidden(text="this browser is not known: run gangctl ui, and open the address it prints\n")
        return await handler(request)

    def _has_cookie(self, request: web.Request) -> bool:
        given = request.cookies.get(self._cookie, "").encode(errors="replace")
        return hmac.compare_digest(given, self._secret.encode())

    async def _enter(self, request: web.Request) -> web.Response:
        code = request.match_info["code"]
        if code in self._codes:
            self._codes.remove(code)
        elif not self._has_cookie(request):
            raise web.HTTPForbidden(text="this address has been used: run gangctl ui for another one\n")
        response = await _to_page(request)
        # Lax: the address may be a link of another site, such as a terminal in a browser. Nothing can be changed here.
        response.set_cookie(self._cookie, self._secret, httponly=True, samesite="Lax", path="/")
        return response

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        try:
            async with self._upstream.get(request.rel_url.raw_path) as answer:
                return await _passed(request, answer)
        except (UserError, ClusterError) as error:
            raise web.HTTPBadGateway(text=f"{error}\n") from None
        except (aiohttp.ClientError, TimeoutError):
            raise web.HTTPBadGateway(text="the controller does not answer\n") from None


async def check_page(upstream: Upstream) -> None:
    """Ask for the page once, so that an error shows before a browser is opened.

    Raises:
        UserError: the controller has no page, or refuses this user.
        ClusterError: the controller can't be reached.
    """
    try:
        async with upstream.get(PAGE_PATH) as answer:
            text = (await answer.text()).strip()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UserError(f"the controller does not answer: {error or 'nothing came in time'}") from None
    if answer.status == HTTPStatus.NOT_FOUND:
        raise UserError("the controller has no page at this address (404)")
    if answer.status != HTTPStatus.OK:
        raise UserError(f"the controller refuses: {text[:300]}")


async def _passed(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {name: answer.headers[name] for name in _PASSED if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
    except (ConnectionError, aiohttp.ClientError, TimeoutError):
        # Either side has left. An answer that is cut off must not look like a whole one.
        if request.transport is not None:
            request.transport.abort()
    return response


async def _to_page(_request: web.Request) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": PAGE_PATH})


async def _protect(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
