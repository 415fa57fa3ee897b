"""What lies in the folder that the containers of a pod share, by name."""

from __future__ import annotations

from enum import StrEnum

SUPERVISOR_PROGRAM = "supervisor"
"""The supervisor as a static executable, which runs in every image."""
SUPERVISOR_ARCHIVE = "supervisor.pyz"
"""The supervisor as an archive: local mode runs it, and the worker's own interpreter finds there what starts a forked
worker."""
CLIENT_FOLDER = "client"
"""The folder that holds the package gangclient, for the worker's PYTHONPATH."""
SUPERVISOR_SOCKET = "supervisor.sock"
"""Where the sidecar listens for the supervisor."""
WORKERS_FILE = "workers.json"
"""Beside the supervisor's state file: for each process of the worker its pid and its rank, or null."""
FRAMEWORK_SOCKET = "gang.sock"
"""Where the sidecar serves the framework API."""
CONTACT_FILE = "contact"
"""Where the pod's sidecars remember whether they have reached the controller, and why not."""
UNREACHED = 3
"""Exit code of a sidecar that has not reached the controller and leaves the reason in its termination message."""
PRELOAD_VARIABLE = "GANG_PRELOAD"
"""Tells the supervisor what a template imports: ``Auto``, or modules with commas between them."""
CACHES_FOLDER = "caches"
"""Beside the supervisor's state file: what compilers keep for the next start."""
CACHES_VARIABLE = "GANG_CACHES"
"""Tells the supervisor whose caches are in that folder: compilers with commas between them."""


class Compiler(StrEnum):
    """What compiles for a worker, and can keep what it makes."""

    CUDA = "CUDA"
    INDUCTOR = "Inductor"
    JAX = "JAX"
    TRITON = "Triton"
