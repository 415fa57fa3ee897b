"""The answer for programs: field names are stable; what is empty or unknown is absent.

Amounts of resources are texts, as in Kubernetes; times are RFC 3339; durations are milliseconds or seconds by name.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from pydantic.alias_generators import to_camel

from gangctl.api.gangjob import GangJob
from gangctl.api.model import rfc3339
from gangctl.explain.why.answer import Answer
from gangctl.explain.why.findings import amount
from gangctl.explain.why.walk import Room

_TIMES: Final = frozenset({"since", "time"})
_KEPT: Final = frozenset({"findings", "attempt", "runs", "phase", "charged"})
"""Fields that are there also if they are empty."""


def document(job: GangJob, answered: Answer) -> dict[str, Any]:
    """The answer as JSON values."""
    metadata = job.metadata
    gang = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
    return {"gang": gang, **_plain(answered)}


def _plain(value: Any) -> Any:
    match value:
        case Room():
            return {
                key: each if key == "resource" else amount(value.resource, each)
                for key in ("resource", "needs", "free", "most", "of", "largest")
                if (each := getattr(value, key)) is not None
            }
        case StrEnum() | Decimal():
            return str(value)
        case tuple():
            return [_plain(one) for one in value]
        case _ if is_dataclass(value):
            found = ((one.name, getattr(value, one.name)) for one in fields(value))
            return {to_camel(name): _named(name, each) for name, each in found if _is_told(name, each)}
        case _:
            return value


def _named(name: str, value: Any) -> Any:
    return rfc3339(value) if name in _TIMES and isinstance(value, float) else _plain(value)


def _is_told(name: str, value: Any) -> bool:
    return name in _KEPT or (value is not None and value not in ("", ()))
