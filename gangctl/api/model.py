"""The base of all API types: frozen values, camelCase in YAML, no unknown fields, rules, times, and escaped text."""

import ast
import inspect
import sys
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError

# The docstrings below the attributes of a class, from its source: what the CRD and the reference say of a field.


def docstrings(kind: type) -> dict[str, str]:
    """By attribute, of the class alone: its bases have their own. A class inside another has none."""
    return _by_class(kind.__module__).get(kind.__name__, {})


def meanings(kind: type[StrEnum]) -> dict[str, str]:
    """Each value of an enum with the sentence that stands below it in the source."""
    return {kind[name].value: " ".join(text.split()) for name, text in docstrings(kind).items()}


@cache
def _by_class(module: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    classes = [one for one in ast.parse(inspect.getsource(sys.modules[module])).body if isinstance(one, ast.ClassDef)]
    for one in classes:
        for field, below in pairwise(one.body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found.setdefault(one.name, {})[name] = inspect.cleandoc(text)
    return found


CONSTRAINT_ERROR = "gangctl_constraint"
"""Error type of a violated :class:`Constraint`; its context has all violated constraints of one value."""
SUBMITTED: Final = "submitted"
"""The context of a validation that also checks what costs more than to read it: once, where a manifest is loaded."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule between the fields of one type: in Python for manifests, in CEL for the API server."""

    message: str
    """The rule and its reason for the user: a sentence without a full stop."""
    holds: Callable[[Any], bool]
    """The check, on a value whose fields are all valid by themselves."""
    cel: str
    """The same check in CEL, with ``self``; empty if the schema itself ensures it (the keys of a list-map are
    unique)."""
    fields: tuple[str, ...]
    """YAML names of the fields that it reads; errors point at the first."""
    only_submitted: bool = False
    """Whether it is checked with :data:`SUBMITTED` only: a controller reads each version of each tenant's objects."""


def unique_names(field: str, cel: str = "") -> Constraint:
    """No two values of a list have the same name."""

    def holds(value: Any) -> bool:
        names = [one.name for one in getattr(value, field)]
        return len(set(names)) == len(names)

    return Constraint(f"two {field} have the same name", holds, cel, (field,))


@dataclass(frozen=True, slots=True)
class Refused:
    """Values that Kubernetes users expect but that are not allowed here, each with the reason."""

    reasons: Mapping[str, str]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add the values to the schema only: validation rejects them anyway, because the enum does not have them."""
        return {**handler(core_schema), "x-refused": dict(self.reasons)}


_M = TypeVar("_M", bound="Model")


class Model(BaseModel):
    """A frozen value of the API. Attributes are snake_case in Python and camelCase in YAML."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,  # A nested type is built as a part of GangJob only: a third of the time of the import.
    )

    constraints: ClassVar[tuple[Constraint, ...]] = ()

    @model_validator(mode="after")
    def _constraints_hold(self, info: ValidationInfo) -> Self:
        checked = (one for one in self.constraints if info.context == SUBMITTED or not one.only_submitted)
        broken = [one for one in checked if not one.holds(self)]
        if broken:
            text = "; ".join(one.message for one in broken)
            raise PydanticCustomError(CONSTRAINT_ERROR, "{text}", {"text": text, "broken": broken})
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema of the type, extended by descriptions and constraints."""
        made = handler(core_schema)
        schema = handler.resolve_ref_schema(made)
        for name, text in _descriptions(cls).items():
            schema["properties"][cls.model_fields[name].alias]["description"] = text
        schema["x-constraints"] = [
            {"rule": one.cel, "message": one.message, "fields": list(one.fields)} for one in cls.constraints if one.cel
        ]
        return made


def changed(value: _M, **changes: Any) -> _M:
    """Return a changed copy of the value. It isn't validated: ``tests/mypy_changes.py`` checks fields and types."""
    return value.model_copy(update=changes)


def _descriptions(model: type[Model]) -> dict[str, str]:
    """By field. pydantic would read the docstrings at each import, for a quarter of its time."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if issubclass(one, Model):
            found |= docstrings(one)
    return {name: text for name, text in found.items() if name in model.model_fields}


def kind(field: str, default: str) -> Discriminator:
    """The discriminator of a union: ``field``, or the default kind if it is absent."""

    def tag(value: Any) -> str | None:
        found = value.get(field, default) if isinstance(value, Mapping) else getattr(value, field, None)
        return found if isinstance(found, str) else None

    return Discriminator(tag)


_FIRST_SECOND = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def _seconds(value: Any) -> float:
    seconds: float
    match value:
        case str():
            seconds = _moment(datetime.fromisoformat(value))
        case datetime():
            seconds = _moment(value)
        case int() | float() if not isinstance(value, bool):
            seconds = value
        case _:
            raise ValueError("a time is a string like 2026-01-31T12:00:00Z")
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        raise ValueError("a time lies between the years 1 and 9999")
    return round(float(seconds), 6)  # the precision of its string, so that it is read back as the same number


def _moment(value: datetime) -> float:
    if value.tzinfo is None:
        raise ValueError("a time needs its offset from UTC, as in 2026-01-31T12:00:00Z")
    return value.timestamp()


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes' MicroTime, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# Text from a cluster or a user: escaped, so that it can't move the cursor, set colours or fake a line.


_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Categories of control characters: escapes, line breaks, changes of direction."""
_JOINERS: Final = frozenset("\u200c\u200d")
"""Used in the spelling of Persian and in compound emoji."""


def escaped(text: str) -> str:
    r"""The text with all control characters escaped, as in ``\x1b``: always one line that can be encoded."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled(letter) for letter in text)


def _spelled(letter: str) -> str:
    if letter in _JOINERS or unicodedata.category(letter) not in _UNSAFE:
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004


SENTENCE: Final = 1024
"""Maximum characters of a sentence: the API server rejects a status with a longer one."""


def sentence(text: str, end: str = "") -> str:
    """Return the text as a :data:`Sentence` stores it: one escaped line, cut with an ellipsis, but never its ``end``.

    This is idempotent. Use it for text that is copied into a model, because copies aren't validated.
    """
    return _cut(escaped(text), SENTENCE - len(end)) + end


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _shown(limit: int) -> Callable[[Any], Any]:
    """For text that people read: escapes control characters, because it may come from outside."""
    return lambda value: _cut(escaped(value), limit) if isinstance(value, str) else value


def _lines(limit: int) -> Callable[[Any], Any]:
    return lambda value: _cut("\n".join(map(escaped, value.split("\n"))), limit) if isinstance(value, str) else value


def _exact(limit: int) -> Callable[[Any], Any]:
    """For text that is used and compared: unchanged except that it can be encoded."""

    def exact(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return _cut(value.encode(errors="replace").decode(), limit)  # a file name may have bytes that are no UTF-8

    return exact


Timestamp = Annotated[
    float,
    BeforeValidator(_seconds),
    PlainSerializer(rfc3339, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""Seconds since the epoch in Python, an RFC 3339 string in JSON."""

YEAR = 31_536_000
"""The longest duration of a field, in seconds."""

Seconds = Annotated[int, Field(ge=0, le=YEAR)]
"""A duration of at most a year, in whole seconds."""
PositiveSeconds = Annotated[int, Field(ge=1, le=YEAR)]
"""A duration that must not be zero."""

Label = Annotated[str, BeforeValidator(_shown(63)), Field(max_length=63)]
"""A short name in a status. A longer one is cut with an ellipsis, because a status must always be writable. Control
characters are escaped, as in ``\\x1b``, because names come from nodes, devices and frameworks."""
Name = Annotated[str, BeforeValidator(_shown(253)), Field(max_length=253)]
"""A Kubernetes name or address in a status, cut and escaped like a Label."""
Sentence = Annotated[str, BeforeValidator(_shown(SENTENCE)), Field(max_length=SENTENCE)]
"""A message for people in a status, cut and escaped like a Label."""
Lines = Annotated[str, BeforeValidator(_lines(8192)), Field(max_length=8192)]
"""Lines for people in a status, each escaped like a Label, and cut together."""
ExactText = Annotated[str, BeforeValidator(_exact(8192)), Field(max_length=8192)]
"""A path or a marker that a member reported. It is compared and used unchanged, and never cut, because reports have the
same limit. It must be escaped when it is shown."""

RoleName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,14}$", max_length=15)]
"""Without dashes, so that the name of a member can be parsed unambiguously."""
RuleName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$", max_length=63)]
TierName = Annotated[str, Field(pattern=r"^[a-z][-a-z0-9]{0,14}$", max_length=15)]


# Messages as values, as a status keeps them


class Said(Model):
    """A message as a value: the name of the sentence and its parameters. Messages are compared by it."""

    name: Label
    """Name of the sentence, such as attempt_waits."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the sentence."""

    def __hash__(self) -> int:
        """Return a hash of the name: parameters may have lists."""
        return hash(self.name)
