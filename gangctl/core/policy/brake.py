"""The brake: when what looks like the fault of many gangs is put down to none of them.

The rule: when a large part of all members is silent in most namespaces, the controller suspects its own connection.
Then silence counts for nothing, no deadline runs, and no pod is replaced for it. When many gangs fail at once for one
reason that is not a pod's or a node's, they are restarted in place::

    counted(s) = members in s that should be connected and have been silent for SILENT_SECONDS
    limit(n)   = max(3, 20 % of n)
    many(x)    = counted(all) >= x * limit(members that should be connected), and in more than half of the namespaces
                 with such members counted(s) >= x * 20 % of them
    on         when many(1)
    off        when not many(1/2) for CALM_SECONDS

    failed(s, r)  = gangs in s that have failed for reason r within WAVE_SECONDS
    wave(s, r)    = failed(s, r) >= limit(gangs in s); or
                    failed(all, r) >= limit(gangs), and failed(t, r) > 0 in limit(namespaces) of them or more

While it is on, the begin of listening is now, and later the moment at which it went off; what the cluster itself shows
of pods and nodes counts all the same. Its state is that of one term of one leader. A single gang must never be enough
for a wave, and a node's failure must not count. What the gangs of one namespace do must never hold up another's.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gangctl.api.gangjob import Metadata
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.evidence import Strength, strength
from gangctl.core.facts.fitness import silent
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Brake, Observed

SILENT_SECONDS: Final = 20.0
"""Shorter than any time after which silence has consequences; a sidecar connects again within 5 s."""
CALM_SECONDS: Final = 30.0
WAVE_SECONDS: Final = 60.0
MIN_SILENT: Final = 3
BRAKE_SHARE: Final = 0.2
_OWN: Final = frozenset(
    {Reason.STUCK, Reason.POD_FAILED, Reason.RESTART_REQUESTED, Reason.GROWING, Reason.QUOTA_RECLAIMED}
)
"""Reasons of weak evidence that are a pod's, a user's or a queue's own."""


@dataclass(frozen=True, slots=True)
class Census:
    """What one gang adds to the count."""

    expected: int = 0
    """Members that should be connected."""
    silent_since: tuple[float, ...] = ()
    """Since when those of them are silent that are, in order."""
    namespace: str = ""

    def silent_members(self, now: float) -> int:
        """The number of members that have been silent for long enough."""
        return bisect_right(self.silent_since, now - SILENT_SECONDS)


@dataclass(frozen=True, slots=True)
class Strike:
    """A gang has failed."""

    gang: str
    namespace: str
    reason: str
    time: float


@dataclass(frozen=True, slots=True)
class BrakeState:
    """All that is remembered from one count to the next."""

    brake: Brake = field(default_factory=Brake)
    """That of all namespaces."""
    waves: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By namespace: the waves that concern it."""
    calm_since: float | None = None
    """Since when few members have been silent while the brake is on."""
    strikes: tuple[Strike, ...] = ()
    """Of the last WAVE_SECONDS: of each gang and reason the newest."""
    silent: int = 0
    expected: int = 0
    """The last count."""

    def of(self, namespace: str) -> Brake:
        return replace(self.brake, waves=self.waves.get(namespace, self.brake.waves))


@dataclass(slots=True)
class _Namespace:
    """The sum of its gangs."""

    gangs: int = 0
    """Those with members that should be connected."""
    expected: int = 0
    quiet: int = 0


def large_part(number: int) -> float:
    """The least number that is a large part of so many."""
    return max(MIN_SILENT, BRAKE_SHARE * number)


def census(gang: Gang) -> Census:
    """Count one gang. ``gang.observed`` is what is really observed: not changed by the brake.

    A gang whose new pods can't connect from the beginning isn't counted: its own network policy may be to blame, which
    must not stop the recovery of others. Its silence costs it nothing either way (``facts/fitness.py``).
    """
    if gang.status.phase is GangPhase.PENDING and gang.hearing_since is None:
        return Census()
    since = tuple(since for since, _ in silent(gang))
    return Census(len(gang.pods) - len(gang.unheard) + len(since), since, gang.job.metadata.namespace)


def update_brake(state: BrakeState, now: float, gangs: Iterable[Census]) -> BrakeState:
    """Return the state after a count of all gangs at ``now``."""
    found = _by_namespace(gangs, now)
    total, quiet = sum(one.expected for one in found.values()), sum(one.quiet for one in found.values())
    strikes = tuple(one for one in state.strikes if now < one.time + WAVE_SECONDS)
    shared, waves = _waves(strikes, found)
    brake = replace(state.brake, waves=shared)
    state = replace(state, silent=quiet, expected=total, strikes=strikes, waves=waves)
    if brake.since is None:
        if _many_silent(found.values(), 1):
            brake = replace(brake, since=now, silent=quiet, expected=total)
        return replace(state, brake=brake, calm_since=None)
    if _many_silent(found.values(), 0.5):
        return replace(state, brake=brake, calm_since=None)
    calm_since = now if state.calm_since is None else state.calm_since
    if now >= calm_since + CALM_SECONDS:
        brake = replace(brake, since=None, silent=0, expected=0, released=now)
        return replace(state, brake=brake, calm_since=None)
    return replace(state, brake=brake, calm_since=calm_since)


def _by_namespace(gangs: Iterable[Census], now: float) -> dict[str, _Namespace]:
    found: dict[str, _Namespace] = {}
    for one in gangs:
        if one.expected:
            of = found.setdefault(one.namespace, _Namespace())
            of.gangs += 1
            of.expected += one.expected
            of.quiet += one.silent_members(now)
    return found


def _many_silent(found: Collection[_Namespace], part: float) -> bool:
    """Whether a large part of all members is silent, or this part of it, and so in most namespaces."""
    quiet, expected = sum(one.quiet for one in found), sum(one.expected for one in found)
    spaces = sum(one.quiet >= part * BRAKE_SHARE * one.expected for one in found)
    return quiet >= part * large_part(expected) and 2 * spaces > len(found)


def struck(state: BrakeState, now: float, gang: Metadata, before: Status, after: Status) -> BrakeState:
    """Return the state after the write of a status: one that opens an attempt because of a fault is noted."""
    if after.attempt == before.attempt or not after.incidents or after.incidents[0].attempt != after.attempt:
        return state
    cause = after.incidents[0].cause
    if strength(cause) >= Strength.DISRUPTION or cause.reason in _OWN:
        return state
    others = tuple(one for one in state.strikes if (one.gang, one.reason) != (gang.uid, cause.reason))
    return replace(state, strikes=(*others, Strike(gang.uid, gang.namespace, cause.reason, now)))


def apply_brake(observed: Observed, brake: Brake, now: float) -> Observed:
    """Return what is observed as decisions see it under this brake."""
    listening = now if brake.since is not None else max(observed.listening_since, brake.released)
    watching = observed.listening_since if observed.watching_since is None else observed.watching_since
    return replace(observed, brake=brake, listening_since=listening, watching_since=watching)


def _waves(
    strikes: Sequence[Strike], found: Mapping[str, _Namespace]
) -> tuple[frozenset[str], Mapping[str, frozenset[str]]]:
    """The waves of all namespaces, and those that concern each namespace that has one of its own."""
    pairs = Counter((one.namespace, one.reason) for one in strikes)
    reasons, gangs = Counter(one.reason for one in strikes), sum(one.gangs for one in found.values())
    shared = frozenset(
        reason
        for reason, number in reasons.items()
        if number >= large_part(gangs) and sum(one == reason for _, one in pairs) >= large_part(len(found))
    )
    waves: dict[str, frozenset[str]] = {}
    for (namespace, reason), number in pairs.items():
        if number >= large_part(found.get(namespace, _Namespace()).gangs):
            waves[namespace] = waves.get(namespace, shared) | {reason}
    return shared, waves
