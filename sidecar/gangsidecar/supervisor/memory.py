"""How much memory the container's limit leaves, and what a process takes of it."""

from __future__ import annotations

from gangsidecar.supervisor import cgroup

_UNLIMITED = 1 << 60
"""Version 1 of cgroups shows a number near 2^63 where there is no limit."""
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Limit and usage, in version 2 and 1."""


def left() -> int | None:
    """Bytes that this cgroup may still take, file pages that can be dropped not counted; None if there is no limit."""
    for folder in cgroup.memory_folders():
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


def own(pid: int) -> int:
    """Bytes that only this process uses: what would be free without it. 0 if that is unknown."""
    try:
        lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    except (OSError, ValueError):
        return 0


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()
