"""What all API types share: frozen values, camelCase in YAML, nothing unknown, times as RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """A frozen value of the API. Attributes are snake_case in Python and camelCase in YAML."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        return datetime.fromisoformat(value).timestamp()
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value)


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes' MicroTime, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Timestamp = Annotated[
    float,
    BeforeValidator(_seconds),
    PlainSerializer(rfc3339, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""Seconds since the epoch in Python, an RFC 3339 string in JSON."""

Seconds = Annotated[int, Field(ge=0, le=31_536_000)]
"""A duration of up to a year, in whole seconds."""
