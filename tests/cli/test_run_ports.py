"""`gangctl run` where another process has all ports of the range: the gang says so, and starts when one is free."""

from __future__ import annotations

import socket

import pytest

from tests.cli.here import Here, manifest
from tests.wait import until


@pytest.mark.nightly
def test_a_gang_without_a_free_port_says_so_and_starts_when_there_is_one(folder: Here) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        taken = other.getsockname()[1]
        folder.write(manifest(network={"basePort": taken, "portCount": 1}))
        folder.run()
        told = f"worker-0 to be ready; it found no free port from {taken} since "
        until("the status says so", lambda: told in folder.gangctl("status", "g").stdout)
    folder.runs_attempt(1)
