"""What the pod sets for its supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from gangsidecar.supervisor.machine import Identity


@dataclass(frozen=True)
class SupervisorSettings:
    """What the pod sets for its supervisor."""

    identity: Identity
    command: Tuple[str, ...]
    socket: str
    """The unix socket on which the sidecar listens."""
    state: str
    """The file that outlives this process."""
    termination_log: str
    """The file that becomes the termination message of the container."""
    client: str = ""
    """The folder that holds ``gangclient``, for the worker's PYTHONPATH."""
    preload: str = ""
    """What a template preloads, to start workers as forks of it: ``Auto`` or module names. Empty: they are executed."""
    orphan_ms: int = 600_000
