"""What the supervisor asks of Linux and of the C library, and Python has no function for.

The static executable (sidecar/static) has these calls built in, as the module ``_gangsys``. An archive that an
interpreter runs makes them by ctypes, which some small Pythons do not have. Nothing depends on them where the
supervisor is PID 1.
"""

from __future__ import annotations

import os

try:
    import _gangsys  # type: ignore[import-not-found]
except ImportError:
    _gangsys = None

IS_STATIC = _gangsys is not None
"""Whether this program is the static executable."""
SET_PDEATHSIG = 1
SET_CHILD_SUBREAPER = 36
"""As in sys/prctl.h."""


def prctl(option: int, value: int) -> str:
    """Change what the kernel does with this process; returns what went wrong, or nothing."""
    if _gangsys is not None:
        failed = _gangsys.prctl(option, value)
        return os.strerror(failed) if failed else ""
    try:
        import ctypes  # noqa: PLC0415 - it takes a megabyte, and PID 1 needs none

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(option, value, 0, 0, 0) != 0:
            return os.strerror(ctypes.get_errno())
    except (ImportError, OSError, AttributeError) as error:
        return str(error)
    return ""


def trim_memory() -> None:
    """Return the memory that only the start of this program took, about a megabyte, where the C library can."""
    if _gangsys is not None:
        _gangsys.trim()
        return
    try:
        import ctypes  # noqa: PLC0415 - as above

        ctypes.CDLL(None).malloc_trim(0)
    except (ImportError, OSError, AttributeError):
        return
