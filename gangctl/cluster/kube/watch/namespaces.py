"""The objects of one kind in the watched namespaces, each namespace kept fresh by a reflector of its own.

A list and a watch of several namespaces would need rights in all of them: rights in each are enough this way. What is
refused in one namespace (its rights have gone, or the namespace has) must not matter in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from gangctl.cluster.kube.client import Forbidden
from gangctl.cluster.kube.watch.decoding import WatchedObject
from gangctl.cluster.kube.watch.reflector import Reflector

ALL = ""
"""Stands for all namespaces."""
STALE_SECONDS: Final = 30.0
"""Time after which a broken watch is reported as a problem; shorter breaks are normal."""


@dataclass(frozen=True, slots=True)
class WatchHealth:
    """How fresh the objects of one kind are, in seconds."""

    kind: str
    """gangjobs, pods, nodes, or guardedpods."""
    broken: float
    """For how long the watch has been broken; 0 while it works."""
    silent: float
    """Time since the last event of the watch."""


def health(kind: str, watches: Iterable[Reflector[Any]]) -> WatchHealth:
    """How fresh they are: of several namespaces, the one that is least fresh."""
    found = tuple(watches)
    return WatchHealth(kind, max(one.stale_seconds for one in found), max(one.silent_seconds for one in found))


def problem(what: str, watch: Reflector[Any]) -> str:
    """Why objects aren't fresh, or aren't shown, in a sentence; empty if they are. ``what``: for people."""
    if watch.listed.is_set():
        why = f"has been broken for {watch.stale_seconds:.0f} s: {watch.problem or 'it ended'}"
        return f"the watch of {what} {why}" if watch.stale_seconds >= STALE_SECONDS else ""
    return f"{what} haven't been listed yet: {watch.problem or 'the first list is under way'}"


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

    def of(self, namespace: str) -> Reflector[N]:
        """The one that shows this namespace."""
        return self.reflectors.get(namespace) or next(iter(self.reflectors.values()))

    @property
    def readable(self) -> tuple[Reflector[N], ...]:
        """Those that aren't refused; all of them if each is."""
        found = tuple(self.reflectors.values())
        return tuple(one for one in found if not one.is_refused) or found

    async def wait(self) -> None:
        """Wait until each namespace was listed, or one of several is refused."""
        for one in self.reflectors.values():
            await (one.answered if len(self.reflectors) > 1 else one.listed).wait()

    async def refresh(self) -> None:
        """List everything again, but what is refused.

        Raises:
            ClusterError: a list failed.
        """
        for one in self.reflectors.values():
            try:
                await one.refresh()
            except Forbidden:
                if len(self.reflectors) == 1:
                    raise

    def problems(self, what: str) -> Iterator[str]:
        """Why the objects aren't fresh, or aren't shown, in sentences: of the namespaces that count."""
        readable = self.readable
        for namespace, one in self.reflectors.items():
            found = problem(f"{what} in namespace {namespace}" if namespace else what, one) if one in readable else ""
            if found:
                yield found

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
