"""The termination message of the container: the supervisor's last words come first, then what others wrote.

The kubelet reads the last 4,096 bytes of the file, and may cut off the end of those. So the whole file is kept within
that, and the words stand at its beginning. What a worker wrote must not be lost beyond what the kubelet drops anyway.
"""

from __future__ import annotations

import os
from typing import Tuple

from gangsidecar import wire

FILE = 4_096


def leave(path: str, ends: Tuple[wire.End, ...]) -> None:
    """Write how the worker's processes ended, in place of what was written before.

    Raises:
        OSError: the file can't be written.
    """
    words = wire.to_words(ends)
    if not words:
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        text = os.pread(descriptor, FILE, max(0, size - FILE))
        others = b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(wire.MARK.encode()))
        line = words.encode("ascii") + b"\n"
        whole = line + others[-(FILE - len(line)) :]
        os.pwrite(descriptor, whole, 0)
        os.ftruncate(descriptor, len(whole))
    finally:
        os.close(descriptor)
