"""The messages between ranks, and a rank's connection to the directory at rank 0, which rank 0 itself serves.

TCP, a line of JSON for each message; the bytes of a part follow the line that announces them. The first line names the
gang and the attempt. Peers of another gang, or of an attempt that is over, are sent away.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any, BinaryIO, Callable, Dict, NamedTuple, Optional, Tuple, cast

from gangclient import GangError
from gangclient.memory._keeping import StepVerdict

MAX_LINE_BYTES = 64 << 10
TRANSFER_SECONDS = 20.0
"""For one send or receive between two ranks; what takes longer is given up."""
DirectoryMessage = Dict[str, Any]
JOIN_SECONDS = 120.0
"""For all ranks to join; imports take long."""
PAUSE = 0.1
_log = logging.getLogger("gangclient")


class LineError(ValueError):
    """The line isn't a message of ours."""


class Identity(NamedTuple):
    """A rank of a gang in an attempt."""

    gang: str
    attempt: int
    rank: int
    ranks: int
    member: str
    node: str

    def hello(self) -> DirectoryMessage:
        """The fields that begin each connection."""
        return {"gang": self.gang, "attempt": self.attempt, "rank": self.rank}

    def knows(self, hello: DirectoryMessage) -> bool:
        """Return whether the message is from a rank of this gang and attempt."""
        rank = hello.get("rank")
        same = (hello.get("gang"), hello.get("attempt")) == (self.gang, self.attempt)
        return same and isinstance(rank, int) and 0 <= rank < self.ranks


def identity() -> Identity:
    """The identity of this process, by its environment. KeyError, ValueError: a variable is missing, or wrong."""
    name = os.environ
    ranks = int(name["RANK"]), int(name["WORLD_SIZE"])
    return Identity(
        name["GANG_UID"], int(name["GANG_ATTEMPT"]), *ranks, name.get("GANG_MEMBER", ""), name.get("GANG_NODE", "")
    )


def encode_line(message: DirectoryMessage) -> bytes:
    """Encode a message as one line."""
    return json.dumps(message).encode() + b"\n"


def decode_line(line: bytes) -> DirectoryMessage:
    """Read a line. LineError: the connection has ended, or it isn't a message."""
    if not line.endswith(b"\n"):
        raise LineError("the connection has ended" if len(line) < MAX_LINE_BYTES else "a line is too long")
    try:
        message = json.loads(line)
    except ValueError as error:
        raise LineError(f"{line[:80]!r} isn't JSON") from error
    if not isinstance(message, dict):
        raise LineError(f"{line[:80]!r} isn't a message")
    return message


def receive_message(file: BinaryIO) -> DirectoryMessage:
    """Read the next message. LineError, OSError: there is none."""
    return decode_line(file.readline(MAX_LINE_BYTES))


def parse_address(text: str) -> Tuple[str, int]:
    """Host and port of ``10.0.0.3:29433`` or ``[fd00::1]:29433``."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def dial(host: str, port: int) -> socket.socket:
    """Connect, with the time limit. OSError: there is no connection."""
    connection = socket.create_connection((host, port), timeout=TRANSFER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class DirectoryLink:
    """Joins the directory, and receives its verdicts."""

    def __init__(
        self, own: Identity, address: Tuple[str, int], join: DirectoryMessage, judge: Callable[[StepVerdict], None]
    ) -> None:
        """Begin to connect, in a thread. It sends ``join`` first, and calls ``judge`` with each verdict."""
        self._address, self._join, self._judge = address, {**own.hello(), **join}, judge
        self._table: Optional[DirectoryMessage] = None
        self._changed = threading.Condition()
        self._connection: Optional[socket.socket] = None
        self._over: Optional[Callable[[], object]] = None
        self.broken = ""  # Why nothing can be kept any more.
        self._closed = False
        if own.rank == 0:
            self._serve(own)
        threading.Thread(target=self._run, name="gangclient-memory-link", daemon=True).start()

    def table(self) -> DirectoryMessage:
        """Wait until all have joined; return the message that this rank gets then. GangError: it doesn't come."""
        with self._changed:
            self._changed.wait_for(lambda: self._table is not None or self.broken, JOIN_SECONDS)
            if self._table is not None and not self.broken:
                return self._table
        late = "not all ranks have joined at {}:{} within {:.0f} s".format(*self._address, JOIN_SECONDS)
        why = self.broken or f"{late}; every rank must call gangclient.memory.connect"
        raise GangError("MemoryUnreachable", why)

    def tell(self, step: int, *, kept: bool) -> None:
        """Tell the directory what this rank has done with a step. GangError, OSError: the connection is broken."""
        self.table()
        if self._connection is not None:
            self._connection.sendall(encode_line({"step": step, "kept": kept}))

    def close(self) -> None:
        """End the connection, and the directory."""
        self._closed = True
        connection, over = self._connection, self._over
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if over is not None:
            with suppress(RuntimeError):  # Its loop has ended.
                over()
        with self._changed:
            self.broken = self.broken or "it was closed"
            self._changed.notify_all()

    def _serve(self, own: Identity) -> None:
        import asyncio  # noqa: PLC0415 - takes 40 ms, and only rank 0 needs it

        from gangclient.memory._directory import Directory  # noqa: PLC0415

        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        try:
            listening = socket.create_server(
                ("", self._address[1]), family=family, backlog=min(own.ranks, 1024), dualstack_ipv6=both
            )
        except OSError as error:
            _log.error("checkpoints are not kept in memory: port %d of rank 0: %s", self._address[1], error.strerror)
            return

        async def serve() -> None:
            over, loop = asyncio.Event(), asyncio.get_running_loop()
            self._over = lambda: loop.call_soon_threadsafe(over.set)
            if not self._closed:
                await Directory(own).serve(listening, over)

        threading.Thread(target=lambda: asyncio.run(serve()), name="gangclient-memory-directory", daemon=True).start()

    def _run(self) -> None:
        try:
            with self._dial() as connection, connection.makefile("rb") as incoming:
                self._connection = connection
                connection.sendall(encode_line(self._join))
                connection.settimeout(None)  # Verdicts come when they come.
                while not self._closed:
                    self._take(receive_message(cast("BinaryIO", incoming)))
        except (OSError, LineError, KeyError, TypeError) as error:
            with self._changed:
                self.broken = self.broken or f"the connection to the memory of rank 0 broke: {error}"
                self._changed.notify_all()
            if not self._closed:  # Rank 0 ends, as a rule: the others will too.
                level = logging.WARNING if self._table is None else logging.INFO
                _log.log(level, "%s; no step is kept in memory until the next attempt", self.broken)

    def _dial(self) -> socket.socket:
        until = time.monotonic() + JOIN_SECONDS
        while True:
            try:
                return dial(*self._address)
            except OSError:  # noqa: PERF203 - it is tried again
                if self._closed or time.monotonic() > until:
                    raise
                time.sleep(PAUSE)  # Rank 0 is not there yet.

    def _take(self, message: DirectoryMessage) -> None:
        if "safe" in message:
            self._judge(StepVerdict(int(message["step"]), bool(message["safe"])))
            return
        with self._changed:
            self._table = message
            self._changed.notify_all()
