"""What the pod sets for its supervisor."""

from __future__ import annotations

from dataclasses import dataclass

from gangsidecar.supervisor.machine import Identity
from gangsidecar.wire import Compiler


@dataclass(frozen=True)
class SupervisorSettings:
    """What the pod sets for its supervisor."""

    identity: Identity
    command: tuple[str, ...]
    socket: str
    """The unix socket on which the sidecar listens."""
    state: str
    """The file that outlives this process."""
    termination_log: str
    """The file that becomes the termination message of the container."""
    log: str = ""
    """The file for the supervisor's own lines. Empty: they go to the log of the worker."""
    client: str = ""
    """The folder that holds ``gangclient``, for the worker's PYTHONPATH."""
    preload: str = ""
    """What a template preloads, to start workers as forks of it: ``Auto`` or module names. Empty: they are executed."""
    caches: str = ""
    """The folder for what compilers keep."""
    compilers: tuple[Compiler, ...] = ()
    """Those whose caches are in it, unless the user has set another place."""
    orphan_ms: int = 600_000
