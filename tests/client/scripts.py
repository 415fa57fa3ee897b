"""Training scripts that import gangclient, run as workers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gangsidecar import wire
from tests.sidecar.agent.sidecars import World
from tests.wait import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator


RESTORE = wire.Restore(1200, "shared", "/checkpoints/1200")


def environment(module: Path, socket: Path | None, **more: str) -> dict[str, str]:
    gang = {} if socket is None else {"GANG_SOCKET": str(socket), "GANG_ATTEMPT": "3", "RANK": "4"}
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(module), **gang, **more}


async def script(source: str, variables: dict[str, str], python: str = sys.executable) -> str:
    """Run this as a worker; what it printed. It must end well."""
    started = await asyncio.create_subprocess_exec(
        python, "-c", source, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(SECONDS):
        output, _ = await started.communicate()
    assert started.returncode == 0, output.decode()
    return output.decode()


@contextmanager
def frozen(here: World) -> Iterator[None]:
    """The sidecar stands still."""
    os.kill(here.sidecar.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(here.sidecar.process.pid, signal.SIGCONT)
