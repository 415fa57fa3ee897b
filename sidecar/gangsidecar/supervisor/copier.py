"""Copy the output of a worker to where it would have gone, and search it; or watch the file that it touches.

A process of its own does it: a slow reader, a pattern or a dead file system may block it.

The rule: what arrives is written out before it is looked at, byte for byte and in order, and the copier ends when no
process can write any more. A pattern must not hold up the output: one that takes longer than :data:`SEARCH_SECONDS` of
processor time is given up, and from then on each line counts as progress of which the step is unknown: a job that goes
on printing must not count as hung.

It sends lines of JSON to the supervisor: ``{"step": 7, "first": 1, "every": 2, "age_ms": 3, "first_age_ms": 9}`` or
``{"age_ms": 3}``, ``{"pattern": "Xid", "line": "NVRM: Xid ..."}``, and once ``{"wrong": "a sentence"}``. Asked through
a pipe of its own, it says ``{"searched": 2}`` when all is searched that was there at question 2.

The modification time of a file is compared with the one before, never with a clock. A file that appears is progress;
one that goes is not.
"""

from __future__ import annotations

import collections
import json
import os
import re
import select
import signal
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from gangsidecar import wire
from gangsidecar.common import now_ms
from gangsidecar.supervisor.output_search import LineSplitter, LogSearch, StepSearch, TooSlowError, run_limited

PIECE = 1 << 16
REPORT_MS = 200
"""The first step is sent at once; then at most so often."""
SEARCH_SECONDS = 1.0
LAST_SECONDS = 5
"""The time that the end of the copier waits for a supervisor that does not read."""
EVERY_SECONDS = 1.0


class Stream(NamedTuple):
    """A pipe from a process of the worker, and where its output goes."""

    source: int
    sink: int
    process: int
    """The number of the process: steps are counted for each."""


class Reporter:
    """Sends progress and what was found to the supervisor, never waiting for it.

    Progress that a full pipe refuses is sent later, with what is newer; all else is kept until it can be sent.
    """

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._steps: dict[str, int] = {}
        self._at = self._first_at = self._sent_at = 0
        self._is_waiting = False
        self._kept: collections.deque[dict[str, Any]] = collections.deque()

    def step(self, step: int, gap: int) -> None:
        """A step was found. ``gap``: how far it is from the one before of its process; 0 = unknown."""
        steps = self._steps
        if not steps:
            self._first_at = now_ms()
        every = max(steps.get("every", 0), gap)
        self._steps = {"step": max(steps.get("step", step), step), "first": steps.get("first", step)}
        self._steps.update({"every": every} if every else {})
        self.sign()

    def sign(self) -> None:
        """There is progress."""
        self._at, self._is_waiting = now_ms(), True

    def keep(self, **message: str | int) -> None:
        """Send this too, as soon as the pipe takes it: ``wrong``, ``pattern`` and ``line``, or ``searched``."""
        self._kept.append(message)
        self._send_kept()

    def due(self) -> int | None:
        """Send what is due; returns in how many milliseconds the rest is, or None."""
        self._send_kept()
        rest = self._sent_at + REPORT_MS - now_ms()
        if self._is_waiting and rest > 0:
            return rest
        self.send()
        return REPORT_MS if self._is_waiting or self._kept else None

    def end(self) -> None:
        """Send all that was not sent, as far as the supervisor still reads."""
        self.send()
        self._send_kept()
        give_up = now_ms() + LAST_SECONDS * 1000
        while self._kept and now_ms() < give_up:
            select.select([], [self._pipe], [], LAST_SECONDS)
            self._send_kept()

    def send(self) -> None:
        """Send what has not been sent."""
        if not self._is_waiting:
            return
        now = now_ms()
        ages = {"age_ms": now - self._at, **({"first_age_ms": now - self._first_at} if self._steps else {})}
        self._is_waiting = not self._send({**self._steps, **ages})
        self._sent_at = now

    def _send_kept(self) -> None:
        while self._kept and self._send(self._kept[0]):
            self._kept.popleft()

    def _send(self, message: dict[str, Any]) -> bool:
        try:
            os.write(self._pipe, json.dumps(message).encode() + b"\n")
        except BlockingIOError:
            return False
        except OSError:
            return True  # The supervisor is gone. What is left to copy is copied.
        return True


class _Search:
    """Looks for steps in all streams. That of the restore point is none before another: a line says what was loaded."""

    def __init__(self, pattern: str, restored: int | None, reporter: Reporter) -> None:
        self._reporter = reporter
        self._restored = restored
        self._newest: dict[int, int] = {}  # By process.
        self._search: StepSearch | None = None
        try:
            self._search = StepSearch(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            self._give_up(f"can't be used with the Python of this image: {error}")

    def look(self, process: int, lines: list[bytes]) -> None:
        if self._search is not None and lines:
            try:
                run_limited(SEARCH_SECONDS, partial(self._look, self._search, process, lines))
            except (TooSlowError, RecursionError, MemoryError):
                self._give_up(f"took more than {SEARCH_SECONDS:g} s for the output; use one that backtracks less")
        if self._search is None and lines:
            self._reporter.sign()

    def _look(self, search: StepSearch, process: int, lines: list[bytes]) -> None:
        for line in lines:
            self._found(process, search.step(line))

    def _found(self, process: int, step: int | None) -> None:
        if step is not None:
            newest = self._newest.get(process)
            self._newest[process] = step
            if step == self._restored and newest in {None, step}:
                return
            self._reporter.step(step, 0 if newest is None else max(0, step - newest))

    def _give_up(self, why: str) -> None:
        self._search = None
        then = "Until the next attempt, steps are unknown and each line is progress"
        self._reporter.keep(wrong=f"the pattern of progress.source {why}. {then}")


class Patterns(NamedTuple):
    """The patterns to look for."""

    step: str = ""
    """The pattern that finds a step; empty if none is looked for."""
    log: Sequence[str] = ()
    """The patterns of ``podFailurePolicy``."""
    questions: Sequence[int] = ()
    """The pipe through which it is asked whether all is searched, if there is one."""
    restored: int | None = None
    """The step of the restore point."""


def copy_streams(streams: list[Stream], patterns: Patterns, tell: int) -> None:
    """Copy until each stream has come to its end, search for the patterns, and write to the pipe ``tell``."""
    for one in (*wire.STOP_SIGNALS.values(), signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # It ends with its streams.
    reporter = Reporter(tell)
    steps = _Search(patterns.step, patterns.restored, reporter) if patterns.step else None
    log = LogSearch(patterns.log, reporter.keep)

    def search(process: int, found: list[bytes]) -> None:
        log.look(found)
        if steps is not None:
            steps.look(process, found)

    waiting = {stream.source: stream for stream in streams}
    lines = {stream.source: LineSplitter() for stream in streams}
    questions = _Questions()
    poll = select.poll()
    for source in [*waiting, *patterns.questions]:
        poll.register(source, select.POLLIN)
    while waiting:
        due = reporter.due()
        ready = [source for source, _ in poll.poll(0 if questions.unread else due)]
        for source in ready:
            if source not in waiting:
                if not questions.take(source, set(waiting)):
                    poll.unregister(source)
                continue
            stream, piece = waiting[source], os.read(source, PIECE)
            if piece:
                write_all(stream.sink, piece)
                search(stream.process, lines[source].feed(piece))
            else:
                search(stream.process, lines[source].end())
                poll.unregister(source)
                del waiting[source]
        if questions.are_answered(waiting.keys() & ready):
            log.look([rest for one in lines.values() for rest in one.unfinished()])
            reporter.keep(searched=questions.newest)
    reporter.end()


class _Questions:
    """The newest question whether all is searched, and what must be read before the answer."""

    def __init__(self) -> None:
        self.newest = 0
        self.unread: set[int] = set()  # The streams in which something from before the question may be left.
        self._is_open = False

    def take(self, pipe: int, waiting: set[int]) -> bool:
        """Read the newest question: all these streams may have what is older. False: the supervisor is gone."""
        questions = os.read(pipe, PIECE).split()
        if questions:
            self.newest, self.unread, self._is_open = int(questions[-1]), waiting, True
        return bool(questions)

    def are_answered(self, ready: set[int]) -> bool:
        """Return whether nothing is left, if only these streams had something in this turn; True only once."""
        self.unread &= ready
        if self.unread or not self._is_open:
            return False
        self._is_open = False
        return True


def write_all(sink: int, piece: bytes) -> None:
    """Write all of it. What a full disk, or a reader that has gone, can't take is lost: no worker fails for it."""
    rest = memoryview(piece)
    while rest:
        try:
            rest = rest[os.write(sink, rest) :]
        except BlockingIOError:  # Another process has changed the file that all share.
            select.select([], [sink], [])
        except OSError:
            return


def watch(path: str, tell: int) -> None:
    """Report each change, without end. ``tell``: the pipe to the supervisor."""
    reporter = Reporter(tell)
    before, wrong = _seen(path)
    logged = ""
    while True:
        if wrong and wrong != logged:
            logged = wrong
            reporter.keep(wrong=f"the file of progress.source can't be looked at: {wrong}")
        time.sleep(EVERY_SECONDS)
        now, wrong = _seen(path)
        if now is not None and now != before:
            before = now
            reporter.sign()
        reporter.send()


def _seen(path: str) -> tuple[tuple[int, int] | None, str]:
    """Return the file's version, or None and what is wrong. A file that doesn't exist isn't wrong: it may come."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)
    return (found.st_mtime_ns, found.st_ino), ""
