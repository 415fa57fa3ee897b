"""What passes through a sidecar: the newest report, the newest directive, and the connections that take them.

It must never decide anything, and never queue: of each kind only the newest message matters, because reports are whole
states and directives are desired states. All of it runs in one thread, so a reader that looks and then waits misses
nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gangsidecar import wire
from gangsidecar.agent import attempt_gate
from gangsidecar.agent.attempt_gate import AttemptGate
from gangsidecar.agent.progress_throttle import ProgressThrottle
from gangsidecar.common.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Changes:
    """Wakes every waiting task each time that something has changed."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Something has changed."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self) -> None:
        """Until the next change."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)


class Relay:
    """Between the controller's connection, the supervisor's connection and the framework API."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.gate = AttemptGate()
        self.changes = Changes()
        """Of :attr:`gate`, of what waits for the controller, and of :attr:`closing`."""
        self.closing = False
        self.progress = ProgressThrottle(loop, self.to_supervisor)
        self._supervisor: Callable[[str], bool] | None = None
        self._directive: str | None = None
        self._scan: str | None = None
        self._report: tuple[str, wire.Report, int] | None = None
        self._reports = 0
        self._readers: Counter[int] = Counter()
        self._scanned: str | None = None

    # The controller's side.

    def from_controller(self, text: str, message: wire.Message) -> None:
        """Pass a message of the controller to the supervisor; keep the newest directive and scan for the next one."""
        line = text.replace("\n", " ")  # JSON has raw newlines between tokens only.
        match message:
            case wire.Directive():
                self.progress.flush()  # The steps until a stop count: without them, fewer would seem to be lost.
                self._directive = line
                self.gate = attempt_gate.with_directive(self.gate, message, now_ms())
            case wire.Scan():
                self._scan = line
            case wire.Ping():
                pass
            case _:
                raise wire.WireError(f"a {type(message).__name__} doesn't come from a controller")
        if self._supervisor is not None:
            self._supervisor(line)
        if isinstance(message, wire.Directive):
            self.changes.notify()

    def controller_disconnected(self) -> None:
        """Drop what it sent: the next controller sends what it wants itself."""
        self._directive = self._scan = self._scanned = None

    def report_after(self, number: int, revision: int) -> tuple[int, str] | None:
        """The newest report and its number, as this revision takes it; None = it is not newer than ``number``.

        Its ages have grown by the time that it waited here.
        """
        if self._report is None or self._reports == number:
            return None
        text, report, at = self._report
        current = wire.in_revision(wire.aged(report, now_ms() - at), revision)
        return self._reports, text if current is report else wire.encode(current)

    def take_scanned(self) -> str | None:
        """The answer to a scan, once."""
        scanned, self._scanned = self._scanned, None
        return scanned

    # The supervisor's side.

    def supervisor_connected(self, send: Callable[[str], bool]) -> None:
        """A supervisor has connected; ``send`` queues one line for it and returns whether it could."""
        self._supervisor = send
        for line in (self._directive, self._scan):
            if line is not None:
                send(line)
        for attempt, readers in self._readers.items():
            self.to_supervisor(wire.Watching(attempt, readers))
        self.progress.flush()

    def supervisor_disconnected(self, send: Callable[[str], bool]) -> None:
        """This connection has ended. Nothing changes if a newer one has already replaced it."""
        if self._supervisor is send:
            self._supervisor = None
            self.changes.notify()

    @property
    def is_over(self) -> bool:
        """Whether the supervisor has ended deliberately: none will connect any more."""
        return self._supervisor is None and self._report is not None and self._report[1].phase is wire.Phase.DONE

    def from_supervisor(self, line: str, message: wire.Message) -> None:
        """Keep a report or the answer to a scan for the controller, which gets it at once if it is connected."""
        match message:
            case wire.Report():
                self._report = line, message, now_ms()
                self._reports += 1
                self.gate = attempt_gate.with_report(self.gate, message)
            case wire.Scanned():
                self._scan = None
                self._scanned = line
            case _:
                raise wire.WireError(f"a {type(message).__name__} doesn't come from a supervisor")
        self.changes.notify()

    # The framework's side.

    def to_supervisor(self, message: wire.FrameworkMessage) -> bool:
        """Pass a message of the framework to the supervisor; False = none is connected that takes it."""
        return self._supervisor is not None and self._supervisor(wire.encode(message))

    @contextmanager
    def watching(self, attempt: int) -> Iterator[None]:
        """While it is open, a reader wants to hear of a stop of this attempt before its signal."""
        self._watch(attempt, 1)
        try:
            yield
        finally:
            self._watch(attempt, -1)

    def _watch(self, attempt: int, more: int) -> None:
        self._readers[attempt] += more
        self.to_supervisor(wire.Watching(attempt, self._readers[attempt]))
        self._readers = +self._readers

    def close(self) -> None:
        """The sidecar ends."""
        self.closing = True
        self.progress.close()
        self.changes.notify()
