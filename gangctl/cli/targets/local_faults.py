"""Injects faults into processes of a local pod."""

from __future__ import annotations

from gangctl.cli.errors import UserError
from gangctl.cli.targets.port import InjectedFault
from gangctl.cluster.errors import Terminal
from gangctl.cluster.local import process
from gangctl.cluster.local.layout import GangFolder, PodFolder
from gangctl.cluster.local.pod_processes import PodProcess, pod_of, processes
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.process import Process
from gangctl.cluster.local.ptrace import exit_with


def inject(folder: GangFolder, member: str, fault: InjectedFault) -> list[str]:
    """Inject the fault; return what was done to which process.

    Raises:
        UserError: no process has that rank, or it belongs to another user.
        Terminal: no such process runs, or the system forbids it.
    """
    pod = pod_of(folder, member)
    found = _chosen(pod, folder.pod(pod.name), fault.process, fault.rank)
    subject = f"{pod.member} (pod {pod.name}): {fault.process}"
    if fault.exit_code is not None:
        for one in found:
            exit_with(one.pid, fault.exit_code)
        return [f"{subject} process {one.pid} exits with {fault.exit_code}" for one in found]
    assert fault.signal is not None
    name, number = fault.signal
    if fault.tree:
        found = tuple(dict.fromkeys(each for one in found for each in (one, *process.descendants(one))))
    try:
        sent = [one for one in found if process.send(one, number)]
    except PermissionError as error:
        raise UserError(f"a process of {member} can't be signalled: {error.strerror}") from None
    if not sent:
        raise Terminal(f"{subject}: all processes ended before {name} could be sent")
    return [f"{subject} process {one.pid} was sent {name}" for one in sent]


def _chosen(pod: PodRecord, files: PodFolder, kind: PodProcess, rank: int | None) -> tuple[Process, ...]:
    found = processes(pod, files, kind)
    if not found:
        raise Terminal(f"no {kind} process is running in pod {pod.name}; gangctl status shows the state of the gang")
    if rank is None:
        return tuple(found)
    matching = tuple(one for one, its in found.items() if its == rank)
    if not matching:
        known = ", ".join(str(its) for its in sorted(its for its in found.values() if its is not None))
        raise UserError(f"no process of {pod.member} has rank {rank}; its ranks: {known or 'none'}")
    return matching
