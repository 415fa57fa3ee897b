"""Copies the output of a worker to where it would have gone, and looks for steps in it. A process of its own does it.

The rule: what arrives is written out before it is looked at, byte for byte and in order, and the copier ends when no
process can write any more. A pattern must not hold up the output: one that takes longer than :data:`SEARCH_SECONDS`
of processor time is given up, and from then on each line counts as progress of which the step is unknown: a job that
goes on printing must not count as hung.

It tells the supervisor in lines of JSON: ``{"step": 7, "first": 1, "every": 2, "age_ms": 3, "first_age_ms": 9}`` or
``{"age_ms": 3}``, and once ``{"wrong": "a sentence"}``.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
from typing import Any, Dict, List, NamedTuple, Optional

from gangsidecar.common.clock import now_ms
from gangsidecar.supervisor.line_search import Lines, StepSearch

PIECE = 1 << 16
TELL_MS = 200
"""The first step is told at once; then at most so often."""
SEARCH_SECONDS = 1.0


class Stream(NamedTuple):
    """A pipe from a process of the worker, and where its output goes."""

    source: int
    sink: int
    process: int
    """The number of the process: steps are counted for each."""


class TooSlowError(Exception):
    """A search takes too long."""


class Teller:
    """Tells the supervisor of progress, never waiting for it."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._told: Dict[str, int] = {}
        self._at = self._first_at = self._sent_at = 0
        self._is_waiting = False

    def step(self, step: int, gap: int) -> None:
        """A step was found. ``gap``: how far it is from the one before of its process; 0 = unknown."""
        told = self._told
        if not told:
            self._first_at = now_ms()
        every = max(told.get("every", 0), gap)
        self._told = {"step": max(told.get("step", step), step), "first": told.get("first", step)}
        self._told.update({"every": every} if every else {})
        self.sign()

    def sign(self) -> None:
        """There is progress."""
        self._at, self._is_waiting = now_ms(), True

    def wrong(self, sentence: str) -> None:
        """Something is wrong that a user should know."""
        self._send({"wrong": sentence})

    def due(self) -> Optional[int]:
        """Send what is due; returns in how many milliseconds the rest is, or None."""
        rest = self._sent_at + TELL_MS - now_ms()
        if self._is_waiting and rest > 0:
            return rest
        self.send()
        return TELL_MS if self._is_waiting else None

    def send(self) -> None:
        """Send what has not been sent."""
        if not self._is_waiting:
            return
        now = now_ms()
        ages = {"age_ms": now - self._at, **({"first_age_ms": now - self._first_at} if self._told else {})}
        self._is_waiting = not self._send({**self._told, **ages})
        self._sent_at = now

    def _send(self, message: Dict[str, Any]) -> bool:
        try:
            os.write(self._pipe, json.dumps(message).encode() + b"\n")
        except BlockingIOError:
            return False
        except OSError:
            return True  # The supervisor is gone. What is left to copy is copied.
        return True


class _Search:
    """Looks for steps in all streams."""

    def __init__(self, pattern: str, teller: Teller) -> None:
        self._teller = teller
        self._newest: Dict[int, int] = {}
        """Of each process."""
        self._search: Optional[StepSearch] = None
        signal.signal(signal.SIGVTALRM, _raise)
        try:
            self._search = StepSearch(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            self._give_up(f"can't be used with the Python of this image: {error}")

    def look(self, process: int, lines: List[bytes]) -> None:
        """Look for steps in these lines of a process."""
        if self._search is not None and lines:
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, SEARCH_SECONDS)
                try:
                    for line in lines:
                        self._found(process, self._search.step(line))
                finally:
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            except (TooSlowError, RecursionError, MemoryError):
                self._give_up(f"took more than {SEARCH_SECONDS:g} s for the output; use one that backtracks less")
        if self._search is None and lines:
            self._teller.sign()

    def _found(self, process: int, step: Optional[int]) -> None:
        if step is not None:
            newest = self._newest.get(process)
            self._newest[process] = step
            self._teller.step(step, 0 if newest is None else max(0, step - newest))

    def _give_up(self, why: str) -> None:
        self._search = None
        self._teller.wrong(
            f"the pattern of progress.source {why}. Until the next attempt, steps are unknown and each line is progress"
        )


def copy(streams: List[Stream], pattern: str, tell: int) -> None:
    """Copy until each stream has come to its end.

    Args:
        streams: what to copy.
        pattern: what finds the step.
        tell: the pipe to the supervisor.
    """
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # It ends with its streams.
    teller = Teller(tell)
    search = _Search(pattern, teller)
    waiting = {stream.source: stream for stream in streams}
    lines = {stream.source: Lines() for stream in streams}
    poll = select.poll()
    for source in waiting:
        poll.register(source, select.POLLIN)
    while waiting:
        for source, _ in poll.poll(teller.due()):
            stream, piece = waiting[source], os.read(source, PIECE)
            if piece:
                write(stream.sink, piece)
                search.look(stream.process, lines[source].feed(piece))
            else:
                search.look(stream.process, lines[source].end())
                poll.unregister(source)
                del waiting[source]
    teller.send()


def write(sink: int, piece: bytes) -> None:
    """Write all of it. What a full disk, or a reader that has gone, can't take is lost: no worker fails for it."""
    rest = memoryview(piece)
    while rest:
        try:
            rest = rest[os.write(sink, rest) :]
        except BlockingIOError:  # Another process has changed the file that all share.
            select.select([], [sink], [])
        except OSError:
            return


def _raise(_signum: int, _frame: object) -> None:
    raise TooSlowError
