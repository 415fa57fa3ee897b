"""Strict coding of messages as JSON: ``{"v": 1, "type": "Report", ...fields}``.

Decoding must never accept a wrong version, type, field, kind or size: it raises :class:`WireError`, whose text may be
logged. The receiver then closes that one connection.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_type_hints

from gangsidecar.wire.log_match import MAX_LOG_PATTERNS
from gangsidecar.wire.messages import Message

VERSION = 1
MAX_BYTES = 1 << 20
"""The largest message that is sent or accepted."""
MAX_REPORT_BYTES = 1 << 18
"""The largest report. One of an ordinary member has some hundred bytes."""
MAX_STRING = 8192
MAX_ITEMS = 4096
MAX_ENDS, MAX_CHECKPOINTS, MAX_DROPPED = 64, 256, 96
"""Of a report, which the controller gets from every pod: what a supervisor keeps, with 64 processes in its pod."""
MAX_MS = 10**12
"""The longest age or duration: over 30 years, so that no calendar time computed from it gets out of range."""


class WireError(ValueError):
    """What was received is not a message; the text gives what was found and what was expected."""


_DURATIONS = ("_ms", ".milliseconds")
"""The ends of the paths of ages and durations."""

_LIMITS = {
    "Report.ends": MAX_ENDS,
    "Report.checkpoints": MAX_CHECKPOINTS,
    "Report.dropped": MAX_DROPPED,
    "Report.ports": 64,
    "Report.log_matches": MAX_LOG_PATTERNS,
}
"""Path of a list -> how many items it may have, where that is not :data:`MAX_ITEMS`."""

_MESSAGES: dict[str, type] = {kind.__name__: kind for kind in get_args(Message)}


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


def decode(text: str | bytes) -> Any:
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


_SCALARS = frozenset({str, int, float, bool, type(None)})


def _plain(value: Any) -> Any:
    if type(value) in _SCALARS:  # Nearly all values are; a large gang gets a million of them at once.
        return value
    if is_dataclass(value):
        # What equals its default is left out: reports are small, and an absent field has one meaning only.
        return {
            name: _plain(item)
            for name, default in _defaults(value.__class__)
            for item in (getattr(value, name),)
            if default is MISSING or item != default
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in fields(kind))


class _Field:
    """A field of a message, and what is known of its values beforehand: a controller decodes thousands a second."""

    def __init__(self, name: str, hint: Any) -> None:
        self.hint = hint
        one = hint.__args__[0] if isinstance(hint, UnionType) else hint
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
    known = _fields(kind)
    unknown = [str(key)[:40] for key in body if key not in known]
    if unknown:
        raise WireError(f"{path}: unknown field {unknown[0]!r}")
    try:
        return kind(**{name: known[name].value(item, path, name) for name, item in body.items()})
    except TypeError:
        missing = sorted(field.name for field in fields(kind) if field.default is MISSING and field.name not in body)
        raise WireError(f"{path}: missing {', '.join(missing)}") from None


def _value(hint: Any, item: Any, path: str) -> Any:
    origin = getattr(hint, "__origin__", None)
    if isinstance(hint, UnionType):  # ... | None: an absent field, never a null
        return _value(hint.__args__[0], item, path)
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
    if type(item) is not hint:  # bool is no int here
        raise WireError(f"{path}: a {type(item).__name__} instead of {hint.__name__}")
    if hint is str and len(item) > MAX_STRING:
        raise WireError(f"{path}: {len(item)} characters are over the limit of {MAX_STRING}")
    if hint is int and not -(2**63) <= item < 2**63:
        raise WireError(f"{path}: the number is out of range")
    if hint is int and path.endswith(_DURATIONS) and not 0 <= item <= MAX_MS:
        raise WireError(f"{path}: no duration in milliseconds, which is 0 to {MAX_MS}")
    return item
