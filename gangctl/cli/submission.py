"""Submits the manifest of `gangctl run FILE`: stores a new gang, or takes over the stored one of the same name.

The rule: a gang that has ended is replaced by a new one. A gang that has not ended is taken over, with the policy of
the manifest, if its roles are the same. A manifest that does not fit must never change anything that runs.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangctl.api.changes import changed
from gangctl.api.gangjob import GangJob, Spec
from gangctl.api.roles_hash import roles_hash
from gangctl.api.status import ENDED
from gangctl.cli.errors import UserError
from gangctl.cli.local import gangs as local_gangs
from gangctl.cli.manifests import unfamiliar
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.rotation import rotated
from gangctl.cluster.local.teardown import teardown
from gangctl.cluster.local.worker_command import ignored, refusals


@dataclass(frozen=True, slots=True)
class Submission:
    """The stored gang, and what the user is told."""

    store: GangStore
    message: str
    """What was done."""
    notes: tuple[str, ...]
    """Which parts of the manifest have no effect here."""


def submit(state: StateDirectory, job: GangJob, working_directory: Path) -> Submission:
    """Store the gang of a manifest, or take over the stored one.

    Raises:
        UserError: it can't be run here, doesn't fit the stored gang, or can't be stored.
    """
    store = GangStore(state.gang(job.metadata.name))
    notes = (*ignored(job), *unfamiliar(job))
    try:
        old = None if store.stamp() is None else local_gangs.read(store)
        is_taken_over = old is not None and old.status.phase not in ENDED
        wrong = refusals(job, None if is_taken_over else working_directory)
        if wrong:
            raise UserError("the manifest can't be run on this machine:\n" + "\n".join(f"  {text}" for text in wrong))
        if old is not None and is_taken_over:
            return Submission(store, _take_over(store, old, job.spec), notes)
        has_logs = _put_aside(state, store)
        store.create(job, working_directory)
        what = f"gang {job.metadata.name} is created"
        what += "" if old is None else f"; it replaces the one that has {old.status.phase.lower()}"
        what += f"; gangctl logs {job.metadata.name} --previous has the logs of the one before" if has_logs else ""
        return Submission(store, what, notes)
    except ClusterError as error:
        raise UserError(str(error)) from None


def remove(store: GangStore) -> None:
    """Remove the gang with what compilers have kept. Its logs stay, and beside them what their readers need of it.

    The file that stays has the time of this moment.

    Raises:
        UserError: it can't be removed.
    """
    folder = store.folder
    with suppress(FileNotFoundError):
        try:
            folder.job.replace(folder.removed)
            folder.removed.touch()
            shutil.rmtree(folder.caches, ignore_errors=True)
        except PermissionError as error:
            raise UserError(f"{folder.job} can't be removed: {error.strerror}") from None


def _put_aside(state: StateDirectory, store: GangStore) -> bool:
    """End what is left of an earlier gang of this name, remove it, and put its logs aside; returns whether it had any.

    Only those of the last one are kept.

    Raises:
        ClusterError: a file can't be read or written.
        UserError: a file can't be removed.
    """
    folder = store.folder
    if not folder.path.is_dir():
        return False
    asyncio.run(teardown(state, folder.path.name, 0))
    remove(store)
    try:
        for path in (folder.removed, folder.events, rotated(folder.events)):
            path.unlink(missing_ok=True)
        if not folder.pods.is_dir() or not any(folder.pods.iterdir()):
            return False
        shutil.rmtree(folder.before, ignore_errors=True)
        folder.pods.replace(folder.before)
    except OSError as error:
        raise UserError(f"{error.filename} can't be removed: {error.strerror}") from None
    return True


def _take_over(store: GangStore, old: GangJob, spec: Spec) -> str:
    name, status = old.metadata.name, old.status
    wanted, said = spec, spec.model_fields_set
    # Fields that `gangctl suspend`, `resume` and `restart` set; a manifest without them leaves them unchanged.
    if "suspend" not in said:
        wanted = changed(wanted, suspend=old.spec.suspend)
    if "restart_token" not in said:
        wanted = changed(wanted, restart_token=old.spec.restart_token)
    if roles_hash(wanted.roles) != roles_hash(old.spec.roles) and not old.spec.suspend:
        raise UserError(
            f"gang {name} exists ({status.phase or 'New'}, attempt {status.attempt}) with other roles than the "
            f"manifest's, and roles can be changed only while it is suspended: run gangctl suspend {name}, then this "
            f"command again, then gangctl resume {name}; or use another metadata.name"
        )
    where = f"{status.phase or 'New'}, attempt {status.attempt}"
    after = store.update_spec(lambda _: wanted)
    if after.metadata.generation == old.metadata.generation:
        return f"gang {name} exists ({where}): it is taken over, its workers are not touched"
    return f"gang {name} exists ({where}): it is taken over with the manifest's changes to the spec"
