"""Timings: how long the phases of an incident took, for whom the gang waited, and what was lost.

How long the phases of an incident took.

The rule: each phase begins where the one before it ended, and all are on the controller's clock, from the ages in
reports. Once the first step is stored, nothing is added. A duration must not be negative, whatever the clocks do.

The members of an incident that matter: the one at fault, the replaced, and those that the others waited for.

The rule: at write 2 the member at fault, the two that stopped last, and the replaced that were ready last, at most
five in all. Then the last to start, and the second last if that makes six at most; then the last to make its first step
and the last at each milestone before that, and the second last of all while there is room, at most eleven in all.
Offsets count from the incident's beginning on the controller's clock, from ages. An offset must not be negative, and an
entry must not change later. What isn't known must not be guessed: without milestones there is only the first step.

    begin(milestone) = its end - its duration, if that was measured; else the end of what came before it in the member

What a restart loses: the steps beyond the restore point, and the time that they took.

    steps   = highest_step(the attempt that started last) - step of the restore point
    at_most = steps + gap - 1, where its ranks report only each ``gap``-th step: those made since are not known
    gap     = the widest gap between two steps that one of its ranks has reported; with its first report alone, from
              the step that it began at, if that is not more than MOST_SELDOM: it may have loaded something else
    seconds = steps * pace(that attempt)

A loss must not be guessed: where progress isn't reported, it is unknown, and where it is seldom reported, the steps
must not be told as all. Where the job declares no tier, its script may find checkpoints by itself, so it is unknown as
well. It must not count twice: each start settles it.

How the processes of the new attempt were started: forked from a template, executed, or not at all: they went on.

The rule: it is told once, when every worker has started, from the reports of that attempt. A process that was executed
is no fault and changes nothing: the incident only says why the restart took the time of an import.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

from gangctl.api.incident import CheckResult, Incident, IncidentMember, PhaseMilliseconds, WarmStart, What
from gangctl.api.model import changed
from gangctl.api.status import GangPhase, RestorePoint, Status
from gangctl.core.facts.gang import Gang, began
from gangctl.core.facts.progress import highest_step, pace
from gangctl.core.facts.world import Heard
from gangctl.core.policy.recovery import awaited_members
from gangsidecar import wire
from gangsidecar.wire import Milestone, Phase

# How long the phases of an incident took


REPORT_SECONDS: Final = 10.0
"""Seconds after the first reported first step in which the gang waits for those of the others. The phase ends with the
last of those that have reported it: the recovery isn't over while a member is still awaited."""


def milliseconds(seconds: float) -> int:
    """As they are stored: never negative."""
    return max(0, round(seconds * 1000))


def settled_phases(
    gang: Gang, incident: Incident, gathered: Gathered, checks: tuple[CheckResult, ...] = ()
) -> PhaseMilliseconds:
    """Stop: until the last process of the kept pods was gone. Replace: until the last new pod was ready after that.

    Back-off: from then until the time that was set for it. Barrier: what was waited for beyond all three. Who isn't
    ready is waited for until now. Check: the time of all ``checks``, which is taken from the phase in which they ran.
    """
    stopped = min(max([incident.time, *gathered.stopped.values()]), max(gang.now, incident.time))
    ready_again = min(max([stopped, *gathered.replaced.values()]), max(gang.now, stopped))
    until = incident.back_off_time
    over = ready_again if until is None else min(max(until, ready_again), max(gang.now, ready_again))
    before = sum(one.milliseconds for one in checks if one.time < ready_again) / 1000
    after = sum(one.milliseconds for one in checks) / 1000 - before
    return changed(
        incident.milliseconds,
        stop=milliseconds(stopped - incident.time),
        replace=milliseconds(ready_again - stopped - before) if gathered.replaced else None,
        back_off=None if until is None else milliseconds(over - ready_again),
        barrier=milliseconds(gang.now - over - after),
        check=milliseconds(before + after) if checks else None,
    )


def set_timings(gang: Gang, status: Status, *, more: bool) -> Status:
    """The status with the timings of its last incident, as far as the members have reported them.

    ``more``: the attempt goes on, so members that haven't reported yet when they started, or made their first step, are
    waited for. If it doesn't, those that did report count: the fault may have taken a report away.
    """
    last = _starting(gang, status)
    if last is None:
        return status
    reports = _reports(gang)
    began = last.settled_time or last.time
    took, members = last.milliseconds, last.members
    runs = {holder: heard for holder, heard in reports.items() if heard.report.phase is Phase.RUNNING}
    if took.start is None:
        waiting = any(heard.report.phase is Phase.READY for heard in reports.values())
        if not runs or waiting or (more and len(runs) < len(gang.holders)):
            return status
        started = max(heard.phase_since for heard in runs.values())
        took = changed(took, start=milliseconds(started - began))
        members = members_at_start(gang, last, runs)
    last = changed(last, warm_start=warm_start(last, runs) or last.warm_start)  # A launcher starts more later.
    firsts = _firsts(reports)
    heard_out = len(firsts) == len(gang.holders) or gang.now >= min(firsts, default=gang.now) + REPORT_SECONDS
    waits = more and not (firsts and heard_out)
    if firsts and not waits:
        first = max(firsts) - began - (took.start or 0) / 1000
        took = changed(took, first_step=milliseconds(first))
    last = changed(last, milliseconds=took, members=members)
    if not waits:
        last = changed(last, members=members_at_first_step(gang, last, reports))
    return changed(status, incidents=(last, *status.incidents[1:]))


def heard_out_at(gang: Gang, status: Status) -> float | None:
    """When the gang stops waiting for reports of first steps; None if it doesn't wait, or not yet."""
    firsts = [] if _starting(gang, status) is None else _firsts(_reports(gang))
    until = min(firsts) + REPORT_SECONDS if firsts else gang.now
    return until if until > gang.now else None


def has_first_step(status: Status) -> bool:
    """Return whether the first step after the last incident is stored."""
    return bool(status.incidents) and status.incidents[0].milliseconds.first_step is not None


def _starting(gang: Gang, status: Status) -> Incident | None:
    """The incident that led to the running attempt, while its first step isn't stored."""
    last = status.incidents[0] if status.incidents else None
    if (
        last is None
        or last.attempt != status.attempt
        or last.outcome != "Restarted"
        or last.milliseconds.first_step is not None
        or gang.status.phase is not GangPhase.RUNNING
    ):
        return None
    return last


def _reports(gang: Gang) -> dict[str, Heard]:
    """Holder -> the newest report of its supervisor, if that is of the status' attempt."""
    heard, attempt = gang.heard_by_member, gang.status.attempt
    return {
        holder: one
        for holder in gang.holders.values()
        if (one := heard.get(holder)) is not None and one.report.attempt == attempt
    }


def _firsts(reports: dict[str, Heard]) -> list[float]:
    """When members made their first step, of those that reported it."""
    return [at for heard in reports.values() if (at := first_step_at(heard)) is not None]


# The members of an incident that matter


MAX_LISTED: Final = 11
"""Members in an incident."""
AT_SETTLING: Final = 5
"""Of them at write 2: what is measured later has a place each."""
AT_START: Final = 6
"""Of them when every worker has started."""
EACH: Final = 2
"""The slowest of a phase."""

ListedAs = Literal["Cause", "Replaced", "Slowest"]
_REACHED: Final[Mapping[Milestone, What]] = {
    Milestone.CHECKPOINT_LOAD: "CheckpointLoad",
    Milestone.RENDEZVOUS: "Rendezvous",
    Milestone.LAUNCH: "Launch",
    Milestone.IMPORTS: "Imports",
}
Took = tuple[float, float, str]
"""End, begin and member: in the order of time, and the same for the same world."""


class Gathered(NamedTuple):
    """The members that the gang waited for, each with the time until which it did."""

    stopped: Mapping[str, float]
    """They kept their pods."""
    replaced: Mapping[str, float]
    """Their pods are new in this attempt."""


def gathered_members(gang: Gang, assignment: Mapping[str, str | None]) -> Gathered:
    """The members that the gang waited for in the status' attempt.

    ``assignment``: place -> the ready member that runs it; None where none can yet.
    """
    pods, heard, fresh, now = gang.pods, gang.heard_by_member, gang.fresh, gang.now
    unready = set(awaited_members(gang, assignment))
    members = unready.union([member for member in assignment.values() if member is not None])
    waited = {
        name: now if name in unready else heard[name].phase_since
        for name in members
        if name in pods or gang.was_there(name)
    }
    replaced = {name: waited.pop(name) for name in fresh.intersection(waited)}
    return Gathered(waited, replaced)


def members_at_settling(gang: Gang, incident: Incident, gathered: Gathered) -> tuple[IncidentMember, ...]:
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
    rest: list[tuple[ListedAs, What, Mapping[str, float], int]] = [
        ("Slowest", "Stop", gathered.stopped, EACH),
        ("Replaced", "Replace", gathered.replaced, MAX_LISTED),
    ]
    for part, what, waited, most in rest:
        room = min(most, AT_SETTLING - len(found))
        slowest = heapq.nlargest(room + 1, ((until, name) for name, until in waited.items()))
        others = [name for _, name in slowest if name != cause.member][:room]
        found += [_entry(gang, incident, part, what, _took(gang, incident, what, name, waited)) for name in others]
    return tuple(found)


def _took(gang: Gang, incident: Incident, what: What, name: str, waited: Mapping[str, float]) -> Took:
    return waited[name], incident.time if what == "Stop" else _replaced_at(gang, name), name


def members_at_start(gang: Gang, incident: Incident, runs: Mapping[str, Heard]) -> tuple[IncidentMember, ...]:
    """The members with those that started last. ``runs``: holder -> its newest report; all of them run."""
    since = incident.settled_time or incident.time
    tooks = [(heard.phase_since, since, name) for name, heard in runs.items()]
    return _with(gang, incident, [("Start", took) for took in _last(tooks, EACH)], AT_START)


def members_at_first_step(gang: Gang, incident: Incident, reports: Mapping[str, Heard]) -> tuple[IncidentMember, ...]:
    """The members with those that were last at a milestone or the first step. ``reports``: holder -> its newest one."""
    started_at = (incident.settled_time or incident.time) + (incident.milliseconds.start or 0) / 1000
    tooks: dict[What, list[Took]] = {"FirstStep": [], **{what: [] for what in _REACHED.values()}}
    for name, heard in reports.items():
        # Of one that is being stopped by now its start isn't known: it had started when all had.
        start = before = heard.phase_since if heard.report.phase is Phase.RUNNING else started_at
        for one in sorted(heard.report.reached, key=lambda one: -one.age_ms):
            if one.attempt == incident.attempt:
                at = heard.ago(one.age_ms)
                begin = min(before, at) if one.milliseconds is None else at - one.milliseconds / 1000
                tooks[_REACHED[one.milestone]].append((at, begin, name))
                before = at
        at_step, progress = first_step_at(heard), heard.report.progress
        if at_step is not None and progress is not None:
            begin = min(start, at_step) if progress.first_ms is None else at_step - progress.first_ms / 1000
            tooks["FirstStep"].append((at_step, begin, name))
    last = {what: _last(found, EACH) for what, found in tooks.items()}
    listed = [(what, took) for nth in range(EACH) for what, found in last.items() for took in found[nth : nth + 1]]
    return _with(gang, incident, listed, MAX_LISTED)


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
            known += [time for end, time in heard.ends if end.attempt == incident.attempt - 1]
            known += [heard.phase_since] if report.phase in {Phase.READY, Phase.DONE} else []
    node = next((pod.node for pod in pods), cause.node or "")
    end = min(max(known, default=cause.time), gang.now)
    return _listed(incident, "Cause", "Stop", (end, cause.time, cause.member), cause.incarnation, node)


def _entry(gang: Gang, incident: Incident, part: ListedAs, what: What, took: Took) -> IncidentMember:
    name = took[2]
    pod = gang.pods.get(name)
    return _listed(incident, part, what, took, gang.incarnation(name), "" if pod is None else pod.node)


def _listed(incident: Incident, part: ListedAs, what: What, took: Took, incarnation: int, node: str) -> IncidentMember:
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


# What a restart loses


MOST_SELDOM: Final = 1000
"""Steps between two reports of a framework that reports very seldom."""


def count_lost_steps(gang: Gang, point: RestorePoint | None) -> int | None:
    """Count the steps that the attempt which ran last had made beyond the restore point; None: unknown.

    A replica that restarts takes the steps of those that went on, so what its own checkpoint lacks need not be lost.
    """
    group = gang.spec.replica_group
    if group is not None and group.count is not None:
        return None
    if point is None and (gang.spec.checkpoint is None or not gang.spec.checkpoint.tiers):
        return None
    made = highest_step(gang, gang.status.started_attempt)
    return None if made is None else max(0, made.step - (0 if point is None else point.step))


def lost_steps_at_most(gang: Gang, lost: int | None) -> int | None:
    """How many steps may be lost where ``lost`` have been reported; None where that is all, or unknown."""
    attempt = gang.status.started_attempt
    if lost is None:
        return None
    heard = [one for pod in gang.by_progress.get(attempt, ()) if (one := pod.report.progress) is not None]
    gap = max((one.every for one in heard if one.every is not None), default=None)
    if gap is None:
        point, firsts = gang.status.restore_point, [one.step for one in heard if one.first_step == one.step]
        gap = max(firsts, default=0) - (0 if point is None else point.step)
        gap = gap if gap <= MOST_SELDOM else 1
    return lost + gap - 1 if gap > 1 else None


def lost_seconds(gang: Gang, lost: int | None) -> float | None:
    """How long the attempt which ran last had trained for so many steps; None where its pace isn't known."""
    if not lost:
        return None if lost is None else 0.0
    each = pace(gang, gang.status.started_attempt)
    return None if each is None else round(lost * each, 3)


def with_loss(status: Status, lost: float | None) -> Status:
    """The status in whose account so many seconds of training have to be done again."""
    if not lost:
        return status
    spent = changed(status.spent, lost_progress=round(status.spent.lost_progress + lost, 3))
    return changed(status, spent=spent)


# How the processes of the new attempt were started


_MOST_PROCESSES: Final = 64
"""In one pod (roles[].processesPerPod)."""
_MOST_BYTES: Final = 1 << 50


def warm_start(incident: Incident, runs: Mapping[str, Heard]) -> WarmStart | None:
    """What the members say of the incident's attempt; None if none says anything. ``runs``: holder -> its report."""
    told = {
        name: warm
        for name, heard in runs.items()
        if (warm := heard.report.warm_start) is not None and warm.attempt == incident.attempt
    }
    if not told:
        return None
    executed = next((name for name, warm in told.items() if warm.executed > 0 or warm.obstacle), "")
    return WarmStart(
        forked=sum(_processes(warm.forked) for warm in told.values()),
        executed=sum(_processes(warm.executed) for warm in told.values()),
        member=executed,
        obstacle=told[executed].obstacle if executed else "",
        template_bytes=max(_bytes(warm) for warm in told.values()),
        went_on=sum(_processes(warm.went_on) for warm in told.values()),
    )


def _processes(count: int) -> int:
    return max(0, min(count, _MOST_PROCESSES))


def _bytes(warm: wire.WarmStart) -> int:
    return max(0, min(warm.template_bytes, _MOST_BYTES))
