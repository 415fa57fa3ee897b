"""Processes on Linux that may be nobody's children: who they are, when they end, what is below them.

A pid alone says nothing, for pids are used again: a :class:`Process` is known by its start time and the boot as well.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from gangctl.api.model import Model

MARK: Final = "GANG_SUPERVISED=1"
"""With GANG_POD_UID, in the environment of each process of a worker: the supervisor puts it there."""
_SHELL: Final = 'cd -- "$0" && exec "$@"'
_PROC: Final = Path("/proc")


class Process(Model):
    """One process of one boot of the machine."""

    pid: int
    start_time: int
    """In clock ticks since the boot: field 22 of /proc/PID/stat."""
    boot: str
    """The kernel's id of the boot."""


class _Stat(NamedTuple):
    state: str
    parent: int
    start_time: int


def boot_id() -> str:
    """The kernel's random id of this boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def process_of(pid: int) -> Process | None:
    """The living process with this pid; a zombie is dead."""
    found = _stat(pid)
    return (
        None if found is None or found.state in "ZX" else Process(pid=pid, start_time=found.start_time, boot=boot_id())
    )


def is_alive(process: Process) -> bool:
    """Whether it is still that process, and no zombie."""
    found = _stat(process.pid)
    return (
        found is not None
        and found.state not in "ZX"
        and found.start_time == process.start_time
        and process.boot == boot_id()
    )


def spawn(command: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path) -> Process:
    """Start a program in a session of its own, so that it outlives us; output is appended to ``log``.

    Raises:
        OSError: it can't be started. A ``directory`` that isn't there is said in the log, and the program ends at once.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        pid = os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", _SHELL, str(directory), *command],
            dict(environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, descriptor, 1),
                (os.POSIX_SPAWN_DUP2, descriptor, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}),
        )
    finally:
        os.close(descriptor)
    # It can't be gone from /proc: nobody but us reaps it.
    found = _stat(pid)
    return Process(pid=pid, start_time=0 if found is None else found.start_time, boot=boot_id())


async def ended(process: Process) -> int | None:
    """Wait for its end; the exit code (negative: the signal) if it was our child, else None: nobody tells strangers."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            # Looked at only now: from here on the descriptor is this process's, whatever becomes of its pid.
            if is_alive(process):
                await _readable(descriptor)
        finally:
            os.close(descriptor)
    return _reap(process)


def send(process: Process, signum: int) -> bool:
    """Send a signal; False if the process is gone.

    Raises:
        PermissionError: it is another user's.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def descendants(process: Process) -> tuple[Process, ...]:
    """Everything below it, parents first; nothing if it is gone."""
    if not is_alive(process):
        return ()
    below: dict[int, list[int]] = {}
    for pid in _pids():
        found = _stat(pid)
        if found is not None:
            below.setdefault(found.parent, []).append(pid)
    order = [process.pid]
    for pid in order:
        order.extend(below.get(pid, ()))
    return _living(order[1:])


def children(process: Process) -> tuple[Process, ...]:
    """Its own children."""
    if not is_alive(process):
        return ()
    return _living(pid for pid in _pids() if (found := _stat(pid)) is not None and found.parent == process.pid)


def marked(pod: str) -> tuple[Process, ...]:
    """Processes of workers of this pod, by the mark in their environment, whoever their parents are now."""
    wanted = {f"GANG_POD_UID={pod}".encode(), MARK.encode()}
    return _living(pid for pid in _pids() if wanted <= set(_words(pid, "environ")))


def running(matches: Callable[[Sequence[str]], str | None]) -> dict[str, Process]:
    """Living processes by what ``matches`` makes of their command line; None = not this one.

    Of several that match alike the oldest is taken: the others are forks of it that have not executed yet.
    """
    found: dict[str, Process] = {}
    for pid in _pids():
        name = matches(command_line(pid))
        process = None if name is None else process_of(pid)
        if name is None or process is None:
            continue
        older = found.get(name)
        if older is None or (process.start_time, process.pid) < (older.start_time, older.pid):
            found[name] = process
    return found


def command_line(pid: int) -> list[str]:
    """The words that the process was started with; none if it is gone, or a zombie."""
    return [os.fsdecode(word) for word in _words(pid, "cmdline")]


def _living(pids: Iterable[int]) -> tuple[Process, ...]:
    return tuple(process for process in map(process_of, pids) if process is not None)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(_PROC) if name.isdigit())  # noqa: PTH208 - names are all that is needed


def _words(pid: int, name: str) -> list[bytes]:
    try:
        return (_PROC / str(pid) / name).read_bytes().split(b"\0")
    except OSError:
        return []


def _stat(pid: int) -> _Stat | None:
    try:
        content = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # After the name, which is in parentheses and may hold anything.
    fields = content.rpartition(b")")[2].split()
    return _Stat(fields[0].decode(), int(fields[1]), int(fields[19]))


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    loop.add_reader(descriptor, wake)
    try:
        await woken
    finally:
        loop.remove_reader(descriptor)


def _reap(process: Process) -> int | None:
    found = _stat(process.pid)
    if found is None or found.start_time != process.start_time:
        return None
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if pid else None
