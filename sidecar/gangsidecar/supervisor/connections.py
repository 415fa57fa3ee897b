"""The supervisor's connections: to its sidecar, and to each process of its worker. Lines both ways, non-blocking.

The connection to the sidecar is a unix socket, reconnected without end. The connection on which a process parks is a
socket pair, made when the supervisor spawns it. The process says what is on the left, the supervisor what is on the
right::

    {"parkable": true}      {"refused": why}
    {"parked": attempt}     {"stop": {"attempt": 7, "seconds": 15.0, "reason": why, "planned": false}}
                            {"run": {"attempt": 8, "set": {name: value}, "unset": [name]}}

The rule: only the spawned process itself counts. The kernel says who has sent a line: a line of a child that has
inherited the channel changes nothing, nor does one that makes no sense. When either side closes it, the process can't
park any more. What a process says is passed on as an event; this file must never believe it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

from gangsidecar import wire
from gangsidecar.common import log
from gangsidecar.start.link import PARKING, address, files_in
from gangsidecar.supervisor import machine, processes
from gangsidecar.supervisor.event_loop import READ, WRITE, EventLoop

FIRST_BACKOFF_MS = 20
LAST_BACKOFF_MS = 200
"""The first start of a gang waits for the sidecars' imports, so the end of these must not be missed for long."""
QUIET_MS = 5_000
"""A sidecar that is away for so long is worth a line. Before, it starts or is restarted."""
MAX_LINE_BYTES = 1024
"""Bytes of a line that a process says."""
_CREDENTIALS = struct.Struct("3i")
"""Pid, uid and gid of the sender."""


class SidecarConnection:
    """One connection at a time. Its driver selects on :attr:`socket` and calls :meth:`connect` when that is due."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.socket: socket.socket | None = None
        self.retry_at = 0  # When to connect next, while there is no connection.
        self._backoff_ms = FIRST_BACKOFF_MS
        self._away_since: int | None = None
        self._logged = False
        self._read = b""
        self._unsent = b""

    @property
    def waiting(self) -> bool:
        """Return whether the sidecar has not taken everything yet."""
        return bool(self._unsent)

    def connect(self, now_ms: int) -> bool:
        """Try once: a unix socket accepts at once or not at all. Returns whether it is connected."""
        attempt = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        attempt.setblocking(False)  # noqa: FBT003 - its signature
        try:
            attempt.connect(self._path)
        except OSError as error:
            attempt.close()
            self._later(now_ms)
            self._missed(now_ms, error)
            return False
        self.socket = attempt
        if self._logged:
            log("info", "the sidecar is there", socket=self._path)
        self._logged, self._away_since = False, None
        return True

    def lines(self, now_ms: int) -> list[bytes]:
        """The whole lines that have arrived. An error or a line that is too long closes the connection."""
        if self.socket is None:
            return []
        try:
            piece = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError as error:
            self.close(now_ms, str(error))
            return []
        if not piece:
            self.close(now_ms, "the sidecar closed it")
            return []
        *whole, self._read = (self._read + piece).split(b"\n")
        if len(self._read) > wire.MAX_BYTES:
            self.close(now_ms, f"a line of over {wire.MAX_BYTES} bytes")
        return whole

    def understood(self) -> None:
        """The other side sends messages that make sense: after the next break, connect again at once."""
        self._backoff_ms = FIRST_BACKOFF_MS

    def send(self, text: str, now_ms: int) -> None:
        """Queue one line and send as much as the socket takes. Without a connection the line is dropped."""
        if self.socket is None:
            return
        self._unsent += text.encode() + b"\n"
        self.flush(now_ms)

    def flush(self, now_ms: int) -> None:
        """Send more of what is queued."""
        if self.socket is None or not self._unsent:
            return
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            self.close(now_ms, str(error))

    def close(self, now_ms: int, reason: str) -> None:
        """Close the connection and drop what was queued: the next one starts with a whole report."""
        if self.socket is None:
            return
        log("warning", "the connection to the sidecar ended", reason=reason)
        self.socket.close()
        self.socket = None
        self._read = self._unsent = b""
        self._later(now_ms)

    def _missed(self, now_ms: int, error: OSError) -> None:
        """Log once that the sidecar is away, if it is for long."""
        if self._away_since is None:
            self._away_since = now_ms
        if not self._logged and now_ms - self._away_since >= QUIET_MS:
            self._logged = True
            seconds = f"{(now_ms - self._away_since) / 1000:.0f}"
            log("warning", f"no sidecar for {seconds} s; trying again", socket=self._path, reason=error)

    def _later(self, now_ms: int) -> None:
        self.retry_at = now_ms + self._backoff_ms
        self._backoff_ms = min(2 * self._backoff_ms, LAST_BACKOFF_MS)


def spawn_parkable(
    command: Sequence[str], environment: dict[str, str], output: tuple[int, int] = (1, 2)
) -> tuple[int, socket.socket]:
    """Start a command as :func:`processes.spawn` does; return its pid and our end of its channel."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with theirs:
        theirs.set_inheritable(True)
        try:
            return processes.spawn(command, {**environment, PARKING: address(theirs)}, output), ours
        except (OSError, ValueError):
            ours.close()
            raise


class ParkingChannel:
    """Our end of the channel of one process."""

    def __init__(
        self,
        loop: EventLoop,
        ours: socket.socket,
        pid: int,
        process: wire.Process,
        refusal: str,
        feed: Callable[[machine.Input], None],
    ) -> None:
        """Listen to ``pid``. ``refusal``: why its command keeps it from parking; empty if it doesn't."""
        ours.setblocking(False)  # noqa: FBT003 - its signature
        self._loop = loop
        self._socket: socket.socket | None = ours
        self._pid = pid
        self._process = process
        self._refusal = refusal
        self._feed = feed
        self._unread = b""
        self._unsent = b""  # Messages beyond what the kernel buffers: the environment of an attempt can be long.
        self.has_asked = False  # The process has said that it can park.
        loop.watch(ours, READ, self._ready)

    def refuse(self, why: str) -> None:
        """Say that the process is started anew after a stop."""
        self._send(refused=why)

    def stop(self, park: machine.Park) -> None:
        """Ask the process to park. One that can't be reached is killed when its time is over."""
        self._send(
            stop={
                "attempt": park.attempt,
                "seconds": park.kill_ms / 1000,
                "reason": park.reason,
                "planned": park.planned,
            }
        )

    def go_on(self, attempt: int, process: wire.Process, environment: dict[str, str]) -> bool:
        """Let the process go on with this attempt; return whether it listens and has no child.

        ``process``: what it is from now on; ``environment``: what a start would get.
        """
        if processes.has_living_children(self._pid):
            return False
        names = [name for name, _ in process.env]
        unset = sorted({name for name, _ in self._process.env}.difference(names))
        self._process = process
        return self._send(run={"attempt": attempt, "set": {name: environment[name] for name in names}, "unset": unset})

    def close(self) -> None:
        """Close our end: a process that is parked ends."""
        if self._socket is not None:
            self._loop.forget(self._socket)
            self._socket.close()
            self._socket = None

    def _send(self, **message: Any) -> bool:
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
                MAX_LINE_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            piece, ancillary = b"", []
        if piece and _sender(ancillary) != self._pid:
            return
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            self._take(line)
        if not piece or len(self._unread) > MAX_LINE_BYTES:
            self.close()
            self._feed(machine.Parkable(self._process.local_rank, can=False))

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        if message.get("parkable") is True:
            self.has_asked = True
            self._feed(machine.Parkable(self._process.local_rank, refusal=self._refusal))
        elif type(message.get("parked")) is int:
            self._feed(machine.Parked(self._process.local_rank, message["parked"]))


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The pid of the process that has sent this; 0 if it is unknown. Files that came along are closed."""
    pid = 0
    for _level, kind, data in ancillary:
        if kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            pid = _CREDENTIALS.unpack_from(data)[0]
    for file in files_in(ancillary):
        os.close(file)
    return pid
