"""A supervisor as it is shipped, with real processes; the test plays its sidecar.

It is the archive, which Python runs, or with GANGCTL_TEST_SUPERVISOR=PATH the static executable at this path.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangsidecar import wire
from gangsidecar.supervisor import processes
from gangsidecar.wire import (
    Directive,
    Phase,
    Process,
    Report,
    Restore,
    Run,
    Scanned,
    Source,
    Verb,
)
from tests.wait import SECONDS, until

if TYPE_CHECKING:
    from collections.abc import Callable


GRACE = 60_000
"""Milliseconds: on a busy machine, too, what obeys SIGTERM ends by it."""


SLEEP = ("sleep", "1000")


EXECUTABLE = os.environ.get("GANGCTL_TEST_SUPERVISOR", "")


def program(archive: Path, python: str = sys.executable) -> list[str]:
    """What starts the supervisor: the archive, or the executable beside it."""
    return [str(archive.with_name(wire.SUPERVISOR_PROGRAM))] if EXECUTABLE else [python, "-IS", str(archive)]


def wait_for(condition: Callable[[], Any]) -> Any:
    """Wait for a condition of the supervisor or its worker, and return what it found."""
    return until("what the test waits for", condition, every=0.005)


def state(pid: int) -> str:
    """That of a process, as ``proc(5)`` has it: S waits, T is stopped, Z is a zombie."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_alive(pid: int) -> bool:
    try:
        return state(pid) != "Z"
    except (FileNotFoundError, ProcessLookupError):  # The latter if it is reaped between open and read.
        return False


def unread(pipe: int) -> int:
    """How many bytes a pipe holds."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return int(count)


def is_zombie(pid: int) -> bool:
    return state(pid) == "Z"


def pids(file: Path) -> list[int]:
    return [int(one) for one in file.read_text().split()] if file.exists() else []


def text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def helpers(supervisor: int) -> list[int]:
    """The children of a supervisor that are no processes of a worker."""
    return [pid for pid in processes.children(supervisor) if not _is_marked(pid)]


def _is_marked(pid: int) -> bool:
    try:
        return b"GANG_SUPERVISED=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return True  # It is gone.


class Sidecar:
    """The listening end of the socket."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._server.settimeout(SECONDS)
        self._connection: socket.socket | None = None
        self._unread = b""
        self.last: Report | None = None

    def accept(self) -> None:
        """Take the next connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection, _ = self._server.accept()
        self._connection.settimeout(SECONDS)
        self._unread = b""
        self.last = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._server.close()

    def send(self, *messages: Any) -> None:
        self.send_line("\n".join(map(wire.encode, messages)))

    def send_line(self, text: str) -> None:
        assert self._connection is not None
        self._connection.sendall(text.encode() + b"\n")

    def receive(self) -> Any:
        assert self._connection is not None
        while b"\n" not in self._unread:
            piece = self._connection.recv(1 << 16)
            if not piece:
                raise ConnectionError("the supervisor closed the connection")
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return wire.decode(line)

    def until(self, condition: Callable[[Report], Any]) -> Report:
        """The first report for which the condition holds."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            message = self.receive()
            if isinstance(message, Report):
                self.last = message
                if condition(message):
                    return message
        raise AssertionError("no such report came")

    def imports(self) -> wire.Imports:
        """The next list of what the worker imports."""
        while not isinstance(message := self.receive(), wire.Imports):
            pass
        return message

    def scanned(self) -> Scanned:
        while not isinstance(message := self.receive(), Scanned):
            assert isinstance(message, Report)
        return message


class Member:
    """A supervisor with its sidecar."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.folder = folder
        self.pod = str(uuid.uuid4())
        self.state = folder / "state"
        self.words = folder / "termination-log"
        self.sidecar = Sidecar(folder / "socket")
        self.process: subprocess.Popen[bytes] | None = None
        self._archive = archive
        self.python = sys.executable
        self.environment: dict[str, str] | None = None
        """What the supervisor gets; None: what the test has when it starts it."""
        self.stdout: int | None = None
        """What the supervisor gets as its standard output, and with it the worker."""

    def start(self, *command: str, fsize: int = -1, **flags: str) -> Report:
        """Start a session; returns its first report."""
        self.launch(*command, fsize=fsize, **flags)
        self.sidecar.accept()
        return self.sidecar.until(lambda report: report.phase is Phase.IDLE)

    def launch(self, *command: str, fsize: int = -1, **flags: str) -> None:
        values = {
            "socket": str(self.folder / "socket"),
            "state": str(self.state),
            "gang": "g1",
            "member": "worker-0",
            "pod": self.pod,
            "address": "127.0.0.1",
            **flags,
        }
        given = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*program(self._archive, self.python), "run", *given, "--", *command],
                env={**(os.environ if self.environment is None else self.environment), "DIR": str(self.folder)},
                stdout=self.stdout,
                stderr=log,
            )
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (fsize, -1))

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def file(self, name: str = "pids") -> Path:
        return self.folder / name

    def directive(self, attempt: int, verb: Verb, **more: Any) -> Directive:
        return Directive(**{"gang": "g1", "pod": self.pod, "attempt": attempt, "verb": verb, "grace_ms": GRACE, **more})

    def hold(self, attempt: int, **more: Any) -> Report:
        self.sidecar.send(self.directive(attempt, Verb.HOLD, **more))
        return self.sidecar.until(lambda report: report.phase is Phase.READY and report.attempt == attempt)

    def order(
        self,
        report: Report,
        *envs: dict[str, str],
        restore: Restore | None = None,
        hosts: tuple[str, ...] = (),
        source: Source | None = None,
        log_patterns: tuple[str, ...] = (),
        **more: Any,
    ) -> Directive:
        started = tuple(Process(local_rank=at, rank=at, env=tuple(env.items())) for at, env in enumerate(envs or ({},)))
        run = Run(report.session, started, restore=restore, hosts=hosts, source=source, log_patterns=log_patterns)
        return self.directive(report.attempt, Verb.RUN, run=run, **more)

    def run(self, report: Report, *envs: dict[str, str], **more: Any) -> Report:
        self.sidecar.send(self.order(report, *envs, **more))
        return self.sidecar.until(lambda told: told.phase is Phase.RUNNING)

    def train(self, *command: str) -> Report:
        """Start, Hold(1), Run(1)."""
        self.start(*command)
        return self.run(self.hold(1))

    def finish(self, attempt: int) -> Report:
        self.sidecar.send(self.directive(attempt, Verb.FINISH))
        report = self.sidecar.until(lambda told: told.phase is Phase.DONE)
        assert self.wait() == 0
        return report

    def ended(self) -> Report:
        """The first report with an end of a process."""
        last = self.sidecar.last
        return last if last is not None and last.ends else self.sidecar.until(lambda report: report.ends)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(SECONDS)

    def workers(self) -> list[int]:
        found: list[int] = wait_for(lambda: pids(self.file()))
        return found

    def clean_up(self) -> None:
        self.sidecar.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        while left := processes.find_marked(self.pod):
            processes.send(left, signal.SIGKILL)


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-IS", "-c", code)


def shell(code: str) -> tuple[str, ...]:
    """A shell that first notes its pid; a dollar is doubled, as everywhere in a pod's command."""
    return ("sh", "-c", f'echo $$ >> "$DIR/pids"; {code}'.replace("$$", "$$$$"))
