"""Stores one GangJob in one file, with the guarantees of an API server: durable, atomic, with optimistic locking.

The file contains the whole object. A writer holds ``gangjob.lock`` while it compares the resourceVersion and writes.
The controller writes only the status, and the command line only the spec.
"""

import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from gangctl.api.gangjob import GangJob, Metadata, Spec
from gangctl.api.model import changed
from gangctl.api.status import Status
from gangctl.api.stored import read_stored
from gangctl.cluster.errors import Conflict, Terminal
from gangctl.cluster.local.atomic_files import Stamp, lock_file, read_file, stamp, unwritable, write_file
from gangctl.cluster.local.layout import GangFolder

ANNOTATION_DIRECTORY: Final = "gangctl.io/working-directory"
"""The directory in which ``gangctl run`` was started: the base of relative paths of workers."""


class GangStore:
    """The stored object of one gang. Calls may block for a disk write; call them from a thread."""

    def __init__(self, folder: GangFolder) -> None:
        self.folder = folder
        self.newest: tuple[Stamp, GangJob] | None = None
        """The object that was last read or written, with the version of the file."""
        self._mutex = threading.RLock()
        """Protects :attr:`newest`, so that a late read never hides a write."""

    def stamp(self) -> Stamp | None:
        """The current version of the file, cheap enough for polling; None if there is no file."""
        return stamp(self.folder.job)

    def read(self) -> GangJob:
        """The stored object.

        Raises:
            Terminal: there is none, or the file isn't a GangJob.
        """
        with self._mutex:
            if self.newest is None or self.newest[0] != self.stamp():
                self.newest = _read(self.folder.path.name, self.folder.job)
            return self.newest[1]

    def read_removed(self) -> GangJob:
        """The object of a gang that was removed, as it was stored last."""
        return _read(self.folder.path.name, self.folder.removed)[1]

    def removed_at(self) -> float | None:
        """When the gang was removed, in seconds since the epoch; None if it is there, or nothing of it was kept."""
        try:
            return None if self.stamp() is not None else self.folder.removed.stat().st_mtime
        except FileNotFoundError:
            return None

    def create(self, job: GangJob, working_directory: Path) -> GangJob:
        """Store a new gang with a new UID and an empty status.

        Raises:
            Conflict: a gang of this name exists.
            Retryable: it can't be written.
            Terminal: the path of the directory is no text.
        """
        folder = self.folder
        try:
            folder.pods.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(folder.pods, error) from error
        with self._mutex, lock_file(folder.lock):
            if folder.job.exists():
                raise Conflict(f"gang {job.metadata.name!r} already exists in {folder.path}")
            given = job.metadata.model_dump()
            annotations = {**given.get("annotations", {}), ANNOTATION_DIRECTORY: _as_text(working_directory)}
            metadata = changed(
                Metadata.model_validate({**given, "annotations": annotations}),
                uid=str(uuid.uuid4()),
                generation=1,
                resource_version="1",
                creation_timestamp=round(time.time(), 6),
            )
            return self._write(changed(job, metadata=metadata, status=Status()))

    def write_status(self, job: GangJob, status: Status) -> GangJob:
        """Store the status if the stored object is still ``job``; return the stored object.

        Raises:
            Conflict: the stored object has changed.
            Retryable: it can't be written.
            Terminal: the stored file is no longer a GangJob.
        """
        with self._mutex, lock_file(self.folder.lock):
            found = self.read()
            ours, theirs = job.metadata, found.metadata
            if (theirs.uid, theirs.resource_version) != (ours.uid, ours.resource_version):
                raise Conflict(
                    f"gang {ours.name} has changed: it has version {theirs.resource_version} instead of "
                    f"{ours.resource_version}"
                )
            return self._write(changed(found, metadata=_next(theirs), status=status))

    def update_spec(self, change: Callable[[Spec], Spec]) -> GangJob:
        """Change the spec; a change increments the generation.

        Raises:
            Retryable: it can't be written.
            Terminal: there is no such gang, or the new spec is invalid.
        """
        with self._mutex, lock_file(self.folder.lock):
            found = self.read()
            spec = change(found.spec)
            if spec == found.spec:
                return found
            metadata = changed(_next(found.metadata), generation=found.metadata.generation + 1)
            wanted = changed(found, metadata=metadata, spec=spec)
            try:
                GangJob.model_validate_json(_content(wanted))
            except ValidationError as error:
                raise Terminal(f"the new spec of gang {metadata.name} is invalid: {_first(error)}") from None
            return self._write(wanted)

    def _write(self, job: GangJob) -> GangJob:
        self.newest = write_file(self.folder.job, _content(job), durable=True), job
        return job


def _read(name: str, path: Path) -> tuple[Stamp, GangJob]:
    try:
        content, version = read_file(path)
        stored = read_stored(json.loads(content))
    except FileNotFoundError:
        raise Terminal(f"there is no gang {name!r}: {path} doesn't exist") from None
    except OSError as error:
        raise Terminal(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise Terminal(_unreadable(path, _first(error))) from None
    job, lost = stored.job, [field for field in stored.ignored if not field.startswith("status.")]
    if lost:  # A write of the status writes the whole file.
        raise Terminal(_unreadable(path, f"this release doesn't know {', '.join(lost)}"))
    if not job.metadata.uid:
        raise Terminal(_unreadable(path, "metadata.uid is missing"))
    return version, job


def _next(metadata: Metadata) -> Metadata:
    version = metadata.resource_version
    return changed(metadata, resource_version=str(int(version) + 1 if version.isdecimal() else 1))


def _content(job: GangJob) -> bytes:
    return job.model_dump_json(by_alias=True, exclude_none=True, indent=1).encode() + b"\n"


def _unreadable(path: Path, wrong: str) -> str:
    return (
        f"{path} isn't a stored GangJob ({wrong}): the gang is left alone until the file is restored; "
        "to give the gang up, remove its folder"
    )


def _first(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return f"Invalid JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"


def _as_text(path: Path) -> str:
    """The path in UTF-8, whatever the encoding of this locale is: the controller's is always UTF-8.

    Raises:
        Terminal: it has bytes that are no UTF-8, which a stored object can't have.
    """
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError:
        raise Terminal(
            f"the path of the working directory {path} isn't UTF-8, but a gang keeps it as text; run it elsewhere"
        ) from None
