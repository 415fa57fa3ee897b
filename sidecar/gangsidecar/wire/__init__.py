"""The messages between controller, sidecar and supervisor.

One message is one JSON object. The same bytes travel as one text frame of the WebSocket (controller and sidecar) and as
one line of the unix socket (sidecar and supervisor). A sidecar and its supervisor are of one release; a controller and
a sidecar need not be.

Standard library only: the supervisor runs in images that have no other package.
"""

from __future__ import annotations

from gangsidecar.wire.coding import (
    MAX_BYTES,
    MAX_CHECKPOINTS,
    MAX_DROPPED,
    MAX_ENDS,
    MAX_ITEMS,
    MAX_MS,
    MAX_REPORT_BYTES,
    MAX_STRING,
    VERSION,
    WireError,
    decode,
    encode,
)
from gangsidecar.wire.last_words import MARK, from_words, to_words
from gangsidecar.wire.log_match import LOG_LINE, LOG_PATTERN, MAX_LOG_PATTERNS, LogMatch
from gangsidecar.wire.messages import (
    Checkpoint,
    Directive,
    Dropped,
    End,
    FrameworkMessage,
    Level,
    Loaded,
    Message,
    Phase,
    Ping,
    Progress,
    Report,
    Request,
    Stacks,
    Verb,
    WarmStart,
    Watching,
    aged,
)
from gangsidecar.wire.own_lines import SIDECAR_LOG_NAME, SUPERVISOR_LOG_NAME
from gangsidecar.wire.ranges import from_ranges, to_ranges
from gangsidecar.wire.rank_behind import RankBehind
from gangsidecar.wire.run import Process, Restore, Run, Source
from gangsidecar.wire.scanning import MAX_FOUND, Found, Scan, Scanned, Tier, step_name
from gangsidecar.wire.shared_folder import (
    CACHES_FOLDER,
    CACHES_VARIABLE,
    CLIENT_FOLDER,
    CONTACT_FILE,
    FRAMEWORK_SOCKET,
    PRELOAD_VARIABLE,
    SUPERVISOR_ARCHIVE,
    SUPERVISOR_PROGRAM,
    SUPERVISOR_SOCKET,
    UNREACHED,
    WORKERS_FILE,
    Compiler,
)
from gangsidecar.wire.upgrade import (
    CONNECT_PATH,
    LEADER_HEADER,
    REVISION,
    REVISION_HEADER,
    in_revision,
    revision_of,
)

__all__ = [
    "CACHES_FOLDER",
    "CACHES_VARIABLE",
    "CLIENT_FOLDER",
    "CONNECT_PATH",
    "CONTACT_FILE",
    "FRAMEWORK_SOCKET",
    "LEADER_HEADER",
    "LOG_LINE",
    "LOG_PATTERN",
    "MARK",
    "MAX_BYTES",
    "MAX_CHECKPOINTS",
    "MAX_DROPPED",
    "MAX_ENDS",
    "MAX_FOUND",
    "MAX_ITEMS",
    "MAX_LOG_PATTERNS",
    "MAX_MS",
    "MAX_REPORT_BYTES",
    "MAX_STRING",
    "PRELOAD_VARIABLE",
    "REVISION",
    "REVISION_HEADER",
    "SIDECAR_LOG_NAME",
    "SUPERVISOR_ARCHIVE",
    "SUPERVISOR_LOG_NAME",
    "SUPERVISOR_PROGRAM",
    "SUPERVISOR_SOCKET",
    "UNREACHED",
    "VERSION",
    "WORKERS_FILE",
    "Checkpoint",
    "Compiler",
    "Directive",
    "Dropped",
    "End",
    "Found",
    "FrameworkMessage",
    "Level",
    "Loaded",
    "LogMatch",
    "Message",
    "Phase",
    "Ping",
    "Process",
    "Progress",
    "RankBehind",
    "Report",
    "Request",
    "Restore",
    "Run",
    "Scan",
    "Scanned",
    "Source",
    "Stacks",
    "Tier",
    "Verb",
    "WarmStart",
    "Watching",
    "WireError",
    "aged",
    "decode",
    "encode",
    "from_ranges",
    "from_words",
    "in_revision",
    "revision_of",
    "step_name",
    "to_ranges",
    "to_words",
]
