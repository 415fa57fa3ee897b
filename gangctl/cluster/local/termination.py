"""Terminates pods: one pod gracefully, then with SIGKILL; a whole gang without a controller; and stores that."""

import asyncio
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import GangFolder, StateDirectory, only_controller
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.process import LocalProcess
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle.decide import decide
from gangsidecar.wire import SUPERVISOR_ARCHIVE

SIDECAR_GRACE_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
"""A process tree may fork before it is killed, or be blocked in a driver: kill again after this time."""


async def end_supervisor(pod: str, supervisor: LocalProcess | None, grace: float) -> None:
    """Send SIGTERM to the supervisor; after ``grace`` seconds, SIGKILL to it and to all processes of its worker.

    It returns when none of them is left, so it never returns if a process can't be killed.
    """
    if supervisor is not None and process.signal_process(supervisor, signal.SIGTERM):
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await process.wait_for_end(supervisor)
    await kill_tree(pod, supervisor)


async def kill_tree(pod: str, supervisor: LocalProcess | None) -> None:
    """Send SIGKILL to the supervisor and all processes of its worker until none is left."""
    while left := await asyncio.to_thread(_tree, pod, supervisor):
        for one in left:
            process.signal_process(one, signal.SIGKILL)
        await _ends(left)


async def end_worker(pod: str, supervisor: LocalProcess | None, grace: float) -> None:
    """Send SIGTERM to all processes of the worker, and wait up to ``grace`` seconds until none is left."""
    asked: set[LocalProcess] = set()
    with suppress(TimeoutError):
        async with asyncio.timeout(grace):
            while left := [one for one in await asyncio.to_thread(_tree, pod, supervisor) if one != supervisor]:
                for one in set(left) - asked:
                    process.signal_process(one, signal.SIGTERM)
                    process.signal_process(one, signal.SIGCONT)  # a stopped process can't handle SIGTERM
                asked.update(left)
                await _ends(left)


async def end_sidecar(sidecar: LocalProcess | None) -> None:
    """Send SIGTERM to the sidecar, and SIGKILL if it does not end in time."""
    if sidecar is None or not process.signal_process(sidecar, signal.SIGTERM):
        return
    try:
        async with asyncio.timeout(SIDECAR_GRACE_SECONDS):
            await process.wait_for_end(sidecar)
    except TimeoutError:
        process.signal_process(sidecar, signal.SIGKILL)
        await process.wait_for_end(sidecar)


def find_processes() -> dict[str, LocalProcess]:
    """All running sidecars and supervisors on this machine, recorded or not."""
    return process.find_running(_key)


def pod_processes(pod: PodRecord, found: Mapping[str, LocalProcess]) -> tuple[LocalProcess | None, LocalProcess | None]:
    """The running sidecar and supervisor of a pod: as recorded, or as :func:`find_processes` found them."""
    return (
        _living(pod.sidecar) or found.get(f"sidecar {pod.sockets}"),
        _living(pod.supervisor) or found.get(f"supervisor {pod.uid}"),
    )


def _living(one: LocalProcess | None) -> LocalProcess | None:
    return one if one is not None and process.is_alive(one) else None


def _key(line: Sequence[str]) -> str | None:
    if "gangsidecar.agent" in line and "--dir" in line[:-1]:
        return f"sidecar {line[line.index('--dir') + 1]}"
    if "run" in line and "--pod" in line[:-1] and any(word.endswith(SUPERVISOR_ARCHIVE) for word in line):
        return f"supervisor {line[line.index('--pod') + 1]}"
    return None


async def _ends(left: Iterable[LocalProcess]) -> None:
    """Wait until all have ended, at most AGAIN_SECONDS."""
    with suppress(TimeoutError):
        async with asyncio.timeout(AGAIN_SECONDS), asyncio.TaskGroup() as tasks:
            for one in left:
                tasks.create_task(process.wait_for_end(one))


def _tree(pod: str, supervisor: LocalProcess | None) -> tuple[LocalProcess, ...]:
    own = (
        () if supervisor is None or not process.is_alive(supervisor) else (supervisor, *process.descendants(supervisor))
    )
    return tuple(dict.fromkeys((*own, *process.find_marked(pod))))


# Ends all processes of a gang without a controller, as Ctrl-C does.


async def teardown(state: StateDirectory, gang: str, grace: float, known: Iterable[PodRecord] = ()) -> None:
    """End all processes of the gang of this name, and store that its pods have terminated.

    Workers get SIGTERM and, after ``grace`` seconds, SIGKILL. The status is unchanged, so a controller that starts
    later continues from it with new pods. The call returns when no process is left. If a record can't be read or
    written, all other pods have been ended when the error is raised.

    Args:
        state: the state directory.
        gang: the name of the gang.
        grace: in seconds.
        known: pods whose processes are ended even if their records are gone by now.

    Raises:
        Terminal: a controller runs, which would restart everything; or the record of a pod can't be read.
        Retryable: the lock or the record of a pod can't be written; of these pods, no process is left either.
    """
    folder = state.gang(gang)
    unlocked: list[ClusterError] = []
    with ExitStack() as lock:
        try:
            lock.enter_context(only_controller(state))
        except Retryable as error:
            unlocked.append(error)
        records, wrong = pod_record.load_readable(folder)
        stored = {one.uid for one in records}
        living = await asyncio.to_thread(find_processes)
        results = await asyncio.gather(
            *(_end_and_store(folder, one, living, grace) for one in records),
            *(_end(one, living, grace) for one in known if one.uid not in stored),
            return_exceptions=True,
        )
    for failure in (*wrong, *results, *unlocked):
        if failure is not None:
            raise failure


async def _end(pod: PodRecord, living: Mapping[str, LocalProcess], grace: float) -> None:
    sidecar, supervisor = pod_processes(pod, living)
    # The supervisor gets no SIGTERM: it would kill the worker after the grace of a fault. It starts none by itself.
    await end_worker(pod.uid, supervisor, grace)
    await kill_tree(pod.uid, supervisor)
    await end_sidecar(sidecar)
    await asyncio.to_thread(pod_record.remove_what_lived, pod)


async def _end_and_store(folder: GangFolder, pod: PodRecord, living: Mapping[str, LocalProcess], grace: float) -> None:
    await _end(pod, living, grace)
    over = changed(pod, terminated=True, started=None, reason=pod.reason or "TornDown")
    await asyncio.to_thread(pod_record.save_pod, folder.pod(pod.name), over, durable=True)


# Stores what a controller would decide of a gang whose processes have been ended without one.
#
# The status is the controller's. So this decides as it does, as the only controller, once the pods have terminated: a
# gang that is to be suspended is Suspended then, and nothing is said of it that is not so.


MOST_DECISIONS: Final = 4
"""More than any gang whose pods have terminated needs until it waits."""


def store_suspension(state: StateDirectory, store: GangStore, now: float) -> GangJob:
    """Store the status of a gang that is to be suspended; ``now`` in seconds since the epoch.

    Raises:
        Terminal: a controller runs, or the gang can't be read.
        Retryable: the status can't be stored.
        Conflict: the gang is changed meanwhile.
    """
    with only_controller(state):
        job = store.read()
        pods = [pod_record.projection(one) for one in pod_record.load_all(store.folder) if one.gang == job.metadata.uid]
        for _ in range(MOST_DECISIONS):
            status = decide(now, job, Observed(pods=tuple(pods))).status
            if status is None:
                break
            job = store.write_status(job, status)
        return job
