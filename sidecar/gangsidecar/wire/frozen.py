"""Frozen dataclasses whose modules load fast: in each pod, a worker waits for those of the supervisor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


def _eq(self: Any, other: object) -> bool:
    return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash((*self.__dict__.values(),))


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[T]) -> type[T]:
    """Make a class a dataclass with equality, a hash and a representation by its fields, whose values stay.

    ``dataclass(frozen=True)`` writes and compiles the code of six methods, and of those without a docstring that text:
    half of the CPU time of a supervisor's start. Here it is one, and mypy alone refuses an assignment.
    """
    kind.__doc__ = kind.__doc__ or kind.__name__
    for name, method in (("__eq__", _eq), ("__hash__", _hash), ("__repr__", _repr)):
        setattr(kind, name, method)
    return dataclass(eq=False, repr=False)(kind)
