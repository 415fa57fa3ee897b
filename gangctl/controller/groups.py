"""Groups of this term: what a decision about one gang needs to know of the others of its group.

The rule: it decides nothing; ``core/policy/requests.py`` does. The others are looked at in the turn of the loop in
which the gang is decided about. A gang whose restart is decided and not stored yet counts as unavailable: two decisions
beside each other must not take the same place. The others are woken when a gang becomes available, or counts no more.
"""

from __future__ import annotations

from collections.abc import Callable

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.cluster.port import Cluster
from gangctl.core.facts import finished
from gangctl.core.facts.finished import GroupKey
from gangctl.core.facts.world import Replica
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.policy import requests


class Groups:
    """The groups of one term. A gang is known by its UID."""

    def __init__(self, cluster: Cluster, wake: Callable[[str], None]) -> None:
        """``wake``: called with the UID of each gang of a group when another of its gangs has changed."""
        self._cluster = cluster
        self._wake = wake
        self._leaving: set[str] = set()
        """Those that stop running as soon as their status is stored."""
        self._seen: dict[str, tuple[GroupKey, float | None]] = {}
        """The group of each, and since when it was available at its last decision."""

    def others(self, now: float, job: GangJob) -> tuple[Replica, ...]:
        """The other gangs of the group, if the gang asks for a planned restart; in the order of their names."""
        key = finished.key(job)
        if key is None or not requests.asks_for_turn(job):
            return ()
        found = [
            self._replica(now, other)
            for uid in self._cluster.uids()
            if uid != job.metadata.uid and (other := self._cluster.gang(uid)) is not None and finished.key(other) == key
        ]
        return tuple(sorted(found, key=lambda one: one.name))

    def decided(self, now: float, job: GangJob, plan: Plan) -> None:
        """Note what was decided about a gang, in the turn of the loop in which it was."""
        uid = job.metadata.uid
        runs = job.status.phase is GangPhase.RUNNING
        if runs and plan.status is not None and plan.status.phase is not GangPhase.RUNNING:
            self._leaving.add(uid)
        else:
            self._leaving.discard(uid)
        key = finished.key(job)
        if key is None:
            self.forget(uid)
            return
        seen, before = (key, self._replica(now, job).available_at), self._seen.get(uid)
        self._seen[uid] = seen
        if before is not None and before[0] != key:
            self._wake_others(uid, before[0])
        if before != seen:
            self._wake_others(uid, key)

    def forget(self, uid: str) -> None:
        """The gang is gone, or in no group."""
        self._leaving.discard(uid)
        before = self._seen.pop(uid, None)
        if before is not None:
            self._wake_others(uid, before[0])

    def _replica(self, now: float, job: GangJob) -> Replica:
        uid = job.metadata.uid
        found = finished.replica(now, job, self._cluster.pods(uid), self._cluster.listening_since(uid))
        return found._replace(available_at=None) if uid in self._leaving else found

    def _wake_others(self, uid: str, key: GroupKey) -> None:
        for other, (known, _) in self._seen.items():
            if known == key and other != uid:
                self._wake(other)
