"""Look for free ports for MASTER_PORT."""

from __future__ import annotations

import errno
import socket

WANTED = 4
"""Some spare: between the look and the start of rank 0 another process may take one."""


def free(base: int, count: int, pod: str, attempt: int) -> tuple[int, ...]:
    """Up to four free ports from ``base .. base + count - 1``.

    Where to begin depends on pod and attempt: a late socket of the last attempt, or another gang on the same host,
    hurts nobody.
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
    """No SO_REUSEADDR: a port on which old connections linger is not free. Both families, as servers bind both."""
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
