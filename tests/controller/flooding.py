"""Pods that send the largest reports that are taken, as fast as they can.

``python -m tests.controller.flooding URL N``: each connects as ``flood-AT``, and again whenever it is closed.
It prints the reason of each close frame.
"""

from __future__ import annotations

import asyncio
import sys

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


async def flood(session: aiohttp.ClientSession, url: str, at: int) -> None:
    """Be one of them."""
    seq, text = 0, largest(at)
    while True:
        async with session.ws_connect(url, headers={"Authorization": f"Bearer flood-{at}"}) as socket:
            closing = asyncio.create_task(socket.receive())
            while not closing.done():
                seq += 1
                try:
                    await socket.send_str(text.format(seq=seq))
                except ConnectionError:
                    break
                await asyncio.sleep(0)
            frame = await closing
            while frame.type is aiohttp.WSMsgType.TEXT:
                frame = await socket.receive()
            print(frame.extra, flush=True)  # noqa: T201 - the test reads it


async def main(url: str, pods: int) -> None:
    """Be all of them."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, asyncio.TaskGroup() as tasks:
        for at in range(pods):
            tasks.create_task(flood(session, url, at))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
