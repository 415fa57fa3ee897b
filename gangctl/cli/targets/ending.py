"""Stop, delete and rerun gangs, of this machine and of a cluster.

The rule: a gang that is stopped is suspended first, so that no controller starts it again. On this machine the
controller ends the processes if one runs, otherwise this program does; the gang is stopped when no process is left. A
new run takes over what was submitted, not what was asked of that one gang later.
"""

from __future__ import annotations

import asyncio
import errno
import json
import shlex
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gangctl.api.gangjob import GangJob, Spec
from gangctl.api.model import changed
from gangctl.api.recovery import RestartFrom
from gangctl.api.status import ENDED, GangPhase
from gangctl.cli.errors import UserError
from gangctl.cli.gang_view import live_snapshot
from gangctl.cli.local.gangs import remove_gang
from gangctl.cli.targets.port import Say
from gangctl.cluster.errors import ClusterError, Conflict, Retryable, Terminal
from gangctl.cluster.local import pod_record, process
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.pod_record import controller_pid
from gangctl.cluster.local.termination import find_processes, pod_processes, store_suspension, teardown
from gangctl.words.text import listed

if TYPE_CHECKING:
    from gangctl.cli.targets.gangjobs import GangJobs  # it imports aiohttp, which gangs of this machine don't need

_LOCAL_POLL_SECONDS: Final = 0.2
_LOCAL_MARGIN_SECONDS: Final = 30.0
"""Beyond the grace period, for a controller that ends a gang."""
_LEAST_SECONDS: Final = 2.0
"""Without a controller, workers get SIGTERM from this program, also where it is not to wait for their end."""
_RECORDS_SECONDS: Final = 10.0
"""For a controller to remove the records of pods that have ended."""
_DEFAULT_GRACE_SECONDS: Final = 3
"""The grace period of a gang whose file can't be read."""
_POLL_SECONDS: Final = 0.5
"""Between two looks at a cluster."""
_MARGIN_SECONDS: Final = 60.0
"""Beyond the grace period, for the kubelets to end the pods."""
_DELETE_SECONDS: Final = 60.0
_METADATA: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")
_REQUESTS: Final = ("suspend", "restartToken", "restartFrom")


def stop_local(state: StateDirectory, store: GangStore, seconds: float | None, say: Say) -> bool:
    """Stop a gang; return False if it has not ended within ``seconds`` (None: the grace and a margin)."""
    job = _suspend_and_end(state, store, seconds, say)
    if job is None:
        return False
    name, status = job.metadata.name, job.status
    if status.phase in ENDED:
        say(f"{name} has ended ({status.phase}); no process of it is left")
        return True
    then = " and then gangctl run FILE continue it" if controller_pid(state) is None else " continues it"
    point = "" if job.spec.checkpoint is None else " from the newest checkpoint that all ranks have"
    say(f"{name} is stopped: no process of it is left; gangctl resume {name}{then}{point}")
    return True


def delete_local(state: StateDirectory, store: GangStore, seconds: float | None, say: Say) -> bool:
    """Stop a gang, then remove all its files; return False if it could not be stopped in time: nothing is removed then.

    A gang whose file can't be read is deleted, too, one whose file can't be written (the controller ends the pods of a
    gang that is gone), and what Ctrl-C has left of one.
    """
    name = store.folder.path.name
    deadline = time.monotonic() + _RECORDS_SECONDS
    try:
        job = store.read()
    except ClusterError as error:
        if store.removed_at() is None:
            say(f"{name}: {error}")
        if controller_pid(state) is None:
            _tear_down(state, name, _DEFAULT_GRACE_SECONDS)
        else:
            deadline += max((one.grace_seconds for one in pod_record.load_readable(store.folder)[0]), default=0)
    else:
        try:
            if _suspend_and_end(state, store, seconds, say) is None:
                return False
            deadline = time.monotonic() + _RECORDS_SECONDS
        except Retryable as error:
            say(f"{name}: {error}; it is removed without a stop before")
            deadline += job.spec.recovery.planned_stop_grace_period_seconds + _LOCAL_MARGIN_SECONDS
    remove_gang(store)
    while controller_pid(state) is not None and time.monotonic() < deadline:
        if not (pod_record.load_readable(store.folder)[0] or _living(store)):
            break
        time.sleep(_LOCAL_POLL_SECONDS)
    if _living(store):
        _tear_down(state, name, 0)
    deadline = time.monotonic() + _RECORDS_SECONDS
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


def _tear_down(state: StateDirectory, name: str, grace: float) -> None:
    with suppress(Retryable):  # The disk is full: every process has ended, and the records are removed with the gang.
        asyncio.run(teardown(state, name, grace))


def _suspend_and_end(state: StateDirectory, store: GangStore, seconds: float | None, say: Say) -> GangJob | None:
    """The gang, once no process of it is left; None if that is not so in time. Retryable: a file can't be written."""
    job = store.read()
    has_ended = job.status.phase in ENDED
    if not has_ended:
        store.update_spec(lambda old: changed(old, suspend=True))
    grace = 0 if has_ended else job.spec.recovery.planned_stop_grace_period_seconds
    deadline = time.monotonic() + (grace + _LOCAL_MARGIN_SECONDS if seconds is None else seconds)
    is_first = True
    while True:
        living, controller = _living(store), controller_pid(state)
        if controller is None:
            return _end(state, store, living, grace, deadline, say)
        job = store.read()
        if job.status.phase in {*ENDED, GangPhase.SUSPENDED} and not living:
            return job
        seen = live_snapshot(state, job.metadata.name)
        if seen is not None and seen.unstored:
            raise Retryable(seen.unstored)
        if is_first:
            how = "" if has_ended else f", {_grace_text(grace)}"
            say(f"{job.metadata.name}: the controller (process {controller}) ends {_members_text(living)}{how}")
            is_first = False
        if time.monotonic() >= deadline:
            return None
        time.sleep(_LOCAL_POLL_SECONDS)


def _end(
    state: StateDirectory, store: GangStore, living: list[str], grace: int, deadline: float, say: Say
) -> GangJob | None:
    """Without a controller: end the processes, then store that the gang is suspended; None if that takes too long."""
    name = store.folder.path.name
    if living:
        how = f", {_grace_text(grace)}; Ctrl-C kills them at once" if grace else ""
        say(f"{name}: no controller runs: ending {_members_text(living)}{how}")
    try:
        seconds = max(_LEAST_SECONDS, deadline - time.monotonic())
        asyncio.run(asyncio.wait_for(teardown(state, name, grace), seconds))
    except TimeoutError:
        say(f"{name}: workers have SIGTERM; no controller runs, so only gangctl stop {name} kills those that stay")
        return None
    except KeyboardInterrupt:
        say(f"{name}: killing what is left")
        asyncio.run(teardown(state, name, 0))
    job = store.read()
    return job if job.status.phase in ENDED else store_suspension(state, store, time.time())


def _grace_text(grace: int) -> str:
    return f"SIGKILL comes after {grace} s (recovery.plannedStopGracePeriodSeconds)"


def _members_text(living: list[str]) -> str:
    return f"every process of {listed(living)}" if living else "what is left"


def _living(store: GangStore) -> list[str]:
    """Members with a pod of which a process runs. Pods come and go; a teardown reports those that can't be read."""
    records, _ = pod_record.load_readable(store.folder)
    found = find_processes() if records else {}
    return sorted({one.member for one in records if any(pod_processes(one, found)) or process.find_marked(one.uid)})


async def stop_gangjob(
    gangs: GangJobs, pods: Callable[[GangJob], Awaitable[list[str]]], name: str, seconds: float | None, say: Say
) -> bool:
    """Suspend a gang and wait until its pods are gone; False if they are not in time. ``pods``: their names."""
    job = await gangs.read(name)
    if job.status.phase in ENDED:
        say(f"{name} has ended ({job.status.phase}): nothing of it runs")
        return True
    await gangs.change(name, {"suspend": True})
    grace = job.spec.recovery.planned_stop_grace_period_seconds
    left = await pods(job)
    say(f"{name}: spec.suspend is set: {len(left)} pods are deleted, with up to {grace} s for a last checkpoint")
    try:
        async with asyncio.timeout(grace + _MARGIN_SECONDS if seconds is None else seconds):
            while job.status.phase not in {GangPhase.SUSPENDED, *ENDED} or left:
                await asyncio.sleep(_POLL_SECONDS)
                with suppress(Retryable):
                    job, left = await gangs.read(name), await pods(job)
    except TimeoutError:
        return False
    say(
        f"{name} is stopped: none of its pods is left; attempt {job.status.attempt} and restore point stay; "
        f"gangctl resume {name} continues it"
    )
    return True


async def delete_gangjob(gangs: GangJobs, name: str, seconds: float | None, say: Say) -> bool:
    """Delete a gang and wait until the object is gone; False if it is not in time."""
    uid = (await gangs.document(name))["metadata"]["uid"]
    await gangs.delete(name, uid)
    if not await _is_gone(gangs, name, uid, _DELETE_SECONDS if seconds is None else seconds):
        return False
    say(f"gangjob {name} is deleted; the cluster ends and deletes its pods")
    return True


async def rerun_gangjob(gangs: GangJobs, name: str, say: Say) -> None:
    """Delete a gang that has ended and create it again; if that fails, the message has a file with its manifest."""
    document = await gangs.document(name)
    uid, new = document["metadata"]["uid"], _resubmitted(document)
    is_deleted = False
    try:
        await gangs.delete(name, uid)
        is_deleted = True
        why = "" if await _is_gone(gangs, name, uid, _DELETE_SECONDS) else f"still there after {_DELETE_SECONDS:g} s"
        if not why:
            await gangs.create(new)
    except (ClusterError, asyncio.CancelledError) as error:
        if not is_deleted and isinstance(error, Terminal | Conflict):
            raise  # The API server has refused the deletion.
        why = str(error) or "interrupted"
    if why:
        path, state = _saved(name, new), "is" if is_deleted else "may be"
        raise UserError(
            f"gangjob {name} {state} deleted and could not be created again ({why}); its manifest is in {path}: "
            f"kubectl create -f {shlex.quote(str(path))}"
        )
    say(f"gangjob {name} is created again; gangctl status {name} --watch follows it")


async def _is_gone(gangs: GangJobs, name: str, uid: str, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while True:  # A user who may delete need not be allowed to watch.
                with suppress(Retryable):
                    if await gangs.uid(name) != uid:
                        return True
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False


def _saved(name: str, document: dict[str, Any]) -> str:
    with tempfile.NamedTemporaryFile("w", prefix=f"{name}-", suffix=".json", delete=False) as file:
        json.dump(document, file, indent=2)
    return file.name


def without_requests(spec: Spec) -> Spec:
    """The spec without what `gangctl suspend` and `restart` have set."""
    return changed(spec, suspend=False, restart_token="", restart_from=RestartFrom())


def _resubmitted(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a cluster, as it would be submitted again."""
    metadata = {key: stored["metadata"][key] for key in _METADATA if key in stored["metadata"]}
    spec = {key: value for key, value in stored["spec"].items() if key not in _REQUESTS}
    return {"apiVersion": stored["apiVersion"], "kind": stored["kind"], "metadata": metadata, "spec": spec}
