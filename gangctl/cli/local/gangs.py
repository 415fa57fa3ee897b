"""Gangs of a state directory: find one by its name, submit one with `gangctl run FILE`, remove one.

The rule: a gang that has ended is replaced by a new one. A gang that has not ended is taken over, with the policy of
the manifest, if its roles are the same. A manifest that does not fit must never change anything that runs.
"""

import asyncio
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangctl.api.gangjob import GangJob, Spec
from gangctl.api.model import changed
from gangctl.api.roles import roles_hash
from gangctl.api.status import ENDED
from gangctl.cli.errors import UserError, hint
from gangctl.cli.manifests import unknown_field_texts
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import DEFAULT_STATE_DIRECTORY, StateDirectory
from gangctl.cluster.local.log_files import rotated_path
from gangctl.cluster.local.programs import ignored_fields, run_obstacles
from gangctl.cluster.local.termination import teardown

STATE_VARIABLE: Final = "GANGCTL_STATE_DIR"
"""The environment variable with the path of the state directory."""


def default_state_directory() -> Path:
    """The state directory, unless a flag selects another one."""
    return Path(os.environ.get(STATE_VARIABLE) or DEFAULT_STATE_DIRECTORY)


def absolute(path: Path) -> StateDirectory:
    return StateDirectory(Path(os.path.abspath(path)))  # noqa: PTH100 - keeps symlinks, because the path is shown


def names(state: StateDirectory, file: str = "gangjob.json") -> list[str]:
    """The names of all stored gangs, or of those that have another file, sorted."""
    try:
        return sorted(path.name for path in state.gangs.iterdir() if (path / file).is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{state.gangs} can't be read: {error.strerror}; choose another --state-dir") from None


def names_with_removed(state: StateDirectory) -> list[str]:
    """The names of all gangs that are stored, or were until Ctrl-C removed them, sorted."""
    return sorted({*names(state), *names(state, "removed.json")})


def find_gang(state: StateDirectory, name: str, *, or_removed: bool = False) -> GangStore:
    """Find the store of a gang; with ``or_removed``, also of a gang that Ctrl-C has removed: its logs are left."""
    store = GangStore(state.gang(name))
    if store.stamp() is None:
        if store.folder.removed.is_file():
            if or_removed:
                return store
            raise UserError(
                f"gang {name} of {state.path} was removed: gangctl logs {name}, why, trace and timeline still tell of "
                f"it; gangctl rerun {name} runs it again"
            )
        empty = "it has no gangs; start one with gangctl run FILE, or select another --state-dir"
        raise UserError(f"there is no gang {name!r} in {state.path}: {hint(name, names_with_removed(state), empty)}")
    return store


def read_logged(state: StateDirectory, name: str) -> GangJob:
    """The gang whose logs are there: as it is stored, or as it was when it was removed."""
    store = find_gang(state, name, or_removed=True)
    return store.read() if store.removed_at() is None else store.read_removed()


@dataclass(frozen=True, slots=True)
class Submission:
    """The stored gang, and messages for the user."""

    store: GangStore
    message: str
    """The action."""
    notes: tuple[str, ...]
    """Parts of the manifest that have no effect here."""


def stored_if_runnable(store: GangStore, job: GangJob, working_directory: Path) -> GangJob | None:
    """The stored gang of this name, if there is one; UserError if the gang of the manifest can't run here."""
    old = None if store.stamp() is None else store.read()
    is_taken_over = old is not None and old.status.phase not in ENDED
    wrong = run_obstacles(job, None if is_taken_over else working_directory)
    if wrong:
        raise UserError("the manifest can't be run on this machine:\n" + "\n".join(f"  {text}" for text in wrong))
    return old


def submit_gang(state: StateDirectory, job: GangJob, working_directory: Path) -> Submission:
    """Store the gang of a manifest, or take over the stored one; UserError if it can't run here or doesn't fit."""
    store = GangStore(state.gang(job.metadata.name))
    notes = (*ignored_fields(job), *unknown_field_texts(job))
    old = stored_if_runnable(store, job, working_directory)
    if old is not None and old.status.phase not in ENDED:
        return Submission(store, _take_over(store, old, job.spec), notes)
    has_logs = _put_aside(state, store)
    store.create(job, working_directory)
    what = f"gang {job.metadata.name} is created"
    what += "" if old is None else f"; it replaces the one that has {old.status.phase.lower()}"
    what += f"; gangctl logs {job.metadata.name} --previous has the logs of the one before" if has_logs else ""
    return Submission(store, what, notes)


def remove_gang(store: GangStore) -> None:
    """Remove the gang with what compilers have kept. Its logs stay, and a file with its last status and this time."""
    folder = store.folder
    with suppress(FileNotFoundError):
        try:
            folder.job.replace(folder.removed)
            folder.removed.touch()
            shutil.rmtree(folder.caches, ignore_errors=True)
        except PermissionError as error:
            raise UserError(f"{folder.job} can't be removed: {error.strerror}") from None


def _put_aside(state: StateDirectory, store: GangStore) -> bool:
    """End what is left of an earlier gang of this name, remove it, and put its logs aside; return whether it had any.

    Only those of the last gang are kept.
    """
    folder = store.folder
    if not folder.path.is_dir():
        return False
    asyncio.run(teardown(state, folder.path.name, 0))
    remove_gang(store)
    try:
        for path in (folder.removed, folder.events, rotated_path(folder.events)):
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
    new, given = spec, spec.model_fields_set
    # Fields that `gangctl suspend`, `resume` and `restart` set; a manifest without them leaves them unchanged.
    if "suspend" not in given:
        new = changed(new, suspend=old.spec.suspend)
    if "restart_token" not in given:
        new = changed(new, restart_token=old.spec.restart_token)
    if roles_hash(new.roles) != roles_hash(old.spec.roles) and not old.spec.suspend:
        raise UserError(
            f"gang {name} exists ({status.phase or 'New'}, attempt {status.attempt}) with other roles than the "
            f"manifest's, and roles can be changed only while it is suspended: run gangctl suspend {name}, then this "
            f"command again, then gangctl resume {name}; or use another metadata.name"
        )
    where = f"{status.phase or 'New'}, attempt {status.attempt}"
    after = store.update_spec(lambda _: new)
    if after.metadata.generation == old.metadata.generation:
        return f"gang {name} exists ({where}): it is taken over, its workers are not touched"
    return f"gang {name} exists ({where}): it is taken over with the manifest's changes to the spec"
