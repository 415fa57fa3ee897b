"""The connections of one hub, by pod and by gang: what is done for a gang costs nothing for the members of others.

The rule: a pod has one connection, its newest. What ends late must not remove the one that has taken its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangctl.controller.connection import Connection


class Connections:
    """All of them."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Connection] = {}
        self._by_gang: dict[str, dict[str, Connection]] = {}
        """UID of the gang -> UID of the pod -> its connection."""
        self.ended = 0
        """How many have ended so far."""

    def __len__(self) -> int:
        """How many pods are connected."""
        return len(self._by_pod)

    def get(self, pod: str) -> Connection | None:
        """The connection of a pod (UID)."""
        return self._by_pod.get(pod)

    def add(self, connection: Connection) -> Connection | None:
        """Make it the connection of its pod, and return the one before."""
        who = connection.identity
        before = self._by_pod.get(who.pod)
        if before is not None:
            self.remove(before)
        self._by_pod[who.pod] = self._by_gang.setdefault(who.gang, {})[who.pod] = connection
        return before

    def remove(self, connection: Connection) -> bool:
        """It has ended; return whether it was still the connection of its pod."""
        who = connection.identity
        if self._by_pod.get(who.pod) is not connection:
            return False
        self.ended += 1
        del self._by_pod[who.pod], self._by_gang[who.gang][who.pod]
        if not self._by_gang[who.gang]:
            del self._by_gang[who.gang]
        return True

    def all(self) -> Iterator[Connection]:
        """Those of now. One that ends before its turn is left out."""
        return self._present(tuple(self._by_pod))

    def of(self, gang: str) -> Iterator[Connection]:
        """Those of a gang (UID). One that ends before its turn is left out."""
        return self._present(tuple(self._by_gang.get(gang, ())))

    def clear(self) -> None:
        """Forget all."""
        self.ended += len(self)
        self._by_pod.clear()
        self._by_gang.clear()

    def _present(self, pods: tuple[str, ...]) -> Iterator[Connection]:
        return (self._by_pod[pod] for pod in pods if pod in self._by_pod)
