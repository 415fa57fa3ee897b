"""Turns values into the JSON that `-o json` prints and the page gets: camelCase names, RFC 3339 times.

The rule: a field that is None, an empty text or has its default is absent. Other fields are always there.
"""

from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import StrEnum
from functools import singledispatch
from typing import Any, Final

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from gangctl.api.gangjob import GangJob
from gangctl.api.model import rfc3339

_TIMES: Final = frozenset({"begin", "end", "time", "since", "created", "completed"})
"""Fields with seconds since the epoch."""


@singledispatch
def document(value: Any) -> Any:
    """Return the value as JSON values. Types with a form of their own register it."""
    if not is_dataclass(value):
        return value
    found = ((one, getattr(value, one.name)) for one in fields(value))
    return {
        to_camel(one.name).replace("traceId", "traceID"): _value(one.name, each)
        for one, each in found
        if each not in (None, "", one.default)
    }


def gang_document(job: GangJob) -> dict[str, str]:
    """Return what identifies a gang in a document."""
    return {"name": job.metadata.name, "namespace": job.metadata.namespace, "uid": job.metadata.uid}


def _value(name: str, value: Any) -> Any:
    return rfc3339(value) if name in _TIMES else document(value)


@document.register(StrEnum)
@document.register(Decimal)
def _text(value: StrEnum | Decimal) -> str:
    return str(value)


@document.register
def _list(value: tuple) -> list[Any]:  # type: ignore[type-arg]  # singledispatch takes no parametrised type
    return [document(one) for one in value]


@document.register
def _model(value: BaseModel) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)
