"""Folders for what compilers keep, which live as long as the pod: a restart need not compile again.

The rule: a variable that the user has set stays as it is, wherever it was set: in the template, by ``envFrom``, in the
image, or in a shell. A compiler runs what it finds in its cache. So the folder must belong to this user, and no other
user may enter it; otherwise nothing is set.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from gangsidecar import wire
from gangsidecar.common.log import log

_FOLDERS = {
    wire.Compiler.CUDA: "CUDA_CACHE_PATH",
    wire.Compiler.INDUCTOR: "TORCHINDUCTOR_CACHE_DIR",
    wire.Compiler.JAX: "JAX_COMPILATION_CACHE_DIR",
    wire.Compiler.TRITON: "TRITON_CACHE_DIR",
}
"""What names the folder of its cache."""
_MORE = {
    wire.Compiler.JAX: {
        # JAX keeps only what took a second to compile, but a restart compiles hundreds of small functions.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
}
"""What else is set, if the folder is ours."""


def variables(folder: str, compilers: Sequence[wire.Compiler], given: dict[str, str]) -> dict[str, str]:
    """The variables to add to the environment ``given`` for the caches of these compilers."""
    wanted = [one for one in compilers if _FOLDERS[one] not in given]
    added: dict[str, str] = {}
    try:
        for one in wanted:
            path = os.path.join(folder, one.value.lower())
            _own(folder)
            _own(path)
            added.update({_FOLDERS[one]: path, **_MORE.get(one, {})})
    except OSError as error:
        log("warning", "what compilers make is not kept for a restart", folder=folder, reason=error)
        return {}
    return {name: value for name, value in added.items() if name not in given}


def _own(path: str) -> None:
    """Make the folder, or take one of an earlier session.

    Raises:
        OSError: it can't be made, it belongs to another user, or others may enter it.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError(f"{path} must be a folder that only user {os.geteuid()} may enter")
