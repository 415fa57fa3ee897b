"""The channel on which one process of a worker parks: a socket pair, made when the supervisor spawns it.

Lines of JSON. The process says what is on the left, the supervisor what is on the right::

    {"parkable": true}      {"refused": why}
    {"parked": attempt}     {"stop": {"attempt": 7, "seconds": 15.0, "reason": why, "planned": false}}
                            {"run": {"attempt": 8, "set": {name: value}, "unset": [name]}}

The rule: only the spawned process itself is heard. The kernel tells who has sent a line: one of a child that has
inherited the channel changes nothing, nor does one that makes no sense. When either side closes it, the process can't
park any more. What a process says is passed on as an event; this file must never believe it.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

from gangsidecar import wire
from gangsidecar.common.log import log
from gangsidecar.start.link import PARKING, address
from gangsidecar.supervisor import machine, processes
from gangsidecar.supervisor.event_loop import READ, WRITE, EventLoop

LONGEST = 1024
"""Bytes of a line that a process says."""
_CREDENTIALS = struct.Struct("3i")
"""Of the sender: pid, uid, gid."""


def spawn(
    command: Sequence[str], environment: dict[str, str], output: tuple[int, int] = (1, 2)
) -> tuple[int, socket.socket]:
    """Start a command as :func:`processes.spawn` does; returns its pid and our end of its channel.

    Raises:
        OSError, ValueError: it could not be executed.
    """
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with theirs:
        theirs.set_inheritable(True)
        try:
            return processes.spawn(command, {**environment, PARKING: address(theirs)}, output), ours
        except (OSError, ValueError):
            ours.close()
            raise


class Parking:
    """Our end of the channel of one process."""

    def __init__(
        self,
        loop: EventLoop,
        ours: socket.socket,
        pid: int,
        process: wire.Process,
        refusal: str,
        feed: Callable[[machine.Event], None],
    ) -> None:
        """Listen to it.

        Args:
            loop: calls back when the process says something.
            ours: our end.
            pid: the process that is heard.
            process: what it was started as.
            refusal: why its command keeps it from parking; empty if it doesn't.
            feed: takes the event.
        """
        ours.setblocking(False)  # noqa: FBT003 - its signature
        self._loop = loop
        self._socket: socket.socket | None = ours
        self._pid = pid
        self._process = process
        self._refusal = refusal
        self._feed = feed
        self._unread = b""
        self._unsent = b""
        """What it is to be told, beyond what the kernel buffers: the environment of an attempt can be long."""
        self.has_asked = False
        """The process has said that it can park."""
        loop.watch(ours, READ, self._ready)

    def refuse(self, why: str) -> None:
        """Tell it that it will not be told to park."""
        self._tell(refused=why)

    def stop(self, park: machine.Park) -> None:
        """Tell it to park. One that can't be told is killed when its time is over."""
        self._tell(
            stop={
                "attempt": park.attempt,
                "seconds": park.kill_ms / 1000,
                "reason": park.reason,
                "planned": park.planned,
            }
        )

    def go_on(self, attempt: int, process: wire.Process, environment: dict[str, str]) -> bool:
        """Tell it to go on with this attempt; returns whether it listens and has no child.

        Args:
            attempt: the attempt.
            process: what it is from now on.
            environment: what a start would get.
        """
        if processes.has_living_children(self._pid):
            return False
        names = [name for name, _ in process.env]
        unset = sorted({name for name, _ in self._process.env}.difference(names))
        self._process = process
        return self._tell(run={"attempt": attempt, "set": {name: environment[name] for name in names}, "unset": unset})

    def close(self) -> None:
        """Close our end: a process that is parked ends."""
        if self._socket is not None:
            self._loop.forget(self._socket)
            self._socket.close()
            self._socket = None

    def _tell(self, **message: Any) -> bool:
        self._unsent += json.dumps(message).encode() + b"\n"
        return self._flush()

    def _flush(self) -> bool:
        """Send what the kernel takes, the rest as soon as it takes more; returns whether the process listens."""
        if self._socket is None:
            return False
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            log("warning", "a process of the worker doesn't listen and can't park", pid=self._pid, reason=error)
            self.close()
            return False
        self._loop.watch(self._socket, READ | WRITE if self._unsent else READ, self._ready)
        return True

    def _ready(self, mask: int) -> None:
        if mask & WRITE and not self._flush():
            self._feed(machine.Parkable(self._process.local_rank, can=False))
        elif mask & READ:
            self._read()

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            piece, ancillary, _, _ = self._socket.recvmsg(
                LONGEST, socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            piece, ancillary = b"", []
        if piece and _sender(ancillary) != self._pid:
            return
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            self._hear(line)
        if not piece or len(self._unread) > LONGEST:
            self.close()
            self._feed(machine.Parkable(self._process.local_rank, can=False))

    def _hear(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(said, dict):
            return
        if said.get("parkable") is True:
            self.has_asked = True
            self._feed(machine.Parkable(self._process.local_rank, refusal=self._refusal))
        elif type(said.get("parked")) is int:
            self._feed(machine.Parked(self._process.local_rank, said["parked"]))


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The pid of the process that has sent this; 0 if it is unknown. Files that came along are closed."""
    pid = 0
    for _level, kind, data in ancillary:
        if kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            pid = _CREDENTIALS.unpack_from(data)[0]
        elif kind == socket.SCM_RIGHTS:
            files = array.array("i")
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
            for file in files:
                os.close(file)
    return pid
