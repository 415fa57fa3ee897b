"""Copies this program, and all that lies beside it, into the folder that a pod's containers share.

The sidecar's postStart hook runs it (``supervisor install DIRECTORY``), and no other container of the pod starts before
it is done: it must take milliseconds. Each file is written in one step, and every user may read it, whatever uid the
user's container has. What must never happen: that a program which starts a copy sees half of it, or that one which runs
from an older copy stops.
"""

from __future__ import annotations

import os

FOLDER_MODE = 0o755
MOST_BYTES = 1 << 30
"""What one call may copy; the kernel stops at the end of the file."""


def install(source: str, directory: str) -> None:
    """Copy what is in the folder ``source`` into ``directory``, which must exist.

    Raises:
        OSError: something could not be written.
    """
    for folder, _, names in os.walk(source, onerror=_refuse):
        target = os.path.normpath(os.path.join(directory, os.path.relpath(folder, source)))
        if folder != source:
            os.makedirs(target, exist_ok=True)
            os.chmod(target, FOLDER_MODE)
        for name in names:
            path = os.path.join(folder, name)
            copy(path, os.path.join(target, name), mode=0o755 if os.access(path, os.X_OK) else 0o644)


def copy(source: str, target: str, *, mode: int) -> None:
    """Copy one file, in one step.

    Raises:
        OSError: it could not be written.
    """
    temporary = f"{target}.{os.getpid()}.tmp"
    with open(source, "rb") as whole, open(temporary, "wb") as half:
        while os.sendfile(half.fileno(), whole.fileno(), None, MOST_BYTES):
            pass
    os.chmod(temporary, mode)
    os.replace(temporary, target)


def _refuse(error: OSError) -> None:
    raise error


def told(directory: str, error: OSError) -> str:
    """Say why ``directory`` could not be written, and what to look at."""
    return (
        f"the supervisor can't be installed in {directory}: {error}; does the folder exist, and may uid "
        f"{os.geteuid()} write to it?\n"
    )
