"""Recovery: the level of a restart (the ladder), the budget, the back-off, when the gang ends, and who has which rank.

The recovery ladder: how much is thrown away for a cause, and when there is nothing left to try.

    level(cause) = max(what the fault and its rule ask for, what the ledger asks for)

The same member again costs its pod, unless all members ended alike, or others of a process group had finished. The
same restore point again and again without progress leads to an older checkpoint, then to the suspect's pod, then to the
end. The ladder must not lower what a rule asks for, and unknown progress must not count as none. What many gangs fail
for at once (``brake.py``) must not cost a pod.

The budget: how many charged restarts a gang, or a replica group, may have in a sliding window, and what the ledger
remembers.

    allowed(now) <=> |{entry in ledger : entry.charged and entry.time > now - windowSeconds}| < maxRestarts

An incident is charged at most once, when its cause is settled; disruptions and rules with Ignore are not charged. The
budget must not be exceeded: a restart that would be one too many does not take place.

Granted waits: for how long a gang waits because its spec, or what was told to its members, gives that time.

The rule: a deadline counts what comes after everything that was granted, and nothing of it::

    stopped_by = max(begin of the phase, the leader listens) + the longest stop grace that was told, where a worker ran
    held_until = the end of a restart back-off or of coalescing, at most until now
    checked_until = the end of the attempt's newest check or, while one runs, of its time, at most until now
    granted_until = max(stopped_by, held_until, checked_until, end of the evidence window, and where every member is
                    ready: since when the last is, and when the last pod counts as lost)
    stop_grace = the planned one while the gang stops though no member failed (``is_planned``), so that workers save
                 a last checkpoint; else the short one

A restart by hand ends what is waited for by choice (``held_until``, the back-off of replacements). It must not cut
short a worker that saves its last checkpoint, nor the wait for a pod that may still run one.

Restart back-off: restarts in a row without a step wait, so that what is missing has the time to come back.

    n       = restarts since the last step, the coming one included
    wait(n) = 0 s for n = 1; then 1, 2, 4 ... 60 s, each up to a fifth shorter (jitter)
    until   = begin of the incident + wait(n)

A step is one beyond the restore point; where a gang has never reported one, a checkpoint beyond it, or an attempt of
``STEADY_SECONDS``, counts as one. So such a gang waits only when the checkpoints are listed that the attempt may have
left (``restore.py``). Disruptions neither wait nor count, whatever a rule says of them. A restart by hand never waits,
ends the wait, and begins the row anew.

The first restart must be immediate, always. A wait must not delay the stop of a worker, the replacement of a pod, or
the end of a job: it comes when the attempt could start. It must not be told that no step was made where it is only
known that none was reported. Where the clock of a new leader is behind, it begins again with its term.

Failed starts: when a gang ends because what its template names can't be started, however often it is tried.

A start that can't work is known by the container runtime's words (``facts/fitness.py``), by the supervisor, which could
not execute the command (StartFailed with exit code 126 or 127), or by a shell, which ends with the same codes::

    tries(pod)         = restarts(pod) + 1, and all of the pods of this member that failed at once before
    cannot_start(gang) = Pending, and the start of a needed pod can't work, and
                         tries(pod) >= TRIES or no container was made, and no pod of its role speaks
    is_row_of_failed_starts(gang) = TRIES restarts or more since the last step, each of them for such a start

A script that is wrong fails alike in its own words. A person who watches has seen enough after three, so `gangctl run`
ends; a gang of a cluster goes by its budget, as does one whose manifest says how it is to end::

    failed_alike(job)  = its first TRIES attempts ended within SOON_SECONDS, no step was reported, and they ended by one
                         code or signal after one line, which no rule speaks of

It must not end a gang for what one node or one pod has: another pod of the role that speaks proves that the template
works. Nor for what a rule of the user's policy says of it, nor for what may come back: a row of restarts that began
with another fault goes by the budget.

Coalescing: disruptions that come soon after each other are one restart, if the user gives them the time.

The rule: an attempt that a disruption has begun starts no sooner than ``coalesceSeconds`` after it. A fault never
waits, and a restart by hand ends the wait.

Ranks: which member runs which part of the job in this attempt.

The rule: its own member runs a place until that member's pod can't go on. Then a ready spare of the same role takes the
place and keeps it, and the member's new pod becomes the spare. Of several spares, the first takes it whose node isn't
rather avoided, or else the first. A rank must not be given twice: a member holds at most one place, and a place has at
most one holder. As many places as a status can name are taken over; others wait.

The places are those of the coming attempt (``size.py``). One that the attempt before didn't have is its own member's,
unless that holds another, and any ready spare's. Once an elastic role waits no longer, a ready member takes the place
of one that isn't, whatever that does: the barrier knows that no worker of it runs.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from itertools import takewhile
from typing import Final, NamedTuple

from gangctl.api.gangjob import GangJob, Recovery, Spec, Windowed
from gangctl.api.incident import Cause, Incident, IncidentLevel, LedgerEntry
from gangctl.api.model import changed
from gangctl.api.reasons import Reason
from gangctl.api.roles import layout, number_places, with_sizes
from gangctl.api.status import GangPhase, HeldRank, Status
from gangctl.core.facts import barrier
from gangctl.core.facts.evidence import Fault, Strength, default, strength
from gangctl.core.facts.faults import failed_attempt, is_corruption_of_most, is_missing_for_most, is_unseen_by_most
from gangctl.core.facts.fitness import NEVER_MADE, NOT_EXECUTABLE, cannot_work, correction, ready, reason_text
from gangctl.core.facts.gang import Gang, has_started, once
from gangctl.core.facts.progress import finished_places, first_step, highest_step
from gangctl.core.facts.world import Pod
from gangctl.core.policy.size import coming_sizes, shrinks_at
from gangctl.words.message import Message
from gangctl.words.waits import can_never_start, restarts_without_step
from gangsidecar.wire import Phase

# The recovery ladder


OF_MOST: Final[Mapping[str, Callable[[Gang], bool]]] = {
    Reason.RESTORE_POINT_MISSING: is_unseen_by_most,
    Reason.CORRUPTION: is_corruption_of_most,
}
"""Reasons that cost the member's pod, unless most members have them: then no pod is to blame."""
LEVELS: Final = (IncidentLevel.PROCESS, IncidentLevel.CONTAINER, IncidentLevel.POD, IncidentLevel.GANG)


class Rung(IntEnum):
    """What repeated failures without progress ask for."""

    NOTHING = 0
    OLDER_STEP = 1
    SUSPECT_POD = 2
    END = 3


def level_of(gang: Gang, cause: Cause) -> IncidentLevel:
    """How much is thrown away for this cause."""
    asked, least = [cause.level], default(cause.reason).level
    of_most = OF_MOST.get(cause.reason)
    if of_most is None:
        asked.append(least)
    if cause.reason in gang.observed.brake.waves:
        return highest_level(*asked)
    if of_most is not None:
        return highest_level(*asked) if of_most(gang) else highest_level(*asked, least)
    suspected = times_at_fault(gang, cause) >= gang.spec.recovery.replace_after or rung(gang) >= Rung.SUSPECT_POD
    if suspected and not cause.alike and not is_work_over(gang):
        asked.append(IncidentLevel.POD)
    return highest_level(*asked)


def highest_level(*levels: IncidentLevel) -> IncidentLevel:
    """The level that throws away most."""
    return max(levels, key=LEVELS.index)


def times_at_fault(gang: Gang, cause: Cause) -> int:
    """How often the member was the cause since it has its pod, this time included. A request blames no member."""
    if not cause.member or strength(cause) is Strength.REQUEST:
        return 0
    ledger = ledger_in_window(gang.spec, gang.status.ledger, gang.now)
    return 1 + sum((old.member, old.incarnation) == suspected_member(cause) for old in ledger)


def suspected_member(cause: Cause) -> tuple[str, int]:
    """The member that the cause is put down to, and the incarnation of its pod."""
    member, _, number = cause.suspect.rpartition(".")
    return (member, int(number)) if number else (cause.member, cause.incarnation)


def rung(gang: Gang) -> Rung:
    """How far failures in a row without progress have gone, this one included."""
    checkpoint = gang.spec.checkpoint
    return (
        Rung.NOTHING
        if checkpoint is None
        else Rung(min(failures_without_progress(gang) // checkpoint.fallback_after, Rung.END))
    )


def failures_without_progress(gang: Gang) -> int:
    """Failures in a row without progress, this one included; 0 if it made progress or that isn't known."""
    if has_progressed(gang) is not False:
        return 0
    row = _row_without_progress(gang.status.ledger)
    return 1 + sum(entry.charged for entry in row)  # A disruption says nothing about the step.


def _row_without_progress(ledger: tuple[LedgerEntry, ...]) -> tuple[LedgerEntry, ...]:
    """The newest entries as far back as no attempt made progress, newest first."""
    return tuple(takewhile(lambda entry: entry.progressed is False, reversed(ledger)))


def has_progressed(gang: Gang) -> bool | None:
    """Whether any rank of the failed attempt reported a step beyond its restore point; None = it is not known.

    A gang that has reported steps before and none now made none: it failed to load its checkpoint. Where most members
    could not look for it, or some had finished, that says nothing about the step.
    """
    if is_unseen_by_most(gang) and not is_missing_for_most(gang):
        return None
    if (incident := _open(gang)) is not None and incident.cause.reason == Reason.CHECK_FAILED:
        return None  # That explains why it failed: it says nothing about the step.
    made, status = highest_step(gang, failed_attempt(gang)), gang.status
    if made is None:
        first = first_step(gang)
        if first is not None and first.step is None:
            return first.attempt == failed_attempt(gang)  # It made a step, which is beyond what it had restored.
        return None if status.progress is None or is_work_over(gang) else False
    point = status.restore_point
    return made.step > (0 if point is None else point.step) or (None if is_work_over(gang) else False)


def is_work_over(gang: Gang) -> bool:
    """Whether ranks of a process group had finished, and others had not: no step was left to make."""
    done = finished_places(gang)
    groups = number_places(gang.roles).groups.values()
    return bool(done) and any(0 < len(done & {*places}) < len(places) for places in groups)


# The budget


LEDGER_SECONDS: Final = 86_400
"""For how long an incident is remembered with an unlimited budget."""
LEDGER_ENTRIES: Final = 256
"""More than any budget allows: with fewer, an old charge would be forgotten."""


def budget_window_seconds(spec: Spec) -> int:
    """For how long an incident counts for the budget and against its member."""
    budget, group = spec.recovery.budget, spec.replica_group
    own = budget.window_seconds if isinstance(budget, Windowed) else LEDGER_SECONDS
    return own if group is None or group.budget is None else max(own, group.budget.window_seconds)


def ledger_in_window(spec: Spec, ledger: tuple[LedgerEntry, ...], now: float) -> tuple[LedgerEntry, ...]:
    """The ledger without what has left the window. A clock that jumped back forgets nothing."""
    since = now - budget_window_seconds(spec)
    return tuple(entry for entry in ledger if entry.time > since)


class Spent(NamedTuple):
    """A budget that is used up."""

    restarts: int
    """Charged restarts in the window."""
    window_seconds: int
    group: str = ""
    """The replica group whose gangs share it; empty = it is the gang's own."""


def budget_spent(gang: Gang) -> Spent | None:
    """The budget that has no room for one more charged restart; None if both have."""
    own, group = gang.spec.recovery.budget, gang.spec.replica_group
    charged = [entry.time for entry in gang.status.ledger if entry.charged]
    if isinstance(own, Windowed) and (used := _in_window(gang, own, charged)) >= own.max_restarts:
        return Spent(used, own.window_seconds)
    if group is None or group.budget is None:
        return None
    used = _in_window(gang, group.budget, [*charged, *(time for one in gang.observed.group for time in one.charged)])
    return Spent(used, group.budget.window_seconds, group.name) if used >= group.budget.max_restarts else None


def _in_window(gang: Gang, budget: Windowed, times: list[float]) -> int:
    return sum(time > gang.now - budget.window_seconds for time in times)


def ledger_with(spec: Spec, status: Status, entry: LedgerEntry) -> tuple[LedgerEntry, ...]:
    """The ledger with one more entry, newest last, bounded: uncharged entries are dropped before charged ones.

    A row without progress stays, however long ago it began: the ladder counts failures, whatever time lies between.
    """
    ledger = (*status.ledger, entry)
    row = len(ledger) - len(_row_without_progress(ledger))
    kept = [*ledger_in_window(spec, ledger[:row], entry.time), *ledger[row:]]
    while len(kept) > LEDGER_ENTRIES:
        kept.remove(next((old for old in kept if not old.charged), kept[0]))
    return tuple(kept)


# Granted waits


def granted_until(gang: Gang) -> float:
    """When everything is over that was granted to the attempt that gathers."""
    times, incident = [stopped_by(gang), held_until(gang), checked_until(gang)], _open(gang)
    if incident is not None:
        times.append(evidence_until(gang, incident))
    given = assign(gang).values()
    if None not in given:
        times += [time for time in barrier.releases(gang) if time is not None]
        times += [one.phase_since for name in given if name and (one := gang.heard_by_member.get(name)) is not None]
    return max(times)


def is_gentle(gang: Gang, fault: Fault) -> bool:
    """Whether the pod is only being asked to end: its worker still runs, so all ranks have the time to save."""
    pod, report = gang.pods.get(fault.member), gang.report(fault.member)
    if pod is None or pod.terminated or report is None or report.phase is not Phase.RUNNING:
        return False
    ended = any(end.attempt == gang.status.attempt for end in report.ends)
    asked = fault.strength is Strength.DISRUPTION or fault.reason is Reason.DEVICE_DEGRADED
    return asked and not ended


def stopped_by(gang: Gang) -> float:
    """When every worker that was told to stop has stopped, or was killed."""
    status, told = gang.status, gang.status.fencing
    if not has_started(status):
        return status.phase_time
    grace = barrier.stop_grace(gang.spec, status) if told is None else told.longest_stop_grace_seconds
    return max(status.phase_time, gang.observed.listening_since) + grace


def evidence_until(gang: Gang, incident: Incident) -> float:
    """Until when stronger evidence is expected of an incident that is open."""
    return max(incident.time, gang.watching_since) + gang.spec.recovery.evidence_window_seconds


def held_until(gang: Gang) -> float:
    """Until when the open incident's attempt has waited though it could start, at most until now; 0 if it hasn't.

    A clock that was set back must not prolong what counts from then.
    """
    incident = _open(gang)
    return 0.0 if incident is None or incident.back_off_time is None else min(incident.back_off_time, gang.now)


def checked_until(gang: Gang) -> float:
    """Until when the attempt has waited for its checks, at most until now; 0 if it hasn't.

    A result of a clock that was ahead must not count, or the wait would have no end.
    """
    known = gang.status.checks
    if known is None or known.attempt != gang.status.attempt:
        return 0.0
    seconds = {one.name: one.timeout_seconds for one in gang.spec.recovery.checks}
    ends = [end for one in known.results if (end := one.time + one.milliseconds / 1000) <= gang.now]
    ends += [known.turn_time + seconds.get(known.check, 0)] if known.check else []
    return min(max(ends, default=0.0), gang.now)


def is_wait_over(gang: Gang) -> bool:
    """Whether the attempt has waited though it could start, or a restart by hand lets it wait no longer."""
    until = gang.status.incidents[0].back_off_time
    return until is not None and until <= gang.now


def with_waits_ended(gang: Gang, status: Status) -> Status:
    """The status after a restart by hand: nothing is waited for any more that is waited for by choice."""
    status = changed(status, restarts=changed(status.restarts, without_step=0))
    status = changed(status, replaced=tuple([changed(one, failures=0) for one in status.replaced]))
    if status.recreated is not None:
        status = changed(status, recreated=changed(status.recreated, failures=0))
    incident = _open(gang)
    if incident is None:
        return status
    until = gang.now if incident.back_off_time is None else min(incident.back_off_time, gang.now)
    return changed(status, incidents=(changed(incident, back_off_time=until), *status.incidents[1:]))


def _open(gang: Gang) -> Incident | None:
    last = next(iter(gang.status.incidents), None)
    return None if last is None or last.settled or last.attempt != gang.status.attempt else last


# Restart back-off


FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0
JITTER: Final = 0.2
"""So that many gangs that fail for one reason don't all come back at once."""
STEADY_SECONDS: Final = 600.0
"""An attempt that ran for so long did not fail at its start; the kubelet's CrashLoopBackOff has the same limit."""


def backs_off_until(gang: Gang, cause: Cause) -> float | None:
    """Until when the open incident's attempt waits though it could start; None if it doesn't wait (any more)."""
    incident = gang.status.incidents[0]
    if not is_failure(cause) or is_wait_over(gang):
        return None
    seconds = wait_seconds(in_a_row(gang, cause), f"{gang.job.metadata.uid}/{incident.attempt}")
    until = round(incident.time + seconds, 6)
    return until if gang.now < until else None


def row_described(gang: Gang, restarts: int) -> Message:
    """Return why so many restarts in a row make the next one wait, in words that say no more than what is known."""
    return restarts_without_step(restarts, has_progressed(gang) is not None, gang.spec.checkpoint is not None)


def in_a_row(gang: Gang, cause: Cause, *, progressed: bool | None = None) -> int:
    """Restarts since the last step, one for this cause included, as they are stored once it has taken place.

    ``progressed``: whether the failed attempt made a step, where more is known than what was reported.
    """
    if cause.reason == Reason.RESTART_REQUESTED:
        return 0
    before = 0 if progressed or _made_step(gang) else gang.status.restarts.without_step
    return before + is_failure(cause)


def is_failure(cause: Cause) -> bool:
    """Whether the cause is a failure of the job: neither a disruption nor a request of the user."""
    return default(cause.reason).charged


def wait_seconds(restarts: int, seed: str) -> float:
    """How long the last of so many restarts in a row waits, counted from its fault."""
    if restarts <= 1:
        return 0.0
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(restarts - 2, 16))
    part = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4]) / 2**32
    return round(longest * (1 - JITTER * part), 3)


def _made_step(gang: Gang) -> bool:
    """Whether the failed attempt made a step, as far as that is known."""
    progressed = has_progressed(gang)
    return _ran_for(gang) >= STEADY_SECONDS if progressed is None else progressed


def _ran_for(gang: Gang) -> float:
    """For how long the attempt ran that the open incident ended."""
    last, *earlier = gang.status.incidents
    led_to_it = bool(earlier) and earlier[0].attempt == last.attempt - 1
    began = earlier[0].settled_time if led_to_it else gang.status.start_time
    return 0.0 if began is None else last.time - began


# Failed starts


TRIES: Final = 3
"""The first may meet a file system that is still being mounted; more of the same teach nothing."""
SOON_SECONDS: Final = 300.0
"""Within so many seconds from the gang's first start: three imports of a framework on a slow machine."""


def start_obstacle(gang: Gang) -> Message | None:
    """Return why the start of a pod can't work; None if that isn't so, or isn't known yet."""
    if gang.status.phase is not GangPhase.PENDING:
        return None
    failing = [
        holder
        for holder in gang.holders.values()
        if (pod := gang.pods.get(holder)) is not None and cannot_work(pod.start_failure) and _is_tried(gang, pod)
    ]
    working = {gang.members[name].role.name for name in gang.speaking} if failing else set()
    failing = [name for name in failing if gang.members[name].role.name not in working]
    if not failing:
        return None
    first = gang.pods[failing[0]]
    return can_never_start(failing, reason_text(first), correction(first.start_failure))


def how_it_ends(gang: Gang) -> str:
    """Fail or Hold: a gang whose template has worked before is held, since only the image can have changed."""
    status = gang.status
    return "Hold" if has_started(status) else gang.spec.recovery.on_exhausted


def _is_tried(gang: Gang, pod: Pod) -> bool:
    failure, entry = pod.start_failure, gang.replaced.get(pod.member)
    if failure is not None and failure.exit_code is None and failure.reason in NEVER_MADE:
        return True
    return pod.restarts + 1 + (0 if entry is None else entry.failures + 1) >= TRIES


def is_row_of_failed_starts(gang: Gang, cause: Cause) -> bool:
    """Whether the open incident is the last of a row in which only starts failed that can't work."""
    tries = in_a_row(gang, cause)
    row = [cause, *(one.cause for one in gang.status.incidents[1:tries])]
    return len(row) == tries >= TRIES and all(_is_like(one, cause) for one in row)


def failed_alike(job: GangJob) -> bool:
    """Whether no attempt so far made a step, and the last ones failed in the same words."""
    status, asked, default = job.status, job.spec.recovery, Recovery()
    row = [one.cause for one in status.incidents if one.cause.printed][:TRIES]  # The newest isn't read at once.
    if len(row) < TRIES or (asked.budget, asked.on_exhausted) != (default.budget, default.on_exhausted):
        return False
    last = status.incidents[0]
    without_step = status.restarts.without_step + (not last.settled) == last.attempt - 1
    soon = last.time - (status.start_time or 0.0) < SOON_SECONDS
    words = {(one.reason, one.exit_code, one.signal, one.rule, one.printed) for one in row}
    return soon and without_step and len(words) == 1 and row[0].rule is None


def _is_like(one: Cause, cause: Cause) -> bool:
    by_rule = one.rule is not None
    is_start = one.reason in {Reason.START_FAILED, Reason.EXIT_CODE} and one.exit_code in NOT_EXECUTABLE
    return is_start and not by_rule and (one.reason, one.exit_code) == (cause.reason, cause.exit_code)


# Coalescing


def coalesces_until(gang: Gang, cause: Cause) -> float | None:
    """When the attempt that gathers may start; None if it needn't wait."""
    until = gang.status.incidents[0].time + gang.spec.recovery.coalesce_seconds
    waits = strength(cause) is Strength.DISRUPTION and gang.now < until and not is_wait_over(gang)
    return until if waits else None


# Ranks


MAX_TAKEN: Final = 200
"""Places that spares hold: more of them would be too many for a status."""


@once
def assign(gang: Gang) -> Mapping[str, str | None]:
    """Place -> the ready member that runs it in this attempt; None where none can yet.

    A holder that is only slow is waited for; one whose pod is new or missing gives its place to a ready spare.
    """
    those_ready, sizes = ready(gang), coming_sizes(gang) if gang.is_elastic else {}
    holders = _holders_at(gang, sizes) if sizes else gang.holders
    given = {place: holder if holder in those_ready else None for place, holder in holders.items()}
    lacking = [place for place, holder in given.items() if holder is None]
    spares = those_ready.difference(holders.values()) if lacking else None
    if not spares:
        return given
    free: dict[str, Iterator[str]] = {}
    room = MAX_TAKEN - sum(place != holder for place, holder in holders.items())
    is_late = bool(sizes) and gang.now >= shrinks_at(gang)
    for place in lacking:
        holder, role = holders[place], gang.members[place].role.name
        waits = not (is_late and role in sizes) and place in gang.holders
        if not waits or holder not in gang.pods or gang.is_fresh(holder):
            may_take = room > 0 or place != holder
            given[place] = next(free.setdefault(role, _of_role(gang, spares, role)), None) if may_take else None
            room -= given[place] is not None and place == holder
    return given


def awaited_members(gang: Gang, assignment: Mapping[str, str | None]) -> list[str]:
    """The members that places without a ready one wait for: who holds it, or, where it is new, who has no place."""
    lacking = [place for place, member in assignment.items() if member is None]
    if lacking and not gang.holders.keys() >= set(lacking):
        idle = frozenset(gang.members.keys() - gang.holding - set(assignment.values()))
        free = {role.name: _of_role(gang, idle, role.name) for role in gang.spec.roles}
        return [gang.holders.get(place) or next(free[gang.members[place].role.name], place) for place in lacking]
    return [gang.holders[place] for place in lacking]


def _holders_at(gang: Gang, sizes: Mapping[str, int]) -> dict[str, str]:
    """Place of the coming attempt -> who holds it as the status has it; its own member, or none, where it is new."""
    places = layout(with_sizes(gang.spec.roles, sizes)).places
    kept = {place: gang.holders[place] for place in places if place in gang.holders}
    taken = set(kept.values())
    return {place: kept.get(place, "" if place in taken else place) for place in places}


def _of_role(gang: Gang, spares: frozenset[str], role: str) -> Iterator[str]:
    """Those of a role in the order of members, but those on nodes that are rather avoided come last."""
    found = (name for name, member in gang.members.items() if name in spares and member.role.name == role)
    bad = gang.observed.unfavoured_nodes
    yield from sorted(found, key=lambda name: name in gang.pods and gang.pods[name].node in bad) if bad else found


def held_ranks(assignment: Mapping[str, str | None]) -> tuple[HeldRank, ...]:
    """What the status stores of an assignment: only the places that aren't held by their own member."""
    taken = [(place, member) for place, member in assignment.items() if member is not None and member != place]
    return tuple(HeldRank(place=place, member=member) for place, member in taken)
