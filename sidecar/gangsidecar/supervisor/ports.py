"""Find free ports for MASTER_PORT.

Where none is free, the gang waits for one, so it is looked for again and again.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gangsidecar.common.clock import now_ms
from gangsidecar.supervisor.machine import PortsFound

if TYPE_CHECKING:
    from typing import Protocol

    class Timers(Protocol):
        """Calls back once at a time."""

        def at(self, when_ms: int, call: Callable[[], None], /) -> None:
            """At this time, in milliseconds of :func:`now_ms`."""


WANTED = 4
"""Several, because another process may take one before rank 0 starts."""
LOOK_AGAIN_MS = 1000


class PortSearch:
    """Looks for the ports of one attempt, and again while there are none."""

    def __init__(self, loop: Timers, pod: str, feed: Callable[[PortsFound], None]) -> None:
        """``feed``: is told the ports, at first in any case, and then once there are some."""
        self._loop = loop
        self._pod = pod
        self._feed = feed
        self._attempt = 0

    def begin(self, attempt: int, base: int, count: int) -> None:
        """Look for the ports of this attempt, and no longer for those of another."""
        self._attempt = attempt
        self._feed(PortsFound(attempt, self._look(attempt, base, count)))

    def end(self) -> None:
        """Look no longer: the worker starts with what was found."""
        self._attempt = 0

    def _look(self, attempt: int, base: int, count: int) -> tuple[int, ...]:
        ports = free(base, count, self._pod, attempt)
        if not ports:
            self._loop.at(now_ms() + LOOK_AGAIN_MS, partial(self._again, attempt, base, count))
        return ports

    def _again(self, attempt: int, base: int, count: int) -> None:
        if attempt == self._attempt:
            ports = self._look(attempt, base, count)
            if ports:
                self._feed(PortsFound(attempt, ports))


def free(base: int, count: int, pod: str, attempt: int) -> tuple[int, ...]:
    """Up to four free ports from ``base .. base + count - 1``.

    The first one tried depends on pod and attempt, so that a late socket of the last attempt, or another gang on the
    same host, does no harm.
    """
    if count < 1:
        return ()
    first = (hash(pod) + attempt * 7) % count
    found: list[int] = []
    for at in range(count):
        port = base + (first + at) % count
        if 0 < port < 1 << 16 and _is_free(port):
            found.append(port)
            if len(found) == WANTED:
                break
    return tuple(found)


def _is_free(port: int) -> bool:
    """No SO_REUSEADDR: a port with lingering connections is not free. Both families, because servers bind both."""
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # a kernel without this family
        with probe:
            try:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(("", port))
            except OSError as error:
                if family == socket.AF_INET6 and _is_off(error):
                    continue
                return False
    return True


def _is_off(error: OSError) -> bool:
    return error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
