"""Inject a fault inside a container: `gangctl inject` runs this file with the container's Python, 3.8 or newer.

The kernel drops a SIGKILL to the first process of a PID namespace if it comes from inside, so that process is made to
exit by ptrace(2). If the node forbids ptrace, its CPU time limit is set to zero, because the kernel's own SIGKILL is
not dropped, and it is kept busy until the kernel checks the limit. Nothing inside the container can stop it with
SIGSTOP.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from gangctl.cluster.errors import Terminal
from gangctl.cluster.local.ptrace import exit_with
from gangctl.cluster.local.worker_ranks import worker_ranks

_EXIT_CODE_OF_KILL: Final = 128 + int(signal.SIGKILL)
_DEATH_SECONDS: Final = 3.0
"""Maximum time for a killed process to end."""


class InjectionRequest(NamedTuple):
    """The fault to inject; see :class:`gangctl.cli.targets.port.InjectedFault`."""

    process: str
    programs: list[str]
    """The sidecar or supervisor has one of these words on its command line."""
    rank: int | None
    signal: str
    number: int
    exit_code: int | None
    tree: bool
    workers: str
    """File in which the supervisor says which process of the worker has which rank."""


def main(arguments: dict[str, Any]) -> int:
    """Print each fault and inject it. The exit code is 0, or 3 with the reason on stderr."""
    try:
        _inject(InjectionRequest(**arguments))
    except (Terminal, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return 0


def _inject(request: InjectionRequest) -> None:
    for pid in _pids_of(request):
        if request.exit_code is not None:
            _print(request, pid, f"exits with {request.exit_code}")
            exit_with(pid, request.exit_code)
        elif pid == 1:
            _signal_first_process(request)
        else:
            _print(request, pid, f"was sent {request.signal}")
            os.kill(pid, request.number)
            if request.tree:
                _signal_descendants(request, pid)


def _signal_descendants(request: InjectionRequest, pid: int) -> None:
    """Signal what the process has started. It is stopped and starts no more, but a child may end at any time."""
    for child in [each for each in _pids() if _parent(each) == pid]:
        with suppress(ProcessLookupError):
            os.kill(child, request.number)
            _print(request, child, f"was sent {request.signal}")
        _signal_descendants(request, child)


def _pids_of(request: InjectionRequest) -> list[int]:
    owner = "sidecar" if request.process == "sidecar" else "supervisor"
    first = _find(request.programs)
    if first is None:
        raise Terminal(f"no {owner} process is visible in this container")
    if request.process != "worker":
        return [first]
    ranks = {pid: rank for pid, rank in worker_ranks(request.workers).items() if _parent(pid) == first}
    found = list(ranks)
    if not found:
        raise Terminal("no worker process is running; gangctl status shows the state of the gang")
    if request.rank is not None:
        found = [pid for pid in found if ranks[pid] == request.rank]
        if not found:
            there = ", ".join(str(one) for one in sorted(one for one in ranks.values() if one is not None))
            raise Terminal(f"no process here has rank {request.rank}; ranks here: {there or 'none'}")
    return found


def _signal_first_process(request: InjectionRequest) -> None:
    """Signal the first process of this PID namespace. When it ends, this program ends with it."""
    if request.number == signal.SIGKILL:
        _print(request, 1, "is killed")
        _kill_first_process(request)
    elif request.number == signal.SIGSTOP:
        raise Terminal(
            f"the {request.process} is the container's first process, which can't be stopped from inside: set "
            "shareProcessNamespace in the template, or freeze it on its node"
        )
    elif not _catches(1, request.number):
        raise Terminal(
            f"the {request.process} has no handler for {request.signal}, so the kernel drops it: use another signal"
        )
    else:
        os.kill(1, request.number)
        _print(request, 1, f"was sent {request.signal}")


def _kill_first_process(request: InjectionRequest) -> None:
    why = ""
    try:
        exit_with(1, _EXIT_CODE_OF_KILL)
        time.sleep(_DEATH_SECONDS)  # if it works, this program ends here
    except Terminal as error:
        why = str(error)
    if _catches(1, signal.SIGCHLD):
        with suppress(OSError, ValueError):
            resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))
            end = time.monotonic() + _DEATH_SECONDS
            while time.monotonic() < end:
                os.kill(1, signal.SIGCHLD)
    if request.process == "sidecar":
        os.kill(1, signal.SIGTERM)
        sys.stdout.write(f"the sidecar can't be killed from inside ({why}), so it was sent SIGTERM\n")
        return
    raise Terminal(
        f"the {request.process} can't be killed from inside its container: {why}. Kill it on its node, set "
        "shareProcessNamespace in the template, or delete the pod with kubectl"
    )


def _print(request: InjectionRequest, pid: int, what: str) -> None:
    sys.stdout.write(f"{request.process} process {pid} {what}\n")
    sys.stdout.flush()


def _find(programs: list[str]) -> int | None:
    """The oldest process of this container that runs one of these; those of other containers may be visible."""
    here = _container(os.getpid())
    found = [pid for pid in _pids() if pid != os.getpid() and _runs(pid, programs) and _container(pid) == here]
    return min(found, default=None)


def _runs(pid: int, programs: list[str]) -> bool:
    words = _read(pid, "cmdline").split(b"\0")[:6]
    return any(word.rpartition(b"/")[2] == program.encode() for word in words for program in programs)


def _container(pid: int) -> str:
    """ID of the mount namespace, which the processes of one container share; empty if unknown."""
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")  # noqa: PTH115 - Path.readlink came with Python 3.9
    except OSError:
        return ""


def _catches(pid: int, number: int) -> bool:
    """Return whether the process has a handler for the signal. Other signals are not delivered to a first process."""
    for line in _read(pid, "status").split(b"\n"):
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _parent(pid: int) -> int | None:
    """The parent; None if the process is gone or a zombie."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields and fields[0] not in (b"Z", b"X") else None


def _pids() -> Iterable[int]:
    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
