"""Whether this machine has the loopback address of IPv6, which some containers lack."""

from __future__ import annotations

import socket

import pytest


def _is_there() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


needed = pytest.mark.skipif(not _is_there(), reason="this machine has no ::1")
EACH = ["127.0.0.1", pytest.param("::1", marks=needed)]
"""The loopback address of each family, as values of a parameter."""
