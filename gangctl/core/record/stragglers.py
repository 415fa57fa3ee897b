"""The members of an incident that matter: the one at fault, the replaced, and those that the others waited for.

The rule: at write 2 the member at fault, the two that stopped last, and the replaced that were ready last, at most
five in all. Then the last to start, and the second last if that makes six at most; then the last to make its first step
and the last to load the restore point, and the second last of both while there is room, at most eight in all. Offsets
count from the incident's beginning on the controller's clock, from ages. An offset must not be negative, and an entry
must not change later.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

from gangctl.api.incident import Incident, IncidentMember
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.trace_context import began
from gangctl.core.facts.world import Heard
from gangsidecar.wire import Phase

LISTED: Final = 8
"""Members in an incident."""
AT_SETTLING: Final = 5
"""Of them at write 2: what is measured later has a place each."""
AT_START: Final = 6
"""Of them when every worker has started."""
EACH: Final = 2
"""The slowest of a phase."""

Part = Literal["Cause", "Replaced", "Slowest"]
What = Literal["Stop", "Replace", "Start", "CheckpointLoad", "FirstStep"]
Took = tuple[float, float, str]
"""End, begin and member: in the order of time, and the same for the same world."""


class Gathered(NamedTuple):
    """The members that the gang waited for, each with the time until which it did."""

    stopped: Mapping[str, float]
    """They kept their pods."""
    replaced: Mapping[str, float]
    """Their pods are new in this attempt."""


def gathering(gang: Gang, assignment: Mapping[str, str | None]) -> Gathered:
    """The members that the gang waited for in the status' attempt.

    ``assignment``: place -> the ready member that runs it; None where none can yet.
    """
    pods, heard, fresh, now = gang.pods, gang.heard_by_member, gang.fresh, gang.now
    unready = {gang.holders[place] for place, member in assignment.items() if member is None}
    members = unready.union([member for member in assignment.values() if member is not None])
    waited = {
        name: now if name in unready else heard[name].phase_since
        for name in members
        if name in pods or gang.was_there(name)
    }
    replaced = {name: waited.pop(name) for name in fresh.intersection(waited)}
    return Gathered(waited, replaced)


def settled(gang: Gang, incident: Incident, gathered: Gathered) -> tuple[IncidentMember, ...]:
    """Who matters until write 2. The incident has its settled cause."""
    cause = incident.cause
    both: list[tuple[What, Mapping[str, float]]] = [("Stop", gathered.stopped), ("Replace", gathered.replaced)]
    found = [
        _entry(gang, incident, "Cause", what, _took(gang, incident, what, cause.member, waited))
        for what, waited in both
        if cause.member in waited
    ]
    if cause.member and not found:
        found = [_own_stop(gang, incident)]
    rest: list[tuple[Part, What, Mapping[str, float], int]] = [
        ("Slowest", "Stop", gathered.stopped, EACH),
        ("Replaced", "Replace", gathered.replaced, LISTED),
    ]
    for part, what, waited, most in rest:
        room = min(most, AT_SETTLING - len(found))
        slowest = heapq.nlargest(room + 1, ((until, name) for name, until in waited.items()))
        others = [name for _, name in slowest if name != cause.member][:room]
        found += [_entry(gang, incident, part, what, _took(gang, incident, what, name, waited)) for name in others]
    return tuple(found)


def _took(gang: Gang, incident: Incident, what: What, name: str, waited: Mapping[str, float]) -> Took:
    return waited[name], incident.time if what == "Stop" else _replaced_at(gang, name), name


def started(gang: Gang, incident: Incident, runs: Mapping[str, Heard]) -> tuple[IncidentMember, ...]:
    """The members with those that started last. ``runs``: holder -> its newest report; all of them run."""
    since = incident.settled_time or incident.time
    tooks = [(heard.phase_since, since, name) for name, heard in runs.items()]
    return _with(gang, incident, [("Start", took) for took in _last(tooks, EACH)], AT_START)


def stepped(gang: Gang, incident: Incident, reports: Mapping[str, Heard]) -> tuple[IncidentMember, ...]:
    """The members with those that loaded, and made their first step, last. ``reports``: holder -> its newest report."""
    started_at = (incident.settled_time or incident.time) + (incident.milliseconds.start or 0) / 1000
    loads: list[Took] = []
    steps: list[Took] = []
    for name, heard in reports.items():
        loaded, progress = heard.report.loaded, heard.report.progress
        if loaded is not None and loaded.attempt == incident.attempt:
            at = heard.ago(loaded.age_ms)
            loads.append((at, at - loaded.milliseconds / 1000, name))
        at_step = first_step_at(heard)
        if at_step is not None and progress is not None:
            # Of one that is being stopped by now its start isn't known: it had started when all had.
            start = heard.phase_since if heard.report.phase is Phase.RUNNING else min(started_at, at_step)
            steps.append((at_step, start if progress.first_ms is None else at_step - progress.first_ms / 1000, name))
    found: list[tuple[What, Took]] = []
    for nth in range(EACH):
        found += [("FirstStep", took) for took in _last(steps, EACH)[nth : nth + 1]]
        found += [("CheckpointLoad", took) for took in _last(loads, EACH)[nth : nth + 1]]
    return _with(gang, incident, found, LISTED)


def first_step_at(heard: Heard) -> float | None:
    """When the member made its first step in the attempt that it is in; None if it didn't report it."""
    progress = heard.report.progress
    if progress is None or progress.attempt != heard.report.attempt or progress.first_age_ms is None:
        return None
    return heard.ago(progress.first_age_ms)


def _with(gang: Gang, incident: Incident, found: Iterable[tuple[What, Took]], most: int) -> tuple[IncidentMember, ...]:
    room = max(0, most - len(incident.members))
    listed = [_entry(gang, incident, "Slowest", what, took) for what, took in found]
    return (*incident.members, *listed[:room])


def _own_stop(gang: Gang, incident: Incident) -> IncidentMember:
    """The member at fault, if another has taken its place: from its fault until it was gone, as far as that is known.

    No member waited for its new pod.
    """
    cause = incident.cause
    which = (cause.member, cause.incarnation)
    pods = [pod for pod in gang.observed.pods if (pod.member, pod.incarnation) == which]
    known = [pod.ended_at for pod in pods if pod.terminated and pod.ended_at is not None]
    for heard in gang.heard.values():
        report = heard.report
        if (report.member, report.incarnation) == which:
            known += [heard.ago(end.age_ms) for end in report.ends if end.attempt == incident.attempt - 1]
            known += [heard.phase_since] if report.phase in {Phase.READY, Phase.DONE} else []
    node = next((pod.node for pod in pods), cause.node or "")
    end = min(max(known, default=cause.time), gang.now)
    return _listed(incident, "Cause", "Stop", (end, cause.time, cause.member), cause.incarnation, node)


def _entry(gang: Gang, incident: Incident, part: Part, what: What, took: Took) -> IncidentMember:
    name = took[2]
    pod = gang.pods.get(name)
    return _listed(incident, part, what, took, gang.incarnation(name), "" if pod is None else pod.node)


def _listed(incident: Incident, part: Part, what: What, took: Took, incarnation: int, node: str) -> IncidentMember:
    end, begin, name = took
    start = began(incident)
    return IncidentMember(
        member=name,
        incarnation=incarnation,
        node=node,
        device=incident.cause.device if part == "Cause" else None,
        part=part,
        phase=what,
        begin_milliseconds=_milliseconds(begin - start),
        milliseconds=_milliseconds(end - max(begin, start)),
    )


def _replaced_at(gang: Gang, name: str) -> float:
    entry = gang.replaced.get(name)
    return gang.status.phase_time if entry is None else entry.time


def _last(tooks: list[Took], most: int) -> list[Took]:
    return heapq.nlargest(most, tooks)


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))
