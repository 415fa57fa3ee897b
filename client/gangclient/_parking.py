"""The process's end of the channel on which it parks, and the daemon thread that listens on it.

Lines of JSON; the other end, with the list of what is said, is the supervisor's ``parking.py``. The thread tells of a
stop as soon as it comes; it never interrupts anything itself. A parked process whose supervisor is gone ends at once:
nothing could tell it to go on, or stop it.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import stat
import struct
import threading
import time
from queue import SimpleQueue
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from gangclient._client import Event

VARIABLE = "GANG_PARKING"
MARGIN = 0.5
"""Seconds before SIGKILL at which a process that hasn't parked says where it is."""
_PIECE = 1 << 16
_CREDENTIALS = struct.Struct("3i")
_log = logging.getLogger("gangclient")


class Attempt(NamedTuple):
    """What a parked process goes on with."""

    number: int
    environment: Dict[str, str]
    """Variables to set."""
    without: List[str]
    """Variables to delete."""


class Channel:
    """Our end. One thread listens, the main thread speaks."""

    def __init__(self, ours: socket.socket, on_stop: Callable[[Event], None], on_late: Callable[[], None]) -> None:
        """Say that this process can park, and listen.

        Args:
            ours: our end.
            on_stop: is called in the listening thread, once for each stop. It must return at once.
            on_late: is called there a moment before SIGKILL if the process hasn't parked.

        Raises:
            OSError, RuntimeError: the supervisor is gone, or there is no thread.
        """
        self._socket = ours
        self._on_stop = on_stop
        self._on_late = on_late
        self._attempts: SimpleQueue[Attempt] = SimpleQueue()
        self._parked = False
        self._open = True
        self._late_at: Optional[float] = None
        self._say(parkable=True)
        threading.Thread(target=self._listen, name="gangclient-parking", daemon=True).start()
        os.register_at_fork(after_in_child=ours.close)  # A child must not keep it, and can't use it.

    def park(self, attempt: int) -> Attempt:
        """Say that nothing of this attempt runs any more, and wait for the next one."""
        self._late_at = None
        self._parked = True
        try:
            self._say(parked=attempt)
        except OSError:
            os._exit(1)  # The supervisor is gone. The next one kills this process in any case.
        following = self._attempts.get()
        self._parked = False
        return following

    def close(self) -> None:
        """This process can't park any more. The supervisor sends SIGTERM, also for a stop that is on its way."""
        self._open = False
        self._late_at = None
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            _log.debug("the supervisor is gone: %s", error)

    def _say(self, **message: Any) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        unread = b""
        while True:
            late_at = self._late_at  # The main thread takes it away at any moment: it is read once.
            left = None if late_at is None else max(0.0, late_at - time.monotonic())
            if not select.select([self._socket], [], [], left)[0]:
                if self._late_at is not None:
                    self._late_at = None
                    self._on_late()
                continue
            try:
                piece = self._socket.recv(_PIECE)
            except OSError:
                piece = b""
            if not piece:
                if self._parked:
                    os._exit(1)
                return
            *lines, unread = (unread + piece).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, message: Dict[str, Any]) -> None:
        if "refused" in message:
            _log.warning("this process can't restart inside: %s. It is started anew instead", message["refused"])
        elif "run" in message:
            run = message["run"]
            self._attempts.put(Attempt(run["attempt"], run["set"], run["unset"]))
        elif "stop" in message and self._open:
            stop = message["stop"]
            seconds = stop["seconds"]
            self._late_at = time.monotonic() + max(seconds / 2, seconds - MARGIN)
            self._on_stop(Event("stop", stop["attempt"], stop["reason"], stop["planned"], seconds))


def find() -> Optional[socket.socket]:
    """Our end, if this process is the one that the supervisor has started; call it once."""
    descriptor, _, inode = os.environ.pop(VARIABLE, "").partition(":")
    try:
        found = os.fstat(int(descriptor))
        if not stat.S_ISSOCK(found.st_mode) or found.st_ino != int(inode):
            return None
        ours = socket.socket(fileno=int(descriptor))
    except (OSError, ValueError, OverflowError):
        return None
    ours.set_inheritable(False)
    peer = _CREDENTIALS.unpack(ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
    if peer != os.getppid():
        ours.close()  # It was inherited: this process's parent, or one further up, is the one.
        return None
    return ours
