"""Run checks: commands of the job that run in the worker's place, and gangctl's own, before an attempt starts.

A check has the environment, the user and the folder of a worker, a session of its own, no input, and the worker's
standard error. Of its standard output only the end is kept, however much it prints. What it starts is ended with it
(``machine/checks.py``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from gangsidecar import wire
from gangsidecar.common import log
from gangsidecar.supervisor import launch, processes
from gangsidecar.supervisor.event_loop import READ, EventLoop
from gangsidecar.supervisor.machine import CheckEnded
from gangsidecar.supervisor.output_search import printable
from gangsidecar.supervisor.settings import SupervisorSettings

KEPT = 4_096
"""Bytes at the end of its standard output that are kept."""
BUILTIN = r"""
import sys
sys.path.insert(0, sys.argv.pop(1))
from gangsidecar.start.checks import main
sys.exit(main(sys.argv[1:]))
"""


class Checks:
    """Runs one check at a time."""

    def __init__(self, loop: EventLoop, settings: SupervisorSettings) -> None:
        self._loop = loop
        self._settings = settings
        self._running: tuple[int, int, int] | None = None  # Turn, pid, and the pipe of its output.
        self._printed = b""

    def start(self, check: wire.Check) -> CheckEnded | None:
        """Start a check; return its end if it can't be executed."""
        env = self._environment(check)
        command = launch.expand_command(check.command, env) or self._builtin(check, env)
        if not command:
            return CheckEnded(check.turn, wire.CHECK_CANT_TELL, detail="no Python was found to run it with")
        pipe, output = os.pipe()
        os.set_blocking(pipe, False)
        try:
            pid = processes.spawn(command, env, (output, 2))
        except (OSError, ValueError) as error:
            os.close(pipe)
            failed = launch.not_executed(command[0], 0, error)
            return CheckEnded(check.turn, failed.exit_code, detail=failed.message)
        finally:
            os.close(output)
        log("info", "a check begins", check=check.name, turn=check.turn, pid=pid, rank=check.rank, of=check.size)
        self._running, self._printed = (check.turn, pid, pipe), b""
        self._loop.watch(pipe, READ, lambda _mask: self._read(pipe))
        return None

    def note_end(self, pid: int, status: int) -> CheckEnded | None:
        """Note that a child was reaped; return how the check ended if it was its process."""
        if self._running is None or self._running[1] != pid:
            return None
        turn, _, pipe = self._running
        self._read(pipe)
        self._running = None
        self._loop.forget(pipe)
        os.close(pipe)
        detail = last_line(self._printed)
        if os.WIFSIGNALED(status):
            return CheckEnded(turn, signal=os.WTERMSIG(status), detail=detail)
        return CheckEnded(turn, os.WEXITSTATUS(status), detail=detail)

    def _read(self, pipe: int) -> None:
        """Read what there is, at most as much as a pipe has room for: what it leaves behind may print on."""
        try:
            piece = os.read(pipe, 1 << 20)
        except BlockingIOError:
            return
        if not piece:
            self._loop.forget(pipe)  # It has closed it, and may go on.
        self._printed = (self._printed + piece)[-KEPT:]

    def _environment(self, check: wire.Check) -> dict[str, str]:
        group = {"RANK": check.rank, "SIZE": check.size, "HOST": check.host, "PORT": check.port}
        given = (("GANG_CHECK", check.name), *((f"GANG_CHECK_{name}", str(value)) for name, value in group.items()))
        settings = self._settings
        return launch.worker_env(dict(os.environ), wire.Process(0, given), settings.identity.pod, settings.client, "")

    def _builtin(self, check: wire.Check, env: dict[str, str]) -> Sequence[str]:
        """The command of one of gangctl's own, with the interpreter of the worker, or else one of its image."""
        from gangsidecar.wire.python_command import parse_python  # noqa: PLC0415 - memory: few pods need it

        python = parse_python(launch.expand_command(self._settings.command, env))
        names = ("python3", "python") if python is None else ()
        found = [path for name in names for path in processes.candidates(name, env)][:1]
        interpreter = found if python is None else python.interpreter
        return [*interpreter, "-c", BUILTIN, launch.ARCHIVE, check.builtin, *check.args] if interpreter else []


def last_line(printed: bytes) -> str:
    """The last line that isn't blank, as it is reported."""
    lines = [line.strip() for line in printed.decode("utf-8", errors="replace").splitlines()]
    text = printable(next((line for line in reversed(lines) if line), ""))
    return text if len(text) <= wire.CHECK_DETAIL else text[: wire.CHECK_DETAIL - 3] + "..."
