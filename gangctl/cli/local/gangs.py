"""Gangs of a state directory, by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.cli.errors import UserError
from gangctl.cli.suggestions import hint
from gangctl.cluster.errors import ClusterError, Terminal
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import DEFAULT_STATE_DIRECTORY, StateDirectory

STATE_DIRECTORY: Final = "GANGCTL_STATE_DIR"
"""The environment variable with the path of the state directory."""


def default_state_directory() -> Path:
    """The state directory, unless a flag selects another one."""
    return Path(os.environ.get(STATE_DIRECTORY) or DEFAULT_STATE_DIRECTORY)


def absolute(path: Path) -> StateDirectory:
    """The state directory, with an absolute path."""
    return StateDirectory(Path(os.path.abspath(path)))  # noqa: PTH100 - keeps symlinks, because the path is shown


def names(state: StateDirectory, file: str = "gangjob.json") -> list[str]:
    """Names of all stored gangs, or of those that have another file, sorted.

    Raises:
        UserError: the folder can't be read.
    """
    try:
        return sorted(path.name for path in state.gangs.iterdir() if (path / file).is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{state.gangs} can't be read: {error.strerror}; choose another --state-dir") from None


def names_with_removed(state: StateDirectory) -> list[str]:
    """Names of all gangs that are stored, or were until Ctrl-C removed them, sorted.

    Raises:
        UserError: the folder can't be read.
    """
    return sorted({*names(state), *names(state, "removed.json")})


def find(state: StateDirectory, name: str, *, or_removed: bool = False) -> GangStore:
    """The store of an existing gang; with ``or_removed``, also of one that Ctrl-C has removed and whose logs are left.

    Raises:
        UserError: there is no gang of this name; similar names are suggested.
    """
    try:
        store = GangStore(state.gang(name))
    except Terminal as error:
        raise UserError(str(error)) from None
    if store.stamp() is None:
        if store.folder.removed.is_file():
            if or_removed:
                return store
            raise UserError(
                f"gang {name} of {state.path} was removed: gangctl logs {name}, why, trace and timeline still tell of "
                f"it; gangctl rerun {name} runs it again"
            )
        empty = "it has no gangs; start one with gangctl run FILE, or select another --state-dir"
        raise UserError(f"there is no gang {name!r} in {state.path}: {hint(name, names(state), empty)}")
    return store


def read_logged(state: StateDirectory, name: str) -> GangJob:
    """The gang whose logs are there: as it is stored, or as it was when it was removed.

    Raises:
        UserError: there is no such gang, or its file can't be read.
    """
    store = find(state, name, or_removed=True)
    try:
        return store.read() if store.removed_at() is None else store.read_removed()
    except ClusterError as error:
        raise UserError(str(error)) from None


def read(store: GangStore) -> GangJob:
    """The gang as it is stored.

    Raises:
        UserError: the file can't be read or isn't a GangJob.
    """
    try:
        return store.read()
    except ClusterError as error:
        raise UserError(str(error)) from None
