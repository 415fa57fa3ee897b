"""Look up what the controller asks of a pod: complete checkpoint steps, and free ports.

A step is a folder whose name matches a pattern with ``{step}``. It is complete when the file that its framework writes
last is in it; a step that was begun and not completed must never be listed. Where no such file is named, a step is a
file, which its framework must write elsewhere and rename. The file system may block for any time, so a child process
looks, with a deadline. It has no state.

Ports are for MASTER_PORT. Where none is free, the gang waits for one, so it is looked for again and again.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gangsidecar.common import now_ms
from gangsidecar.supervisor.machine import PortsFound
from gangsidecar.wire import MAX_FOUND, Found, Scan, Scanned, Tier, encode, step_name

if TYPE_CHECKING:
    from gangsidecar.supervisor.event_loop import ForkedHelpers

THERE, MISSING, UNKNOWN = "there", "missing", "unknown"
"""Answers to :func:`look`."""
WANTED = 4
"""Several, because another process may take one before rank 0 starts."""
LOOK_AGAIN_MS = 1000


def look(path: str) -> str:
    """Look for a step. Unknown: the folder that should hold it can't be listed, or is empty.

    A directory that isn't mounted is absent, or an empty mount point.
    """
    if os.path.exists(path):
        return THERE
    try:
        with os.scandir(os.path.dirname(path)) as others:
            return UNKNOWN if next(others, None) is None else MISSING
    except OSError:
        return UNKNOWN


def scan(tiers: Iterable[Tier], limit: int = MAX_FOUND) -> tuple[tuple[Found, ...], str]:
    """Return the newest complete steps of each tier, newest first, and what went wrong (empty: nothing).

    A directory that doesn't exist yet holds no step; one that can't be read is an error.
    """
    found: list[Found] = []
    errors: list[str] = []
    for tier in tiers:
        try:
            found.extend(_scan(tier, limit))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            errors.append(f"tier {tier.name}: {error}")
    return tuple(found), "; ".join(errors)[:1024]


def _scan(tier: Tier, limit: int) -> list[Found]:
    pattern = step_name(tier.pattern)
    matches = (pattern.fullmatch(name) for name in os.listdir(tier.directory))
    names = ((int(match.group(1)), len(match.group(0)), match.group(0)) for match in matches if match)
    root = os.path.realpath(tier.directory)
    found: list[Found] = []
    for step, _, name in sorted(names, reverse=True):
        if len(found) == limit:
            break
        if found and found[-1].step == step:
            continue  # A step that is written again gets a longer name from Lightning, such as step=7-v1.ckpt.
        path = os.path.join(tier.directory, name)
        # A link may point to another step, but not out of the directory, which every rank sees.
        is_inside = not os.path.islink(path) or os.path.realpath(path).startswith(root + os.sep)
        marker = _marker(path, tier.complete) if is_inside else ""
        if marker:
            found.append(Found(tier=tier.name, step=step, path=path, marker=marker))
    return found


def _marker(path: str, complete: str) -> str:
    """The identity of what marks the step complete, or nothing. It changes when the step is written again."""
    try:
        found = os.stat(os.path.join(path, complete) if complete else path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}" if stat.S_ISREG(found.st_mode) else ""


class Scans:
    """The controller's scans: one runs; of those that arrive meanwhile, the newest waits."""

    def __init__(self, helpers: ForkedHelpers, pod: str, answer: Callable[[str], None]) -> None:
        self._helpers = helpers
        self._pod = pod
        self._answer = answer
        self._current: Scan | None = None
        self._next: Scan | None = None

    def take(self, query: Scan) -> None:
        """Scan in a child process. The answer is one line; a scan that is too slow is answered with an error."""
        if self._current is not None:
            self._next = None if query == self._current else query
            return
        self._current = query
        by_ms = now_ms() + max(0, query.timeout_ms)
        self._helpers.start(lambda: [self._work(query)], by_ms, partial(self._finish, query))

    def _work(self, query: Scan) -> str:
        found, error = scan(query.tiers)
        return encode(Scanned(query.attempt, self._pod, found, error))

    def _finish(self, query: Scan, text: str, is_late: bool) -> None:  # noqa: FBT001 - the signature of start
        late = f"the file system did not answer within {query.timeout_ms} ms"
        self._answer(text if text and not is_late else encode(Scanned(query.attempt, self._pod, error=late)))
        self._current, following, self._next = None, self._next, None
        if following is not None:
            self.take(following)


class Timers(Protocol):
    """Calls back once at a time."""

    def at(self, when_ms: int, call: Callable[[], None], /) -> None:
        """At this time, in milliseconds of :func:`now_ms`."""


class PortSearch:
    """Looks for the ports of one attempt, and again while there are none."""

    def __init__(self, loop: Timers, pod: str, feed: Callable[[PortsFound], None]) -> None:
        """``feed`` gets the ports, at first in any case, and then once there are some."""
        self._loop = loop
        self._pod = pod
        self._feed = feed
        self._attempt = 0
        self._claims: list[socket.socket] = []
        """Until the ports of another attempt are looked for: a worker takes seconds until it listens."""

    def begin(self, attempt: int, base: int, count: int) -> None:
        """Look for the ports of this attempt, and no longer for those of another."""
        self._attempt = attempt
        self._feed(PortsFound(attempt, self._look(attempt, base, count)))

    def end(self) -> None:
        """Look no longer: the worker starts with what was found."""
        self._attempt = 0

    def _look(self, attempt: int, base: int, count: int) -> tuple[int, ...]:
        for claim in self._claims:
            claim.close()
        self._claims = []
        free = partial(find_free_ports, base, count, self._pod, attempt)
        ports = free(self._claim) or free()
        if not ports:
            self._loop.at(now_ms() + LOOK_AGAIN_MS, partial(self._again, attempt, base, count))
        return ports

    def _claim(self, port: int) -> bool:
        """Whether no other supervisor of this network has found the port, which now finds it claimed."""
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0gangctl-port-{port}")
        except OSError as error:
            claim.close()
            return error.errno != errno.EADDRINUSE
        self._claims.append(claim)
        return True

    def _again(self, attempt: int, base: int, count: int) -> None:
        if attempt == self._attempt:
            ports = self._look(attempt, base, count)
            if ports:
                self._feed(PortsFound(attempt, ports))


def find_free_ports(
    base: int, count: int, pod: str, attempt: int, claim: Callable[[int], bool] = lambda _port: True
) -> tuple[int, ...]:
    """Find up to four free ports from ``base .. base + count - 1`` that ``claim`` accepts.

    The first one tried depends on pod and attempt, so that a late socket of the last attempt does no harm.
    """
    if count < 1:
        return ()
    first = (hash(pod) + attempt * 7) % count
    found: list[int] = []
    for at in range(count):
        port = base + (first + at) % count
        if 0 < port < 1 << 16 and _is_free(port) and claim(port):
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
                if family == socket.AF_INET6 and error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    continue
                return False
    return True
