"""The other gangs of this term, as far as a decision about one gang needs them: the brake, and the gang's group.

The rule: nothing is decided here. ``core/policy/brake.py`` says what follows from the counts of silent and failing
gangs, and ``core/policy/requests.py`` what follows from the states of a group. A gang is counted before each decision
about it, and a decision must not rest on an old sum. The others of a group are looked at in the turn of the loop in
which the gang is decided about. What is decided and not stored yet counts: two decisions beside each other must take
neither the same turn nor the last restart of a common budget.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NoReturn

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Status
from gangctl.cluster import clock
from gangctl.cluster.port import Cluster
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Brake, Observed, Replica
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.policy import brake, requests
from gangctl.core.policy.brake import BrakeState, Census
from gangctl.core.policy.requests import GroupKey

log = logging.getLogger(__name__)

COUNT_SECONDS: Final = 2.0
"""How often all gangs are counted together though nothing happens."""


class BrakeKeeper:
    """The brake of one term. All gangs are woken when it changes."""

    def __init__(self, wake: Callable[[str], None]) -> None:
        """``wake``: called with the UID of each gang when the brake has changed."""
        self._wake = wake
        self._gangs: dict[str, Census] = {}
        """By UID."""
        self._counted_at = 0.0
        self.state = BrakeState()
        """The last sum, and the brake that follows from it."""

    async def run(self) -> NoReturn:
        """Count again and again, until cancelled: silence grows though nothing happens."""
        while True:
            await asyncio.sleep(COUNT_SECONDS)
            self._count(clock.now())

    def count(self, now: float, job: GangJob, observed: Observed) -> None:
        """Count this gang. ``observed``: what is really observed of it."""
        self._gangs[job.metadata.uid] = brake.census(Gang(now, job, observed))

    def apply_brake(self, now: float, namespace: str, observed: Observed) -> Observed:
        """Return what is observed as decisions see it under the brake."""
        if not self._counted_at <= now < self._counted_at + COUNT_SECONDS:
            self._count(now)
        return brake.apply_brake(observed, self.state.of(namespace), now)

    def status_written(self, now: float, before: GangJob, after: GangJob) -> None:
        """Note a gang that has failed."""
        state = brake.struck(self.state, now, after.metadata, before.status, after.status)
        if state is not self.state:
            self.state = state
            self._count(now)

    def forget(self, uid: str) -> None:
        """The gang is gone."""
        self._gangs.pop(uid, None)

    def _count(self, now: float) -> None:
        before, waves = self.state.brake, self.state.waves
        self.state, self._counted_at = brake.update_brake(self.state, now, self._gangs.values()), now
        after = self.state.brake
        if (before.since, before.waves, waves) == (after.since, after.waves, self.state.waves):
            return
        _log(before, after)
        for namespace in sorted(self.state.waves.keys() - waves.keys()):
            log.warning("many gangs of namespace %s fail at once; they are restarted in place", namespace)
        for uid in tuple(self._gangs):
            self._wake(uid)


def _log(before: Brake, after: Brake) -> None:
    if before.since is None and after.since is not None:
        log.warning(
            "the brake is on: %d of %d members that should be connected are silent, so this controller suspects its "
            "own connection; silence and deadlines count for nothing until it is better. Check its Service, "
            "NetworkPolicies, DNS and CA",
            after.silent,
            after.expected,
        )
    if before.since is not None and after.since is None:
        log.warning("the brake is off after %.0f s: members are connected again", after.released - before.since)
    for reason in sorted(after.waves - before.waves):
        log.warning(
            "the brake is on for %s: many gangs fail at once; they are restarted in place. Look for what they share",
            reason,
        )
    for reason in sorted(before.waves - after.waves):
        log.warning("the brake is off for %s: only few gangs fail", reason)


class Groups:
    """The replica groups of one term. A gang is known by its UID."""

    def __init__(self, cluster: Cluster, wake: Callable[[str], None]) -> None:
        """``wake``: called with the UID of each gang whose next decision depends on a gang that has changed."""
        self._cluster = cluster
        self._wake = wake
        self._decided: dict[str, Status] = {}
        """What was decided about each, until it is stored or decided anew."""
        self._seen: dict[str, tuple[GroupKey, Replica]] = {}
        """The group of each, and how it was at its last decision."""
        self._gangs: dict[GroupKey, set[str]] | None = None
        """None until it is asked for: a term without groups reads no gang for them."""

    def others(self, now: float, job: GangJob) -> tuple[Replica, ...]:
        """The other gangs of the group, in the order of their names, if the next decision needs to know of them."""
        key = requests.group_key(job)
        if key is None or not requests.needs_group(job):
            return ()
        others = [self._cluster.gang(uid) for uid in self._of(key) if uid != job.metadata.uid]
        known = [self._replica(now, one) for one in others if one is not None and requests.group_key(one) == key]
        return tuple(sorted(known, key=lambda one: one.name))

    def note_decision(self, now: float, job: GangJob, plan: Plan) -> None:
        """Note what was decided about a gang, in the turn of the loop in which it was."""
        uid, key = job.metadata.uid, requests.group_key(job)
        if key is None:
            self.forget(uid)
            return
        self._decided.pop(uid, None)
        if plan.status is not None:
            self._decided[uid] = plan.status
        seen, before = (key, self._replica(now, job)), self._seen.get(uid)
        self._seen[uid] = seen
        self._of(key).add(uid)
        if before is not None and before[0] != key:
            self._leave(uid, before[0])
        if before != seen:
            self._wake_others(uid, key)

    def forget(self, uid: str) -> None:
        """The gang is gone, or in no group."""
        self._decided.pop(uid, None)
        before = self._seen.pop(uid, None)
        if before is not None:
            self._leave(uid, before[0])

    def _of(self, key: GroupKey) -> set[str]:
        """The gangs of a group: those that were there at the first question, and those that were decided since."""
        if self._gangs is None:
            self._gangs = {}
            for uid in self._cluster.uids():
                job = self._cluster.gang(uid)
                if job is not None and (its := requests.group_key(job)) is not None:
                    self._gangs.setdefault(its, set()).add(uid)
        return self._gangs.setdefault(key, set())

    def _replica(self, now: float, job: GangJob) -> Replica:
        uid = job.metadata.uid
        listening_since = self._cluster.listening_since(uid)
        return requests.replica_state(now, job, self._cluster.pods(uid), listening_since, self._decided.get(uid))

    def _leave(self, uid: str, key: GroupKey) -> None:
        self._of(key).discard(uid)
        self._wake_others(uid, key)

    def _wake_others(self, uid: str, key: GroupKey) -> None:
        for other in self._of(key) - {uid}:
            job = self._cluster.gang(other)
            if job is not None and requests.needs_group(job):
                self._wake(other)
