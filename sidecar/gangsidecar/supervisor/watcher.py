"""A process that tells the supervisor of one attempt's progress and output, and is started again if it dies."""

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
from gangsidecar.common.clock import now_ms
from gangsidecar.common.log import log
from gangsidecar.supervisor import processes
from gangsidecar.supervisor.event_loop import READ, EventLoop
from gangsidecar.supervisor.forking import fork

AGAIN_MS = 1_000
"""After the process has died, another is started."""


class Searched(NamedTuple):
    """All output is searched that was written before this question, or the process tells nothing any more."""

    question: int


Told = wire.Progress | wire.LogMatch
Then = Callable[[Told], None]


class Watcher:
    """One process. It has come to its end if it exits with 0, or is told to end."""

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
            loop: calls back when the process tells something.
            helpers: the pids that belong to no worker.
            attempt: the attempt of the worker.
            then: gets what it tells.
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
