"""What passes through a sidecar: the newest report, the newest directive, and who is there to take them.

It decides nothing. Of each kind only the newest message matters (reports are whole states, directives are desired
states), so nothing is ever queued. All of it runs in one thread: a reader that looks and then waits misses nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gangsidecar import wire
from gangsidecar.agent import attempt_gate
from gangsidecar.agent.progress_throttle import Pacing
from gangsidecar.common.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable


class Changes:
    """Wakes everybody who waits, each time that something has changed."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def tell(self) -> None:
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
        self.standing = attempt_gate.Standing()
        self.changes = Changes()
        """Of :attr:`standing`, of what waits for the controller, and of :attr:`closing`."""
        self.closing = False
        self.pacing = Pacing(loop, self.hand)
        self._supervisor: Callable[[str], bool] | None = None
        self._directive: str | None = None
        self._scan: str | None = None
        self._report: tuple[str, wire.Report, int] | None = None
        self._reports = 0
        self._scanned: str | None = None

    # The controller's side.

    def controller_said(self, text: str, message: wire.Message) -> None:
        """Hand a message of the controller to the supervisor; of a directive and a scan the newest is kept for it."""
        line = text.replace("\n", " ")  # JSON has raw newlines between tokens only.
        match message:
            case wire.Directive():
                self._directive = line
                self.standing = attempt_gate.heard(self.standing, message, now_ms())
            case wire.Scan():
                self._scan = line
            case wire.Ping():
                pass
            case _:
                raise wire.WireError(f"a {type(message).__name__} doesn't come from a controller")
        if self._supervisor is not None:
            self._supervisor(line)
        if isinstance(message, wire.Directive):
            self.changes.tell()

    def controller_left(self) -> None:
        """What it said is not handed to another supervisor: the next controller says what it wants itself."""
        self._directive = self._scan = self._scanned = None

    def report_after(self, number: int, revision: int) -> tuple[int, str] | None:
        """The newest report, if it is newer than ``number``, as a controller of this revision of the wire takes it.

        Its ages have grown by the time that it waited here.
        """
        if self._report is None or self._reports == number:
            return None
        text, report, at = self._report
        told = wire.in_revision(wire.aged(report, now_ms() - at), revision)
        return self._reports, text if told is report else wire.encode(told)

    def take_scanned(self) -> str | None:
        """The answer to a scan, once."""
        scanned, self._scanned = self._scanned, None
        return scanned

    # The supervisor's side.

    def supervisor_came(self, hand: Callable[[str], bool]) -> None:
        """A supervisor has connected; ``hand`` queues one line for it and says whether it could."""
        self._supervisor = hand
        for line in (self._directive, self._scan):
            if line is not None:
                hand(line)
        self.pacing.flush()

    def supervisor_left(self, hand: Callable[[str], bool]) -> None:
        """This connection has ended; nothing changes if a newer one has already taken its place."""
        if self._supervisor is hand:
            self._supervisor = None
            self.changes.tell()

    @property
    def is_over(self) -> bool:
        """Whether the supervisor has ended deliberately: none will come any more."""
        return self._supervisor is None and self._report is not None and self._report[1].phase is wire.Phase.DONE

    def supervisor_said(self, line: str, message: wire.Message) -> None:
        """Keep a report or the answer to a scan for the controller, who gets it at once if he is there."""
        match message:
            case wire.Report():
                self._report = line, message, now_ms()
                self._reports += 1
                self.standing = attempt_gate.told(self.standing, message)
            case wire.Scanned():
                self._scan = None
                self._scanned = line
            case _:
                raise wire.WireError(f"a {type(message).__name__} doesn't come from a supervisor")
        self.changes.tell()

    # The framework's side.

    def hand(self, message: wire.Checkpoint | wire.Dropped | wire.Loaded | wire.Progress | wire.Request) -> bool:
        """Hand a message of the framework to the supervisor; False = none is connected that takes it."""
        return self._supervisor is not None and self._supervisor(wire.encode(message))

    def close(self) -> None:
        """The sidecar ends."""
        self.closing = True
        self.pacing.close()
        self.changes.tell()
