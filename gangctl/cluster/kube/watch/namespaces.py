"""The objects of one kind in the watched namespaces, each namespace kept fresh by a reflector of its own.

A list and a watch of several namespaces would need rights in all of them: rights in each are enough this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from gangctl.cluster.kube.watch.decoding import WatchedObject
from gangctl.cluster.kube.watch.reflector import Reflector

ALL = ""
"""Stands for all namespaces."""


class NamespacedObject(WatchedObject, Protocol):
    """The value that is kept of an object in a namespace."""

    @property
    def namespace(self) -> str:
        """The object's namespace."""


N = TypeVar("N", bound=NamespacedObject)


class NamespacedCopy(Generic[N]):
    """The copies of the objects of one kind, as if they were one."""

    def __init__(self, namespaces: Sequence[str], reflector: Callable[[str], Reflector[N]]) -> None:
        """``namespaces``: none = all of the cluster. ``reflector``: makes the one of a namespace."""
        self.reflectors: Mapping[str, Reflector[N]] = {one: reflector(one) for one in namespaces or (ALL,)}
        """By namespace."""

    @property
    def items(self) -> Mapping[str, N]:
        """By UID."""
        found = tuple(one.items for one in self.reflectors.values())
        return found[0] if len(found) == 1 else _Union(found)

    def put(self, item: N) -> None:
        """Add an object that a write returned; see :meth:`Reflector.put`."""
        found = self.reflectors.get(item.namespace) or self.reflectors.get(ALL)
        if found is not None:
            found.put(item)

    def drop(self, uid: str) -> None:
        """Remove an object that is known to be gone."""
        for one in self.reflectors.values():
            one.drop(uid)


class _Union(Mapping[str, N]):
    """Several mappings without a common key, without a copy of them."""

    def __init__(self, parts: Sequence[Mapping[str, N]]) -> None:
        self._parts = parts

    def __getitem__(self, key: str) -> N:
        for part in self._parts:
            if key in part:
                return part[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self._parts))
