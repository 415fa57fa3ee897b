"""The termination message of the container: the supervisor's last words come first, then what others wrote.

The kubelet reads the last 4,096 bytes of the file, and may cut off the end of those. So the whole file is kept within
that, and the words stand at its beginning. What a worker wrote must not be lost beyond what the kubelet drops anyway,
until its next attempt begins: a container that is started again has a message of its own, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from gangsidecar import wire

FILE = 4_096
SAID = 240
"""Characters of what a worker wrote that are told of it."""
_MARK = wire.MARK.encode()
_TRACEBACK = "Traceback (most recent call last):"


def leave(path: str, ends: tuple[wire.End, ...]) -> None:
    """Write how the worker's processes ended, in place of what was written before.

    Raises:
        OSError: the file can't be written.
    """
    words = wire.to_words(ends)
    if not words:
        return
    line = words.encode("ascii") + b"\n"
    _change(path, lambda lines: line + b"".join(_others(lines))[-(FILE - len(line)) :])


def forget(path: str) -> None:
    """An attempt begins: remove what the worker wrote in earlier ones.

    Raises:
        OSError: the file can't be written.
    """
    if os.path.exists(path) and os.path.getsize(path):
        _change(path, lambda lines: b"".join(line for line in lines if line.startswith(_MARK)))


def said(path: str) -> str:
    """What the worker wrote: as many of its last lines as fit, or of a Python traceback the last one.

    Empty if it wrote nothing, or if that can't be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            written = _others(_lines(descriptor))
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    found = (line.decode(errors="replace").strip("\0 \t\r\n") for line in written)
    lines = [line for line in found if line]
    first = len(lines) - 1
    while first > 0 and _TRACEBACK not in lines and len("\n".join(lines[first - 1 :])) <= SAID:
        first -= 1
    return "\n".join(lines[max(0, first) :])[:SAID]


def _change(path: str, change: Callable[[list[bytes]], bytes]) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        whole = change(_lines(descriptor))
        os.pwrite(descriptor, whole, 0)
        os.ftruncate(descriptor, len(whole))
    finally:
        os.close(descriptor)


def _lines(descriptor: int) -> list[bytes]:
    """The lines of the end of the file, as the kubelet reads it."""
    return os.pread(descriptor, FILE, max(0, os.fstat(descriptor).st_size - FILE)).splitlines(keepends=True)


def _others(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if not line.startswith(_MARK)]
