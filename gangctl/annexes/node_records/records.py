"""The records of nodes: the faults that gangs met there, which lose half their weight in a week. Pure.

The rule, with w(node, namespace) the sum of 2^-(age / HALF_LIFE) over the faults that count:

    score(node)               = sum over all namespaces of min(w, A_NAMESPACE)
    score(node, for a gang)   = w of the gang's own namespace + sum over the others of min(w, A_NAMESPACE)
    new pods rather avoid it  = score(node, for their gang) >= AVOIDED = 3 x A_NAMESPACE

A fault counts only if gangctl itself put it down to the node or its device, whatever rules ask for and workers say. It
counts once a day for each gang and node, by the gang's name. So a tenant must not blacken a node for others: its faults
are at most a third of what makes them avoid it. It may for itself. A look at an incident that has been counted changes
nothing.

Beside the scores, a node has an entry for each hour: how long a running gang had a pod there, and whether a fault, or a
restart that its pod caused, came in that hour. The gate compares these: many gangs that a node fails at once are one
fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from gangctl.api.incident import CheckResult, Incident
from gangctl.api.reasons import Reason
from gangctl.core.facts.evidence import Strength, default
from gangctl.core.record.incidents import node_of

HALF_LIFE_SECONDS: Final = 7 * 86_400.0
A_NAMESPACE: Final = 0.8
"""The most that a namespace adds to the score that other namespaces go by."""
AVOIDED: Final = 3 * A_NAMESPACE
MOST_AVOIDED: Final = 16
"""So many nodes at most does a pod avoid for their records, those with the highest scores."""
DAY: Final = 86_400.0
HOUR: Final = 3600.0
TENTH: Final = 600.0
"""Ten minutes in seconds: the unit in which the observation of an hour is stored."""
KEPT_HOURS: Final = 48
GANGS_A_DAY: Final = 4
"""So many gangs of a namespace count in a day on a node."""
MOST_NAMES: Final = 8
"""So many kinds of faults, devices and namespaces does a record have, each; those with the most weight."""
NEGLIGIBLE: Final = 0.05
"""A weight that is forgotten."""
_SAID_BY_WORKERS: Final = frozenset({Reason.CORRUPTION, Reason.CHECK_FAILED})
"""A worker, or a check, says anything that its user wants."""
_ENDS: Final = frozenset({"Restarted", "Failed", "Held"})
Weights = Mapping[str, float]


class Finding(NamedTuple):
    """A restart of a gang that a node's pod caused."""

    node: str
    namespace: str
    gang: str
    kind: str
    """The reason of the cause."""
    device: str
    time: float
    """In seconds since the epoch."""
    is_fault: bool
    """Whether gangctl put it down to the node or its device."""


class Hour(NamedTuple):
    """An hour of a node."""

    seconds: float = 0.0
    """For how long it had a pod of a running gang."""
    fault: bool = False
    restart: bool = False


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The record of a node."""

    time: float = 0.0
    """The time at which the weights are as they stand here."""
    kinds: Weights = field(default_factory=dict)
    """Kind of fault -> its weight."""
    devices: Weights = field(default_factory=dict)
    namespaces: Weights = field(default_factory=dict)
    gangs: Mapping[str, int] = field(default_factory=dict)
    """NAMESPACE/NAME -> the day on which it counted last, since the epoch. Only yesterday and today are kept."""
    last_fault: float = 0.0
    """Time of the last fault that counted, in seconds since the epoch."""
    hours: Mapping[int, Hour] = field(default_factory=dict)
    """Hour since the epoch -> what was seen."""
    checks: Weights = field(default_factory=dict)
    """Passed, Failed -> checks of gangs there. They are shown and never scored: a tenant runs them."""
    last_check: float = 0.0
    """Time of the newest of them, in whole seconds since the epoch."""

    def score(self, now: float, namespace: str | None = None, most: float = A_NAMESPACE) -> float:
        """The score for all gangs, or for those of a namespace. ``most``: what another namespace adds at most."""
        factor = _factor(self.time, now)
        found = ((name, weight * factor) for name, weight in self.namespaces.items())
        return sum(weight if name == namespace else min(weight, most) for name, weight in found)

    def avoided_by(self, now: float) -> list[str]:
        """The namespaces whose new pods rather avoid the node."""
        return [name for name in self.namespaces if self.score(now, name) >= AVOIDED]

    def at(self, now: float) -> NodeRecord:
        """The same record with the weights of this time, without what has become negligible."""
        weights = (self.kinds, self.devices, self.namespaces, self.checks)
        kinds, devices, names, checks = (_decayed(one, _factor(self.time, now)) for one in weights)
        gangs, last, last_check = _recent(self.gangs, now), min(self.last_fault, now), min(self.last_check, now)
        return NodeRecord(now, kinds, devices, names, gangs, last, self.hours, checks, last_check)

    def cleared(self) -> NodeRecord:
        """The same record without weights: the node was repaired. What has been counted today isn't counted again."""
        return replace(self, kinds={}, devices={}, namespaces={}, last_fault=0.0)

    def passed(self, namespace: str) -> NodeRecord:
        """The same record after a check in this namespace has passed: its own faults count no more, those of others do.

        A tenant must not clear what others have met: it runs the check itself.
        """
        rest = {name: weight for name, weight in self.namespaces.items() if name != namespace}
        if not rest:
            return self.cleared()
        share = sum(rest.values()) / sum(self.namespaces.values())
        kinds, devices = (_decayed(one, share) for one in (self.kinds, self.devices))
        return replace(self, kinds=kinds, devices=devices, namespaces=rest)


Records = Mapping[str, NodeRecord]
"""By the node's name."""


def findings(namespace: str, gang: str, incidents: Iterable[Incident]) -> Iterator[Finding]:
    """What the incidents of a gang, newest first, say about nodes; the oldest comes first."""
    for one in reversed(tuple(incidents)):
        node, cause, row = node_of(one), one.cause, default(one.cause.reason)
        if not node or not one.settled or one.outcome not in _ENDS or cause.alike or cause.suspect:
            continue
        is_fault = cause.reason not in _SAID_BY_WORKERS and (row.against_node or row.strength is Strength.DEVICE)
        if is_fault or (row.charged and cause.reason != Reason.REQUESTED):
            yield Finding(node, namespace, gang, cause.reason, cause.device or "", cause.time, is_fault)


def with_findings(records: Records, found: Iterable[Finding], now: float) -> Records:
    """The records in which these have been counted; the same object if all of them had been."""
    made = dict[str, NodeRecord]()
    for one in found:
        old = made.get(one.node) or records.get(one.node) or NodeRecord(now)
        new = _with_finding(old, one, now)
        if new is not old:
            made[one.node] = new
    return {**records, **made} if made else records


def _with_finding(record: NodeRecord, one: Finding, now: float) -> NodeRecord:
    hour = int(one.time // HOUR)
    seen = record.hours.get(hour, Hour())
    flagged = seen._replace(fault=seen.fault or one.is_fault, restart=True)
    if flagged != seen and hour in _kept(now):
        record = replace(record, hours={**record.hours, hour: flagged})
    gang, day = f"{one.namespace}/{one.gang}", int(one.time // DAY)
    gangs = _recent(record.gangs, now)
    of_namespace = sum(name.startswith(f"{one.namespace}/") and its == day for name, its in gangs.items())
    is_new = gangs.get(gang, -1) < day and day in _recent_days(now)
    if not one.is_fault or not is_new or of_namespace >= GANGS_A_DAY or len(gangs) >= GANGS_A_DAY * MOST_NAMES * 2:
        return record
    record = record.at(now)
    return replace(
        record,
        kinds=_plus(record.kinds, one.kind),
        devices=_plus(record.devices, one.device) if one.device else record.devices,
        namespaces=_plus(record.namespaces, one.namespace),
        gangs={**gangs, gang: day},
        last_fault=max(record.last_fault, min(one.time, now)),
    )


def with_passed(records: Records, node: str, namespace: str, time: float) -> Records:
    """The records after a check on the node has passed at this time; the same object if it says nothing new.

    Faults come and go: only a check an hour after the last one says that the node was repaired. So to look again at a
    status changes nothing.
    """
    record = records.get(node)
    if record is None or namespace not in record.namespaces or time < record.last_fault + HOUR:
        return records
    return {**records, node: record.passed(namespace)}


def with_checks(records: Records, results: Iterable[CheckResult], now: float) -> Records:
    """The records with the results of a gang's checks, the newest last.

    Each counts once, by its time: of two gangs that check a node in the same moment, one may be missed.
    """
    made = dict(records)
    for one in results:
        time = float(math.floor(one.time))
        ends = {**dict.fromkeys(one.nodes, "Passed"), **dict.fromkeys((its.node for its in one.failed), "Failed")}
        for node, end in ends.items():
            old = made.get(node, NodeRecord(now)).at(now)
            if node and old.last_check < time <= now:
                made[node] = replace(old, checks=_plus(old.checks, end), last_check=time)
    return made


def with_observed(records: Records, hour: int, seconds: Mapping[str, float]) -> Records:
    """The records with so many more seconds, by node, in which a running gang had a pod there."""
    made = dict(records)
    for node, more in seconds.items():
        old = records.get(node, NodeRecord())
        seen = old.hours.get(hour, Hour())
        made[node] = replace(old, hours={**old.hours, hour: seen._replace(seconds=min(HOUR, seen.seconds + more))})
    return made


def merged(stored: Records, ours: Records) -> Records:
    """What another writer has stored, with our hours: a finding of ours is counted again from the gang's status."""
    made = dict(stored)
    for node, record in ours.items():
        theirs = stored.get(node, NodeRecord(record.time))
        hours = {one: _both(theirs.hours.get(one, Hour()), its) for one, its in record.hours.items()}
        made[node] = replace(theirs, hours={**theirs.hours, **hours})
    return made


def _both(one: Hour, other: Hour) -> Hour:
    return Hour(max(one.seconds, other.seconds), one.fault or other.fault, one.restart or other.restart)


def pruned(records: Records, now: float, hours: int = KEPT_HOURS) -> Records:
    """The records with the weights of now and the last hours, without nodes that are left without either."""
    kept = _kept(now, hours)
    made = {
        node: replace(record.at(now), hours={one: its for one, its in record.hours.items() if one in kept})
        for node, record in records.items()
    }
    return {node: one for node, one in made.items() if one.namespaces or one.gangs or one.hours or one.checks}


def avoided(records: Records, namespace: str, now: float) -> tuple[str, ...]:
    """The nodes that new pods of this namespace rather avoid, worst first."""
    scores = {node: record.score(now, namespace) for node, record in records.items() if record.namespaces}
    found = sorted((-score, node) for node, score in scores.items() if score >= AVOIDED)
    return tuple(node for _, node in found[:MOST_AVOIDED])


def _kept(now: float, hours: int = KEPT_HOURS) -> range:
    this = int(now // HOUR)
    return range(this - hours + 1, this + 1)


def _factor(since: float, now: float) -> float:
    return math.exp2(-max(0.0, now - since) / HALF_LIFE_SECONDS)


def _decayed(weights: Weights, factor: float) -> Weights:
    return {name: weight * factor for name, weight in weights.items() if weight * factor >= NEGLIGIBLE}


def _plus(weights: Weights, name: str) -> Weights:
    more = {**weights, name: weights.get(name, 0.0) + 1.0}
    return dict(sorted(more.items(), key=lambda one: -one[1])[:MOST_NAMES])


def _recent(gangs: Mapping[str, int], now: float) -> Mapping[str, int]:
    return {name: day for name, day in gangs.items() if day in _recent_days(now)}


def _recent_days(now: float) -> range:
    """Yesterday and today: what a clock that was ahead has counted must not keep a node from being counted."""
    today = int(now // DAY)
    return range(today - 1, today + 1)
