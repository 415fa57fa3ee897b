"""The stacks of the member at fault for a hang, as its supervisor has taken them before the stop.

The rule: they go into the incident with the first write after they are heard, and cost no write of their own. The
newest two are kept. They may tell whose fault it is (``held_up.py``), and no restart waits for them.
"""

from __future__ import annotations

import re
from typing import Final

from gangctl.api.changes import changed
from gangctl.api.incident import Stacks
from gangctl.api.status import Status
from gangctl.core.facts.gang import Gang

_PYTHON: Final = re.compile(r"(?:>|\.py):[0-9]+\)$")
"""A frame of Python, by the file that it names."""
EARLIER = 1
"""So many of an earlier incident are kept beside the newest."""


def with_stacks(gang: Gang, status: Status) -> Status:
    """The status whose newest incident has the stacks of the attempt that it ended; the same object if none are new."""
    last = status.incidents[0] if status.incidents else None
    if last is None or last.attempt != status.attempt or last.stacks is not None:
        return status
    reports = (heard.report for heard in gang.heard.values())
    found = ((one.member, one.stacks) for one in reports if one.stacks is not None and one.stacks.text)
    own = [(member, stacks) for member, stacks in found if stacks.attempt == last.attempt - 1]
    told = min(own, key=lambda one: one[0] != last.cause.member, default=None)
    if told is None:
        return status
    member, stacks = told
    earlier, left = [], EARLIER
    for one in status.incidents[1:]:
        earlier.append(changed(one, stacks=None) if one.stacks is not None and left <= 0 else one)
        left -= one.stacks is not None
    return changed(status, incidents=(changed(last, stacks=Stacks(member=member, text=stacks.text)), *earlier))


def innermost(stacks: Stacks) -> str:
    """Where the first process that runs Python is, or else what the kernel tells of the first thread.

    A line of Python tells more than the native frames that it has called.
    """
    lines = stacks.text.splitlines()
    frames = [line.strip() for line in lines if line.startswith("    ") and not line.startswith("     ")]
    threads = (line.strip() for line in lines if line.startswith("  thread "))
    return next(filter(_PYTHON.search, frames), next(iter(frames), next(threads, "")))
