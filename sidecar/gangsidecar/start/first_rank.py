"""A forked worker waits for the rank that the others connect to. A worker that is executed has no need to.

Forked ranks begin within milliseconds of each other. PyTorch's store is served by rank 0, and a rank that connects too
early tries again only after 250 to 750 ms: longer than all the rest of the start. So each other rank looks for the port
first. It never waits longer than :data:`SECONDS`, and never for a framework that has no such store.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Mapping

USER = "torch.distributed"
"""Without it there is no store at MASTER_PORT."""
SECONDS = 0.3
"""A rank that waits for longer loses no less than by its own next try."""
AGAIN_SECONDS = 0.01


def wait_for_first_rank(environment: Mapping[str, str]) -> None:
    """Return when MASTER_PORT is listened on, or has not been for a while. It takes a connection to see that."""
    rank, address, port = (environment.get(name, "") for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))
    if USER not in sys.modules or rank in {"", "0"} or not address or not port.isdigit():
        return
    wait_for_listener(address, port, SECONDS)


def wait_for_listener(address: str, port: str, seconds: float) -> None:
    """Return when a port of this numeric address is listened on, or has not been for so long."""
    end = time.monotonic() + seconds
    try:
        found = socket.getaddrinfo(address, int(port), type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, OverflowError):
        return  # A name: it may take long to resolve.
    family, kind, _, _, place = found[0]
    while time.monotonic() < end:
        with socket.socket(family, kind) as one:
            one.settimeout(max(0.001, end - time.monotonic()))
            if not one.connect_ex(place):
                return
        time.sleep(AGAIN_SECONDS)
