"""Shares: how much of the loop's time the messages of a pod, and of a namespace, may take. Pure.

The rule: what a message cost is paid after it, at the rate of the share; what has been saved up is at most ``burst``.

    paid(x)  = max(paid(x), now) + cost / rate        for the pod and for its namespace
    pause    = max(0, paid(x) - now - burst / rate)   the longer of the two

So nothing is refused and nothing is lost: a connection whose messages cost more is read later, and its sidecar, which
sends whole states, sends only the newest. A member that works must never be paused. What a pod owes must outlive its
connection: else it would only have to connect again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the loop's time."""

    rate: float
    """Seconds per second, in the long run."""
    burst: float
    """Seconds that may be taken at once."""


class Owner(StrEnum):
    """Whose share is used up. Label values of a metric."""

    POD = "Pod"
    NAMESPACE = "Namespace"


SHARES: Final = {Owner.POD: Share(0.05, 0.5), Owner.NAMESPACE: Share(0.5, 2.0)}
"""A report costs about 0.1 ms, the largest possible one about 10 ms. A member sends one a second at most, and a few
with each restart."""
LONGEST_PAUSE: Final = 5.0
"""Seconds: directives are still sent, and the connection must not look dead."""


@dataclass(frozen=True, slots=True)
class Pause:
    """How long a connection is not read, and whose share is used up."""

    seconds: float
    owner: Owner


class Shares:
    """What all pods and namespaces have spent. Times are seconds on a monotonic clock."""

    def __init__(self) -> None:
        self._paid: dict[tuple[Owner, str], float] = {}
        """Until when the share has been spent; left out once that has passed."""

    def spend(self, pod: str, namespace: str, cost: float, now: float) -> None:
        """A message of this pod took ``cost`` seconds."""
        for one in ((Owner.POD, pod), (Owner.NAMESPACE, namespace)):
            self._paid[one] = max(self._paid.get(one, now), now) + cost / SHARES[one[0]].rate

    def pause(self, pod: str, namespace: str, now: float) -> Pause | None:
        """The pause before the next message of this pod is read; None if there is none."""
        pauses = (self._pause(Owner.POD, pod, now), self._pause(Owner.NAMESPACE, namespace, now))
        longest = max(pauses, key=lambda pause: pause.seconds)
        return longest if longest.seconds > 0 else None

    def forget_paid(self, now: float) -> None:
        """Forget those that owe nothing any more."""
        self._paid = {one: until for one, until in self._paid.items() if until > now}

    def _pause(self, owner: Owner, name: str, now: float) -> Pause:
        share = SHARES[owner]
        owed = self._paid.get((owner, name), now) - now - share.burst / share.rate
        return Pause(min(LONGEST_PAUSE, max(0.0, owed)), owner)
