"""Stops and deletes gangs of this machine: by the controller if one runs, otherwise by itself.

The rule: a gang that is stopped is suspended first, so that no controller starts it again. It is stopped when none of
its processes is left.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
import time
from contextlib import suppress
from typing import Final

from gangctl.api.changes import changed
from gangctl.api.gangjob import GangJob
from gangctl.api.status import ENDED, GangPhase
from gangctl.cli.errors import UserError
from gangctl.cli.gang_view import live_snapshot
from gangctl.cli.submission import remove
from gangctl.cli.targets.port import Say
from gangctl.cluster.errors import ClusterError, Retryable
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import PodFolder, StateDirectory
from gangctl.cluster.local.pod_processes import controller_pid
from gangctl.cluster.local.pod_record import PodRecord
from gangctl.cluster.local.settlement import settle
from gangctl.cluster.local.teardown import teardown
from gangctl.cluster.local.termination import find_processes, processes_of
from gangctl.words.text import listed

POLL_SECONDS: Final = 0.2
MARGIN_SECONDS: Final = 30.0
"""Beyond the grace period, for a controller that ends a gang."""
RECORDS_SECONDS: Final = 10.0
"""For a controller to remove the records of pods that have ended."""
DEFAULT_GRACE_SECONDS: Final = 3
"""Of a gang whose file can't be read."""
_DONE: Final = (*ENDED, GangPhase.SUSPENDED)


def stop(state: StateDirectory, store: GangStore, seconds: float | None, say: Say) -> bool:
    """Stop a gang; return False if a controller has not ended it within ``seconds`` (None: the grace and a margin).

    Raises:
        ClusterError: a file can't be read or written.
    """
    job = _stop(state, store, seconds, say)
    if job is None:
        return False
    name, status = job.metadata.name, job.status
    if status.phase in ENDED:
        say(f"{name} has ended ({status.phase}); no process of it is left")
        return True
    then = " and then gangctl run FILE continue it" if _controller(state) is None else " continues it"
    point = "" if job.spec.checkpoint is None else " from the newest checkpoint that all ranks have"
    say(f"{name} is stopped: no process of it is left; gangctl resume {name}{then}{point}")
    return True


def delete(state: StateDirectory, store: GangStore, seconds: float | None, say: Say) -> bool:
    """Stop a gang, then remove all its files; return False if it could not be stopped in time: nothing is removed then.

    A gang whose file can't be read is deleted, too, one whose file can't be written (the controller ends the pods of a
    gang that is gone), and what Ctrl-C has left of one.

    Raises:
        ClusterError: a file can't be read.
        UserError: a file can't be removed.
    """
    name = store.folder.path.name
    deadline = time.monotonic() + RECORDS_SECONDS
    try:
        job = store.read()
    except ClusterError as error:
        if store.removed_at() is None:
            say(f"{name}: {error}")
        if _controller(state) is None:
            asyncio.run(teardown(state, name, DEFAULT_GRACE_SECONDS))
    else:
        try:
            if _stop(state, store, seconds, say) is None:
                return False
            deadline = time.monotonic() + RECORDS_SECONDS
        except Retryable as error:
            say(f"{name}: {error}; it is removed without a stop before")
            deadline += job.spec.recovery.planned_stop_grace_period_seconds
    remove(store)
    while _controller(state) is not None and _records(store) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if _living(store):
        asyncio.run(teardown(state, name, 0))
    deadline = time.monotonic() + RECORDS_SECONDS
    while store.folder.path.exists():
        try:
            shutil.rmtree(store.folder.path)
        except FileNotFoundError:
            continue
        except OSError as error:  # A process that ends at this moment may still write into it.
            if error.errno != errno.ENOTEMPTY or time.monotonic() > deadline:
                raise UserError(f"{error.filename} can't be removed: {error.strerror}") from None
    say(f"{name} is deleted: {store.folder.path} is removed with its logs; checkpoints are not touched")
    return True


def _stop(state: StateDirectory, store: GangStore, seconds: float | None, say: Say) -> GangJob | None:
    """The gang, once no process of it is left; None if that is not so in time.

    Raises:
        Retryable: a file can't be written, by this process or by the controller.
    """
    job = store.read()
    has_ended = job.status.phase in ENDED
    if not has_ended:
        store.update_spec(lambda old: changed(old, suspend=True))
    grace = 0 if has_ended else job.spec.recovery.planned_stop_grace_period_seconds
    deadline = time.monotonic() + (grace + MARGIN_SECONDS if seconds is None else seconds)
    told = False
    while True:
        living, controller = _living(store), _controller(state)
        if controller is None:
            return _end(state, store, living, grace, say)
        job = store.read()
        if job.status.phase in _DONE and not living:
            return job
        seen = live_snapshot(state, job.metadata.name)
        if seen is not None and seen.unstored:
            raise Retryable(seen.unstored)
        if not told:
            how = "" if has_ended else f", {_grace(grace)}"
            say(f"{job.metadata.name}: the controller (process {controller}) ends {_members(living)}{how}")
            told = True
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_SECONDS)


def _end(state: StateDirectory, store: GangStore, living: list[str], grace: int, say: Say) -> GangJob:
    """Without a controller: end the processes, then store that the gang is suspended."""
    name = store.folder.path.name
    if living:
        how = f", {_grace(grace)}; Ctrl-C kills them at once" if grace else ""
        say(f"{name}: no controller runs: ending {_members(living)}{how}")
    try:
        asyncio.run(teardown(state, name, grace))
    except KeyboardInterrupt:
        say(f"{name}: killing what is left")
        asyncio.run(teardown(state, name, 0))
    job = store.read()
    return job if job.status.phase in ENDED else settle(state, store, time.time())


def _grace(grace: int) -> str:
    return f"SIGKILL comes after {grace} s (recovery.plannedStopGracePeriodSeconds)"


def _members(living: list[str]) -> str:
    return f"every process of {listed(living)}" if living else "what is left"


def _living(store: GangStore) -> list[str]:
    """Members with a pod of which a process runs."""
    records = _records(store)
    found = find_processes() if records else {}
    return sorted({one.member for one in records if any(processes_of(one, found)) or process.marked(one.uid)})


def _records(store: GangStore) -> list[PodRecord]:
    """Those that can be read: pods come and go meanwhile, and a teardown tells of the others when all have ended."""
    found: list[PodRecord] = []
    for path in sorted(store.folder.pods.glob("*")):
        with suppress(ClusterError):
            one = pod_record.load(PodFolder(path))
            found += [] if one is None else [one]
    return found


def _controller(state: StateDirectory) -> int | None:
    try:
        return controller_pid(state)
    except ClusterError:
        return None
