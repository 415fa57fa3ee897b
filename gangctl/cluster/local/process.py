"""Linux processes that need not be children of this one: their identity, their end, and their descendants.

A pid does not identify a process, because pids are reused: a :class:`LocalProcess` also has its start time and boot ID.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from gangctl.api.model import Model

MARK: Final = "GANG_SUPERVISED=1"
"""Set by the supervisor in the environment of each worker process, together with GANG_POD_UID."""
_SHELL: Final = 'cd -- "$0" && exec "$@"'
_PROC: Final = Path("/proc")


class LocalProcess(Model):
    """One process, identified across the reuse of pids and reboots."""

    pid: int
    start_time: int
    """In clock ticks since boot: field 22 of /proc/PID/stat."""
    boot: str
    """The kernel's ID of the boot."""


class _Stat(NamedTuple):
    ended: bool
    """A zombie. The first thread alone may have ended: then the others run on, with all files of the process open."""
    parent: int
    start_time: int


def boot_id() -> str:
    """The kernel's random ID of this boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def process_of(pid: int) -> LocalProcess | None:
    """The running process with this pid; None for a zombie."""
    found = _stat(pid)
    return None if found is None or found.ended else LocalProcess(pid=pid, start_time=found.start_time, boot=boot_id())


def is_alive(process: LocalProcess) -> bool:
    """Return whether the process still runs and isn't a zombie."""
    found = _stat(process.pid)
    return (
        found is not None and not found.ended and found.start_time == process.start_time and process.boot == boot_id()
    )


def spawn(command: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path) -> LocalProcess:
    """Start a program in a new session, so that it outlives this process; its output is appended to ``log``.

    If ``directory`` does not exist, the log says so and the program ends at once.

    Raises:
        OSError: it can't be started.
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
    # it can't be gone from /proc, because only this process reaps it
    found = _stat(pid)
    return LocalProcess(pid=pid, start_time=0 if found is None else found.start_time, boot=boot_id())


async def wait_for_end(process: LocalProcess) -> int | None:
    """Wait for the end of a process. Return its exit code (negative: the signal), or None if it isn't our child."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            # checked only now: from here on, the descriptor refers to this process even if the pid is reused
            if is_alive(process):
                await _readable(descriptor)
        finally:
            os.close(descriptor)
    return _reap(process)


def signal_process(process: LocalProcess, signum: int) -> bool:
    """Send a signal; return False if the process is gone.

    Raises:
        PermissionError: the process belongs to another user.
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


def descendants(process: LocalProcess) -> tuple[LocalProcess, ...]:
    """All descendants of a process, parents first; empty if it is gone."""
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


def children(process: LocalProcess) -> tuple[LocalProcess, ...]:
    if not is_alive(process):
        return ()
    return _living(pid for pid in _pids() if (found := _stat(pid)) is not None and found.parent == process.pid)


def find_marked(pod: str) -> tuple[LocalProcess, ...]:
    """Find the worker processes of this pod by the mark in their environment, whatever their parents are now."""
    wanted = {f"GANG_POD_UID={pod}".encode(), MARK.encode()}
    return _living(pid for pid in _pids() if wanted <= set(_words(pid, "environ")))


def find_running(matches: Callable[[Sequence[str]], str | None]) -> dict[str, LocalProcess]:
    """Find running processes by the key that ``matches`` returns for their command line; None: no match.

    Only leaders of a session count, and the oldest of those with one key: the others are forks of it.
    """
    found: dict[str, LocalProcess] = {}
    for pid in _pids():
        name = matches(command_line(pid))
        process = None if name is None else process_of(pid)
        if name is None or process is None or not _leads_session(pid):
            continue
        older = found.get(name)
        if older is None or (process.start_time, process.pid) < (older.start_time, older.pid):
            found[name] = process
    return found


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def command_line(pid: int) -> list[str]:
    """The command line of a process; empty if it is gone or a zombie."""
    return [os.fsdecode(word) for word in _words(pid, "cmdline")]


def _living(pids: Iterable[int]) -> tuple[LocalProcess, ...]:
    return tuple(process for process in map(process_of, pids) if process is not None)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(_PROC) if name.isdigit())  # noqa: PTH208 - names are all that is needed


def _words(pid: int, name: str) -> list[bytes]:
    """A file of words about a process. If its first thread has ended, another thread still has it."""
    process = _PROC / str(pid)
    with suppress(OSError):
        return (process / name).read_bytes().split(b"\0")
    with suppress(OSError):
        for thread in (process / "task").iterdir():
            with suppress(OSError):
                return (thread / name).read_bytes().split(b"\0")
    return []


def _stat(pid: int) -> _Stat | None:
    try:
        content = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # after the name, which is in parentheses and may contain anything
    fields = content.rpartition(b")")[2].split()
    state, parent, threads, start_time = fields[0], int(fields[1]), int(fields[17]), int(fields[19])
    return _Stat(state in {b"Z", b"X"} and threads <= 1, parent, start_time)


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


def _reap(process: LocalProcess) -> int | None:
    found = _stat(process.pid)
    if found is None or found.start_time != process.start_time:
        return None
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if pid else None
