"""Faults on purpose, for game days: signals and exit codes for the processes of local pods."""

from __future__ import annotations

import os
import signal
from enum import StrEnum

from gangctl.cluster.errors import Terminal
from gangctl.cluster.local import process, record
from gangctl.cluster.local.layout import GangFolder, StateDirectory
from gangctl.cluster.local.process import Process
from gangctl.cluster.local.ptrace import exit_with
from gangctl.cluster.local.record import PodRecord


class Target(StrEnum):
    """Which processes of a pod."""

    WORKER = "worker"
    SUPERVISOR = "supervisor"
    SIDECAR = "sidecar"


def pod_of(folder: GangFolder, member: str) -> PodRecord:
    """The member's newest pod that is not over.

    Raises:
        Terminal: there is none.
    """
    found = [one for one in record.load_all(folder) if one.member == member and not one.terminated]
    if not found:
        members = sorted({one.member for one in record.load_all(folder)})
        raise Terminal(f"member {member!r} has no pod that runs; members with pods: {', '.join(members) or 'none'}")
    return max(found, key=lambda one: one.incarnation)


def processes(pod: PodRecord, target: Target) -> tuple[Process, ...]:
    """The living processes of a pod. Of a worker: those that the supervisor started, not what is below them."""
    one = pod.sidecar if target is Target.SIDECAR else pod.supervisor
    if one is None or not process.is_alive(one):
        return ()
    return process.children(one) if target is Target.WORKER else (one,)


def send_signal(pod: PodRecord, target: Target, signum: int) -> tuple[int, ...]:
    """Send a signal to each of them; SIGSTOP makes a hang. The pids that got it.

    Raises:
        Terminal: there is none, or it is another user's.
    """
    return _each(pod, target, [one for one in processes(pod, target) if _send(one, signum)])


def send_exit(pod: PodRecord, target: Target, code: int) -> tuple[int, ...]:
    """Make each of them exit with this code, as if it had called ``exit`` itself, without a handler. Their pids.

    Raises:
        Terminal: there is none, or the system doesn't permit it.
    """
    found = list(processes(pod, target))
    for one in found:
        exit_with(one.pid, code)
    return _each(pod, target, found)


def controller_pid(state: StateDirectory) -> int:
    """The pid of the controller of a state directory.

    Raises:
        Terminal: none runs.
    """
    try:
        text = state.lock.read_text().strip()
    except OSError:
        text = ""
    if not text.isdecimal() or process.process_of(int(text)) is None:
        raise Terminal(f"no controller runs for {state.path}")
    return int(text)


def signal_controller(state: StateDirectory, signum: int = signal.SIGKILL) -> int:
    """Send a signal to the controller; its pid.

    Raises:
        Terminal: none runs, or it is another user's.
    """
    pid = controller_pid(state)
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError) as error:
        raise Terminal(f"controller {pid} can't be signalled: {error.strerror}") from error
    return pid


def _send(one: Process, signum: int) -> bool:
    try:
        return process.send(one, signum)
    except PermissionError as error:
        raise Terminal(f"process {one.pid} can't be signalled: {error.strerror}") from error


def _each(pod: PodRecord, target: Target, reached: list[Process]) -> tuple[int, ...]:
    if not reached:
        raise Terminal(f"no {target} process runs in pod {pod.name} now")
    return tuple(one.pid for one in reached)
