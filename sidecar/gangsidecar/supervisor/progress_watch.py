"""Reads the progress of a worker where the job says, from its output or from a file, and searches its output.

The rule: a process of its own does the work, and belongs to no worker: the supervisor must not wait for a slow reader
of the log, for a pattern, or for a file system. A copier of output ends by itself once all processes that can write
are gone; a stop does not wait for it. What an attempt writes waits for the output of the one before.
"""

from __future__ import annotations

from functools import partial

from gangsidecar import wire
from gangsidecar.common.clock import now_ms
from gangsidecar.supervisor import copier, file_watch
from gangsidecar.supervisor.catch_up import CatchUp
from gangsidecar.supervisor.event_loop import EventLoop
from gangsidecar.supervisor.output_pipes import OutputPipes
from gangsidecar.supervisor.watcher import Searched, Then, Told, Watcher

LAST_MS = 1_000
"""How long the output of an attempt waits for that of the one before."""


class ProgressWatch:
    """What watches the processes of this supervisor's worker, attempt by attempt."""

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
            look = partial(file_watch.watch, source.file)
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
        """What the next process gets as its standard output and standard error.

        Raises:
            OSError: there are too many open files.
        """
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
        """A child that is no process of a worker has ended; returns whether it is one of these."""
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
        """Whether a report has to wait for what a process that has ended has written."""
        return self._catch_up.is_awaited

    @property
    def is_searched(self) -> bool:
        """Whether the output of the processes that are being started is searched."""
        return self._pipes is not None

    @property
    def is_copying(self) -> bool:
        """Whether some of the output may not have been written yet."""
        return bool(self._copied)
