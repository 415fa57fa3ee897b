"""Code messages as JSON, strictly, and the ends of a worker as last words, leniently.

A message is ``{"v": 1, "type": "Report", ...fields}``. Decoding must never accept a wrong version, type, field, kind or
size: it raises :class:`WireError`, whose text may be logged. The receiver then closes that connection. Controller and
sidecar may be of different releases: a field that comes later has a default and a revision, and the sender leaves out
what its peer doesn't know yet (:func:`in_revision`).

The last words say how a pod's worker ended, in the termination message of its container. Kubernetes keeps that message
in the pod's status, so the words outlive the supervisor, its connection and every controller. They are one line of
ASCII, wherever it stands among what others write to the same file::

    gangctl: {"attempt":7,"finished":"0-6","ends":[{"local_rank":7,"age_ms":1200,"exit_code":1}]}

``finished`` are the local ranks that ended with 0 before any stop, as ranges (those of a Job's ``completedIndexes``);
``ends`` are the others, first those that ended by themselves, oldest first, as many as fit. Reading must never fail, as
the words may be of another release.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from gangsidecar.wire.messages import MAX_CHECKED, MAX_LOG_PATTERNS, MAX_VERIFIED, End, Message, Milestone

VERSION = 1
MAX_BYTES = 1 << 20
"""The largest message that is sent or accepted."""
MAX_REPORT_BYTES = 1 << 18
"""The largest report. One of an ordinary member has some hundred bytes."""
MAX_IMPORTS_BYTES = 1 << 17
"""The largest list of imports."""
MAX_STRING = 8192
MAX_ITEMS = 4096
MAX_ENDS, MAX_CHECKPOINTS, MAX_DROPPED = 64, 256, 96
"""Bounds of a report, which the controller gets from every pod: a supervisor keeps that for 64 processes."""
MAX_MS = 10**12
"""The longest age or duration: over 30 years, so that no calendar time computed from it gets out of range."""
_DURATIONS = ("_ms", ".milliseconds")
"""The ends of the paths of ages and durations."""
_LIMITS = {
    "Report.ends": MAX_ENDS,
    "Report.checkpoints": MAX_CHECKPOINTS,
    "Report.dropped": MAX_DROPPED,
    "Report.ports": 64,
    "Report.reached": len(Milestone),
    "Report.log_matches": MAX_LOG_PATTERNS,
    "Report.verified": MAX_VERIFIED,
    "Report.checks": MAX_CHECKED,
}
"""Path of a list -> how many items it may have, where that is not :data:`MAX_ITEMS`."""
REPORT_BEGINS = f'{{"v":{VERSION},"type":"Report",'
"""The begin of each report, as :func:`encode` writes it."""
_MESSAGES: dict[str, type] = {kind.__name__: kind for kind in get_args(Message)}
_SCALARS = frozenset({str, int, float, bool, type(None)})
Part = TypeVar("Part")
CONNECT_PATH = "/v1/connect"
"""The path on which a controller accepts sidecars."""
LEADER_HEADER = "Gang-Leader"
"""Header of a standby's refusal (503): the URL of the leader."""
REVISION = 1
"""The revision of version 1. A release that adds a field raises it and names the field in :data:`ADDED`."""
ADDED: dict[type, dict[str, int]] = {}
"""By type of message or part: its fields that came after revision 1, each with its revision."""
ORDER_HEADER = "Gang-Connection"
"""Has a number that grows with each connection of a pod: its node's wall clock in milliseconds. It orders the pod's
connections where they come by way of several replicas; it is no time."""
REVISION_HEADER = "Gang-Wire-Revision"
"""The sender's revision, in the request for the upgrade and in its answer. A peer that sends none has revision 1."""
_NUMBER = re.compile("[0-9]{1,6}")
_ORDER = re.compile("[0-9]{1,16}")
MARK = "gangctl: "
LINE = 1_000
"""Longest line. A kubelet shares 12 KiB between the containers of a pod, and cuts off the end: twelve have room."""
MESSAGE = 100
_PROCESSES = 4_096
_RANGES = {
    "local_rank": range(_PROCESSES),
    "age_ms": range(MAX_MS + 1),
    "rank": range(2**31),
    "exit_code": range(256),
    "signal": range(1, 65),
}
_FLAGS = ("stopped", "oom", "hidden")


class WireError(ValueError):
    """The text isn't a message; the error says what was found and what was expected."""


def encode(message: Any) -> str:
    """Return one message as one line of JSON. WireError: it would be larger than :data:`MAX_BYTES`."""
    text = _TO_JSON({"v": VERSION, "type": type(message).__name__, **_given(message)})
    if len(text) > MAX_BYTES:
        raise WireError(f"a {type(message).__name__} of {len(text)} bytes is over the limit of {MAX_BYTES}")
    return text


def decode(text: str | bytes) -> Any:
    """Return the message in ``text``. WireError: it isn't one; the reason repeats a short piece of it at most."""
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


def _given(value: Any) -> dict[str, Any]:
    # What equals its default is left out: reports are small, and an absent field has one meaning only.
    return {
        name: item
        for name, default in _defaults(value.__class__)
        if (item := getattr(value, name)) is not default and item != default
    }


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in fields(kind))


_TO_JSON = json.JSONEncoder(separators=(",", ":"), default=_given, check_circular=False).encode
"""It takes tuples and enums itself."""


class _Field:
    """A field of a message, and what is known of its values beforehand: a controller decodes thousands a second."""

    def __init__(self, name: str, hint: Any) -> None:
        # ... | None: an absent field, never a null
        self.hint = one = hint.__args__[0] if isinstance(hint, UnionType) else hint
        is_enum = isinstance(one, type) and issubclass(one, Enum)
        self.members = {member.value: member for member in one} if is_enum else {}
        self.scalar = one if one in _SCALARS else None
        is_duration = f".{name}".endswith(_DURATIONS)
        self.smallest, self.largest = (0, MAX_MS) if is_duration else (-(2**63), 2**63 - 1)

    def value(self, item: Any, path: str, name: str) -> Any:
        """The value: what is plainly right at once, anything else with all checks."""
        kind = type(item)
        if kind is self.scalar:
            if kind is int and self.smallest <= item <= self.largest:
                return item
            if kind is bool or (kind is str and len(item) <= MAX_STRING):
                return item
        elif kind is str and item in self.members:
            return self.members[item]
        return _value(self.hint, item, f"{path}.{name}")


@cache
def _fields(kind: Any) -> Mapping[str, _Field]:
    return {name: _Field(name, hint) for name, hint in get_type_hints(kind).items()}


def _object(kind: Any, body: Any, path: str) -> Any:
    if not isinstance(body, dict):
        raise WireError(f"{path}: a {type(body).__name__} instead of an object")
    fields_of = _fields(kind)
    unknown = [str(key)[:40] for key in body if key not in fields_of]
    if unknown:
        raise WireError(f"{path}: unknown field {unknown[0]!r}")
    try:
        return kind(**{name: fields_of[name].value(item, path, name) for name, item in body.items()})
    except TypeError:
        missing = sorted(field.name for field in fields(kind) if field.default is MISSING and field.name not in body)
        raise WireError(f"{path}: missing {', '.join(missing)}") from None


def _value(hint: Any, item: Any, path: str) -> Any:
    origin = getattr(hint, "__origin__", None)
    if origin is tuple:
        if not isinstance(item, list):
            raise WireError(f"{path}: a {type(item).__name__} instead of a list")
        limit = _LIMITS.get(path, MAX_ITEMS)
        if len(item) > limit:
            raise WireError(f"{path}: {len(item)} items are over the limit of {limit}")
        args = hint.__args__
        if args[-1] is Ellipsis:
            return tuple(_value(args[0], one, f"{path}[{at}]") for at, one in enumerate(item))
        if len(item) != len(args):
            raise WireError(f"{path}: {len(item)} items instead of {len(args)}")
        return tuple(_value(arg, one, f"{path}[{at}]") for at, (arg, one) in enumerate(zip(args, item, strict=False)))
    if isinstance(hint, type) and is_dataclass(hint):
        return _object(hint, item, path)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(item)
        except ValueError:
            allowed = ", ".join(one.value for one in hint)
            raise WireError(f"{path}: {item!r:.40} instead of one of {allowed}") from None
    if type(item) is not hint:  # a bool isn't an int here
        raise WireError(f"{path}: a {type(item).__name__} instead of {hint.__name__}")
    if hint is str and len(item) > MAX_STRING:
        raise WireError(f"{path}: {len(item)} characters are over the limit of {MAX_STRING}")
    if hint is int and not -(2**63) <= item < 2**63:
        raise WireError(f"{path}: the number is out of range")
    if hint is int and path.endswith(_DURATIONS) and not 0 <= item <= MAX_MS:
        raise WireError(f"{path}: no duration in milliseconds, which is 0 to {MAX_MS}")
    return item


def order_of(header: str) -> int:
    """Return what an upgrade says in :data:`ORDER_HEADER`; 0 if that is no number."""
    return int(header) if _ORDER.fullmatch(header) else 0


def revision_of(header: str) -> int:
    """The peer's revision, from its header; empty if it sent none."""
    return int(header) if _NUMBER.fullmatch(header) else 1


def in_revision(message: Part, revision: int) -> Part:
    """Return the message as a peer of that revision takes it: fields that came later have their defaults."""
    return message if revision >= REVISION else _older(message, revision)


def _older(part: Any, revision: int) -> Any:
    if isinstance(part, tuple):
        return tuple(_older(one, revision) for one in part)
    if not is_dataclass(part):
        return part
    kind: Any = type(part)
    added = ADDED.get(kind, {})
    values = {
        field.name: field.default
        if added.get(field.name, 1) > revision
        else _older(getattr(part, field.name), revision)
        for field in fields(kind)
    }
    return kind(**values)


def to_words(ends: Iterable[End]) -> str:
    """Return the line for the newest attempt of these ends; empty if there is none."""
    everything = tuple(ends)
    attempt = max((end.attempt for end in everything), default=0)
    newest = [end for end in everything if end.attempt == attempt]
    if not newest:
        return ""
    finished = [end.local_rank for end in newest if end.exit_code == 0 and not end.stopped]
    others = [end for end in newest if end.exit_code != 0 or end.stopped]
    listed: list[dict[str, Any]] = []
    line = _line(attempt, finished, listed)
    for end in sorted(others, key=lambda end: (end.stopped, -end.age_ms)):
        body = _given(replace(end, message=end.message[:MESSAGE]))
        del body["attempt"]
        listed.append(body)
        longer = _line(attempt, finished, listed)
        if len(longer) > LINE:
            break
        line = longer
    return line


def _line(attempt: int, finished: Iterable[int], ends: Sequence[dict[str, Any]]) -> str:
    body = {"attempt": attempt, "finished": to_ranges(finished), "ends": ends}
    return MARK + json.dumps({key: value for key, value in body.items() if value}, separators=(",", ":"))


def from_words(message: str) -> tuple[End, ...]:
    """Return the ends in a termination message; none if it has no such line."""
    for line in message.splitlines():
        if line.startswith(MARK):
            try:
                body = json.loads(line[len(MARK) :])
            except (ValueError, RecursionError):
                continue
            if isinstance(body, dict) and _is_in(body.get("attempt"), range(2**31)):
                return _ends(body)
    return ()


def _ends(body: dict[str, Any]) -> tuple[End, ...]:
    attempt, finished, others = body["attempt"], body.get("finished"), body.get("ends")
    ranks = from_ranges(finished, _PROCESSES) if isinstance(finished, str) else ()
    found = [End(attempt, rank, 0, exit_code=0) for rank in sorted(ranks)]
    for one in others if isinstance(others, list) else ():
        values = _possible(one) if isinstance(one, dict) else {}
        if "local_rank" in values and "age_ms" in values and ("exit_code" in values) != ("signal" in values):
            found.append(End(attempt=attempt, **values))
    return tuple(found)


def _possible(end: dict[str, Any]) -> dict[str, Any]:
    """Return what an end can have: any text may stand there, and a number that no process has could not be stored."""
    values: dict[str, Any] = {name: end[name] for name, allowed in _RANGES.items() if _is_in(end.get(name), allowed)}
    values.update({name: end[name] for name in _FLAGS if type(end.get(name)) is bool})
    return {**values, "message": end["message"][:MESSAGE]} if isinstance(end.get("message"), str) else values


def _is_in(value: Any, allowed: range) -> bool:
    return type(value) is int and value in allowed


def to_ranges(numbers: Iterable[int]) -> str:
    """Return the text of a set of small numbers, such as ``0-511,513``. Equal sets have equal texts."""
    parts: list[str] = []
    first = last = -1
    for number in (*sorted(set(numbers)), -1):
        if number == last + 1 and first >= 0:
            last = number
            continue
        if first >= 0:
            parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = number
    return ",".join(parts)


def from_ranges(text: str, limit: int) -> frozenset[int]:
    """Return the numbers below ``limit`` in the text. What isn't a range is skipped: reading must never fail."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        if all(end.isascii() and end.isdigit() and len(end) <= 9 for end in ends):  # noqa: PLR2004 - no huge number
            found.update(range(int(ends[0]), min(int(ends[1]) + 1, limit)))
    return frozenset(found)
