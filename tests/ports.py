"""Ports for programs that must be told which one to take."""

from __future__ import annotations

import os
import random
import socket
from itertools import cycle
from typing import Final

SHARE: Final = 1250
"""Ports of each of pytest's workers: two at work must not find the same one free at the same moment."""
FIRST: Final = 18_000 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw7").removeprefix("gw")) % 8 * SHARE
"""All are below those that the kernel gives to connections, and to who asks for any port."""
_NEXT = cycle(random.SystemRandom().sample(range(FIRST, FIRST + SHARE), SHARE))


def free_port() -> int:
    """A TCP port that is free, and that no other call in this process has returned for long."""
    for port in _NEXT:
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError
