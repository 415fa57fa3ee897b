"""Find free ports for MASTER_PORT."""

from __future__ import annotations

import errno
import socket

WANTED = 4
"""Several, because another process may take one before rank 0 starts."""


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
