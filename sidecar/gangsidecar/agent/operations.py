"""The framework API as a table: its calls with their bodies and answers, and the shapes of these as values.

The checks of bodies and the OpenAPI document are both made from it, so they agree. It is written by hand because a
library would take more memory than the whole sidecar may use.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from gangsidecar.wire import Phase
from gangsidecar.wire.frozen import frozen

Json: TypeAlias = Any


class MismatchError(ValueError):
    """A body doesn't match its shape: ``field`` is the path, the text gives what was found and what is allowed."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field


@frozen
class Integer:
    """A whole number; ``3.0`` is one, as in JSON Schema."""

    maximum: int
    minimum: int = 0


@frozen
class Number:
    """Any finite number."""

    maximum: float
    minimum: float = 0.0


@frozen
class Text:
    """A string, with its bounds in characters."""

    maximum: int
    minimum: int = 0


@frozen
class Choice:
    """One of these strings."""

    values: tuple[str, ...]


@frozen
class Boolean:
    """``true`` or ``false``."""


@frozen
class Listing:
    """An array of one kind."""

    item: Kind


@frozen
class Field:
    """One property of an object."""

    name: str
    kind: Kind
    description: str
    required: bool = True


def _shape(name: str, description: str, *fields: Field) -> Shape:
    return Shape(name, description, fields)


def _optional(name: str, kind: Kind, description: str) -> Field:
    return Field(name, kind, description, required=False)


@frozen
class Shape:
    """An object with these properties and no others; the document lists it under its name."""

    name: str
    description: str
    fields: tuple[Field, ...]


Kind: TypeAlias = Integer | Number | Text | Choice | Boolean | Listing | Shape


def check(kind: Kind, value: Json, path: str = "body") -> Json:
    """Return the value, whole numbers as ``int``. MismatchError: it isn't of this kind."""
    match kind:
        case Integer() | Number():
            return _check_number(kind, value, path)
        case Text():
            _expect(isinstance(value, str), value, path, "a string")
            if not kind.minimum <= len(value) <= kind.maximum:
                raise MismatchError(path, f"{len(value)} characters instead of {kind.minimum} to {kind.maximum}")
        case Choice():
            _expect(isinstance(value, str), value, path, "a string")
            if value not in kind.values:
                raise MismatchError(path, f"{value!r:.40} instead of one of {', '.join(kind.values)}")
        case Boolean():
            _expect(isinstance(value, bool), value, path, "true or false")
        case Listing():
            _expect(isinstance(value, list), value, path, "an array")
            return [check(kind.item, one, f"{path}[{at}]") for at, one in enumerate(value)]
        case Shape():
            return _check_object(kind, value, path)
    return value


def _check_number(kind: Integer | Number, value: Json, path: str) -> int | float:
    whole = isinstance(kind, Integer)
    _expect(isinstance(value, (int, float)) and not isinstance(value, bool), value, path, "a number")
    if not kind.minimum <= value <= kind.maximum:  # NaN is excluded, too
        raise MismatchError(path, f"it is not from {kind.minimum} to {kind.maximum}")
    if whole and value != int(value):
        raise MismatchError(path, f"{value} is not a whole number")
    return int(value) if whole else float(value)


def _expect(holds: bool, value: Json, path: str, allowed: str) -> None:  # noqa: FBT001 - it is what this is about
    if not holds:
        names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
        raise MismatchError(path, f"{names.get(type(value), 'a number')} instead of {allowed}")


def _check_object(shape: Shape, value: Json, path: str) -> Json:
    _expect(isinstance(value, dict), value, path, "an object")
    fields = {field.name: field for field in shape.fields}
    for name in value:
        if name not in fields:
            raise MismatchError(f"{path}.{name[:40]}", f"unknown; the fields are {', '.join(fields)}")
    for field in shape.fields:
        if field.required and field.name not in value:
            raise MismatchError(f"{path}.{field.name}", f"missing ({field.description})")
    return {name: check(fields[name].kind, item, f"{path}.{name}") for name, item in value.items()}


def json_schema(kind: Kind) -> dict[str, Json]:
    """The kind as JSON Schema, which refers to shapes by name."""
    match kind:
        case Integer() | Number():
            name = "integer" if isinstance(kind, Integer) else "number"
            schema: dict[str, Json] = {"type": name, "minimum": kind.minimum, "maximum": kind.maximum}
        case Text():
            schema = {"type": "string", "minLength": kind.minimum, "maxLength": kind.maximum}
        case Choice():
            schema = {"type": "string", "enum": list(kind.values)}
        case Boolean():
            schema = {"type": "boolean"}
        case Listing():
            schema = {"type": "array", "items": json_schema(kind.item)}
        case Shape():
            schema = {"$ref": f"#/components/schemas/{kind.name}"}
    return schema


def definitions(shape: Shape) -> dict[str, Json]:
    """The schemas of a shape and of all shapes in it, by name."""
    found: dict[str, Json] = {}
    for field in shape.fields:
        inner = field.kind.item if isinstance(field.kind, Listing) else field.kind
        if isinstance(inner, Shape):
            found |= definitions(inner)
    properties = {field.name: {**json_schema(field.kind), "description": field.description} for field in shape.fields}
    found[shape.name] = {
        "type": "object",
        "description": shape.description,
        "properties": properties,
        "required": [field.name for field in shape.fields if field.required],
        "additionalProperties": False,
    }
    return found


_ATTEMPT = Integer(2**53)
_STEP = Integer(2**53)
_RANK = Integer(2**31)
_SENTENCE = Text(8192)
_MILLISECONDS = Integer(2**53)

ATTEMPT_ENDING = "AttemptEnding"
DIRECTORY_TIER = "DirectoryTier"
"""Why a call was ignored."""
RESTORE_POINT_IGNORED = "RestorePointIgnored"
"""A warning in an answer."""

ATTEMPT = Field("attempt", _ATTEMPT, "the attempt of the caller (GANG_ATTEMPT)")
RANK = Field("rank", _RANK, "the rank of the caller (RANK)")
REASON = _optional("reason", _SENTENCE, "why, in a sentence")

RANK_PATH = _shape(
    "RankPath",
    "Where a rank registered its part of a checkpoint.",
    Field("rank", _RANK, "the rank"),
    Field("path", _SENTENCE, "its path"),
)
RESTORE = _shape(
    "Restore",
    "The restore point: the newest checkpoint that every rank can load.",
    Field("step", _STEP, "the step to continue from"),
    Field("tier", _SENTENCE, "the checkpoint tier that holds it"),
    _optional("path", _SENTENCE, "its folder; absent where each rank registered its own"),
    _optional("paths", Listing(RANK_PATH), "what this member's ranks registered, if they did"),
)
STOPPING = _shape(
    "Stopping",
    "The worker is being stopped.",
    REASON,
    Field("planned", Boolean(), "no fault caused it: there is time for a last checkpoint"),
    Field("millisecondsLeft", _MILLISECONDS, "until SIGKILL of everything that is left"),
)
CURRENT = _shape(
    "Attempt",
    "What is known of the current attempt; unknown fields are absent.",
    Field("gang", _SENTENCE, "UID of the GangJob"),
    Field("member", _SENTENCE, "the member whose pod this is"),
    Field("attempt", _ATTEMPT, "the attempt whose worker runs, else the newest known one; 0 before the first"),
    Field("phase", Choice(tuple(phase.value for phase in Phase)), "what the supervisor does"),
    _optional("ranks", Listing(_RANK), "the ranks of this member; absent if a launcher assigns them"),
    _optional("worldSize", _RANK, "how many ranks the process group has"),
    _optional("masterAddress", _SENTENCE, "where rank 0 is"),
    _optional("masterPort", Integer(65535), "the port of this attempt's rendezvous"),
    _optional("restore", RESTORE, "the restore point, if there is one"),
    _optional("reason", _SENTENCE, "why the attempt began, in a sentence"),
    _optional("stopping", STOPPING, "the stop that was ordered, if one was"),
)
PROGRESS = _shape(
    "Progress",
    "How far a rank is. It is also the heartbeat.",
    ATTEMPT,
    RANK,
    Field("phase", Choice(("Startup", "Step", "Checkpoint", "Evaluation")), "what the rank is doing"),
    Field("step", _STEP, "the training step that is finished, or the one that the rank is at"),
    _optional(
        "seconds",
        Number(1e9),
        "how long the step took, without waiting for other ranks; that of a first step appears in the incident, "
        "and the median of the last 50 shows slow ranks",
    ),
    _optional(
        "pid",
        Integer(2**31 - 1),
        "the rank's process, as it sees itself; if the others of the pod leave it behind, the incident names it",
    ),
)
TAKEN = _shape(
    "Taken",
    "The call was accepted.",
    _optional(
        "ignored",
        Choice((ATTEMPT_ENDING, DIRECTORY_TIER)),
        "the call changes nothing: the attempt is being stopped, or gangctl lists the tier's directory itself",
    ),
    _optional("warning", Choice((RESTORE_POINT_IGNORED,)), "the rank's first step doesn't follow the restore point"),
    _optional("message", _SENTENCE, "the same as a sentence"),
)
CHECKPOINT = _shape(
    "Checkpoint",
    "What a rank did with its part of a checkpoint.",
    ATTEMPT,
    RANK,
    Field("tier", Text(253, 1), "a checkpoint tier of the GangJob with source API"),
    Field("step", _STEP, "the step that it holds"),
    Field("state", Choice(("Begun", "Completed", "Dropped")), "only a completed one exists"),
    _optional("path", Text(4096), "where it is found: in a Shared tier the same for all ranks"),
    _optional("owner", _RANK, "the rank whose part it is, if it is a copy in a Peers tier"),
)
VERIFIED = _shape(
    "Verified",
    "A checkpoint was found to be right, for all ranks and in all tiers.",
    ATTEMPT,
    RANK,
    Field("step", _STEP, "the step that it holds"),
)
LOADED = _shape(
    "Loaded",
    "A rank has loaded the restore point.",
    ATTEMPT,
    RANK,
    Field("seconds", Number(1e9), "how long the loading took"),
)
JOINED = _shape(
    "Joined",
    "A rank has joined the process group.",
    ATTEMPT,
    RANK,
    _optional("seconds", Number(1e9), "how long the rendezvous took"),
)
RESTART = _shape(
    "Restart",
    "A restart of the whole gang from the restore point.",
    ATTEMPT,
    RANK,
    Field("reason", Text(1024, 1), "why, in a sentence; it appears in the incident"),
    _optional("level", Choice(("Process", "Pod", "Gang")), "how much is thrown away at least; default Process"),
    _optional("excludeThisNode", Boolean(), "replace this member's pod on another node; default false"),
)
CORRUPTION = _shape(
    "Corruption",
    "A rank computes wrongly: its pod is replaced on another node, and what was saved since then is not restored.",
    ATTEMPT,
    RANK,
    Field("sinceStep", _STEP, "the first step whose checkpoint may be wrong"),
    Field("reason", Text(1024, 1), "what was found, in a sentence; it appears in the incident"),
    _optional("rankAtFault", _RANK, "the rank that computes wrongly; default the caller"),
)
ASKED = _shape(
    "Asked",
    "The request was passed on; the controller decides.",
    Field("incident", _ATTEMPT, "the attempt that the restart would start"),
    _optional("ignored", Choice((ATTEMPT_ENDING,)), "the attempt is being stopped already"),
)
RUN_EVENT = _shape("RunEvent", "Data of the event `run`: a worker runs.", Field("attempt", _ATTEMPT, "its attempt"))
STOP_EVENT = _shape(
    "StopEvent",
    "Data of the event `stop`: abort collectives now; if it is planned, save first.",
    Field("attempt", _ATTEMPT, "the attempt that is being stopped"),
    *STOPPING.fields,
)
ERROR = _shape(
    "Error",
    "What went wrong.",
    Field(
        "error",
        _shape(
            "Problem",
            "A reason for programs, and a sentence for people.",
            Field("reason", Text(64, 1), "one CamelCase word"),
            Field("message", _SENTENCE, "what was found, and what to do"),
            _optional("field", _SENTENCE, "the path of the field that is wrong"),
            _optional("attempt", _ATTEMPT, "the current attempt"),
        ),
        "the problem",
    ),
)


@frozen
class Operation:
    """One call; ``name`` leads to its handler."""

    name: str
    method: str
    path: str
    summary: str
    answers: dict[int, Shape | None]
    """By status; None = no shape describes it."""
    takes: Shape | None = None
    media: str = "application/json"
    carries: tuple[Shape, ...] = ()
    """Shapes inside a stream."""


_POST_ERRORS = {400: ERROR, 409: ERROR, 413: ERROR, 422: ERROR, 503: ERROR}


def _post(name: str, path: str, takes: Shape, summary: str, answer: dict[int, Shape | None] | None = None) -> Operation:
    answers: dict[int, Shape | None] = {**(answer or {200: TAKEN}), **_POST_ERRORS}
    return Operation(f"post{name}", "POST", f"/v1/{path}", summary, answers, takes)


OPERATIONS = (
    Operation("getAttempt", "GET", "/v1/attempt", "The current attempt.", {200: CURRENT, 503: ERROR}),
    _post("Progress", "progress", PROGRESS, "Report how far this rank is."),
    _post(
        *("Checkpoint", "checkpoints", CHECKPOINT),
        "Register that this rank has begun, completed or dropped a checkpoint. 200: it was passed to the supervisor.",
    ),
    _post("Verified", "checkpoints/verified", VERIFIED, "Report that a checkpoint was verified. One rank is enough."),
    _post(
        *("Loaded", "checkpoints/loaded", LOADED),
        "Report that this rank has just loaded the restore point. The first call of a rank in an attempt counts.",
    ),
    _post(
        *("Joined", "joined", JOINED),
        "Report that this rank has just joined the process group. The first call of a rank in an attempt counts.",
    ),
    _post("Restart", "restart", RESTART, "Ask for a restart of the gang.", {202: ASKED}),
    _post("Corruption", "corruption", CORRUPTION, "Report that a rank computes wrongly.", {202: ASKED}),
    Operation(
        "getEvents",
        "GET",
        "/v1/events",
        "Server-sent events: the current state, then each change. Their names are `run` and `stop`.",
        {200: None},
        media="text/event-stream",
        carries=(RUN_EVENT, STOP_EVENT),
    ),
    Operation(
        "getStop",
        "GET",
        "/v1/stop",
        "Server-sent events: one `stop`, before SIGTERM. Act on it, then close: SIGTERM waits for that, 0.5 s at most.",
        {200: None},
        media="text/event-stream",
        carries=(STOP_EVENT,),
    ),
    Operation("getDocument", "GET", "/v1/openapi.json", "This document.", {200: None}),
)

_MEANINGS = {
    200: "Done.",
    202: "Accepted.",
    400: "The body is not as described.",
    409: "The attempt is not the current one.",
    413: "The body is over 64 KiB.",
    422: "The rank does not belong to this member, or the GangJob has no such checkpoint tier.",
    503: "No supervisor is connected right now: try again after Retry-After seconds.",
}


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document of the whole API."""
    from importlib.metadata import version  # noqa: PLC0415 - nearly 1 MB that only this document needs

    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for one in OPERATIONS:
        shapes = (*one.answers.values(), one.takes, *one.carries)
        for shape in shapes:
            schemas |= definitions(shape) if shape is not None else {}
        described: dict[str, Any] = {"operationId": one.name, "summary": one.summary}
        if one.takes is not None:
            content = {"application/json": {"schema": json_schema(one.takes)}}
            described["requestBody"] = {"required": True, "content": content}
        described["responses"] = {str(status): _answer(one, status) for status in sorted(one.answers)}
        paths.setdefault(one.path, {})[one.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gangctl framework API",
            "version": version("gangsidecar"),
            "description": "HTTP on the unix socket of GANG_SOCKET. Every call is optional.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _answer(operation: Operation, status: int) -> dict[str, Any]:
    shape = operation.answers[status]
    media = operation.media if status in {200, 202} else "application/json"
    if shape is not None:
        schema = json_schema(shape)
    elif operation.carries:
        schema = {"type": "string"}
    else:
        schema = {"type": "object"}
    return {"description": _MEANINGS[status], "content": {media: {"schema": schema}}}
