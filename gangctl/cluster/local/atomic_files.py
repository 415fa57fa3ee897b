"""Atomic files: after a crash of the process or the machine, a file has either its old or its new content."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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
    errno.ENOSYS: "choose a --state-dir on a local file system",  # Lustre that is mounted without flock
    errno.EOPNOTSUPP: "choose a --state-dir on a local file system",
    errno.ENOLCK: "choose a --state-dir on a local file system",
}


class Stamp(NamedTuple):
    """Version of a file: each write makes a new inode."""

    inode: int
    modified_ns: int
    size: int


def stamp(path: Path) -> Stamp | None:
    """The current version; None if there is no file."""
    try:
        return _stamp(path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_file(path: Path) -> tuple[bytes, Stamp]:
    """Read the content and its version."""
    with path.open("rb") as file:
        return file.read(), _stamp(os.fstat(file.fileno()))


def write_file(path: Path, content: bytes, *, durable: bool) -> Stamp:
    """Replace a file atomically; with ``durable``, the new content survives a power failure once this has returned.

    Raises:
        Retryable: it can't be written; the old content is untouched.
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
    """Make the entries of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError) -> Retryable:
    """The error with a message for users: path, cause and what to do."""
    advice = _ADVICE.get(error.errno or 0)
    return Retryable(
        f"{path} can't be written: {error.strerror or error}; the stored version is unchanged"
        + (f" ({advice})" if advice else "")
    )


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock of a file; it is released at the end of the process at the latest."""
    descriptor = open_locked(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def open_locked(path: Path, how: int) -> int:
    """Open a lock file and lock it with flock; return its descriptor.

    Raises:
        BlockingIOError: ``how`` has LOCK_NB, and another process holds the lock.
        Retryable: the file can't be opened or locked.
    """
    try:
        with ExitStack() as failed:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            failed.callback(os.close, descriptor)
            fcntl.flock(descriptor, how)
            failed.pop_all()
    except BlockingIOError:
        raise
    except OSError as error:
        raise unwritable(path, error) from error
    return descriptor


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_ino, found.st_mtime_ns, found.st_size)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file that is read line by line: the whole line, or nothing."""
    try:
        with path.open("ab", buffering=0) as file:
            before, left = file.tell(), line.encode() + b"\n"
            try:
                while left:  # A full disk takes the first part.
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(before)
                raise
    except OSError as error:
        raise unwritable(path, error) from error
