"""Files that are either the old ones or the new ones, whenever the process or the machine stops."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from gangctl.cluster.errors import Retryable

_ADVICE: Final = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.EROFS: "choose a state directory on a file system that can be written",
    errno.EACCES: "make the folder writable for this user",
    errno.EPERM: "make the folder writable for this user",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


class Stamp(NamedTuple):
    """Which version of a file this is: each write makes a new inode."""

    inode: int
    modified_ns: int
    size: int


def stamp(path: Path) -> Stamp | None:
    """The version that is there now; None if there is none.

    Raises:
        OSError: it can't be told.
    """
    try:
        return _stamp(path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def read(path: Path) -> tuple[bytes, Stamp]:
    """The content and its version.

    Raises:
        OSError: it can't be read.
    """
    with path.open("rb") as file:
        return file.read(), _stamp(os.fstat(file.fileno()))


def write(path: Path, content: bytes, *, durable: bool) -> Stamp:
    """Replace a file in one step; with ``durable``, it survives a power failure once this has returned.

    Raises:
        Retryable: it can't be written; what was there before is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
                version = _stamp(os.fstat(file.fileno()))
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    return version


def sync_folder(path: Path) -> None:
    """Make durable which names are in a folder.

    Raises:
        OSError: it can't be.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError) -> Retryable:
    """The error for people: path, cause and what to do about it."""
    advice = _ADVICE.get(error.errno or 0)
    return Retryable(
        f"{path} can't be written: {error.strerror or error}; what was stored before is untouched"
        + (f" ({advice})" if advice else "")
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; it ends with the process at the latest.

    Raises:
        Retryable: the lock's file can't be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_ino, found.st_mtime_ns, found.st_size)
