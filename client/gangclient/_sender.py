"""The daemon thread that sends progress and loading, so that a training loop never waits."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from typing import Any, Callable, Deque, NamedTuple, Optional, Union

from gangclient._background import Background

INTERVAL = 0.25
"""Seconds between two messages about progress; the first step of an attempt doesn't wait."""
STEP = "Step"
_LONGEST = 1e9
"""Seconds: the largest duration that the API accepts."""
_log = logging.getLogger("gangclient")


class ProgressCall(NamedTuple):
    """How far the rank is; the values are the caller's, of whatever type."""

    phase: str
    step: Any
    seconds: Any


class LoadedCall(NamedTuple):
    """The restore point has been loaded."""

    seconds: Any


Message = Union[ProgressCall, LoadedCall]


class Sender(Background):
    """A daemon thread that sends the loading, the first step and, after that, the newest progress only.

    The caller takes no lock: setting an attribute, appending to a deque and SimpleQueue.put are safe at any moment, in
    a signal handler too.
    """

    def __init__(self, send: Callable[[Message], str]) -> None:
        self._send = send
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._loaded: Optional[LoadedCall] = None
        self._first: Optional[ProgressCall] = None
        self._newest: Deque[ProgressCall] = deque(maxlen=1)
        self._complaint = ""

    def put(self, message: Message) -> None:
        """Leave it for the thread."""
        if self._pid != os.getpid():
            self._begin()  # In a forked process the thread isn't there, and its locks may never be released.
        if isinstance(message, LoadedCall):
            self._loaded = self._loaded or message
        else:
            if self._first is None and message.phase == STEP:
                self._first = message
            self._newest.append(message)
        if self._thread is None:
            self._start()
        if self._wake.empty():
            self._wake.put(None)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="gangclient-progress", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # The interpreter ends, or has no room for a thread.
            _log.debug("no progress is sent: %s", error)
            return
        atexit.register(self._flush)

    def _run(self) -> None:
        loaded, first = None, None
        while True:
            if not self._closing.is_set():
                self._wake.get()
            if loaded is None and self._loaded is not None:
                loaded = self._loaded
                self._try(loaded, "the loading of the checkpoint is not reported")
            if first is None and self._first is not None:
                first = self._first
                self._try(first, "progress is not reported")
            newest = self._newest.pop() if self._newest else None
            if newest is not None and newest is not first:
                self._try(newest, "progress is not reported")
            if self._closing.is_set() and not self._newest:
                return  # What arrived while the last one was being sent has been sent too.
            if first is not None:
                self._closing.wait(INTERVAL)

    def _try(self, message: Message, failure: str) -> None:
        try:
            complaint = self._send(message)
        except Exception as error:  # noqa: BLE001 - a step may be any object of a framework, and nothing may escape
            complaint = f"{failure}: {type(error).__name__}: {error}"
        if complaint and complaint != self._complaint:
            _log.warning("%s", complaint)
        self._complaint = complaint


def duration(value: Any) -> float:
    """The seconds, if the API accepts them.

    Raises:
        ValueError, TypeError: it doesn't.
    """
    seconds = float(value)  # numpy's and torch's scalars as well
    if not 0 <= seconds <= _LONGEST:  # NaN isn't either
        raise ValueError(f"{seconds} is no duration in seconds")
    return seconds
