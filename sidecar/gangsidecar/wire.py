"""The messages between controller, sidecar and supervisor, and their strict coding as JSON.

One message is one JSON object: ``{"v": 1, "type": "Report", ...fields}``. The same bytes travel as one text frame
of the WebSocket (controller and sidecar) and as one line of the unix socket (sidecar and supervisor).

Decoding is strict: a wrong version, type, field, kind or size raises :class:`WireError`, whose text may be logged; who
receives one closes that one connection. Durations are integer milliseconds. Nothing carries a wall time: what happened
is told as an *age* at the moment of sending, so that clocks of different machines never meet.

A controller and a sidecar may be of different releases: a field that came later has a default and a :data:`REVISION`,
and the sidecar leaves out what its controller doesn't know yet. A sidecar and its supervisor are of one release.

Python 3.8 and the standard library only: the supervisor runs in images that we don't choose.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Dict, Mapping, Optional, Tuple, Union, get_type_hints

VERSION = 1
REVISION = 2
"""2 of version 1: with ``Report.loaded`` and ``Progress.first_ms``. A controller tells its own when it upgrades."""
REVISION_HEADER = "Gang-Wire-Revision"
"""Who doesn't send it has revision 1."""
MAX_BYTES = 1 << 20
"""The largest message that is sent or taken: a report of a member is some kilobytes."""
MAX_STRING = 8192
MAX_ITEMS = 4096
MAX_MS = 10**12
"""The longest age or duration: over 30 years, and no time of a calendar gets out of range by it."""


class WireError(ValueError):
    """A message that can't be taken; the text says what was found and what was expected."""


class Verb(str, Enum):
    """What the controller wants of a member. Directives are ordered by (attempt, Hold < Run < Finish)."""

    HOLD = "Hold"
    """Stop what runs, kill the whole tree, say Ready, wait."""
    RUN = "Run"
    """Start the worker of this attempt, once."""
    FINISH = "Finish"
    """Stop what runs, then end with exit code 0."""


class Phase(str, Enum):
    """What a supervisor is doing about the attempt in its report."""

    IDLE = "Idle"
    """A new session: no directive was heard, nothing runs."""
    STOPPING = "Stopping"
    """A worker of an older attempt (or of this one, with Finish) is being stopped."""
    READY = "Ready"
    """No process of any worker is left and none will start without Run of this attempt."""
    RUNNING = "Running"
    """The worker of this attempt was started; ``ends`` tells which of its processes have ended."""
    STUCK = "Stuck"
    """SIGKILL was sent and a process is still there (state D)."""
    DONE = "Done"
    """Finish was carried out: nothing runs, the supervisor is about to end with 0."""


class Level(str, Enum):
    """How much is thrown away, from least to most."""

    PROCESS = "Process"
    CONTAINER = "Container"
    POD = "Pod"
    GANG = "Gang"


@dataclass(frozen=True)
class End:
    """How one process of a worker ended. Exactly one of ``exit_code`` and ``signal`` is set."""

    attempt: int
    local_rank: int
    age_ms: int
    rank: Optional[int] = None
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    stopped: bool = False
    """It came after a stop (a directive, a SIGTERM to the supervisor, fencing): never a fault, never a success."""
    oom: bool = False
    hidden: bool = False
    """A launcher (torchrun) hid the exit code of its child, and left no error file."""
    message: str = ""
    """What the supervisor adds: ``No such file or directory: trainn.py``."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that one rank has completed and registered by the framework API."""

    tier: str
    step: int
    rank: int
    attempt: int
    path: str = ""


@dataclass(frozen=True)
class Progress:
    """The newest progress of a member in an attempt; ages count from the call to the framework API."""

    attempt: int
    step: int
    age_ms: int
    phase: str = "Step"
    """Startup, Step, Checkpoint or Evaluation."""
    first_step: Optional[int] = None
    first_age_ms: Optional[int] = None
    """Step and age of this attempt's first ``Step`` report; absent while there is none."""
    first_ms: Optional[int] = None
    """How long the framework says that its first step took, of the member's ranks the longest. From revision 2 on."""


@dataclass(frozen=True)
class Loaded:
    """A rank has loaded the restore point, within so long; of the member's ranks the one that was ready last."""

    attempt: int
    age_ms: int
    milliseconds: int
    """As the framework measured it."""
    rank: Optional[int] = None


@dataclass(frozen=True)
class Request:
    """A framework asks for a restart of the gang."""

    attempt: int
    age_ms: int
    reason: str
    rank: Optional[int] = None
    level: Level = Level.PROCESS
    exclude_node: bool = False


@dataclass(frozen=True)
class Report:
    """The whole small state of one member, as its supervisor sees it. Never a delta."""

    gang: str
    """UID of the GangJob."""
    member: str
    incarnation: int
    pod: str
    """UID of the pod."""
    session: str
    """Random id of this start of the supervisor."""
    seq: int
    """Grows with every report of a session: an older one is ignored."""
    attempt: int
    """Of the newest directive heard; 0 before the first."""
    phase: Phase
    terminating: bool = False
    """The supervisor was told by SIGTERM that its pod is to end."""
    ends: Tuple[End, ...] = ()
    checkpoints: Tuple[Checkpoint, ...] = ()
    missing_step: Optional[int] = None
    """RestorePointMissing: this step of a Run directive can't be seen from here, so nothing was started."""
    missing_attempt: int = 0
    """Whose Run it was. Both are told until the next Run: while the gang gathers, it is counted who didn't see it."""
    progress: Optional[Progress] = None
    request: Optional[Request] = None
    address: str = ""
    """Where peers reach this member (the pod's IP)."""
    ports: Tuple[int, ...] = ()
    """Free ports for MASTER_PORT, looked for when Ready was reached."""
    phase_age_ms: int = 0
    """Age of the current phase: of Ready, how long ago the last process was gone; of Running, of the last exec."""
    stop_ms: Optional[int] = None
    """How long the last stop took, from the directive's arrival to the last process gone."""
    loaded: Optional[Loaded] = None
    """What the framework said about loading the restore point of its attempt. From revision 2 on."""


@dataclass(frozen=True)
class Restore:
    """The restore point: a checkpoint step that every rank can load."""

    step: int
    tier: str
    path: str = ""
    """The folder, for a tier that is scanned: the supervisor looks that it is there before it starts the worker.
    Empty for a Member tier: each member's own registration knows its path."""


@dataclass(frozen=True)
class Process:
    """One process that Run starts: the user's command with this environment added to the container's own."""

    local_rank: int
    env: Tuple[Tuple[str, str], ...]
    rank: Optional[int] = None


@dataclass(frozen=True)
class Run:
    """What Run adds to a directive. It names the session that said Ready: another session refuses it."""

    session: str
    processes: Tuple[Process, ...]
    restore: Optional[Restore] = None
    checkpointed: bool = False
    """The job has checkpoint tiers: registrations above the restore point (all, if there is none) are dropped."""
    hosts: Tuple[str, ...] = ()
    """Lines of the attempt's host file: ``10.0.3.7 slots=8``."""


@dataclass(frozen=True)
class Directive:
    """What the controller wants of one member now: desired state, not a command. Saying it twice does no harm."""

    gang: str
    pod: str
    attempt: int
    verb: Verb
    reason: str = ""
    """Why, in a sentence; handed to the framework."""
    planned: bool = False
    """Nobody failed: the worker may use the grace for a last checkpoint."""
    grace_ms: int = 15_000
    """From SIGTERM to SIGKILL of the whole tree."""
    base_port: int = 29400
    port_count: int = 64
    isolation_ms: Optional[int] = None
    """Stop the worker after this long without a ping of a controller; absent = never."""
    orphan_ms: int = 600_000
    """End (with 0) after this long without a controller and without a live worker."""
    run: Optional[Run] = None


@dataclass(frozen=True)
class Tier:
    """A Shared checkpoint tier that is a directory."""

    name: str
    directory: str
    pattern: str
    """Name of a step's folder, with ``{step}``."""
    complete: str = ""
    """The file in it that marks it complete; empty = the layout's own rule was resolved to the folder itself."""


@dataclass(frozen=True)
class Scan:
    """A stateless query to one member, after every pod has stopped: which complete steps does it see?"""

    attempt: int
    tiers: Tuple[Tier, ...]
    timeout_ms: int = 30_000


@dataclass(frozen=True)
class Found:
    """A complete step in a scanned tier."""

    tier: str
    step: int
    path: str
    marker: str
    """Identity of what marks it complete: another one means that the step was written again."""


@dataclass(frozen=True)
class Scanned:
    """The answer to a Scan: per tier at most 64 newest complete steps, newest first."""

    attempt: int
    pod: str
    found: Tuple[Found, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Ping:
    """The controller is there. The sidecar hands it to the supervisor, whose isolation timer it feeds."""


Message = Union[Report, Directive, Scan, Scanned, Ping, Checkpoint, Loaded, Progress, Request]
"""``Checkpoint`` (completed), ``Loaded``, ``Progress`` and ``Request`` alone are what the sidecar hands to the
supervisor from the framework API; the supervisor folds them into its report. A dropped checkpoint is a
:class:`Dropped`."""


@dataclass(frozen=True)
class Dropped:
    """A rank has begun to write this step again or has deleted it: until completed again it doesn't exist."""

    tier: str
    step: int
    rank: int
    attempt: int


_DURATIONS = ("_ms", ".milliseconds")
"""How the names of ages and durations end."""

_MESSAGES: Dict[str, type] = {
    kind.__name__: kind
    for kind in (Report, Directive, Scan, Scanned, Ping, Checkpoint, Dropped, Loaded, Progress, Request)
}


def encode(message: Any) -> str:
    """One message as one line of JSON without a newline in it.

    Raises:
        WireError: it would be larger than :data:`MAX_BYTES`.
    """
    body = {"v": VERSION, "type": type(message).__name__}
    body.update(_plain(message))
    text = json.dumps(body, separators=(",", ":"))
    if len(text) > MAX_BYTES:
        raise WireError(f"a {type(message).__name__} of {len(text)} bytes is over the limit of {MAX_BYTES}")
    return text


def decode(text: Union[str, bytes]) -> Any:
    """The message in ``text``.

    Raises:
        WireError: it isn't one; the reason never repeats more than a short piece of the input.
    """
    if len(text) > MAX_BYTES:
        raise WireError(f"{len(text)} bytes are over the limit of {MAX_BYTES}")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {str(error)[:120]}") from None
    if not isinstance(body, dict):
        raise WireError(f"a {type(body).__name__} instead of an object")
    version = body.pop("v", None)
    if type(version) is not int or version != VERSION:
        raise WireError(f"version {version!r:.20} instead of {VERSION}: controller and sidecar of different releases")
    name = body.pop("type", None)
    kind = _MESSAGES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise WireError(f"unknown message type {name!r:.40}")
    return _object(kind, body, kind.__name__)


def aged(report: Report, by_ms: int) -> Report:
    """The same report told ``by_ms`` milliseconds later: every age grows by as much (a sidecar that reconnects)."""
    if by_ms <= 0:
        return report
    progress = report.progress
    if progress is not None:
        first = progress.first_age_ms
        progress = replace(
            progress, age_ms=progress.age_ms + by_ms, first_age_ms=None if first is None else first + by_ms
        )
    request = report.request
    if request is not None:
        request = replace(request, age_ms=request.age_ms + by_ms)
    loaded = report.loaded
    if loaded is not None:
        loaded = replace(loaded, age_ms=loaded.age_ms + by_ms)
    return replace(
        report,
        ends=tuple(replace(end, age_ms=end.age_ms + by_ms) for end in report.ends),
        progress=progress,
        request=request,
        phase_age_ms=report.phase_age_ms + by_ms,
        loaded=loaded,
    )


def in_revision(report: Report, revision: int) -> Report:
    """The same report without what a controller of that revision would refuse."""
    progress = report.progress
    if revision >= REVISION or (report.loaded is None and (progress is None or progress.first_ms is None)):
        return report
    return replace(report, loaded=None, progress=None if progress is None else replace(progress, first_ms=None))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        # What equals its default is left out: reports are small, and an absent field has one meaning only.
        return {
            field.name: _plain(item)
            for field in fields(value)
            for item in (getattr(value, field.name),)
            if field.default is MISSING or item != field.default
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


@lru_cache(maxsize=None)  # noqa: UP033 - Python 3.8
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _object(kind: Any, body: Any, path: str) -> Any:
    if not isinstance(body, dict):
        raise WireError(f"{path}: a {type(body).__name__} instead of an object")
    hints = _hints(kind)
    unknown = [str(key)[:40] for key in body if key not in hints]
    if unknown:
        raise WireError(f"{path}: unknown field {unknown[0]!r}")
    try:
        return kind(**{name: _value(hints[name], item, f"{path}.{name}") for name, item in body.items()})
    except TypeError:
        missing = sorted(field.name for field in fields(kind) if field.default is MISSING and field.name not in body)
        raise WireError(f"{path}: missing {', '.join(missing)}") from None


def _value(hint: Any, item: Any, path: str) -> Any:
    origin = getattr(hint, "__origin__", None)
    if origin is Union:  # Optional[...]: an absent field, never a null
        return _value(hint.__args__[0], item, path)
    if origin is tuple:
        if not isinstance(item, list):
            raise WireError(f"{path}: a {type(item).__name__} instead of a list")
        if len(item) > MAX_ITEMS:
            raise WireError(f"{path}: {len(item)} items are over the limit of {MAX_ITEMS}")
        args = hint.__args__
        if args[-1] is Ellipsis:
            return tuple(_value(args[0], one, f"{path}[{at}]") for at, one in enumerate(item))
        if len(item) != len(args):
            raise WireError(f"{path}: {len(item)} items instead of {len(args)}")
        return tuple(_value(arg, one, f"{path}[{at}]") for at, (arg, one) in enumerate(zip(args, item)))  # noqa: B905 - Python 3.8
    if isinstance(hint, type) and is_dataclass(hint):
        return _object(hint, item, path)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(item)
        except ValueError:
            allowed = ", ".join(one.value for one in hint)
            raise WireError(f"{path}: {item!r:.40} instead of one of {allowed}") from None
    if type(item) is not hint:  # bool is no int here
        raise WireError(f"{path}: a {type(item).__name__} instead of {hint.__name__}")
    if hint is str and len(item) > MAX_STRING:
        raise WireError(f"{path}: {len(item)} characters are over the limit of {MAX_STRING}")
    if hint is int and not -(2**63) <= item < 2**63:
        raise WireError(f"{path}: the number is out of range")
    if hint is int and path.endswith(_DURATIONS) and not 0 <= item <= MAX_MS:
        raise WireError(f"{path}: no duration in milliseconds, which is 0 to {MAX_MS}")
    return item
