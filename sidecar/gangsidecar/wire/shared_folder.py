"""What lies in the folder that the containers of a pod share, by name."""

from __future__ import annotations

SUPERVISOR_PROGRAM = "supervisor.pyz"
"""The supervisor, as one file."""
CLIENT_FOLDER = "client"
"""The folder that holds the package gangclient, for the worker's PYTHONPATH."""
SUPERVISOR_SOCKET = "supervisor.sock"
"""Where the sidecar listens for the supervisor."""
WORKERS_FILE = "workers.json"
"""Beside the supervisor's state file: for each process of the worker its pid and its rank, or null."""
FRAMEWORK_SOCKET = "gang.sock"
"""Where the sidecar serves the framework API."""
PRELOAD_VARIABLE = "GANG_PRELOAD"
"""Tells the supervisor what a template imports: ``Auto``, or modules with commas between them."""
