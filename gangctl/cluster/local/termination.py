"""Terminates the processes of a pod: gracefully first, then with SIGKILL to all that are left, orphans included."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from gangctl.cluster.local import process
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.process import Process
from gangsidecar.wire import SUPERVISOR_ARCHIVE

SIDECAR_GRACE_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
"""A process tree may fork before it is killed, or be blocked in a driver: kill again after this time."""


async def end_supervisor(pod: str, supervisor: Process | None, grace: float) -> None:
    """Send SIGTERM to the supervisor; after ``grace`` seconds, SIGKILL to it and to all processes of its worker.

    It returns when none of them is left, so it never returns if a process can't be killed.
    """
    if supervisor is not None and process.send(supervisor, signal.SIGTERM):
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await process.ended(supervisor)
    await kill_tree(pod, supervisor)


async def kill_tree(pod: str, supervisor: Process | None) -> None:
    """Send SIGKILL to the supervisor and all processes of its worker until none is left."""
    while left := await asyncio.to_thread(_tree, pod, supervisor):
        for one in left:
            process.send(one, signal.SIGKILL)
        await _ends(left)


async def end_worker(pod: str, supervisor: Process | None, grace: float) -> None:
    """Send SIGTERM to all processes of the worker, and wait up to ``grace`` seconds until none is left."""
    asked: set[Process] = set()
    with suppress(TimeoutError):
        async with asyncio.timeout(grace):
            while left := [one for one in await asyncio.to_thread(_tree, pod, supervisor) if one != supervisor]:
                for one in set(left) - asked:
                    process.send(one, signal.SIGTERM)
                    process.send(one, signal.SIGCONT)  # a stopped process can't handle SIGTERM
                asked.update(left)
                await _ends(left)


async def end_sidecar(sidecar: Process | None) -> None:
    """Send SIGTERM to the sidecar, and SIGKILL if it does not end in time."""
    if sidecar is None or not process.send(sidecar, signal.SIGTERM):
        return
    try:
        async with asyncio.timeout(SIDECAR_GRACE_SECONDS):
            await process.ended(sidecar)
    except TimeoutError:
        process.send(sidecar, signal.SIGKILL)
        await process.ended(sidecar)


def find_processes() -> dict[str, Process]:
    """All running sidecars and supervisors on this machine, recorded or not."""
    return process.running(_key)


def processes_of(pod: PodRecord, found: Mapping[str, Process]) -> tuple[Process | None, Process | None]:
    """The running sidecar and supervisor of a pod: as recorded, or as :func:`find_processes` found them."""
    return (
        _living(pod.sidecar) or found.get(f"sidecar {pod.sockets}"),
        _living(pod.supervisor) or found.get(f"supervisor {pod.uid}"),
    )


def _living(one: Process | None) -> Process | None:
    return one if one is not None and process.is_alive(one) else None


def _key(line: Sequence[str]) -> str | None:
    if "gangsidecar.agent" in line and "--dir" in line[:-1]:
        return f"sidecar {line[line.index('--dir') + 1]}"
    if "run" in line and "--pod" in line[:-1] and any(word.endswith(SUPERVISOR_ARCHIVE) for word in line):
        return f"supervisor {line[line.index('--pod') + 1]}"
    return None


async def _ends(left: Iterable[Process]) -> None:
    """Wait until all have ended, at most AGAIN_SECONDS."""
    with suppress(TimeoutError):
        async with asyncio.timeout(AGAIN_SECONDS), asyncio.TaskGroup() as tasks:
            for one in left:
                tasks.create_task(process.ended(one))


def _tree(pod: str, supervisor: Process | None) -> tuple[Process, ...]:
    own = (
        () if supervisor is None or not process.is_alive(supervisor) else (supervisor, *process.descendants(supervisor))
    )
    return tuple(dict.fromkeys((*own, *process.marked(pod))))
