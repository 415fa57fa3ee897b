"""Read the progress of a worker where the job says, from its output or from a file, and search its output.

The rule: a process of its own does the work (``copier.py``), and belongs to no worker: the supervisor must not wait for
a slow reader of the log, for a pattern, or for a file system. A copier of output ends by itself once all processes that
can write are gone; a stop does not wait for it. What an attempt writes waits for the output of the one before.

The ends to read of the pipes are kept open here until the copier has come to its end: if it dies, another goes on, and
no process of the worker fails because nothing reads what it writes. The ends to write are closed here as soon as all
processes have them: when the last of them is gone, the output is complete.

The report of an end has the lines that were found before it. So the end itself counts at once, and only the report
waits, until the copier has searched all that was written before, and never longer than :data:`AT_MOST_MS`. What is
found later is reported as well, but may come too late for the decision.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from gangsidecar import wire
from gangsidecar.common import log, now_ms
from gangsidecar.supervisor import copier, processes
from gangsidecar.supervisor.event_loop import READ, EventLoop, fork

AGAIN_MS = 1_000
"""After a watching process has died, another is started."""
LAST_MS = 1_000
"""The time that the output of an attempt waits for that of the one before."""
AT_MOST_MS = 500
"""The time that the report of an end waits for the search of what was written before it."""


class Searched(NamedTuple):
    """All output is searched that was written before this question, or nothing more will come."""

    question: int


Notice = wire.Progress | wire.LogMatch


class ProgressWatch:
    """Watches the processes of this supervisor's worker, attempt by attempt."""

    def __init__(self, loop: EventLoop, helpers: set[int], then: Callable[[Notice], None]) -> None:
        """``helpers``: the pids that belong to no worker. ``then`` gets the progress that was read, and matches."""
        self._loop = loop
        self._helpers = helpers
        self._then = then
        self._file: Watcher | None = None
        self._copies: list[_Copy] = []  # The newest last; before it, those whose output is not complete yet.
        self._newest: _Copy | None = None  # That of the newest attempt, if its output is searched.
        self._starting: _Copy | None = None  # That of the processes that are being started.

    def begin(self, attempt: int, run: wire.Run) -> None:
        """The processes of an attempt are about to be started."""
        self.worker_gone()
        self._newest = None
        source = run.source or wire.Source()
        if source.file:
            self._file = Watcher(self._loop, self._helpers, attempt, self._take, partial(copier.watch, source.file))
            self._file.start()
        if source.pattern or run.log_patterns:
            self._newest = self._starting = _Copy(self._loop, self._helpers, attempt, run, self._take)
            self._copies.append(self._newest)

    def _take(self, found: Notice | Searched) -> None:
        if not isinstance(found, Searched):
            self._then(found)

    def output(self) -> tuple[int, int]:
        """Return the standard output and standard error of the next process. OSError: too many open files."""
        return (1, 2) if self._starting is None else self._starting.add_process()

    def all_started(self) -> None:
        """No more processes of this attempt are started."""
        if self._starting is None:
            return
        newest, self._starting = self._starting, None
        newest.close_writers()
        if len(self._copies) == 1:
            newest.watcher.start()
        else:
            self._loop.at(now_ms() + LAST_MS, newest.watcher.start)

    def reaped(self, pid: int, status: int) -> bool:
        """A child that isn't a worker's process has ended; return whether it is one of these."""
        if self._file is not None and self._file.pid == pid:
            self._file.reaped(status)
            return True
        one = next((copy for copy in self._copies if copy.watcher.pid == pid), None)
        if one is None:
            return False
        one.watcher.reaped(status)
        if one.watcher.is_over:
            one.close()
            self._copies.remove(one)
            for following in self._copies[:1]:
                following.watcher.start()
        return True

    def worker_gone(self) -> None:
        """No process of the worker is left."""
        if self._file is not None:
            self._file.end()

    def process_ended(self) -> None:
        """A process of the newest attempt has ended by itself: what it has written counts."""
        if self._newest is not None:
            self._newest.ask()

    @property
    def is_searching(self) -> bool:
        """Return whether a report has to wait for what a process that has ended has written."""
        return self._newest is not None and self._newest.is_awaited

    @property
    def is_searched(self) -> bool:
        """Return whether the output of the processes that are being started is searched."""
        return self._starting is not None

    @property
    def is_copying(self) -> bool:
        """Return whether some of the output may not have been written yet."""
        return bool(self._copies)


class _Copy:
    """The copier of one attempt's output, the pipes from its processes, and the questions whether all is searched."""

    def __init__(
        self, loop: EventLoop, helpers: set[int], attempt: int, run: wire.Run, then: Callable[[Notice | Searched], None]
    ) -> None:
        self._loop = loop
        self._then = then
        self._streams: list[copier.Stream] = []
        self._readers: list[int] = []
        self._writers: list[int] = []
        self._processes = 0
        self._asked = self._answered = 0
        self._by = 0  # When no answer is waited for any more.
        self._asks = -1  # The end to write of the pipe for questions.
        if run.log_patterns:
            self._open()
        restored = None if run.restore is None else run.restore.step
        pattern = "" if run.source is None else run.source.pattern
        search = copier.Patterns(pattern, run.log_patterns, tuple(self._readers), restored)
        work = partial(copier.copy_streams, self._streams, search)
        self.watcher = Watcher(loop, helpers, attempt, self._take, work, self._readers)

    def _open(self) -> None:
        """Let reports wait. Without a pipe they don't."""
        try:
            reader, self._asks = os.pipe()
        except OSError as error:
            log("warning", "reports of ends can't wait for lines of the log", reason=error)
            return
        self._readers.append(reader)
        os.set_blocking(self._asks, False)

    def add_process(self) -> tuple[int, int]:
        """Return the standard output and standard error of the next process: one file where the two are one here."""
        out = self._pipe(1)
        both = out, out if _are_one(1, 2) else self._pipe(2)
        self._processes += 1
        return both

    def _pipe(self, sink: int) -> int:
        source, writer = os.pipe()
        self._streams.append(copier.Stream(source, sink, self._processes))
        self._readers.append(source)
        self._writers.append(writer)
        return writer

    def close_writers(self) -> None:
        """Every process has its files."""
        while self._writers:
            os.close(self._writers.pop())

    def close(self) -> None:
        """All output is copied. What the copier has written may not be read yet."""
        while self._readers:
            os.close(self._readers.pop())
        if self._asks >= 0:
            os.close(self._asks)
            self._asks = -1

    def ask(self) -> None:
        """Ask whether all is searched: a process of the worker has ended by itself."""
        if self._asks < 0:
            return
        if not self.is_awaited:
            self._by = now_ms() + AT_MOST_MS
            self._loop.at(self._by, lambda: None)  # The loop turns, and the report is sent.
        self._asked += 1
        try:
            os.write(self._asks, b"%d\n" % self._asked)
        except OSError:  # The pipe is full: the newest question in it is answered, and this one in time or not.
            return

    def _take(self, found: Notice | Searched) -> None:
        if isinstance(found, Searched):
            self._answered = max(self._answered, found.question)
        self._then(found)

    @property
    def is_awaited(self) -> bool:
        """Return whether the report has to wait."""
        return self._answered < self._asked and now_ms() < self._by


def _are_one(file: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(file, other)
    except OSError:
        return False


class Watcher:
    """A process that watches one attempt, and is started again if it dies. It is over if it exits with 0, or is ended.

    ``work`` is what it does; it gets the pipe to this process, and ``then`` what it writes there. It keeps the files
    ``keep``; with any, it outlives this process.
    """

    def __init__(
        self,
        loop: EventLoop,
        helpers: set[int],
        attempt: int,
        then: Callable[[Notice | Searched], None],
        work: Callable[[int], None],
        keep: Sequence[int] = (),
    ) -> None:
        self._loop = loop
        self._helpers = helpers
        self._attempt = attempt
        self._then = then
        self._work = work
        self._keep = keep
        self.pid = 0  # 0 while there is none.
        self.is_over = False

    def start(self) -> None:
        """Start the process, unless it runs or is over."""
        if self.is_over or self.pid:
            return
        try:
            self.pid, pipe = fork(self._work, self._keep, outlives=bool(self._keep))
        except OSError as error:
            log("error", "progress can't be read: no process can be started; trying again", reason=error)
            self._loop.at(now_ms() + AGAIN_MS, self.start)
            return
        self._helpers.add(self.pid)
        self._loop.watch(pipe, READ, partial(self._read, pipe, []))

    def end(self) -> None:
        """Kill it: it has nothing to do any more."""
        self.is_over = True
        if self.pid:
            processes.send([self.pid], signal.SIGKILL)

    def reaped(self, status: int) -> None:
        """The process has ended, and its pid is free."""
        self.pid = 0
        if status == 0:
            self.is_over = True
        elif not self.is_over:
            log("warning", "the process that reads progress has died; another is started", status=status)
            self._loop.at(now_ms() + AGAIN_MS, self.start)

    def _read(self, pipe: int, pieces: list[bytes], _mask: int) -> None:
        try:
            piece = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return
        if not piece:
            self._loop.forget(pipe)
            os.close(pipe)
            self._then(Searched(sys.maxsize))
            return
        *lines, rest = (b"".join(pieces) + piece).split(b"\n")
        pieces[:] = [rest]
        for line in lines:
            self._take(json.loads(line))

    def _take(self, found: dict[str, Any]) -> None:
        if "wrong" in found:
            log("warning", found["wrong"], attempt=self._attempt)
        elif "pattern" in found:
            self._then(wire.LogMatch(self._attempt, found["pattern"], found["line"]))
        elif "searched" in found:
            self._then(Searched(found["searched"]))
        elif "step" not in found:
            self._then(wire.Progress(self._attempt, 0, found["age_ms"], uncounted=True))
        else:
            first, first_age_ms, every = found["first"], found["first_age_ms"], found.get("every")
            progress = wire.Progress(self._attempt, found["step"], found["age_ms"], first_step=first, every=every)
            self._then(replace(progress, first_age_ms=first_age_ms))
