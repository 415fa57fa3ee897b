"""End what waits for a lost peer in a process group of PyTorch: shut down the connections of the group.

Neither ``abort`` of a group nor its end does that for gloo, which waits for the group's timeout. The rule: only what
belongs to the group, as the kernel shows it (Linux)::

    gloo's       an epoll watches them that was opened while the group was joined
    the store's  MASTER_PORT is at one of their ends

A socket that listens must not be shut down: gloo ends the process then. Nor must what other threads have connected.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import AbstractSet, FrozenSet, Iterator, Optional, Set

PROCESS = Path("/proc/self")
_INTERNET = (socket.AF_INET, socket.AF_INET6)


class Connections:
    """Those of the group that this process has joined last."""

    def __init__(self) -> None:
        """Without a group."""
        self._attempt: Optional[int] = None
        self._before: AbstractSet[int] = frozenset()
        self._own: Optional[AbstractSet[int]] = None
        self._ended: Optional[int] = None

    @contextmanager
    def opened(self, attempt: int) -> Iterator[None]:
        """Enclose what joins the group of an attempt."""
        self._before, self._own = _epolls(), None
        self._attempt = attempt
        yield
        self._own = _epolls() - self._before

    def forget(self) -> None:
        """The group is left: its descriptors may be those of something else by now."""
        self._attempt = None

    def has_ended(self, attempt: int) -> bool:
        """Whether the connections of this attempt were shut down, also before there was any."""
        return self._ended == attempt

    def end(self, attempt: int, port: str) -> None:
        """Shut down those of this attempt; ``port`` is that of its store. For another thread than that which waits."""
        self._ended = attempt
        if self._attempt != attempt:
            return
        own = _epolls() - self._before if self._own is None else self._own
        watched = {descriptor for epoll in own for descriptor in _watched(epoll)}
        for descriptor in _descriptors():
            _shut_down(descriptor, None if descriptor in watched else port)


def _descriptors() -> Set[int]:
    with suppress(OSError):
        return {int(name) for name in os.listdir(PROCESS / "fd")}  # noqa: PTH208 - names
    return set()


def _epolls() -> FrozenSet[int]:
    found = set()
    for descriptor in _descriptors():
        with suppress(OSError):  # It is closed by now.
            if os.readlink(PROCESS / f"fd/{descriptor}") == "anon_inode:[eventpoll]":
                found.add(descriptor)
    return frozenset(found)


def _watched(epoll: int) -> Set[int]:
    with suppress(OSError):
        lines = (PROCESS / f"fdinfo/{epoll}").read_text().splitlines()
        return {int(line.split()[1]) for line in lines if line.startswith("tfd:")}
    return set()


def _shut_down(descriptor: int, port: Optional[str]) -> None:
    """If it is a connection and, where a port is given, has that at one end."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as one:
        if one.family not in _INTERNET or one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return
        if port is None or port in {str(one.getsockname()[1]), str(one.getpeername()[1])}:
            one.shutdown(socket.SHUT_RDWR)
