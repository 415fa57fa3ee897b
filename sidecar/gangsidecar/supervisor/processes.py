"""Processes on Linux: start them clean, find every descendant, signal and reap them.

Every descendant of a worker has this process as an ancestor, whatever session or parent it chose: the kernel gives
orphans to PID 1 or to the nearest child subreaper, and the supervisor is one of the two. So *no child left* means that
no process of any worker is left, and a walk over children finds them all. A process may fork between a walk and its
signals: the caller must repeat the kill until nothing is left.

A look takes time, and processes move meanwhile, always to an ancestor: an orphan to the next subreaper, the child of a
thread that has ended to another thread. So a look goes from below to above, and the last is at this process's own
children, which leave it only when it reaps them.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from gangsidecar.common import log, now_ms
from gangsidecar.supervisor import kernel

MARK = "GANG_SUPERVISED"
"""With GANG_POD_UID it marks each process of a worker, so that the next supervisor finds what a killed one left."""

LOG_AGAIN_MS = 10_000
_ROUNDS = 100
"""At most so many walks in one kill, while each finds new descendants."""
_DEFAULT_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def adopt_orphans() -> str:
    """Become the new parent of orphaned descendants; returns what went wrong, or nothing."""
    return "" if os.getpid() == 1 else kernel.prctl(kernel.SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent is gone. For forked helpers; nothing depends on it."""
    kernel.prctl(kernel.SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # It went before the kernel knew.
        os.kill(os.getpid(), signal.SIGKILL)


def spawn(command: Sequence[str], environment: dict[str, str], output: tuple[int, int] = (1, 2)) -> int:
    """Start a command in a session of its own, with default signals and no input; return its pid.

    The command is looked for on the PATH of its own environment, as a shell would. ``output``: what becomes its
    standard output and standard error. OSError: it can't be executed; ValueError: a NUL or a lone surrogate is in it.
    """
    failure = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in candidates(command[0], environment):
        try:
            return os.posix_spawn(
                path,
                list(command),
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    *((os.POSIX_SPAWN_DUP2, file, to) for to, file in enumerate(output, 1) if file != to),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=_DEFAULT_SIGNALS,
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            failure = error  # another directory may have one that can be executed
    raise failure


def spawn_in(folder: str, command: Sequence[str], environment: dict[str, str]) -> int:
    """Start a command as :func:`spawn` does, in this folder. OSError: also if the folder can't be entered."""
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.fchdir(here)  # Else there would be no way back.
        os.chdir(folder)
        try:
            return spawn(command, environment)
        finally:
            os.fchdir(here)
    finally:
        os.close(here)


def candidates(program: str, environment: dict[str, str]) -> Iterator[str]:
    """Yield the paths at which a program with this environment would look for another."""
    if "/" in program:
        yield program
        return
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or ".", program)
        if os.path.exists(path):  # this takes microseconds, a failed start half a millisecond
            yield path


def reap() -> Iterator[tuple[int, int]]:
    """(pid, wait status) of every child that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def only_children(helpers: set[int], parked: set[int]) -> bool:
    """Return whether these children are the only ones left, and those that are parked have none themselves."""
    if helpers or parked:
        # In this order: an orphan moves from below the parked processes to this one.
        below = any(map(has_living_children, parked))
        return not below and all(pid in helpers or pid in parked for pid in children(os.getpid()))
    try:
        # WNOWAIT: a child that has ended stays to be reaped.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def children(pid: int) -> list[int]:
    """The children of a process, zombies included; nothing if the process is gone."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
        except FileNotFoundError:
            if thread == str(pid) and os.path.exists(f"/proc/{pid}"):
                return [one for one in _pids() if parent(one) == pid]  # a kernel without CONFIG_PROC_CHILDREN
        except OSError:
            continue
    return found


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def parent(pid: int) -> int | None:
    """Return the parent of a process; None if it is gone."""
    try:
        return int(_stat(pid)[1])
    except (OSError, ValueError, IndexError):
        return None


def _stat(pid: int) -> list[bytes]:
    """Return what follows the name, which is in parentheses and may hold anything: the state, the parent, ..."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def descendants(pid: int, without: set[int], kill: int | None = None) -> list[int]:
    """Every descendant of a process, parents before their children, without some and what is below them.

    With ``kill``, each gets this signal the moment that it is found, so that it has no time to fork.
    """
    found: list[int] = []
    waiting = [child for child in children(pid) if child not in without]
    while waiting:
        one = waiting.pop()
        if kill is not None:
            send([one], kill)
        found.append(one)
        waiting.extend(child for child in children(one) if child not in without)
    return found


def begun_at(pid: int) -> int:
    """Return when a process was started, in milliseconds of :func:`now_ms`; now, if it is gone."""
    try:
        return int(_stat(pid)[19]) * 1000 // os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return now_ms()


def ranks(begun: Mapping[int, int], inherited: Container[bytes]) -> dict[int, int]:
    """Return the ranks among these processes, each with the time at which it began, as given.

    A launcher gives each rank its LOCAL_RANK, which the helpers of the rank inherit: the first process with it counts.
    Torchrun has one itself where its pod has one rank; only to its ranks it gives a TORCHELASTIC_RUN_ID.

    ``inherited``: those, as ``LOCAL_RANK=0``, that only helpers can have got, as their rank is none of the processes.
    """
    variables = {pid: environment(pid) for pid in sorted(begun, key=begun.__getitem__)}
    torchrun = [
        pid for pid, found in variables.items() if any(one.startswith(b"TORCHELASTIC_RUN_ID=") for one in found)
    ]
    firsts: dict[bytes, int] = {}
    for pid in torchrun or variables:
        for one in variables[pid]:
            if one.startswith(b"LOCAL_RANK=") and (torchrun or one not in inherited):
                firsts.setdefault(one, pid)
    return {pid: begun[pid] for pid in firsts.values()}


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped, as by SIGSTOP, and not continued."""
    try:
        return _stat(pid)[0] == b"T"
    except (OSError, IndexError):
        return False


def has_living_children(pid: int) -> bool:
    """Return whether a process has descendants; those that have ended, but are not reaped, don't count.

    A list of children can lack one that moves from thread to thread. So the look that finds none asks every process
    for its parents.
    """
    alive = not all(map(_has_ended, descendants(pid, set())))
    return alive or any(is_below(one, pid) and not _has_ended(one) for one in _pids())


def is_below(pid: int, ancestor: int) -> bool:
    """Return whether a process is a descendant of another."""
    at = parent(pid)
    while at and at != ancestor:
        above = parent(at)
        at = parent(pid) if above is None else above  # If its parent has gone, it has another.
    return at == ancestor


def _has_ended(pid: int) -> bool:
    try:
        return _stat(pid)[0] in {b"Z", b"X"} and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (OSError, IndexError):
        return False


def send(pids: Iterable[int], signum: int) -> None:
    """Signal each of them, except those that are gone or belong to another user."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def signal_all(signum: int, pids: list[int]) -> None:
    """Signal each of them, once.

    A process that was stopped (SIGSTOP, a debugger) can only end politely when it runs: SIGCONT follows.
    """
    send(pids, signum)
    send(pids, signal.SIGCONT)


def kill_tree(helpers: set[int], parked: set[int]) -> None:
    """SIGKILL everything below this process but its helpers and, without what is below them, parked processes.

    A tree that forks all the time may need another call.

    PID 1 reaches its whole namespace, also what was put into it from outside. No fork escapes its last resort, one call
    that ends its helpers too.
    """
    me = os.getpid()
    killed: set[int] = set()
    for _ in range(_ROUNDS if helpers or parked or me != 1 else 0):
        if me == 1:
            found = [pid for pid in _pids() if pid not in killed and pid not in {me, *helpers, *parked}]
            send(found, signal.SIGKILL)
        else:
            below = [descendants(me, helpers | parked, signal.SIGKILL)]
            below += [descendants(pid, set(), signal.SIGKILL) for pid in parked]
            found = [pid for each in below for pid in each if pid not in killed]
        if not found:
            return
        killed.update(found)
    if me == 1:
        send([-1], signal.SIGKILL)


def kill_marked(pod: str) -> None:
    """Kill the processes of this pod's workers whose supervisor was killed; returns when none is left.

    A session must never report Ready while a worker of an older attempt is alive. So this waits, without end if it must
    (state D); the controller replaces a pod that doesn't report.
    """
    logged_at = 0
    while left := find_marked(pod):
        if now_ms() - logged_at >= LOG_AGAIN_MS:
            logged_at = now_ms()
            log("warning", "processes of an earlier session are being killed", pids=",".join(map(str, left)))
        send(left, signal.SIGKILL)
        time.sleep(0.005)  # they aren't children of this process, so it gets no signal when they are gone


def find_marked(pod: str) -> list[int]:
    """Find the workers' processes of this pod by the mark in their environment, with all below them.

    For the successor of a killed supervisor that was not PID 1. A program that overwrites its own environment (some do,
    to set a title) is found if one of its ancestors is.

    A process that ends between the list and the look at it may have left a child that is not in the list. So nothing is
    marked only if a look could read all but those that the look before could not read.
    """
    marks = {os.fsencode(f"GANG_POD_UID={pod}"), f"{MARK}=1".encode()}
    me = os.getpid()
    unread: set[int] | None = None
    while True:
        read = {pid: environment(pid) for pid in _pids() if pid != me}
        found = [one for pid in read if marks.issubset(read[pid]) for one in (pid, *descendants(pid, {me}))]
        before, unread = unread, {pid for pid in read if not any(read[pid])}
        if found or (before is not None and unread <= before):
            return found


def folder(pid: int) -> str:
    """Return the working directory of a process. OSError: it is gone."""
    return os.readlink(f"/proc/{pid}/cwd")


def words(pid: int) -> list[str]:
    """Return the command line of a process; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def environment(pid: int) -> list[bytes]:
    """The environment that a process was started with. One whose first thread has ended has it in its other threads."""
    try:
        tasks = [f"/proc/{pid}", *(f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task"))]
    except OSError:
        return []
    for task in tasks:
        try:
            with open(f"{task}/environ", "rb") as file:
                return file.read().split(b"\0")
        except OSError:
            continue
    return []
