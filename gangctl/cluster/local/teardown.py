"""Ends all processes of a gang without a controller, as Ctrl-C does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping

from gangctl.api.changes import changed
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.controller_lock import only_controller
from gangctl.cluster.local.layout import GangFolder, PodFolder, StateDirectory
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.process import Process
from gangctl.cluster.local.termination import end_sidecar, end_worker, find_processes, kill_tree, processes_of


async def teardown(state: StateDirectory, gang: str, grace: float) -> None:
    """End all processes of the gang of this name, and store that its pods have terminated.

    Workers get SIGTERM and, after ``grace`` seconds, SIGKILL. The status is unchanged, so a controller that starts
    later continues from it with new pods. The call returns when no process is left. If a record can't be read or
    written, all other pods have been ended when the error is raised.

    Raises:
        Terminal: a controller runs, which would restart everything; or the record of a pod can't be read.
        Retryable: the record of a pod can't be written, of which no process is left either.
    """
    folder = state.gang(gang)
    with only_controller(state):
        records, wrong = _records(folder)
        living = await asyncio.to_thread(find_processes)
        results = await asyncio.gather(*(_end(folder, one, living, grace) for one in records), return_exceptions=True)
    wrong += [one for one in results if isinstance(one, BaseException)]
    if wrong:
        raise wrong[0]


async def _end(folder: GangFolder, pod: PodRecord, living: Mapping[str, Process], grace: float) -> None:
    sidecar, supervisor = processes_of(pod, living)
    if supervisor is not None:
        # It starts nothing after a SIGTERM. It would wait for the controller's answer; its worker need not.
        process.send(supervisor, signal.SIGTERM)
    await end_worker(pod.uid, supervisor, grace)
    await kill_tree(pod.uid, supervisor)
    await end_sidecar(sidecar)
    await asyncio.to_thread(pod_record.remove_what_lived, pod)
    over = changed(pod, terminated=True, started=None, reason=pod.reason or "TornDown")
    await asyncio.to_thread(pod_record.save, folder.pod(pod.name), over, durable=True)


def _records(folder: GangFolder) -> tuple[list[PodRecord], list[BaseException]]:
    records: list[PodRecord] = []
    wrong: list[BaseException] = []
    for path in sorted(folder.pods.iterdir()) if folder.pods.is_dir() else []:
        try:
            one = pod_record.load(PodFolder(path))
        except ClusterError as error:
            wrong.append(error)
        else:
            records += [] if one is None else [one]
    return records, wrong
