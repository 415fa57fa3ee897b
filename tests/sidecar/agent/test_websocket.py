"""The sidecar's WebSocket, with controllers that send what the protocol doesn't allow, or rarely needs."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from wsproto.utilities import generate_accept_token

from gangsidecar.agent import websocket
from gangsidecar.agent.websocket import Closed, NoMessageError, RefusalError, WebSocket
from tests.wait import SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
LIMIT = 100_000


class Peer:
    """The controller's end of a connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = b""
        self.reader = reader
        self.writer = writer

    async def accept(self, more: bytes = b"", accept: bytes = b"") -> None:
        """Answer the request with an upgrade, and send ``more`` in the same packet."""
        key = self.request.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
        self.writer.write(
            b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nGang-Wire-Revision: 7\r\n"
            b"Sec-WebSocket-Accept: " + (accept or generate_accept_token(key)) + b"\r\n\r\n" + more
        )

    async def frame(self) -> tuple[int, bytes]:
        """The kind and the payload of the next frame, which must be masked."""
        first, second = await self.reader.readexactly(2)
        assert first & 0x80
        assert second & 0x80
        size = second & 0x7F
        if size > 125:
            width = 2 if size == 126 else 8
            size = int.from_bytes(await self.reader.readexactly(width), "big")
        mask = await self.reader.readexactly(4)
        masked = await self.reader.readexactly(size)
        return first & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked))


def frame(kind: int, payload: bytes, *, last: bool = True) -> bytes:
    """A frame of a server."""
    head = (0x80 if last else 0) | kind
    if len(payload) < 126:
        return struct.pack("!BB", head, len(payload)) + payload
    if len(payload) < 1 << 16:
        return struct.pack("!BBH", head, 126, len(payload)) + payload
    return struct.pack("!BBQ", head, 127, len(payload)) + payload


@asynccontextmanager
async def listening(serve: Callable[[Peer], Awaitable[None]]) -> AsyncIterator[str]:
    """A controller that has read a request; gives its URL. Its connections end with it."""
    handling: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling[asyncio.current_task()] = writer
        peer = Peer(reader, writer)
        peer.request = await reader.readuntil(b"\r\n\r\n")
        try:
            await serve(peer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with asyncio.timeout(SECONDS):
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/connect"
    server.close()
    for task, writer in handling.items():
        if task is not None:
            task.cancel()
        writer.transport.abort()
    await asyncio.gather(*filter(None, handling), return_exceptions=True)


@asynccontextmanager
async def connection(*sent: bytes) -> AsyncIterator[tuple[WebSocket, Peer]]:
    """A WebSocket to a controller that sends this, beginning in the packet of its answer, and then does nothing."""
    opened: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def serve(peer: Peer) -> None:
        await peer.accept(b"".join(sent))
        opened.set_result(peer)
        await over.wait()

    async with listening(serve) as url:
        socket = await dial(url)
        yield socket, await opened
        over.set()
        await socket.close(1000, "")


async def dial(url: str, token: str = "token") -> WebSocket:
    return await websocket.dial(url, {"Authorization": token}, None, "", LIMIT)


async def test_a_message_arrives_whole_however_it_is_split() -> None:
    parts = frame(TEXT, "ä".encode()[:1], last=False), frame(PING, b"there?"), frame(0, "ä".encode()[1:], last=False)
    async with connection(*parts, frame(0, b"!"), frame(TEXT, b""), frame(TEXT, b"x" * LIMIT)) as (socket, peer):
        assert socket.headers["gang-wire-revision"] == "7"
        assert [await socket.receive() for _ in range(4)] == [None, "ä!", "", "x" * LIMIT], "A ping is a sign of life."
        assert await peer.frame() == (PONG, b"there?")


@pytest.mark.parametrize("size", [10, 300, 70_000])
async def test_a_message_is_sent_in_one_frame(size: int) -> None:
    async with connection() as (socket, peer):
        await socket.send("ä" * size)
        assert await peer.frame() == (TEXT, ("ä" * size).encode())


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b"x" * (LIMIT + 1)), 1009),
        (frame(TEXT, "ä".encode() * (LIMIT // 2 + 1)), 1009),
        (frame(TEXT, b"x" * LIMIT, last=False) + frame(0, b"x"), 1009),
        (struct.pack("!BBQ", 0x81, 127, 1 << 40) + b"x" * (2 * LIMIT), 1009),
        (frame(BINARY, b"x"), 1008),
        (frame(TEXT, b"\xff"), 1007),
        (frame(0, b"x"), 1002),
        (frame(3, b"x"), 1002),
        (struct.pack("!BBI", 0x81, 0x81, 0) + b"x", 1002),
        (struct.pack("!BB", 0xC1, 1) + b"x", 1002),
        (frame(PING, b"x", last=False), 1002),
    ],
    ids=[
        *("over the limit", "over the limit in bytes", "over the limit in two frames", "a terabyte", "binary"),
        *("no UTF-8", "the middle of nothing", "an unknown kind", "masked", "compressed", "half a ping"),
    ],
)
async def test_what_is_no_message_is_an_error_with_the_code_that_closes_the_connection(sent: bytes, code: int) -> None:
    async with connection(sent) as (socket, peer):
        with pytest.raises(NoMessageError) as caught:
            await socket.receive()
        assert caught.value.code == code
        closing = asyncio.create_task(socket.close(code, "r" * 1000))
        kind, payload = await peer.frame()
        assert (kind, payload[:2], len(payload)) == (CLOSE, code.to_bytes(2, "big"), 125)
        peer.writer.write(frame(CLOSE, payload))
        await closing


async def test_a_controller_that_closes_gets_its_code_back() -> None:
    async with connection(frame(CLOSE, b"\x03\xe9the gang is gone")) as (socket, peer):
        assert await socket.receive() == Closed(1001, "the gang is gone")
        assert await peer.frame() == (CLOSE, b"\x03\xe9the gang is gone")
        peer.writer.close()
        await socket.close(1000, "")


async def test_a_controller_that_hangs_up_without_a_word_has_closed_it() -> None:
    async with connection() as (socket, peer):
        peer.writer.close()
        assert await socket.receive() == Closed(1006)
        await socket.close(1000, "")


async def test_closing_waits_a_moment_for_a_controller_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "GOODBYE", 0.05)
    async with connection() as (socket, _peer):
        sending = asyncio.create_task(socket.send("x" * (1 << 26)))
        done, _ = await asyncio.wait([sending], timeout=0.1)
        assert not done, "it waits for the reader"
        sending.cancel()
        await socket.close(1001, "the sidecar ends")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 12\r\n\r\nthe token's \r\nX", "the token's"),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 1000\r\n\r\nthe token's", "the token's"),
        (b"HTTP/1.0 401 Unauthorized\r\n\r\nthe token's", "the token's"),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n" + b"x" * 100_000, "x" * 400),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", ""),
    ],
)
async def test_a_refusal_has_its_status_and_the_beginning_of_its_body(answer: bytes, text: str) -> None:
    async def serve(peer: Peer) -> None:
        peer.writer.write(answer)

    async with listening(serve) as url:
        with pytest.raises(RefusalError) as caught:
            await dial(url)
    assert (caught.value.status, str(caught.value)) == (401, text)


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 101 Yes\r\n\r\n", b"HTTP/1.1 200 " + b"x" * 99_999]
)
async def test_an_answer_that_is_no_upgrade_makes_no_sense(answer: bytes) -> None:
    async def serve(peer: Peer) -> None:
        peer.writer.write(answer)

    async with listening(serve) as url:
        with pytest.raises(ValueError, match="makes no sense"):
            await dial(url)


async def test_an_upgrade_by_something_else_than_a_websocket_makes_no_sense() -> None:
    async with listening(lambda peer: peer.accept(accept=b"x")) as url:
        with pytest.raises(ValueError, match="makes no sense: Bad accept token"):
            await dial(url)


async def test_a_controller_that_hangs_up_before_it_answers_is_not_there() -> None:
    async def serve(peer: Peer) -> None:
        peer.writer.close()

    async with listening(serve) as url:
        with pytest.raises(OSError, match="closed without an answer"):
            await dial(url)


@pytest.mark.parametrize("url", ["", "nonsense", "http://127.0.0.1/", "ws://", "ws://[::1", "ws://127.0.0.1:port/"])
async def test_what_is_no_url_of_a_websocket_is_not_dialled(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|Port|port"):
        await dial(url)


async def test_a_token_that_http_does_not_allow_is_not_repeated_in_the_error() -> None:
    async def serve(peer: Peer) -> None:
        raise AssertionError(peer.request)

    async with listening(serve) as url:
        with pytest.raises(ValueError, match="character that HTTP doesn't allow") as caught:
            await dial(url, "sec\nret")
    assert "ret" not in str(caught.value)
