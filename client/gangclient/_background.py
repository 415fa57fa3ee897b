"""What both daemon threads of a client have in common: how they are woken, and how they end.

The end of the process waits for a moment for what is not sent yet, but only in the process that started the thread.
"""

from __future__ import annotations

import atexit
import os
import threading
from queue import SimpleQueue
from typing import Optional

from gangclient._http import FLUSH


class Background:
    """Work that a daemon thread does. The subclass starts the thread with the first call, and registers its flush."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """No thread yet; called again in a forked process, where the parent's isn't there."""
        self._pid = os.getpid()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def close(self) -> None:
        """Let the thread end. It is not waited for."""
        self._closing.set()
        self._wake.put(None)
        atexit.unregister(self._flush)

    def _flush(self) -> None:
        thread = self._thread
        if thread is not None and self._pid == os.getpid():
            self._closing.set()
            self._wake.put(None)
            thread.join(self._flush_seconds)

    @property
    def _flush_seconds(self) -> float:
        """How long the end of the process may wait for it."""
        return FLUSH
