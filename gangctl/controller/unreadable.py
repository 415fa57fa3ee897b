"""Gangs that this release can't read: each is told of by an Event on its GangJob, once for each reason, and counted.

The rule: nothing is decided about such a gang (``loop.py``), and nothing that was known of it counts for others. A
reason that stays must not be told again, however often the gang is looked at.
"""

from __future__ import annotations

from gangctl.cluster.port import UnreadableGang
from gangctl.core.lifecycle.events import unreadable
from gangctl.core.lifecycle.plan import Event


class UnreadableGangs:
    """Those of one term."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        """UID -> why it can't be read."""

    @property
    def count(self) -> int:
        """How many there are now."""
        return len(self._known)

    def found(self, gang: UnreadableGang) -> Event | None:
        """Note the gang, and return what is to be told of it; None if that is no news."""
        if self._known.get(gang.metadata.uid) == gang.why:
            return None
        self._known[gang.metadata.uid] = gang.why
        return unreadable(gang.why)

    def forget(self, uid: str) -> None:
        """The gang can be read again, or is gone."""
        self._known.pop(uid, None)
