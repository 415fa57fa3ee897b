"""What the sidecar must hear, in order, as soon as it can: calls about checkpoints and restarts.

A call waits for the sidecar's answer. If none comes in time, the call is kept, and a daemon thread repeats it until it
is answered. It must never end a training that could go on, and never overtake an older call that is still kept.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from typing import Deque, Optional

from gangclient._background import Background
from gangclient._http import PATIENCE, PAUSE, AwayError, Body, GangError, ask, ask_until

MOST = 1000
"""Calls that are kept; beyond that, the oldest is forgotten."""
_log = logging.getLogger("gangclient")


class _Kept:
    """One call; equal only to itself."""

    def __init__(self, path: str, body: Body) -> None:
        self.path = path
        self.body = body


class Backlog(Background):
    """Makes calls in order, and keeps those that the sidecar doesn't answer.

    The caller takes no lock, as for :class:`gangclient._sender.Sender`: each use of the deque is one atomic step. A
    call leaves it once it is answered, so nothing overtakes the one that is being repeated.
    """

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._kept: Deque[_Kept] = deque()

    def tell(self, path: str, body: Body, deadline: float) -> Optional[Body]:
        """Post it; returns the answer, or None if the sidecar doesn't answer by now and the call is kept.

        It waits for at most ``deadline`` seconds, and not at all while an older call is kept.

        Raises:
            GangError: the sidecar refused the call.
        """
        if self._pid != os.getpid():
            self._begin()  # In a forked process the thread isn't there; what is kept is its parent's to tell.
        if self._kept:
            self._keep(path, body)
            return None
        try:
            return ask_until(self._socket_path, deadline, "POST", path, body)
        except AwayError as away:
            _log.warning("%s; training goes on, and the call is repeated until the sidecar answers", away)
        self._keep(path, body)
        return None

    def _keep(self, path: str, body: Body) -> None:
        self._kept.append(_Kept(path, body))
        if len(self._kept) > MOST:
            self._kept.popleft()
            _log.warning(
                "the sidecar is away and %d calls wait for it: the oldest call that was kept is forgotten", MOST
            )
        if self._thread is None:
            self._start()
        self._wake.put(None)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="gangclient-backlog", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # The interpreter ends, or has no room for a thread.
            self._thread = None  # The next call tries again.
            _log.debug("calls are kept, but not repeated: %s", error)
            return
        atexit.register(self._flush)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.get()
            while self._kept and self._repeat(self._kept[0]):
                pass

    def _repeat(self, kept: _Kept) -> bool:
        """Make the call once more; False = the process ends, so there is no time for more."""
        try:
            ask(self._socket_path, PATIENCE, "POST", kept.path, kept.body)
        except AwayError:
            return not self._closing.wait(PAUSE)
        except Exception as error:  # noqa: BLE001 - one call must not keep the others from being repeated
            log_refusal(error)
        try:
            self._kept.remove(kept)
        except ValueError:
            _log.debug("it was forgotten meanwhile")
        return True

    @property
    def _flush_seconds(self) -> float:
        return super()._flush_seconds if self._kept else 0


def log_refusal(error: Exception) -> None:
    """A refused call changes nothing; its caller trains on."""
    told = str(error) if isinstance(error, GangError) else f"{type(error).__name__}: {error}"
    _log.error("%s; the call changes nothing, and training goes on", told)
