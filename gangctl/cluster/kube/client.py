"""Requests to the API server, and what their failures mean for the caller. No other module makes requests.

The rule: every request has a timeout and a User-Agent. A failure is one of the three kinds of
:mod:`gangctl.cluster.errors` and contains the API server's message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace, TracebackType
from typing import Any, Final, Self

import aiohttp

from gangctl import __version__
from gangctl.cluster.errors import ClusterError, Conflict, Held, Retryable, Terminal
from gangctl.cluster.kube import credentials
from gangctl.cluster.kube.credentials import Credentials


class TooLarge(Retryable):
    """The answer is larger than the caller takes. The rest was not read."""


async def read_body(content: aiohttp.StreamReader, most: int) -> bytes:
    """Read all of it.

    Raises:
        TooLarge: it has more than ``most`` bytes.
    """
    chunks, size = [], 0
    async for chunk in content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise TooLarge(f"an answer is larger than {most} bytes")
    return b"".join(chunks)


async def read_lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Read lines of any length: aiohttp's own reader fails for an object of a megabyte."""
    pending: list[bytes] = []
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        pending.append(first)
        for following in others:
            line = b"".join(pending)
            pending = [following]
            if line:
                yield line
    if line := b"".join(pending):
        yield line


def status_parts(body: bytes) -> tuple[str, str, str]:
    """Reason, message and disruption budget of a Status; of a proxy's page its beginning as the message."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return "", " ".join(body[:300].decode(errors="replace").split()), ""
    if not isinstance(parsed, dict):
        return "", "", ""
    details = parsed.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    found = causes if isinstance(causes, list) else []
    named = [one for one in found if isinstance(one, dict) and one.get("reason") == "DisruptionBudget"]
    budget = str(named[0].get("message") or named[0]["reason"]) if named else ""
    return str(parsed.get("reason") or ""), str(parsed.get("message") or ""), budget


def read_object(answer: bytes, asked: str) -> dict[str, Any]:
    """Read the answer to what was asked, such as ``GET /path``.

    Raises:
        Retryable: it isn't an object, since a proxy has given it.
    """
    try:
        found = json.loads(answer)
    except ValueError as error:
        raise Retryable(f"the API server's answer to {asked} isn't JSON: {error}") from error
    if not isinstance(found, dict):
        raise Retryable(f"the API server's answer to {asked} isn't an object")
    return found


def read_version(found: Mapping[str, Any], asked: str) -> str:
    """Read the resourceVersion of an object that was the answer to what was asked.

    Raises:
        Retryable: it has none, since a proxy has given it.
    """
    version = (found.get("metadata") or {}).get("resourceVersion")
    if not version:
        raise Retryable(f"the API server's answer to {asked} has no resourceVersion")
    return str(version)


USER_AGENT: Final = f"gangctl/{__version__}"
REQUEST_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 30.0
"""Of what an answer may ask for with Retry-After."""
SILENCE_SECONDS: Final = 75.0
"""A watch without any event for this time is closed: bookmarks come about once a minute."""
READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

MERGE_PATCH: Final = "application/merge-patch+json"

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Rejected(Terminal):
    """The API server rejected the request; ``message`` is its message alone."""

    def __init__(self, text: str, message: str) -> None:
        super().__init__(text)
        self.message = message


class NotFound(Rejected):
    """There is no such object, namespace or kind."""


class Forbidden(Rejected):
    """The user lacks the right."""


class AlreadyExists(Conflict):
    """An object of this name exists."""


class ResourceExpired(Retryable):
    """The requested resourceVersion is too old: list again."""


class NoAnswer(Retryable):
    """No answer came: the request may have been carried out, or not."""


class Client:
    """A client of one API server, with one user's credentials. Use it as an async context manager."""

    def __init__(self, access: Credentials) -> None:
        self._access = access
        self._proxy = access.proxy_to_use()
        sending = aiohttp.TraceConfig()
        sending.on_connection_create_end.append(self._on_send)
        sending.on_connection_reuseconn.append(self._on_send)
        # No limit of connections: the renewal of the Lease must not wait behind a thousand new pods.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=True if access.tls is None else access.tls),
            headers={"User-Agent": USER_AGENT, "Accept": "application/json, */*;q=0.1"},
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
            auto_decompress=True,
            trace_configs=[sending],
        )
        self.guard: Callable[[], None] = lambda: None
        """Called directly before each write; raises Retryable if this process may not write."""

    @classmethod
    async def open(cls, kubeconfig: Path | None = None, context: str | None = None) -> Client:
        """A client with the credentials of a kubeconfig; without one, those of :func:`~credentials.load_credentials`.

        Raises:
            Terminal: there is no configuration, or it can't be used.
        """
        return cls(await credentials.load_credentials(kubeconfig, context))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    @property
    def namespace(self) -> str:
        """The default namespace."""
        return self._access.namespace

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._access.server

    @property
    def authorization(self) -> str:
        """The Authorization header of this user; empty if the user has no token, but a certificate."""
        return self._access.authorization()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = NOTHING,
        body: Mapping[str, Any] | bytes | None = None,
        content_type: str = "",
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109 - each caller knows the limit of its request
        unguarded: bool = False,
        most: int | None = None,
    ) -> bytes:
        """Make a request and return the body of the answer, of ``most`` bytes. ``timeout`` in seconds, for all of it.

        ``content_type``: that of JSON by default, of a PATCH that of a merge patch. ``unguarded``: send it though this
        process may not write.

        Raises:
            NotFound: 404.
            AlreadyExists: 409, an object of this name exists.
            Conflict: 409, another process wrote first.
            ResourceExpired: 410.
            TooLarge: the answer has more than ``most`` bytes.
            NoAnswer: the network failed or nothing came in time; what was asked may have been done.
            Held: 429, a disruption budget allows no eviction.
            Retryable: another 429, 5xx, or the guard says no.
            Terminal: any other refusal, with the API server's own message.
        """
        default = MERGE_PATCH if method == "PATCH" else "application/json"
        headers = {} if body is None else {"Content-Type": content_type or default}
        data = json.dumps(body).encode() if isinstance(body, Mapping) else body
        limits = aiohttp.ClientTimeout(total=timeout)
        guarded = method not in READS and not unguarded
        try:
            async with self._answered(method, path, query, headers, limits, body=data, guarded=guarded) as answer:
                return await answer.read() if most is None else await read_body(answer.content, most)
        except TimeoutError as error:
            raise NoAnswer(f"the API server didn't answer {method} {path} within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(f"{method} {path} didn't reach the API server: {_network(error)}") from error

    async def get(self, path: str, timeout: float = REQUEST_SECONDS) -> dict[str, Any]:  # noqa: ASYNC109 - as above
        """Read one object, as JSON values.

        Raises:
            Retryable: the answer isn't one, since a proxy has given it; and all that ``request`` raises.
        """
        return read_object(await self.request("GET", path, timeout=timeout), f"GET {path}")

    async def delete(self, path: str, uid: str, **options: object) -> bytes:
        """Delete the object with this UID, and no other of its name; ``options``: further DeleteOptions."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}, **options}
        return await self.request("DELETE", path, body=body)

    @contextlib.asynccontextmanager
    async def lines(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """A stream of lines, each an event of a watch, until the server ends it.

        Raises:
            Retryable: it broke, or nothing came for :data:`SILENCE_SECONDS`; and all that ``request`` raises.
        """
        limits = aiohttp.ClientTimeout(
            total=None, connect=REQUEST_SECONDS, sock_connect=REQUEST_SECONDS, sock_read=SILENCE_SECONDS
        )
        try:
            async with self._answered("GET", path, query, {}, limits, body=None, guarded=False) as answer:
                yield read_lines(answer.content)
        except TimeoutError as error:
            raise Retryable(f"the watch of {path} timed out") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Retryable(f"the watch of {path} broke: {_network(error)}") from error

    @contextlib.asynccontextmanager
    async def socket(
        self, path: str, *, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket, for example for ``exec``. The caller limits its time.

        Raises:
            Retryable: the network failed; and all that ``request`` raises.
        """
        connecting = self._session.ws_connect(
            self._access.server + path,
            params=query,
            protocols=protocols,
            headers=self._authorization(),
            proxy=self._proxy,
            server_hostname=self._access.server_name,
        )
        try:
            async with connecting as socket:
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            raise await self._refusal(path, query, error.status) from None
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(f"{path} didn't reach the API server: {_network(error)}") from error

    async def _refusal(self, path: str, query: Sequence[tuple[str, str]], status: int) -> ClusterError:
        """Return why a WebSocket was refused: aiohttp drops the body of that answer, so ask without an upgrade.

        ``exec`` needs the rights to get and to create; the missing one decides which method is refused.
        """
        for method in ("GET", "POST"):
            async with self._session.request(
                method,
                self._access.server + path,
                params=query,
                headers=self._authorization(),
                proxy=self._proxy,
                server_hostname=self._access.server_name,
                allow_redirects=False,
            ) as answer:
                if answer.status == status:
                    return status_error(status, await answer.read(), f"{method} {path}")
        return status_error(status, b"", f"GET {path}")

    def _authorization(self) -> Mapping[str, str]:
        header = self.authorization
        return {"Authorization": header} if header else NOTHING

    @contextlib.asynccontextmanager
    async def _answered(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
        *,
        body: bytes | None,
        guarded: bool,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer. A refused token is renewed once: it may just have expired."""
        for renewed in (False, True):
            authorization = self._authorization()
            if guarded:
                self.guard()
            async with self._session.request(
                method,
                self._access.server + path,
                params=query,
                headers={**headers, **authorization},
                data=body,
                timeout=limits,
                proxy=self._proxy,
                server_hostname=self._access.server_name,
                allow_redirects=False,
                trace_request_ctx=guarded,
            ) as answer:
                if answer.status < 300:  # noqa: PLR2004
                    yield answer
                    return
                if answer.status != 401 or renewed:  # noqa: PLR2004
                    async with asyncio.timeout(REQUEST_SECONDS):  # Also for a stream: an error is short.
                        refusal = await answer.read()
                    error = status_error(answer.status, refusal, f"{method} {path}")
                    if isinstance(error, Retryable):
                        error.after = _seconds(answer.headers.get("Retry-After", ""))
                    raise error
            await self._access.renew()

    async def _on_send(self, _session: aiohttp.ClientSession, context: SimpleNamespace, _parameters: object) -> None:
        """Check the guard again when the connection is open and the request is sent next.

        Connecting may have taken long, and aiohttp itself repeats a request if a kept connection turns out to be
        closed.
        """
        if context.trace_request_ctx:
            self.guard()


def status_error(status: int, body: bytes, request: str) -> ClusterError:
    """The error for a ``Status`` of the API server; ``request`` names the request, for people."""
    reason, message, budget = status_parts(body)
    message = message or f"HTTP status {status}"
    text = f"the API server refused {request}: {message}"
    match status, reason:
        case 403, _:
            return Forbidden(text, message)
        case 404, _:
            return NotFound(text, message)
        case 409, "AlreadyExists":
            return AlreadyExists(text)
        case 409, _:
            return Conflict(text)
        case 410, _:
            return ResourceExpired(text)
        case 429, _ if budget:
            return Held(f"{message} {budget}")
        case ((408 | 429), _):
            return Retryable(f"the API server wants a retry of {request}: {message}")
        case _ if status >= 500:  # noqa: PLR2004
            return Retryable(f"the API server failed at {request}: {message}")
        case _:
            return Rejected(text, message)


def _seconds(retry_after: str) -> float:
    """Return what the header asks for; 0 if it is a date, which the API server never sends."""
    return min(float(retry_after), LONGEST_PAUSE_SECONDS) if retry_after.isascii() and retry_after.isdigit() else 0.0


def _network(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection ended in the middle of the answer"
    return str(error) or type(error).__name__
