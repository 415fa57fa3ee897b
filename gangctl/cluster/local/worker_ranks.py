"""Which process of a worker has which rank, as its supervisor says. Runs inside containers, too: Python 3.8.

The environment and the command line of a process do not tell: one that was forked shows those of its template.
"""

from __future__ import annotations

import json
from pathlib import Path


def worker_ranks(file: str) -> dict[int, int | None]:
    """The pid of each process that the newest attempt has started, with its rank; nothing if none was started.

    Some of them may have ended, and their pids may be used again: take only children of the supervisor.
    """
    try:
        found = json.loads(Path(file).read_text(encoding="ascii"))
        return {int(pid): rank for pid, rank in found.items()}
    except (OSError, ValueError, AttributeError):  # The latter: it is no object.
        return {}
