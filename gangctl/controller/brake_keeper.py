"""Keeps the brake of one term: counts each gang when it is looked at, and tells when the brake goes on or off.

The rule: it decides nothing. ``core/policy/brake.py`` says what follows from the counts, and the core what follows from
the brake. A gang is counted before each decision about it, and a decision must not rest on an old sum.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NoReturn

from gangctl.api.gangjob import GangJob
from gangctl.cluster import clock
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Brake, Observed
from gangctl.core.policy import brake
from gangctl.core.policy.brake import BrakeState, Census

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

    def applied(self, now: float, namespace: str, observed: Observed) -> Observed:
        """Return what is observed as decisions see it under the brake."""
        if not self._counted_at <= now < self._counted_at + COUNT_SECONDS:
            self._count(now)
        return brake.applied(observed, self.state.of(namespace), now)

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
        self.state, self._counted_at = brake.counted(self.state, now, self._gangs.values()), now
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
