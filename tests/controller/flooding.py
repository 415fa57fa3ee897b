"""Pods that send the largest reports that are taken, as fast as they can.

``python -m tests.controller.flooding URL N [SECONDS]``: each connects as ``flood-AT``, and again whenever it is closed.
It prints the reason of each close frame. After SECONDS each goes on as a sidecar does: it sends its newest report once,
and again on each new connection. Then its number and the ``seq`` of that report are printed.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager, suppress

import aiohttp

from gangsidecar import wire

GANG = "uid-flood"


def largest(at: int) -> str:
    """A report of one of these pods that has as many items as are taken, but for its ``{seq}``."""
    ends = tuple(wire.End(1, rank, 0, exit_code=0, message=f"m{rank}") for rank in range(wire.MAX_ENDS))
    text = wire.encode(
        wire.Report(
            *(GANG, f"worker-{at}", 0, f"flood-{at}", "session", 0, 1, wire.Phase.RUNNING),
            ends=ends,
            checkpoints=tuple(wire.Checkpoint("t", step, 0, 1, f"p{step}") for step in range(wire.MAX_CHECKPOINTS)),
            dropped=tuple(wire.Dropped("t", 10**6 + step, 0, 1) for step in range(wire.MAX_DROPPED)),
        )
    )
    return text.replace("{", "{{").replace("}", "}}").replace('"seq":0', '"seq":{seq}')


class Pod:
    """One of them."""

    def __init__(self, session: aiohttp.ClientSession, url: str, at: int) -> None:
        self._session, self._url, self._at = session, url, at
        self._text, self._seq = largest(at), 0

    async def flood(self, seconds: float | None) -> None:
        """Send without end, or for so long; then as a sidecar does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._flood()
        self._seq += 1
        print(self._at, self._seq, flush=True)  # noqa: T201 - the test reads it
        while True:
            async with self._connected() as socket:
                await socket.send_str(self._text.format(seq=self._seq))
                async for _ in socket:
                    pass

    def _connected(self) -> AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]:
        headers = {"Authorization": f"Bearer flood-{self._at}"}
        return self._session.ws_connect(self._url, headers=headers, timeout=aiohttp.ClientWSTimeout(ws_close=0.1))

    async def _flood(self) -> None:
        async with self._connected() as socket:
            closing = asyncio.create_task(_closed(socket))
            try:
                while not closing.done():
                    self._seq += 1
                    try:
                        await socket.send_str(self._text.format(seq=self._seq))
                    except ConnectionError:
                        break
                    await asyncio.sleep(0)
                print((await closing).extra, flush=True)  # noqa: T201 - the test reads it
            finally:
                closing.cancel()


async def _closed(socket: aiohttp.ClientWebSocketResponse) -> aiohttp.WSMessage:
    """The close frame. What the hub says before it stops no flood."""
    while (frame := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
        pass
    return frame


async def main(url: str, pods: int, *seconds: float) -> None:
    """Be all of them."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, asyncio.TaskGroup() as tasks:
        for at in range(pods):
            tasks.create_task(Pod(session, url, at).flood(*seconds or [None]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:])))
