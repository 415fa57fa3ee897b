"""Which lines of a log are gangctl's own. Pure.

On a cluster, the supervisor writes into the log of the worker's container. Its lines begin with a time, a level and a
name that no worker uses; if the worker has not ended its own line before, the line of the supervisor follows on it.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from typing import Final

from gangsidecar.wire import SUPERVISOR_LOG_NAME

_TIME: Final = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_OWN: Final = re.compile(_TIME + rb" (?:info|warning|error) " + SUPERVISOR_LOG_NAME.encode() + rb": ")
_STAMPED: Final = re.compile(rb"(" + _TIME + rb") ")


def workers_part(line: bytes) -> bytes | None:
    """What the worker has written in this line; None if the line is gangctl's."""
    found = _OWN.search(line)
    if found is None:
        return line
    return line[: found.start()] or None


def own_part(line: bytes) -> bytes | None:
    """What gangctl has written in this line; None if the line is the worker's."""
    found = _OWN.search(line)
    return None if found is None else line[found.start() :]


def in_order(logs: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """The lines of several logs of gangctl in the order of their times. A line without one stays behind its own."""
    return (line for _, line in heapq.merge(*map(_stamped, logs), key=lambda one: one[0]))


def _stamped(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    time = b""
    for line in lines:
        found = _STAMPED.match(line)
        time = time if found is None else found[1]
        yield time, line
