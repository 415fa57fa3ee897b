"""How the processes of a pod end: politely first, then by SIGKILL to all that is left, whosever children they are."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from gangctl.cluster.local import process
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.process import Process
from gangsidecar.wire import SUPERVISOR_PROGRAM

SIDECAR_GRACE_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
"""A tree may fork between a look and the kill: look and kill again; it may also sit in a driver."""


async def end_supervisor(pod: str, supervisor: Process | None, grace: float) -> None:
    """SIGTERM to the supervisor; after ``grace`` seconds SIGKILL to it and to every process of its worker.

    It returns when nothing of them is left, which takes for ever with a process that can't be killed.
    """
    if supervisor is not None and process.send(supervisor, signal.SIGTERM):
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await process.ended(supervisor)
    await kill_tree(pod, supervisor)


async def kill_tree(pod: str, supervisor: Process | None) -> None:
    """SIGKILL to the supervisor and everything of its worker, until nothing is left."""
    while left := await asyncio.to_thread(_tree, pod, supervisor):
        for one in left:
            process.send(one, signal.SIGKILL)
        await _ends(left)


async def end_worker(pod: str, supervisor: Process | None, grace: float) -> None:
    """SIGTERM to everything of the worker, and wait up to ``grace`` seconds until nothing of it is left."""
    asked: set[Process] = set()
    with suppress(TimeoutError):
        async with asyncio.timeout(grace):
            while left := [one for one in await asyncio.to_thread(_tree, pod, supervisor) if one != supervisor]:
                for one in set(left) - asked:
                    process.send(one, signal.SIGTERM)
                    process.send(one, signal.SIGCONT)  # A stopped process can only end politely when it runs.
                asked.update(left)
                await _ends(left)


async def end_sidecar(sidecar: Process | None) -> None:
    """SIGTERM, and SIGKILL if it doesn't listen."""
    if sidecar is None or not process.send(sidecar, signal.SIGTERM):
        return
    try:
        async with asyncio.timeout(SIDECAR_GRACE_SECONDS):
            await process.ended(sidecar)
    except TimeoutError:
        process.send(sidecar, signal.SIGKILL)
        await process.ended(sidecar)


def find_processes() -> dict[str, Process]:
    """Every living sidecar and supervisor on this machine, whether somebody has recorded it or not."""
    return process.running(_key)


def processes_of(pod: PodRecord, found: Mapping[str, Process]) -> tuple[Process | None, Process | None]:
    """Sidecar and supervisor of a pod that live: as recorded, else as :func:`find_processes` found them."""
    return (
        _living(pod.sidecar) or found.get(f"sidecar {pod.sockets}"),
        _living(pod.supervisor) or found.get(f"supervisor {pod.uid}"),
    )


def _living(one: Process | None) -> Process | None:
    return one if one is not None and process.is_alive(one) else None


def _key(line: Sequence[str]) -> str | None:
    if "gangsidecar.agent" in line and "--dir" in line[:-1]:
        return f"sidecar {line[line.index('--dir') + 1]}"
    if "run" in line and "--pod" in line[:-1] and any(word.endswith(SUPERVISOR_PROGRAM) for word in line):
        return f"supervisor {line[line.index('--pod') + 1]}"
    return None


async def _ends(left: Iterable[Process]) -> None:
    """Wait until all of them have ended, or for a moment."""
    with suppress(TimeoutError):
        async with asyncio.timeout(AGAIN_SECONDS), asyncio.TaskGroup() as tasks:
            for one in left:
                tasks.create_task(process.ended(one))


def _tree(pod: str, supervisor: Process | None) -> tuple[Process, ...]:
    own = (
        () if supervisor is None or not process.is_alive(supervisor) else (supervisor, *process.descendants(supervisor))
    )
    return tuple(dict.fromkeys((*own, *process.marked(pod))))
