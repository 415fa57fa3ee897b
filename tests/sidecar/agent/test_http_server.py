"""Peers of the framework API that speak HTTP in their own way, or badly."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.sidecar.agent.api_calls import STEP
from tests.sidecar.agent.sidecars import training
from tests.wait import SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

GET = b"GET /v1/attempt HTTP/1.1\r\nHost: gang\r\n"
POST = b"POST /v1/progress HTTP/1.1\r\nHost: gang\r\n"


class Peer:
    """A connection to the API that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, *, has_body: bool = True) -> tuple[int, Any]:
        """The status and the body of the next answer."""
        async with asyncio.timeout(SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            body = await self.reader.readexactly(size) if has_body else b""
        return int(head.split()[1]), json.loads(body or b"null")

    async def is_closed(self) -> bool:
        async with asyncio.timeout(SECONDS):
            return await self.reader.read() == b""


@asynccontextmanager
async def peer(directory: Path) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_unix_connection(str(directory / "gang.sock"))
    yield Peer(reader, writer)
    writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
        (b"GET /v1/attempt\r\n\r\n", 400),
        (b"GET /v1/attempt HTTP/1.1\r\n\r\n", 400),
        (GET + b"Content-Length: many\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nmany\r\n", 400),
        (GET + b"X: " + b"x" * 100_000 + b"\r\n\r\n", 431),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 501),
    ],
    ids=["TLS", "no version", "no host", "no length", "no chunk", "a huge head", "an unknown encoding"],
)
async def test_what_is_no_request_gets_an_error_and_ends_its_connection_only(
    directory: Path, sent: bytes, status: int
) -> None:
    async with training(directory) as here, peer(directory) as bad:
        await bad.send(sent)
        found, answer = await bad.answer()
        assert (found, answer["error"]["reason"]) == (status, "RequestInvalid")
        assert await bad.is_closed()
        assert (await here.sidecar.call("GET", "/v1/attempt"))[0] == 200
        assert "Traceback" not in here.sidecar.log()


async def test_half_a_request_delays_neither_other_calls_nor_the_end(directory: Path) -> None:
    async with training(directory) as here, peer(directory) as slow, peer(directory) as slower:
        await slow.send(GET)
        await slower.send(POST + b"Content-Length: 100\r\n\r\n{")
        assert (await here.sidecar.call("GET", "/v1/attempt"))[0] == 200
        async with asyncio.timeout(SECONDS):
            assert await here.sidecar.terminate() == 0
        assert await slow.is_closed()
        assert "Traceback" not in here.sidecar.log()


async def test_a_peer_that_hangs_up_in_the_middle_of_a_request_is_forgotten(directory: Path) -> None:
    async with training(directory) as here:
        for part in (b"", GET, POST + b"Content-Length: 100\r\n\r\n{"):
            async with peer(directory) as gone:
                await gone.send(part)
        assert (await here.sidecar.call("GET", "/v1/attempt"))[0] == 200
        assert await here.sidecar.terminate() == 0
        assert "Traceback" not in here.sidecar.log()


async def test_calls_on_one_connection_are_answered_in_order(directory: Path) -> None:
    body = json.dumps(STEP).encode()
    async with training(directory), peer(directory) as one:
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        await one.send(GET + b"\r\n" + POST + length + body + b"HEAD /v1/attempt HTTP/1.1\r\nHost: gang\r\n\r\n")
        assert (await one.answer())[1]["attempt"] == 3
        assert await one.answer() == (200, {})
        assert (await one.answer(has_body=False))[0] == 405
        await one.send(GET + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
        assert (await one.answer())[0] == 200
        await one.send(GET + b"Connection: close\r\n\r\n")
        assert (await one.answer())[0] == 200
        assert await one.is_closed()


async def test_a_body_in_chunks_is_read_and_one_over_64_kib_is_dropped(directory: Path) -> None:
    body = json.dumps(STEP).encode()
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    async with training(directory), peer(directory) as one:
        await one.send(chunked + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        assert await one.answer() == (200, {})
        await one.send(chunked + 100 * (b"10000\r\n" + b" " * 65_536 + b"\r\n") + b"0\r\n\r\n")
        status, answer = await one.answer()
        assert (status, answer["error"]["reason"]) == (413, "BodyTooLarge")
        await one.send(GET + b"\r\n")
        assert (await one.answer())[0] == 200


async def test_a_peer_that_asks_before_it_sends_its_body_may_go_on(directory: Path) -> None:
    body = json.dumps(STEP).encode()
    async with training(directory), peer(directory) as one:
        await one.send(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert (await one.answer())[0] == 100
        await one.send(body)
        assert await one.answer() == (200, {})


async def test_an_old_client_gets_a_whole_answer(directory: Path) -> None:
    async with training(directory), peer(directory) as one:
        await one.send(b"GET /v1/attempt?why=not HTTP/1.0\r\n\r\n")
        assert (await one.answer())[0] == 200
        assert await one.is_closed()
