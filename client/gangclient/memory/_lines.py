"""How the ranks talk: TCP, a line of JSON for each message; the bytes of a part follow the line that announces them.

The first line names the gang and the attempt. Peers of another gang, or of an attempt that is over, are sent away.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, BinaryIO, Dict, NamedTuple, Tuple

LIMIT = 64 << 10
"""Bytes of a line."""
SECONDS = 20.0
"""For one send or receive between two ranks; what takes longer is given up."""
Message = Dict[str, Any]


class LineError(ValueError):
    """What came is no message of ours."""


class Identity(NamedTuple):
    """Who this rank is."""

    gang: str
    attempt: int
    rank: int
    ranks: int
    member: str
    node: str

    def hello(self) -> Message:
        """What begins each connection."""
        return {"gang": self.gang, "attempt": self.attempt, "rank": self.rank}

    def knows(self, told: Message) -> bool:
        """Whether it is a rank of this gang and attempt."""
        rank = told.get("rank")
        same = (told.get("gang"), told.get("attempt")) == (self.gang, self.attempt)
        return same and isinstance(rank, int) and 0 <= rank < self.ranks


def identity() -> Identity:
    """That of this process, by its environment.

    Raises:
        KeyError, ValueError: a variable is missing, or isn't a number.
    """
    name = os.environ
    ranks = int(name["RANK"]), int(name["WORLD_SIZE"])
    return Identity(
        name["GANG_UID"], int(name["GANG_ATTEMPT"]), *ranks, name.get("GANG_MEMBER", ""), name.get("GANG_NODE", "")
    )


def encoded(message: Message) -> bytes:
    """One line."""
    return json.dumps(message).encode() + b"\n"


def decoded(line: bytes) -> Message:
    """What a line says.

    Raises:
        LineError: the connection has ended, or it is no message.
    """
    if not line.endswith(b"\n"):
        raise LineError("the connection has ended" if len(line) < LIMIT else "a line is too long")
    try:
        message = json.loads(line)
    except ValueError as error:
        raise LineError(f"{line[:80]!r} is no JSON") from error
    if not isinstance(message, dict):
        raise LineError(f"{line[:80]!r} is no message")
    return message


def read(file: BinaryIO) -> Message:
    """The next message.

    Raises:
        LineError, OSError: there is none.
    """
    return decoded(file.readline(LIMIT))


def address(text: str) -> Tuple[str, int]:
    """Host and port of ``10.0.0.3:29433`` or ``[fd00::1]:29433``."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def dial(host: str, port: int) -> socket.socket:
    """A connection, with the time limit.

    Raises:
        OSError: there is none.
    """
    connection = socket.create_connection((host, port), timeout=SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
