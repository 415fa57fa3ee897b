"""Finds the processes of a member's pod, and the controller."""

from __future__ import annotations

from enum import StrEnum

from gangctl.cluster.errors import Terminal
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.layout import GangFolder, PodFolder, StateDirectory
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.process import Process
from gangctl.cluster.local.worker_ranks import worker_ranks


class PodProcess(StrEnum):
    """A kind of process of a pod."""

    WORKER = "worker"
    SUPERVISOR = "supervisor"
    SIDECAR = "sidecar"


def pod_of(folder: GangFolder, member: str) -> PodRecord:
    """The member's newest pod that has not ended.

    Raises:
        Terminal: there is none.
    """
    running = [one for one in pod_record.load_all(folder) if not one.terminated]
    found = [one for one in running if one.member == member]
    if not found:
        members = sorted({one.member for one in running})
        raise Terminal(f"no pod of member {member} runs; members with running pods: {', '.join(members) or 'none'}")
    return max(found, key=lambda one: one.incarnation)


def processes(pod: PodRecord, files: PodFolder, target: PodProcess) -> dict[Process, int | None]:
    """The running processes of a kind, with their ranks.

    For the worker: those that the supervisor started, without their children.
    """
    one = pod.sidecar if target is PodProcess.SIDECAR else pod.supervisor
    if one is None or not process.is_alive(one):
        return {}
    if target is not PodProcess.WORKER:
        return {one: None}
    ranks = worker_ranks(str(files.workers))
    return {child: ranks[child.pid] for child in process.children(one) if child.pid in ranks}


def controller_pid(state: StateDirectory) -> int:
    """The pid of the controller of a state directory.

    Raises:
        Terminal: no controller runs.
    """
    try:
        text = state.lock.read_text().strip()
    except OSError:
        text = ""
    # the file outlives a killed controller, and pids are reused
    if not text.isdecimal() or not any("gangctl" in word for word in process.command_line(int(text))):
        raise Terminal(f"no controller runs for {state.path}")
    return int(text)
