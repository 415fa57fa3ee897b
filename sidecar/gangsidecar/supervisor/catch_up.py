"""The wait for what a process has written before it ended: a report with its end has the lines that were found in it.

The rule: the end itself counts at once, and only the report waits, until the copier has searched all that was written
before, and never longer than :data:`AT_MOST_MS`. What is found later is reported as well, but may come too late for the
decision.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gangsidecar.common.clock import now_ms
from gangsidecar.common.log import log

if TYPE_CHECKING:
    from gangsidecar.supervisor.event_loop import EventLoop

AT_MOST_MS = 500


class CatchUp:
    """Asks the copier of one attempt whether it has searched all, through a pipe."""

    def __init__(self, loop: EventLoop) -> None:
        """Nothing is asked before it is opened."""
        self._loop = loop
        self._asked = self._answered = 0
        self._by = 0
        """When no answer is waited for any more."""
        self.readers: list[int] = []
        """The end for the copier, which is closed with the other ends that it reads."""
        self._writer = -1

    def open(self) -> None:
        """Let reports wait. Without a pipe they don't."""
        try:
            reader, self._writer = os.pipe()
        except OSError as error:
            log("warning", "reports of ends can't wait for lines of the log", reason=error)
            return
        self.readers.append(reader)
        os.set_blocking(self._writer, False)

    def ask(self) -> None:
        """A process of the worker has ended by itself."""
        if self._writer < 0:
            return
        if not self.is_awaited:
            self._by = now_ms() + AT_MOST_MS
            self._loop.at(self._by, _wake)
        self._asked += 1
        try:
            os.write(self._writer, b"%d\n" % self._asked)
        except OSError:  # The pipe is full: the newest question in it is answered, and this one in time or not.
            return

    def answered(self, question: int) -> None:
        """All is searched that had been written before this question."""
        self._answered = max(self._answered, question)

    def close(self) -> None:
        """All is copied. What the copier has told may not be read yet."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    @property
    def is_awaited(self) -> bool:
        """Whether the report has to wait."""
        return self._answered < self._asked and now_ms() < self._by


def _wake() -> None:
    """The loop turns, and the report is sent."""
