"""The messages between controller, sidecar and supervisor, and the names that they share in a pod.

One message is one JSON object. The same bytes travel as one text frame of the WebSocket (controller and sidecar) and as
one line of the unix socket (sidecar and supervisor). A sidecar and its supervisor are of one release; a controller and
a sidecar need not be.

Standard library only: the supervisor runs in images that have no other package.
"""

from __future__ import annotations

from enum import StrEnum

from gangsidecar.wire.coding import (
    CONNECT_PATH,
    LEADER_HEADER,
    MARK,
    MAX_BYTES,
    MAX_CHECKPOINTS,
    MAX_DROPPED,
    MAX_ENDS,
    MAX_IMPORTS_BYTES,
    MAX_ITEMS,
    MAX_MS,
    MAX_REPORT_BYTES,
    MAX_STRING,
    ORDER_HEADER,
    REPORT_BEGINS,
    REVISION,
    REVISION_HEADER,
    VERSION,
    WireError,
    decode,
    encode,
    from_ranges,
    from_words,
    in_revision,
    order_of,
    revision_of,
    to_ranges,
    to_words,
)
from gangsidecar.wire.messages import (
    CHECK_CANT_TELL,
    CHECK_CORRUPT,
    CHECK_DETAIL,
    LOG_LINE,
    MAX_CHECKED,
    MAX_FOUND,
    MAX_LOG_PATTERNS,
    MAX_VERIFIED,
    Check,
    Checked,
    Checkpoint,
    Corruption,
    Directive,
    Dropped,
    End,
    Found,
    FrameworkMessage,
    Imports,
    Level,
    LogMatch,
    Message,
    Milestone,
    Phase,
    Ping,
    Process,
    Progress,
    RankBehind,
    Reached,
    Report,
    Request,
    Restore,
    Run,
    Scan,
    Scanned,
    Source,
    Stacks,
    Tier,
    Verb,
    Verified,
    WarmStart,
    Watching,
    aged,
    copied,
    step_name,
)

SUPERVISOR_LOG_NAME = "gangctl-supervisor"
SIDECAR_LOG_NAME = "gangctl-sidecar"
"""The names on the lines of their logs: on a cluster, a supervisor writes into the log of its worker."""

STOP_SIGNALS = {"SIGTERM": 15, "SIGINT": 2, "SIGQUIT": 3, "SIGRTMIN+3": 37}
"""Signals with which a supervisor takes its pod to end. The image's ``STOPSIGNAL`` or ``lifecycle.stopSignal`` chooses:
images of nginx have SIGQUIT, those of systemd SIGRTMIN+3, which is counted from glibc's SIGRTMIN."""

# In the folder that the containers of a pod share.
SUPERVISOR_PROGRAM = "supervisor"
"""The supervisor as a static executable, which runs in every image."""
SUPERVISOR_ARCHIVE = "supervisor.pyz"
"""The supervisor as an archive: local mode runs it, and the worker's own interpreter finds there what starts a forked
worker."""
CLIENT_FOLDER = "client"
"""The folder that holds the package gangclient, for the worker's PYTHONPATH."""
HOOK_FOLDER = "hook"
"""The folder whose ``sitecustomize`` asks for warm starts, for the same."""
SUPERVISOR_SOCKET = "supervisor.sock"
"""The socket on which the sidecar listens for the supervisor."""
FRAMEWORK_SOCKET = "gang.sock"
"""The socket on which the sidecar serves the framework API."""
CONTACT_FILE = "contact"
"""The file in which the pod's sidecars remember whether they have reached the controller, and why not."""
UNREACHED = 3
"""Exit code of a sidecar that has not reached the controller and leaves the reason in its termination message."""

# Beside the supervisor's state file, and in its environment.
WORKERS_FILE = "workers.json"
"""For each process of the worker its pid and its rank, or null."""
CACHES_FOLDER = "caches"
"""Holds what compilers keep for the next start."""
CACHES_VARIABLE = "GANG_CACHES"
"""Names the compilers whose caches are in that folder, with commas between them."""
PRELOAD_VARIABLE = "GANG_PRELOAD"
"""Names what a template imports: ``Auto``, or modules with commas between them."""


class Compiler(StrEnum):
    """Compiles for a worker, and can keep what it makes."""

    CUDA = "CUDA"
    INDUCTOR = "Inductor"
    JAX = "JAX"
    TRITON = "Triton"
