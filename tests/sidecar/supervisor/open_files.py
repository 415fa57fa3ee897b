"""What processes have open: it must not grow."""

from __future__ import annotations

import time
from pathlib import Path

from tests.wait import until

LOOKS = 20


def open_in(pid: int) -> tuple[int, int]:
    """Files and threads of a process."""
    return len([*Path(f"/proc/{pid}/fd").iterdir()]), len([*Path(f"/proc/{pid}/task").iterdir()])


def open_at_rest(*pids: int) -> tuple[tuple[int, int], ...]:
    """The same, once no call opens anything for a moment."""

    def same() -> tuple[tuple[int, int], ...] | None:
        seen = set()
        for _ in range(LOOKS):
            seen.add(tuple(map(open_in, pids)))
            time.sleep(0.01)
        return seen.pop() if len(seen) == 1 else None

    return until("the same files and threads are open in each look", same)
