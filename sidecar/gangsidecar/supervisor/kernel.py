"""Calls of Linux and of the C library for which Python has no function, and the memory of the container.

The static executable (sidecar/static) has the calls built in, as the module ``_gangsys``. An archive that an
interpreter runs makes them by ctypes, which some small Pythons do not have. Nothing depends on them where the
supervisor is PID 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

try:
    import _gangsys  # type: ignore[import-not-found]
except ImportError:
    _gangsys = None

IS_STATIC = _gangsys is not None
"""This program is the static executable."""
SET_PDEATHSIG = 1
SET_CHILD_SUBREAPER = 36
"""As in sys/prctl.h."""
_UNLIMITED = 1 << 60
"""Version 1 of cgroups shows a number near 2^63 where there is no limit."""
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Limit and usage, in version 2 and 1."""


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


def memory_folders() -> Iterator[str]:
    """Folders in which the files of the memory controller may be, of version 2 or 1, the likeliest first.

    In a container the path may be the host's, while what is mounted is the container's own group.
    """
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            yield f"/sys/fs/cgroup{path}"
            yield "/sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            yield f"/sys/fs/cgroup/memory{path}"
            yield "/sys/fs/cgroup/memory"


def memory_left() -> int | None:
    """Return the bytes that this cgroup may still take, dropping file pages; None if there is no limit."""
    for folder in memory_folders():
        for limit_file, usage_file in _FILES:
            try:
                limit, usage = _read(f"{folder}/{limit_file}"), _read(f"{folder}/{usage_file}")
                stat = dict(line.split() for line in _read(f"{folder}/memory.stat").splitlines())
                if limit == "max" or int(limit) >= _UNLIMITED:
                    return None
                return int(limit) - int(usage) + int(stat.get("total_inactive_file", stat.get("inactive_file", "0")))
            except (OSError, ValueError):
                continue
    return None


def memory_of(pid: int) -> int:
    """Return the bytes that only this process uses: what would be free without it. 0 if that is unknown."""
    try:
        lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    except (OSError, ValueError):
        return 0


def oom_kills() -> int:
    """Count the processes of this cgroup that the kernel has killed for lack of memory; 0 if that is unknown."""
    names = ("memory.events", "memory.oom_control")
    for path in (f"{folder}/{name}" for folder in memory_folders() for name in names):
        try:
            with open(path, encoding="ascii") as file:
                for line in file:
                    name, _, count = line.partition(" ")
                    if name == "oom_kill":
                        return int(count)
        except (OSError, ValueError):
            continue
    return 0


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()
