"""The shapes of JSON bodies, as values. The checks and the OpenAPI document are both made from them, so they agree.

It is written by hand because a library would take more memory than the whole sidecar may use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = Any


class MismatchError(ValueError):
    """A body doesn't match its shape: ``field`` is the path, the text gives what was found and what is allowed."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field


@dataclass(frozen=True)
class Integer:
    """A whole number; ``3.0`` is one, as in JSON Schema."""

    maximum: int
    minimum: int = 0


@dataclass(frozen=True)
class Number:
    """Any finite number."""

    maximum: float
    minimum: float = 0.0


@dataclass(frozen=True)
class Text:
    """A string, with its bounds in characters."""

    maximum: int
    minimum: int = 0


@dataclass(frozen=True)
class Choice:
    """One of these strings."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class Boolean:
    """``true`` or ``false``."""


@dataclass(frozen=True)
class Listing:
    """An array of one kind."""

    item: Kind


@dataclass(frozen=True)
class Field:
    """One property of an object."""

    name: str
    kind: Kind
    description: str
    required: bool = True


@dataclass(frozen=True)
class Shape:
    """An object with these properties and no others; the document lists it under its name."""

    name: str
    description: str
    fields: tuple[Field, ...]


Kind: TypeAlias = Integer | Number | Text | Choice | Boolean | Listing | Shape


def check(kind: Kind, value: Json, path: str = "body") -> Json:
    """The value, whole numbers as ``int``.

    Raises:
        MismatchError: the value isn't of this kind.
    """
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
        raise MismatchError(path, f"{_kind_of(value)} instead of {allowed}")


def _check_object(shape: Shape, value: Json, path: str) -> Json:
    _expect(isinstance(value, dict), value, path, "an object")
    known = {field.name: field for field in shape.fields}
    for name in value:
        if name not in known:
            raise MismatchError(f"{path}.{name[:40]}", f"unknown; the fields are {', '.join(known)}")
    for field in shape.fields:
        if field.required and field.name not in value:
            raise MismatchError(f"{path}.{field.name}", f"missing ({field.description})")
    return {name: check(known[name].kind, item, f"{path}.{name}") for name, item in value.items()}


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


def _kind_of(value: Json) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
