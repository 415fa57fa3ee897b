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
from typing import TYPE_CHECKING, Any, NamedTuple

from gangsidecar import wire
from gangsidecar.common import log, now_ms
from gangsidecar.supervisor import copier, processes
from gangsidecar.supervisor.copier import Stream
from gangsidecar.supervisor.event_loop import READ, EventLoop, fork

if TYPE_CHECKING:
    from gangsidecar.supervisor.event_loop import EventLoop

LAST_MS = 1_000
"""How long the output of an attempt waits for that of the one before."""


class ProgressWatch:
    """Watches the processes of this supervisor's worker, attempt by attempt."""

    def __init__(self, loop: EventLoop, helpers: set[int], then: Then) -> None:
        """``helpers``: the pids that belong to no worker. ``then`` gets the progress that was read, and matches."""
        self._loop = loop
        self._helpers = helpers
        self._then = then
        self._file: Watcher | None = None
        self._copied: list[tuple[Watcher, OutputPipes, CatchUp]] = []
        """The newest last; before it, those whose output is not complete yet."""
        self._catch_up = CatchUp(loop)
        """That of the newest attempt."""
        self._pipes: OutputPipes | None = None
        """Those of the processes that are being started."""

    def begin(self, attempt: int, run: wire.Run) -> None:
        """The processes of an attempt are about to be started."""
        self.worker_gone()
        catch_up = self._catch_up = CatchUp(self._loop)
        source = run.source or wire.Source()
        if source.file:
            look = partial(copier.watch, source.file)
            self._file = Watcher(self._loop, self._helpers, attempt, partial(self._take, None), look)
            self._file.start()
        if not source.pattern and not run.log_patterns:
            return
        pipes = self._pipes = OutputPipes()
        if run.log_patterns:
            catch_up.open()
            pipes.readers.extend(catch_up.readers)
        restored = None if run.restore is None else run.restore.step
        wanted = copier.Wanted(source.pattern, run.log_patterns, catch_up.readers, restored)
        copy = partial(copier.copy, pipes.streams, wanted)
        then = partial(self._take, catch_up)
        watcher = Watcher(self._loop, self._helpers, attempt, then, copy, pipes.readers)
        self._copied.append((watcher, pipes, catch_up))

    def _take(self, catch_up: CatchUp | None, told: Told | Searched) -> None:
        if not isinstance(told, Searched):
            self._then(told)
        elif catch_up is not None:
            catch_up.answered(told.question)

    def output(self) -> tuple[int, int]:
        """Return the standard output and standard error of the next process. OSError: too many open files."""
        return (1, 2) if self._pipes is None else self._pipes.add()

    def all_started(self) -> None:
        """No more processes of this attempt are started."""
        if self._pipes is None:
            return
        self._pipes.close_writers()
        self._pipes = None
        newest, _, _ = self._copied[-1]
        if len(self._copied) == 1:
            newest.start()
        else:
            self._loop.at(now_ms() + LAST_MS, newest.start)

    def reaped(self, pid: int, status: int) -> bool:
        """A child that isn't a worker's process has ended; return whether it is one of these."""
        if self._file is not None and self._file.pid == pid:
            self._file.reaped(status)
            return True
        for one in self._copied:
            watcher, pipes, catch_up = one
            if watcher.pid == pid:
                watcher.reaped(status)
                if watcher.is_over:
                    pipes.close_readers()
                    catch_up.close()
                    self._copied.remove(one)
                    for following, _, _ in self._copied[:1]:
                        following.start()
                return True
        return False

    def worker_gone(self) -> None:
        """No process of the worker is left."""
        if self._file is not None:
            self._file.end()

    def process_ended(self) -> None:
        """A process of the newest attempt has ended by itself: what it has written counts."""
        self._catch_up.ask()

    @property
    def is_searching(self) -> bool:
        """Return whether a report has to wait for what a process that has ended has written."""
        return self._catch_up.is_awaited

    @property
    def is_searched(self) -> bool:
        """Return whether the output of the processes that are being started is searched."""
        return self._pipes is not None

    @property
    def is_copying(self) -> bool:
        """Return whether some of the output may not have been written yet."""
        return bool(self._copied)


AGAIN_MS = 1_000
"""After the process has died, another is started."""


class Searched(NamedTuple):
    """All output is searched that was written before this question, or nothing more will come."""

    question: int


Told = wire.Progress | wire.LogMatch
Then = Callable[[Told], None]


class Watcher:
    """One process. It has come to its end if it exits with 0, or :meth:`end` is called."""

    def __init__(
        self,
        loop: EventLoop,
        helpers: set[int],
        attempt: int,
        then: Callable[[Told | Searched], None],
        work: Callable[[int], None],
        keep: Sequence[int] = (),
    ) -> None:
        """Start nothing yet.

        Args:
            loop: calls back when the process writes something.
            helpers: the pids that belong to no worker.
            attempt: the attempt of the worker.
            then: gets what it writes.
            work: what the process does. It gets the pipe to this one.
            keep: the files that it keeps; with any, it outlives this process.
        """
        self._loop = loop
        self._helpers = helpers
        self._attempt = attempt
        self._then = then
        self._work = work
        self._keep = keep
        self.pid = 0
        """0 while there is none."""
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

    def _take(self, told: dict[str, Any]) -> None:
        if "wrong" in told:
            log("warning", told["wrong"], attempt=self._attempt)
        elif "pattern" in told:
            self._then(wire.LogMatch(self._attempt, told["pattern"], told["line"]))
        elif "searched" in told:
            self._then(Searched(told["searched"]))
        elif "step" not in told:
            self._then(wire.Progress(self._attempt, 0, told["age_ms"], uncounted=True))
        else:
            first, first_age_ms, every = told["first"], told["first_age_ms"], told.get("every")
            progress = wire.Progress(self._attempt, told["step"], told["age_ms"], first_step=first, every=every)
            self._then(replace(progress, first_age_ms=first_age_ms))


class OutputPipes:
    """One or two pipes for each process."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.readers: list[int] = []
        self._writers: list[int] = []
        self._processes = 0

    def add(self) -> tuple[int, int]:
        """Return the standard output and standard error of the next process: one file where the two are one here."""
        out = self._pipe(1)
        both = out, out if _are_one(1, 2) else self._pipe(2)
        self._processes += 1
        return both

    def close_writers(self) -> None:
        """Every process has its files."""
        _close(self._writers)

    def close_readers(self) -> None:
        """All output is copied."""
        _close(self.readers)

    def _pipe(self, sink: int) -> int:
        source, writer = os.pipe()
        self.streams.append(Stream(source, sink, self._processes))
        self.readers.append(source)
        self._writers.append(writer)
        return writer


def _close(files: list[int]) -> None:
    while files:
        os.close(files.pop())


def _are_one(file: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(file, other)
    except OSError:
        return False


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
        """All is copied. What the copier has written may not be read yet."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    @property
    def is_awaited(self) -> bool:
        """Return whether the report has to wait."""
        return self._answered < self._asked and now_ms() < self._by


def _wake() -> None:
    """The loop turns, and the report is sent."""
