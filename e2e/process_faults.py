"""Faults of the processes of a pod, injected from the host: as a device, a node or the OOM killer would."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

from e2e.cluster.processes import Process, everything
from e2e.gangs import CHECKPOINTS
from gangctl.cluster.kube.injection import STATE_DIRECTORY
from gangctl.cluster.local.worker_ranks import worker_ranks
from gangsidecar.wire import WORKERS_FILE
from tests.wait import until

RANK = rf"\S*python3\S* (-u )?{CHECKPOINTS}/"
"""The start of the command line of a rank whose script is in the shared folder, be it below a launcher or not."""


def supervisor(pod: str) -> Process:
    """The supervisor of the pod with this UID: the first process of the worker's container.

    Raises:
        TimeoutError: there is none.
    """
    return until(f"a supervisor in pod {pod}", lambda: next(iter(supervisors(pod)), None), every=0.05)


def supervisors(pod: str) -> list[Process]:
    """The supervisors of the pod that run now: one or none."""
    found = [one for one in everything() if "/supervisor run -- " in one.command]
    return [one for one in found if one.environment.get("GANG_POD_UID") == pod and one.inner_pid == 1]


def worker(pod: str) -> Process:
    """The worker of the pod: the child of its supervisor.

    Raises:
        TimeoutError: there is none.
    """
    return until(f"a worker in pod {pod}", lambda: next(iter(workers(pod)), None), every=0.05)


def workers(pod: str) -> list[Process]:
    """The processes that the pod's supervisor has started, as it says: a template of theirs is none of them."""
    return [
        child
        for one in supervisors(pod)
        for ranks in (worker_ranks(f"/proc/{one.pid}/root{STATE_DIRECTORY}/{WORKERS_FILE}"),)
        for child in one.children
        if child.inner_pid in ranks
    ]


def sidecar(pod: str) -> Process:
    """The sidecar of the pod: it has the same network namespace as the supervisor.

    Raises:
        TimeoutError: there is none.
    """
    network = _network(supervisor(pod))

    def found() -> Process | None:
        agents = (one for one in everything() if "gangsidecar.agent" in one.command)
        return next((one for one in agents if _network(one) == network and one.inner_pid == 1), None)

    return until(f"a sidecar in pod {pod}", found, every=0.05)


def kill(process: Process) -> None:
    """SIGKILL a process, and wait for its end."""
    process.send(signal.SIGKILL)
    until(f"the end of process {process.pid}", lambda: not process.alive)


def _network(process: Process) -> int:
    with suppress(OSError):
        return Path(f"/proc/{process.pid}/ns/net").stat().st_ino
    return 0
