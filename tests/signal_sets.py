"""The signals that a process has blocked, ignores or catches."""

from __future__ import annotations

from pathlib import Path


def has_signal(pid: int, name: str, signum: int) -> bool:
    """Whether the signal is in the set of this name (SigBlk, SigIgn, SigCgt), as ``proc(5)`` has it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith(f"{name}:"))
    return bool(int(found.split()[1], 16) >> (signum - 1) & 1)
