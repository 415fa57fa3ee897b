"""The directory at rank 0: who is where, who has what, and which steps are safe.

Each rank keeps one connection to it. When all have joined, each learns its peer, and where its part of the restore
point is if a peer has it. Then they report what they have kept and skipped, and all get the verdicts.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import Dict, List, NamedTuple, Optional, Tuple

from gangclient.memory._keeping import Ledger, Where, peers
from gangclient.memory._link import MAX_LINE_BYTES, DirectoryMessage, Identity, LineError, decode_line, encode_line

FEW_SECONDS = 5.0
"""For a connection to say who it is, and for it to read a message."""
_log = logging.getLogger("gangclient")
Holding = Tuple[int, int]
"""The rank whose part it is, and the attempt that wrote it."""


class Joined(NamedTuple):
    """A rank that has joined."""

    where: Where
    host: str
    port: int
    holding: Tuple[Holding, ...]
    """Parts of the restore point in its member's folder."""


def read_hello(hello: DirectoryMessage, host: str) -> Joined:
    """Read the first message of a rank. KeyError, TypeError, ValueError: something is missing or wrong."""
    where = Where(int(hello["rank"]), str(hello["member"]), str(hello["node"]))
    holding = tuple((int(rank), int(attempt)) for rank, attempt in hello["holding"])
    return Joined(where, host, int(hello["port"]), holding)


def rank_messages(all_ranks: List[Joined]) -> Dict[int, DirectoryMessage]:
    """Return, by rank, the message that it gets when all have joined.

    A part counts only if it is of the newest attempt that any part of the restore point is of: an older part is of a
    history that was undone.
    """
    by_rank = {one.where.rank: one for one in all_ranks}
    ring = peers([one.where for one in all_ranks])
    newest = max((attempt for one in all_ranks for _, attempt in one.holding), default=None)
    holders: Dict[int, List[Joined]] = {}
    for one in all_ranks:
        for rank, attempt in one.holding:
            if attempt == newest:
                holders.setdefault(rank, []).append(one)
    messages: Dict[int, DirectoryMessage] = {}
    for rank in by_rank:
        peer = ring[rank]
        to = None if peer is None else by_rank[peer]
        messages[rank] = {
            "peer": None if to is None else [to.host, to.port],
            "attempt": newest,
            "holders": [[one.host, one.port] for one in holders.get(rank, ()) if one.where.rank != rank][:8],
        }
    return messages


class Directory:
    """One attempt's."""

    def __init__(self, own: Identity) -> None:
        self._own = own
        self._ledger = Ledger(own.ranks)
        self._joined: Dict[int, Joined] = {}
        self._writers: Dict[int, asyncio.StreamWriter] = {}
        self._open: Dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(self, listening: socket.socket, over: asyncio.Event) -> None:
        """Answer until ``over``."""
        server = await asyncio.start_server(self._connection, sock=listening, limit=MAX_LINE_BYTES)
        await over.wait()
        # What is accepted has its turn first, or asyncio loses it (github.com/python/cpython#109564).
        asyncio.get_running_loop().remove_reader(listening)
        await asyncio.sleep(0)
        server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for writer in self._open.values():
                writer.close()  # The other side sees it, and so does the task that reads.
            done, _ = await asyncio.wait(others, timeout=FEW_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._open[task] = writer
            task.add_done_callback(self._open.pop)
        rank: Optional[int] = None
        try:
            rank = await self._join(reader, writer)
            while rank is not None:
                await self._take(rank, decode_line(await reader.readline()))
        except (OSError, KeyError, TypeError, ValueError, asyncio.TimeoutError) as error:
            if rank is None:
                _log.warning("a connection to the memory of rank 0 was refused: %s", error)
        finally:
            if rank is not None and self._writers.get(rank) is writer:
                del self._writers[rank]
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        hello = decode_line(await asyncio.wait_for(reader.readline(), FEW_SECONDS))
        if not self._own.knows(hello):
            raise LineError(f"{str(hello)[:200]} isn't from a rank of this attempt")
        one = read_hello(hello, writer.get_extra_info("peername")[0])
        self._joined[one.where.rank] = one
        self._writers[one.where.rank] = writer
        if len(self._joined) == self._own.ranks:
            for rank, message in rank_messages(list(self._joined.values())).items():
                await self._tell(rank, message)
        return one.where.rank

    async def _take(self, rank: int, message: DirectoryMessage) -> None:
        verdict = self._ledger.note(rank, int(message["step"]), kept=bool(message["kept"]))
        if verdict is not None:
            judged = {"step": verdict.step, "safe": verdict.safe}
            await asyncio.gather(*(self._tell(each, judged) for each in list(self._writers)))

    async def _tell(self, rank: int, message: DirectoryMessage) -> None:
        writer = self._writers.get(rank)
        if writer is None:
            return
        writer.write(encode_line(message))
        try:
            await asyncio.wait_for(writer.drain(), FEW_SECONDS)
        except (OSError, asyncio.TimeoutError):
            with suppress(OSError):
                writer.close()  # It keeps what it has: it gets no verdict.
