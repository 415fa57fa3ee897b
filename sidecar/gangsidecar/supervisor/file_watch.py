"""Looks at the file that a worker touches at each step. A process of its own does it: a dead file system may block it.

The rule: a modification time is compared with the one before, never with a clock. A file that appears is progress; one
that goes is not.
"""

from __future__ import annotations

import os
import time

from gangsidecar.supervisor.copier import Teller

EVERY_SECONDS = 1.0


def watch(path: str, tell: int) -> None:
    """Tell of each change, without end. ``tell``: the pipe to the supervisor."""
    teller = Teller(tell)
    before, wrong = _seen(path)
    told = ""
    while True:
        if wrong and wrong != told:
            told = wrong
            teller.wrong(f"the file of progress.source can't be looked at: {wrong}")
        time.sleep(EVERY_SECONDS)
        now, wrong = _seen(path)
        if now is not None and now != before:
            before = now
            teller.sign()
        teller.send()


def _seen(path: str) -> tuple[tuple[int, int] | None, str]:
    """The file's version, or None and what is wrong. That it does not exist is not wrong: it may come."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)
    return (found.st_mtime_ns, found.st_ino), ""
