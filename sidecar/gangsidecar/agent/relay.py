"""Relay what passes through a sidecar: the newest report, the newest directive, and the connections that take them.

It must never decide anything, and never queue: of each kind only the newest message matters, because reports are whole
states and directives are desired states. All of it runs in one thread, so a reader that looks and then waits misses
nothing.

The supervisor's connection is a unix socket: wire messages both ways, one a line. The newest connection counts.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gangsidecar import wire
from gangsidecar.agent import attempt_gate
from gangsidecar.agent.attempt_gate import AttemptGate
from gangsidecar.agent.progress import ProgressThrottle
from gangsidecar.common import log, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SILENCE = 30.0
"""Seconds without a report of a supervisor after which the log says so."""
UNREAD_BYTES = 2 * wire.MAX_BYTES
"""Unread bytes after which the connection of a supervisor that doesn't read is closed."""


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
        self.changes = Changes()  # In :attr:`gate`, in what waits for the controller, and in :attr:`closing`.
        self.closing = False
        self.progress = ProgressThrottle(loop, self.to_supervisor)
        self._supervisor: Callable[[str], bool] | None = None
        self._directive: str | None = None
        self._scan: str | None = None
        self._report: tuple[str, wire.Report, int] | None = None
        self._reports = 0
        self._readers: Counter[int] = Counter()
        self._scanned: str | None = None
        self._imports: str | None = None

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
            case wire.Check() | wire.Ping() | wire.Imports():
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

    def imports_after(self, sent: str | None) -> str | None:
        """The newest list of what the worker imports; None = there is none, or it is what was sent."""
        return None if self._imports == sent else self._imports

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
        """Return whether the supervisor has ended deliberately: none will connect any more."""
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
            case wire.Imports():
                self._imports = line
            case _:
                raise wire.WireError(f"a {type(message).__name__} doesn't come from a supervisor")
        self.changes.notify()

    # The framework's side.

    def to_supervisor(self, message: wire.FrameworkMessage) -> bool:
        """Pass a message of the framework to the supervisor; False = none is connected that takes it."""
        return self._supervisor is not None and self._supervisor(wire.encode(message))

    @contextmanager
    def watching(self, attempt: int) -> Iterator[None]:
        """While it is open, the signal of a stop of this attempt waits for this reader."""
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


def open_to_all(socket: str) -> None:
    """Let every uid connect: the user's container may have another one than the sidecar. OSError: it can't be done.

    Its directory protects the socket: it is the pod's own volume, or a folder private to its user.
    """
    os.chmod(socket, 0o666)  # noqa: S103


class Downlink:
    """Accepts supervisors on a unix socket and passes their messages to the relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None
        self._silence: asyncio.TimerHandle | None = None

    async def open(self, path: str) -> None:
        """Listen on ``path``; a socket that an earlier sidecar left there is replaced. OSError: it can't be done."""
        self._server = await asyncio.start_unix_server(self._serve, path, limit=wire.MAX_BYTES)
        open_to_all(path)
        self._expect_report("no supervisor has connected")

    async def close(self) -> None:
        """Stop listening and end the connection."""
        if self._silence is not None:
            self._silence.cancel()
        if self._server is not None:
            self._server.close()
        if self._writer is not None:
            writer = self._writer
            writer.transport.abort()  # What is unsent is void: the next sidecar starts with whole states.
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer is not None:
            log("warning", "a newer supervisor replaces the connected one")
            self._writer.transport.abort()
        self._writer = writer

        def send(line: str) -> bool:
            if writer.is_closing():
                return False
            if writer.transport.get_write_buffer_size() > UNREAD_BYTES:
                reads = "the supervisor reads nothing any more; its connection is closed"
                log("warning", reads, unread_bytes=UNREAD_BYTES)
                writer.transport.abort()
                return False
            writer.write(line.encode() + b"\n")
            return not writer.is_closing()

        self._expect_report("the supervisor has connected, but sent no report")
        self._relay.supervisor_connected(send)
        reason = await self._listen(reader, writer)
        self._relay.supervisor_disconnected(send)
        writer.close()
        if self._writer is writer:
            self._writer = None
            if not self._relay.closing:
                log("warning", "the supervisor's connection ended", reason=reason)
                self._expect_report("the supervisor has not come back")

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Relay what arrives until the connection ends; returns why it ended."""
        try:
            while line := await reader.readuntil(b"\n"):
                if writer.is_closing():
                    break
                text = line[:-1].decode()
                message = wire.decode(text)
                self._relay.from_supervisor(text, message)
                if isinstance(message, wire.Report) and self._silence is not None:
                    self._silence.cancel()
                    self._silence = None
        except asyncio.IncompleteReadError as error:
            return "closed in the middle of a line" if error.partial else "closed"
        except asyncio.LimitOverrunError:
            return f"a line over the limit of {wire.MAX_BYTES} bytes"
        except (wire.WireError, UnicodeDecodeError, OSError) as error:
            return str(error)
        return "replaced"

    def _expect_report(self, otherwise: str) -> None:
        if self._silence is not None:
            self._silence.cancel()
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(SILENCE, log, "warning", f"{otherwise} for {SILENCE:.0f} s")
