"""HTTP on a unix socket: h11 speaks the protocol, asyncio's streams carry it.

A connection carries one call after the other; a stream is its last. A stream ends as soon as its reader is gone. No
more of a call is kept than its head and a body within the limit. What isn't a request gets an error, and its connection
ends.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, NamedTuple

import h11

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

BODY_LIMIT = 64 * 1024
GOODBYE = 0.5
"""Seconds that streams have to end when the server does."""
_CHUNK = 1 << 16


class Call(NamedTuple):
    """One request."""

    method: str
    path: str
    body: bytes | None
    """None if it is over :data:`BODY_LIMIT`."""


class Malformed(NamedTuple):
    """Something else than a request: the status that it gets, and why."""

    status: int
    reason: str


class Answer(NamedTuple):
    """The answer to a call; a generator as its body is a stream."""

    status: int
    body: bytes | AsyncGenerator[bytes, None]
    headers: tuple[tuple[str, str], ...]


class HttpServer:
    """Serves one handler, which never waits, to all connections."""

    def __init__(self, load: Callable[[], Callable[[Call | Malformed], Answer]]) -> None:
        """``load`` returns the handler. The first call needs it, not before."""
        self._load = load
        self._handler: Callable[[Call | Malformed], Answer] | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}

    async def open(self, path: str) -> None:
        """Listen on ``path``; a socket that an earlier server left there is replaced. OSError: it can't be done."""
        self._server = await asyncio.start_unix_server(self._serve, path)

    async def close(self) -> None:
        """Stop listening, give streams a moment to end, and end every connection."""
        if self._server is not None:
            self._server.close()
        streaming = [task for task, one in self._connections.items() if one.is_streaming]
        if streaming:
            await asyncio.wait(streaming, timeout=GOODBYE)
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _answer(self, call: Call | Malformed) -> Answer:
        if self._handler is None:
            self._handler = self._load()
        return self._handler(call)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer, self._answer)
        task = asyncio.get_running_loop().create_task(connection.serve())
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)


class _Connection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answer: Callable[[Call | Malformed], Answer],
    ) -> None:
        self.is_streaming = False
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._http = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        """Answer calls until the connection ends."""
        with suppress(OSError):
            try:
                while (call := await self._next()) is not None:
                    await self._reply(self._answer(call), has_body=call.method != "HEAD")
                    if self.is_streaming or self._http.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                        break
                    self._http.start_next_cycle()
            except h11.RemoteProtocolError as error:
                if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                    await self._reply(self._answer(Malformed(error.error_status_hint, str(error))))
            finally:
                self._writer.close()

    async def _next(self) -> Call | None:
        """Read one call; None at the end of the connection."""
        method, path = "", ""
        size, body = 0, bytearray()
        while True:
            event = self._http.next_event()
            match event:
                case h11.Request():
                    method, path = event.method.decode(), event.target.decode().partition("?")[0]
                case h11.Data():
                    size += len(event.data)
                    if size <= BODY_LIMIT:
                        body += event.data
                case h11.EndOfMessage():
                    return Call(method, path, bytes(body) if size <= BODY_LIMIT else None)
                case h11.ConnectionClosed() | h11.PAUSED:
                    return None
                case h11.NEED_DATA:
                    if self._http.they_are_waiting_for_100_continue:
                        await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                    self._http.receive_data(await self._reader.read(_CHUNK))

    async def _reply(self, answer: Answer, *, has_body: bool = True) -> None:
        if not isinstance(answer.body, bytes):
            await self._stream(answer, answer.body)
            return
        headers = [*answer.headers, ("Content-Length", str(len(answer.body)))]
        data = [h11.Data(answer.body)] if has_body else []
        await self._send(h11.Response(status_code=answer.status, headers=headers), *data, h11.EndOfMessage())

    async def _stream(self, answer: Answer, chunks: AsyncGenerator[bytes, None]) -> None:
        self.is_streaming = True
        # Without ``Connection: close``: Python's client would let go of its socket, and could no longer shut it down.
        await self._send(h11.Response(status_code=answer.status, headers=list(answer.headers)))
        async with asyncio.TaskGroup() as tasks:
            sending, reading = tasks.create_task(self._send_all(chunks)), tasks.create_task(self._read_on())
            sending.add_done_callback(lambda _sent: reading.cancel())
            reading.add_done_callback(lambda _gone: sending.cancel())

    async def _send_all(self, chunks: AsyncGenerator[bytes, None]) -> None:
        with suppress(OSError):
            async with aclosing(chunks):
                async for chunk in chunks:
                    await self._send(h11.Data(chunk))
            await self._send(h11.EndOfMessage())

    async def _read_on(self) -> None:
        """Until the reader of a stream is gone. What it sends after its call counts for nothing."""
        with suppress(OSError):
            while await self._reader.read(_CHUNK):
                pass

    async def _send(self, *events: h11.Event) -> None:
        self._writer.writelines([self._http.send(event) or b"" for event in events])
        await self._writer.drain()
