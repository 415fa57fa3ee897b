"""What all API types share: frozen values, camelCase in YAML, nothing unknown, rules between fields, RFC 3339 times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError

from gangctl.api.escaping import escaped

BROKEN = "gangctl_constraint"
"""The error type of a broken :class:`Constraint`; its context holds all that are broken in one value."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """What must hold between the fields of one type: for manifests in Python, for the API server in CEL."""

    message: str
    """What must hold and why, in a sentence without a full stop; the user sees it."""
    holds: Callable[[Any], bool]
    """On a value of the type whose single fields are all valid."""
    cel: str
    """The same with ``self``; empty where the schema itself says it (a list-map has no two equal keys)."""
    fields: tuple[str, ...]
    """YAML names of what it reads, the one to be pointed at first."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """A field that is kept for later: declared, so that the API server refuses it instead of dropping it silently."""

    json_schema: Mapping[str, Any]
    message: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Values that users of Kubernetes expect here, each with the reason why there is none of it."""

    reasons: Mapping[str, str]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Only the schema knows: validation refuses what is no member of the enum anyway."""
        return {**handler(core_schema), "x-refused": dict(self.reasons)}


class Model(BaseModel):
    """A frozen value of the API. Attributes are snake_case in Python and camelCase in YAML."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )

    constraints: ClassVar[tuple[Constraint, ...]] = ()
    reserved: ClassVar[Mapping[str, Reserved]] = {}

    @model_validator(mode="after")
    def _constraints_hold(self) -> Self:
        broken = [one for one in self.constraints if not one.holds(self)]
        if broken:
            text = "; ".join(one.message for one in broken)
            raise PydanticCustomError(BROKEN, "{text}", {"text": text, "broken": broken})
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The type's schema with what pydantic doesn't know of: constraints and reserved fields."""
        made = handler(core_schema)
        schema = handler.resolve_ref_schema(made)
        schema["x-constraints"] = [
            {"rule": one.cel, "message": one.message, "fields": list(one.fields)} for one in cls.constraints if one.cel
        ]
        schema["x-reserved"] = {
            name: {"schema": dict(one.json_schema), "message": one.message} for name, one in cls.reserved.items()
        }
        return made


def kind(field: str, default: str) -> Discriminator:
    """Tells the kinds of a union apart by ``field``; without it the value is of the default kind."""

    def tag(value: Any) -> str | None:
        found = value.get(field, default) if isinstance(value, Mapping) else getattr(value, field, None)
        return found if isinstance(found, str) else None

    return Discriminator(tag)


_FIRST_SECOND = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def _seconds(value: Any) -> float:
    match value:
        case str():
            seconds = _moment(datetime.fromisoformat(value))
        case datetime():
            seconds = _moment(value)
        case int() | float() if not isinstance(value, bool):
            seconds = round(float(value), 6)  # Its string has no more: it is to be read back as the same number.
        case _:
            raise ValueError("a time is a string like 2026-01-31T12:00:00Z")
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        raise ValueError("a time lies between the years 1 and 9999")
    return seconds


def _moment(value: datetime) -> float:
    if value.tzinfo is None:
        raise ValueError("a time needs its offset from UTC, as in 2026-01-31T12:00:00Z")
    return value.timestamp()


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes' MicroTime, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


SENTENCE: Final = 1024
"""Characters of the longest sentence: an API server refuses a status with a longer one."""


def sentence(text: str, end: str = "") -> str:
    """As a :data:`Sentence` keeps it: one line without control characters, cut with an ellipsis, never its ``end``.

    Doing it twice is harmless. It is for what is copied into a model: copies aren't validated.
    """
    return _cut(escaped(text), SENTENCE - len(end)) + end


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _shown(limit: int) -> Callable[[Any], Any]:
    """For what people read: whoever chose it can't reach their terminals by it."""
    return lambda value: _cut(escaped(value), limit) if isinstance(value, str) else value


def _exact(limit: int) -> Callable[[Any], Any]:
    """For what is used and compared: as it is, but writable."""

    def exact(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return _cut(value.encode(errors="replace").decode(), limit)  # a file's name may hold bytes that are no UTF-8

    return exact


Timestamp = Annotated[
    float,
    BeforeValidator(_seconds),
    PlainSerializer(rfc3339, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""Seconds since the epoch in Python, an RFC 3339 string in JSON."""

YEAR = 31_536_000
"""In seconds: the longest duration that a field takes."""

Seconds = Annotated[int, Field(ge=0, le=YEAR)]
"""A duration of up to a year, in whole seconds."""
PositiveSeconds = Annotated[int, Field(ge=1, le=YEAR)]
"""The same for what can't be nothing."""

Label = Annotated[str, BeforeValidator(_shown(63)), Field(max_length=63)]
"""A short name in a status. It is cut with an ellipsis rather than refused: a status must always be writable. Control
characters in it are written out, as in ``\\x1b``: names come from nodes, devices and frameworks."""
Name = Annotated[str, BeforeValidator(_shown(253)), Field(max_length=253)]
"""A name or an address of Kubernetes in a status; the same holds."""
Sentence = Annotated[str, BeforeValidator(_shown(SENTENCE)), Field(max_length=SENTENCE)]
"""What gangctl says to people in a status; the same holds."""
Text = Annotated[str, BeforeValidator(_exact(8192)), Field(max_length=8192)]
"""A path or a marker that a member reported: as long as any text of a report, so never cut; compared and used as it
is, so whoever shows it escapes it."""

RoleName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,14}$", max_length=15)]
"""No dash in it: so a member's name can be read in one way only."""
RuleName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$", max_length=63)]
TierName = Annotated[str, Field(pattern=r"^[a-z][-a-z0-9]{0,14}$", max_length=15)]
