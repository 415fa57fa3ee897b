"""Replacement: which members get a new pod, and which nodes it avoids.

The rule: a member whose pod can't go on is replaced at once: the status raises its incarnation before its pod is
deleted. The new pod must avoid the node on evidence against the node itself, else it prefers to. A pod must not be
given up without remembering it: until it is known to be gone, the barrier waits for it. Replacements that fail before
their worker has started back off, 10 to 300 s, and so do those that are disrupted within ten minutes: nothing else
would end such a row.

A status has room for few members that differ from the others. Where there would be more, every pod is replaced, spares
of a running gang excepted: they wait. A status must not become too large to be stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from gangctl.api.changes import changed
from gangctl.api.status import GangPhase, Recreated, Replaced, Status
from gangctl.core.facts.awaiting import awaiting
from gangctl.core.facts.barrier import awaits, still_awaited, still_awaited_all
from gangctl.core.facts.defaults import default
from gangctl.core.facts.faults import faults
from gangctl.core.facts.finished import finished
from gangctl.core.facts.fitness import Defect, defect, starting
from gangctl.core.facts.gang import Gang, coming_attempt, once
from gangctl.core.policy.restart_backoff import STEADY_SECONDS

BACKOFF_SECONDS: Final = 10.0
MAX_BACKOFF_SECONDS: Final = 300.0
MAX_REPLACED: Final = 240
"""More members than this that differ from the default: the gang is recreated instead."""
MAX_AVOIDED: Final = 128
"""So many names of nodes to avoid are remembered, those of the latest replacements."""


@once
def unfit(gang: Gang) -> Mapping[str, Defect]:
    """Members whose pods can't go on, spares included."""
    doubtful = gang.conspicuous if gang.unseen else gang.conspicuous - starting(gang)
    found = {name: defect(gang, name) for name in gang.members if name in doubtful}
    return {name: why for name, why in found.items() if why is not None}


def most(gang: Gang, members: Mapping[str, Defect]) -> bool:
    """Whether so many needed members are bad at once that the gang is recreated. Finished ones ended in good order."""
    done = finished(gang)
    bad = sum(1 for place, holder in gang.holders.items() if holder in members and place not in done)
    return (bad > 1 and bad * 2 > len(gang.places)) or not has_room(gang.status, members)


def has_room(status: Status, members: Collection[str]) -> bool:
    """Whether the status can remember a replacement of each of these members."""
    known = {entry.member for entry in status.replaced}
    more = set(members) - known
    return not more or len(known) + len(more) <= MAX_REPLACED


def with_room(status: Status, members: Mapping[str, Defect]) -> Mapping[str, Defect]:
    """The first of the members, as many as the status has room for."""
    known = {entry.member for entry in status.replaced}
    more = [name for name in members if name not in known][: max(0, MAX_REPLACED - len(known))]
    chosen = known.union(more)
    return {name: why for name, why in members.items() if name in chosen}


def replaced(gang: Gang, status: Status, members: Mapping[str, Defect]) -> Status:
    """The status in which these members have a new incarnation."""
    entries = {entry.member: entry for entry in status.replaced}
    for name, why in members.items():
        old = gang.replaced.get(name)
        again = (old or gang.status.recreated) if gang.is_fresh(name) else None
        avoid, required = _avoid(gang, name, why)
        entries[name] = Replaced(
            member=name,
            incarnation=gang.incarnation(name) + 1,
            attempt=coming_attempt(status),
            time=gang.now,
            since=None if again is None else again.since or again.time,
            avoid=avoid,
            required=required,
            failures=_failures(old if old is not None and _is_row(gang, old) else again),
        )
    status = awaiting(status, [awaits(gang, name) for name in members])
    return changed(status, replaced=_avoiding_few(gang, entries.values()))


def recreated(gang: Gang, status: Status, members: Mapping[str, Defect]) -> Status:
    """The status in which every member has a new incarnation. ``members``: whose nodes are avoided."""
    base = max([status.base_incarnation, *(entry.incarnation for entry in status.replaced)]) + 1
    again = status.recreated if gang.status.phase is GangPhase.PENDING else None
    told = Recreated(time=gang.now, since=gang.now if again is None else again.since, failures=_failures(again))
    avoiding = tuple(
        Replaced(
            member=name,
            incarnation=base,
            attempt=coming_attempt(status),
            time=gang.now,
            since=told.since,
            avoid=avoid,
            required=required,
            failures=told.failures,
        )
        for name, why in islice(members.items(), MAX_AVOIDED)
        for avoid, required in (_avoid(gang, name, why),)
    )
    status = awaiting(status, [awaits(gang, name) for name in gang.members])
    return changed(status, base_incarnation=base, replaced=avoiding, ranks=(), recreated=told)


def refreshed(gang: Gang, status: Status) -> Status:
    """The status without the awaited pods that are known to be gone by now."""
    awaited, awaited_all = still_awaited(gang), still_awaited_all(gang)
    same = (status.awaited, status.awaited_all) == (awaited, awaited_all)
    return status if same else changed(status, awaited=awaited, awaited_all=awaited_all)


def creatable_at(entry: Replaced | Recreated | None) -> float:
    """When a pod that was replaced may be created: replacements that fail at once, or are disrupted soon, back off."""
    if entry is None or entry.failures == 0:
        return 0.0
    return entry.time + min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * float(1 << min(entry.failures - 1, 16)))


def _is_row(gang: Gang, old: Replaced) -> bool:
    """Whether the member is disrupted again so soon that this might go on without end: no budget is charged for it."""
    is_soon = gang.now < old.time + STEADY_SECONDS
    return is_soon and any(one.member == old.member and not default(one.reason).charged for one in faults(gang))


def _failures(before: Replaced | Recreated | None) -> int:
    return 0 if before is None else before.failures + 1


def _avoiding_few(gang: Gang, entries: Iterable[Replaced]) -> tuple[Replaced, ...]:
    """The entries, newest last, without those that say nothing any more; older ones forget which nodes they avoid."""
    base, coming = gang.status.base_incarnation, coming_attempt(gang.status)
    until = gang.now - gang.spec.recovery.avoid_node_seconds
    left, kept = MAX_AVOIDED, []
    by_time = sorted(entries, key=lambda one: one.time)
    for entry in reversed(by_time):
        left -= len(entry.avoid)
        if entry.incarnation != base or entry.attempt >= coming or entry.time > until:
            kept.append(entry if left >= 0 else changed(entry, avoid=(), required=False))
    return tuple(reversed(kept))


def _avoid(gang: Gang, name: str, why: Defect) -> tuple[tuple[str, ...], bool]:
    """The nodes that the new pod keeps off, and whether that is required.

    Required are only nodes with evidence against them: what would merely rather be avoided isn't listed with them.
    """
    pod, old = gang.pods.get(name), gang.replaced.get(name)
    node = () if pod is None or not pod.node else (pod.node,)
    if old is None or gang.now >= old.time + gang.spec.recovery.avoid_node_seconds:
        return node, why.against_node
    if why.against_node == old.required:
        return tuple(dict.fromkeys([*node, *old.avoid]))[:8], why.against_node
    return (node or old.avoid, True) if why.against_node else (old.avoid, True)
