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
from gangctl.cli import local_gangs
from gangctl.cli.errors import UserError
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
    wrong = refusals(job)
    if wrong:
        raise UserError("the manifest can't be run on this machine:\n" + "\n".join(f"  {text}" for text in wrong))
    store = GangStore(state.gang(job.metadata.name))
    notes = ignored(job)
    try:
        if store.stamp() is None:
            store.create(job, working_directory)
            return Submission(store, f"gang {job.metadata.name} is created", notes)
        old = local_gangs.read(store)
        if old.status.phase in ENDED:
            discard(state, store)
            store.create(job, working_directory)
            what = f"gang {job.metadata.name} is created; it replaces the one that has {old.status.phase.lower()}"
            return Submission(store, what, notes)
        return Submission(store, _take_over(store, old, job.spec), notes)
    except ClusterError as error:
        raise UserError(str(error)) from None


def discard(state: StateDirectory, store: GangStore) -> None:
    """End all processes of a gang, then remove it with its pods and logs.

    Raises:
        ClusterError: a file can't be read or written.
        UserError: a file can't be removed.
    """
    asyncio.run(teardown(state, store.folder.path.name, 0))
    remove(store)
    try:
        shutil.rmtree(store.folder.pods)
        store.folder.events.unlink(missing_ok=True)
        rotated(store.folder.events).unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{error.filename} can't be removed: {error.strerror}") from None


def remove(store: GangStore) -> None:
    """Remove the stored object, so that the gang no longer exists, and what compilers have kept. Its logs stay.

    Raises:
        UserError: it can't be removed.
    """
    with suppress(FileNotFoundError):
        try:
            store.folder.job.unlink()
            shutil.rmtree(store.folder.caches, ignore_errors=True)
        except PermissionError as error:
            raise UserError(f"{store.folder.job} can't be removed: {error.strerror}") from None


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
