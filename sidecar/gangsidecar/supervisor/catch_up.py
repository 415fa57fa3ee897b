"""The wait for what a process has written before it ended: a report with its end has the lines that were found in it.

The rule: the end itself counts at once, and only the report waits, until the copier has searched all that was written
before, and never longer than :data:`AT_MOST_MS`. What is found later is reported as well, but may come too late for the
decision.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, Optional

from gangsidecar.common.clock import now_ms

if TYPE_CHECKING:
    from gangsidecar.supervisor.event_loop import EventLoop

AT_MOST_MS = 500


class CatchUp:
    """Asks the copier of one attempt whether it has searched all, through a pipe."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._asked = 0
        self._by: Optional[int] = None
        """When an answer is not waited for any more; None = none is."""
        self.readers: List[int] = []
        """The end for the copier, which is closed with the other ends that it reads. None: no report waits."""
        self._writer = -1
        try:
            reader, self._writer = os.pipe()
        except OSError:
            return  # Too many open files.
        self.readers.append(reader)
        os.set_blocking(self._writer, False)

    def ask(self) -> None:
        """A process of the worker has ended by itself."""
        if self._writer < 0:
            return
        self._asked += 1
        try:
            os.write(self._writer, b"%d\n" % self._asked)
        except OSError:
            return
        if not self.is_awaited:
            self._by = now_ms() + AT_MOST_MS
            self._loop.at(self._by, _wake)

    def answered(self, question: int) -> None:
        """All is searched that had been written before this question."""
        if question >= self._asked:
            self._by = None

    def close(self) -> None:
        """All is copied."""
        self._by = None
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    @property
    def is_awaited(self) -> bool:
        """Whether the report has to wait."""
        return self._by is not None and now_ms() < self._by


def _wake() -> None:
    """The loop turns, and the report is sent."""
