"""Ports for programs that must be told which one to take."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
