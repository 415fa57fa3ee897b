"""What `gangctl run FILE` does with the gang that may be stored under the same name already.

The rule: a gang that has ended is replaced by a new one; a gang that hasn't is taken over, with the policy of the
manifest, if its roles are the same. Never is anything that runs touched over a manifest that doesn't fit.
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
from gangctl.cli import local_gangs
from gangctl.cli.errors import UserError
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local.gang_store import FINISHED, GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangctl.cluster.local.teardown import teardown
from gangctl.cluster.local.worker_command import ignored, refusals


@dataclass(frozen=True, slots=True)
class Submission:
    """The stored gang, and what was done, in sentences for the user."""

    store: GangStore
    said: tuple[str, ...]


def submit(state: StateDirectory, job: GangJob, working_directory: Path) -> Submission:
    """Store the gang of a manifest, or go on with the one that is stored.

    Raises:
        UserError: it can't be run here, doesn't fit the gang that is stored, or can't be stored.
    """
    wrong = refusals(job)
    if wrong:
        raise UserError("the manifest can't be run on this machine:\n" + "\n".join(f"  {text}" for text in wrong))
    store = GangStore(state.gang(job.metadata.name))
    notes = tuple(f"note: {text}" for text in ignored(job))
    try:
        if store.stamp() is None:
            store.create(job, working_directory)
            return Submission(store, (f"gang {job.metadata.name} is created", *notes))
        old = local_gangs.read(store)
        if old.status.phase in FINISHED:
            discard(state, store)
            store.create(job, working_directory)
            what = f"gang {job.metadata.name} is created anew; the one before has {old.status.phase.lower()}"
            return Submission(store, (what, *notes))
        return Submission(store, (_taken_over(store, old, job.spec), *notes))
    except ClusterError as error:
        raise UserError(str(error)) from None


def discard(state: StateDirectory, store: GangStore) -> None:
    """Forget a gang with its pods and their logs, once every process of it has been ended.

    Raises:
        ClusterError: a file of it can't be read or written.
        UserError: a file of it can't be removed.
    """
    asyncio.run(teardown(state, store.folder.path.name, 0))
    forget(store)
    try:
        shutil.rmtree(store.folder.pods)
        store.folder.events.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{error.filename} can't be removed: {error.strerror}") from None


def forget(store: GangStore) -> None:
    """Remove the stored object: a reader of the state directory sees no such gang any more. Logs stay.

    Raises:
        UserError: it can't be removed.
    """
    with suppress(FileNotFoundError):
        try:
            store.folder.job.unlink()
        except PermissionError as error:
            raise UserError(f"{store.folder.job} can't be removed: {error.strerror}") from None


def _taken_over(store: GangStore, old: GangJob, spec: Spec) -> str:
    name, status = old.metadata.name, old.status
    wanted, said = spec, spec.model_fields_set
    # What `gangctl suspend`, `resume` and `restart` set: a manifest that doesn't mention it doesn't take it back.
    if "suspend" not in said:
        wanted = changed(wanted, suspend=old.spec.suspend)
    if "restart_token" not in said:
        wanted = changed(wanted, restart_token=old.spec.restart_token)
    if roles_hash(wanted.roles) != roles_hash(old.spec.roles) and not old.spec.suspend:
        raise UserError(
            f"gang {name} is there ({status.phase or 'new'}, attempt {status.attempt}) with other roles than the "
            f"manifest's, and roles change only while it is suspended: gangctl suspend {name}, then this command "
            f"again, then gangctl resume {name}; or give it another metadata.name"
        )
    where = f"{status.phase or 'New'}, attempt {status.attempt}"
    after = store.update_spec(lambda _: wanted)
    if after.metadata.generation == old.metadata.generation:
        return f"gang {name} is there already ({where}): it is taken over, workers that run are not touched"
    return f"gang {name} is there already ({where}): it is taken over with the manifest's changes to its spec"
