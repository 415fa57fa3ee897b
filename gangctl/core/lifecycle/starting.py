"""Write 2: an attempt starts.

The rule: the barrier is complete, so one write fixes ranks, masters, restore point and the settled cause for the whole
attempt. A gang that should have a restore point and finds none must not start from the beginning by itself: it
looks into its directories again until the barrier's deadline, says so, and is held then. Where little was trained and
nothing is on record, it starts anew. What only members know is not looked for twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gangctl.api.model import changed
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase, Master, RejectedStep, Status
from gangctl.core.facts.faults import corrupt_since, is_missing_for_most
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.layout import number_places
from gangctl.core.lifecycle import transitions
from gangctl.core.lifecycle.plan import AskScan, Event, Plan, plan_write, wait
from gangctl.core.lifecycle.resting import plan_hold
from gangctl.core.policy import checkpoints, pods, quota, restore
from gangctl.core.policy.cause import Settlement
from gangctl.core.policy.deadlines import barrier_deadline
from gangctl.core.policy.recovery import held_ranks
from gangctl.core.policy.size import size_of_attempt
from gangctl.core.record import incidents, timings
from gangctl.core.record.incidents import advice
from gangctl.core.record.waiting import due_at, says_otherwise
from gangctl.words import checkpoints as checkpoint_words
from gangctl.words import decisions, waits

MAX_HOSTS: Final = 512
"""Members of the largest gang with host files. They cost a status of this many addresses and directives of as many
lines; a job that starts more members from one command has better means."""
MAX_ADDRESS: Final = 253
"""Characters of the longest DNS name."""

RestoreChoice = restore.Candidate | restore.Undecided | None


def plan_start(gang: Gang, status: Status, settlement: Settlement | None, assignment: dict[str, str]) -> Plan:
    """The plan that starts the attempt, or says what is still to be known. ``assignment``: place -> ready member."""
    if status.checks is not gang.status.checks:  # What has passed just now verifies checkpoints.
        gang = gang.with_status(changed(gang.status, checks=status.checks))
    chosen, rejected = _choose(gang, settlement, assignment)
    ended = 0.0 if settlement is None else gang.status.incidents[0].time
    if chosen is restore.Undecided.NONE_FOUND and restore.begins_anew(gang, ended):
        chosen = None
    if isinstance(chosen, restore.Undecided):
        return _look_again(gang, chosen, assignment, rejected)
    point = None if chosen is None else chosen.point
    if settlement is not None:
        status = incidents.settle_incident(gang, status, settlement, point, assignment)
    else:  # It was suspended: what came after the restore point is done again all the same.
        status = timings.with_loss(status, timings.lost_seconds(gang, timings.count_lost_steps(gang, point)))
    step = None if point is None else point.step
    remembered = checkpoints.remember_steps(gang, status)
    status = changed(
        status,
        verified_steps=checkpoints.up_to(remembered.verified_steps, step),
        checked_step=checkpoints.checked_step(gang, step),
        size=size_of_attempt(gang, assignment) if gang.is_elastic else status.size,
    )
    status = transitions.start(
        gang,
        status,
        ranks=held_ranks(assignment),
        masters=_masters(gang, assignment),
        hosts=_hosts(gang, assignment),
        restore_point=point,
        rejected_steps=rejected,
        recorded_steps=checkpoints.up_to(remembered.recorded_steps, step),
    )
    if status.size is not gang.status.size:
        status = quota.given_back(gang, status, frozenset(assignment.values()))
    since = "Requested" if gang.status.restart_from is not None else ""
    if not since and point is None and _is_partial(gang):
        since = "Incomplete"
    made = restore.steps_made(gang) if point is None and not since else None
    cause = "" if settlement is None else settlement.because
    tier = "" if point is None else point.tier
    small = "" if status.size is None or not status.size.roles else status.size.reason
    because = decisions.attempt_starts(status.attempt, step, tier, since, made, cause, small)
    steps = tuple(_step_events(gang, rejected))
    if settlement is None:
        return plan_write(gang, status, Reason.RUNNING, because, events=steps, requeue_after=1.0)
    events = (*_spare_events(gang, assignment), *steps, *_signal_events(status))
    return plan_write(gang, status, Reason.RESTARTED, because, events=events, requeue_after=1.0)


def _choose(
    gang: Gang, settlement: Settlement | None, assignment: dict[str, str]
) -> tuple[RestoreChoice, tuple[RejectedStep, ...]]:
    """The restore point, and which steps don't exist any more."""
    known, old, asked = gang.status.rejected_steps, gang.status.restore_point, gang.status.restart_from
    since = corrupt_since(gang)
    if since is not None:
        known = restore.rejections(gang, assignment, since, known)
    if asked is not None:
        rejected = restore.on_request(gang, assignment, asked.step, known)
        return restore.restore_point(gang, assignment, rejected), rejected
    if settlement is None or old is None:
        return restore.restore_point(gang, assignment, known), known
    if is_missing_for_most(gang):
        rejected = restore.rejections(gang, assignment, old.step, known)
        return restore.restore_point(gang, assignment, rejected), rejected
    newest = restore.restore_point(gang, assignment, known)
    if not isinstance(newest, restore.Candidate):
        return newest, known
    if settlement.charged and restore.is_older_step_due(gang, settlement.cause, newest.point):
        rejected = restore.rejections(gang, assignment, old.step, known)
        older = [one for one in restore.candidates(gang, assignment, rejected) if one.point.step < old.step]
        if older:
            return older[0], rejected
        # There is nothing older: the ladder goes on with the step that it has.
    return newest, known


def _look_again(
    gang: Gang, unknown: restore.Undecided, assignment: dict[str, str], rejected: tuple[RejectedStep, ...]
) -> Plan:
    """Ask (again) for the checkpoints, until the barrier's deadline where that can help, and say what is missing."""
    status = gang.status
    deadline = barrier_deadline(gang, assignment.values())
    scan = restore.wanted_scan(gang)
    scanned = gang.observed.scanned
    error = scanned.error if scanned is not None and scanned.attempt == status.attempt else ""
    name = gang.job.metadata.name
    if unknown is restore.Undecided.NOT_SCANNED:
        because, out = waits.checkpoints_awaited(status.attempt, error), checkpoint_words.mend_directory(name)
        finally_because, says_enough = waits.checkpoints_not_listed(error), bool(error)
    else:
        hidden = unknown is restore.Undecided.TOO_MANY
        gone = rejected if status.restart_from is None else status.rejected_steps
        found = restore.steps_found(gang, assignment, gone, hidden=hidden)
        expected, says_enough = restore.expected_step(gang), True
        because = waits.restore_point_awaited(status.attempt, expected, found)
        finally_because = waits.no_restore_point(expected, found, restore.looked_last(gang))
        out = checkpoint_words.make_room(name) if hidden else checkpoint_words.choose_step(name)
    if _is_final(gang, unknown, assignment) or (deadline is not None and gang.now >= deadline):
        held = incidents.finish_incident(gang, status, "Held")
        return plan_hold(gang, held, Reason.NO_RESTORE_POINT, finally_because, out)
    is_first = status.said is None or status.said.name != because.name
    if says_enough and (is_first or (gang.now >= due_at(gang) and says_otherwise(gang, because))):
        reason = Reason.PENDING if status.phase is GangPhase.PENDING else Reason.GATHERING
        return plan_write(gang, status, reason, because, requeue_after=restore.SCAN_SECONDS)
    members = list(assignment.values())
    turn = int(max(0.0, gang.now - status.phase_time) / restore.SCAN_SECONDS) % len(members)
    asked = gang.pods[members[turn]].uid
    extra = () if scan is None else (AskScan(asked, scan),)
    return wait(gang, because, [deadline, gang.now + restore.SCAN_SECONDS], (*pods.actions(gang, status), *extra))


def _is_final(gang: Gang, unknown: restore.Undecided, assignment: dict[str, str]) -> bool:
    """Whether to look again can't help: there is no directory, or it was seen and the step asked for isn't in it."""
    if unknown is restore.Undecided.NOT_SCANNED:
        return False
    asked = gang.status.restart_from is not None and bool(restore.complete_steps(gang, assignment, ()))
    return restore.wanted_scan(gang) is None or asked


def _is_partial(gang: Gang) -> bool:
    """Whether some rank has registered a checkpoint in the attempt that ran last."""
    last = gang.status.started_attempt
    return gang.spec.checkpoint is not None and any(
        one.attempt == last for heard in gang.heard.values() for one in heard.report.checkpoints
    )


def _masters(gang: Gang, assignment: dict[str, str]) -> tuple[Master, ...]:
    """Rank 0 of each process group, with ports that it found free and no other group on the same address takes."""
    in_memory = restore.tier_with(gang.spec, "Peers") is not None
    taken: set[tuple[str, int]] = set()
    masters: list[Master] = []
    for group, places in number_places(gang.roles).groups.items():
        report = gang.report(assignment[places[0]])
        if report is None:
            continue
        base = gang.spec.network.base_port
        free = [port for port in report.ports or (base,) if (report.address, port) not in taken]
        port, *others = free or (base,)
        memory_port = others[0] if others and in_memory else None
        taken |= {(report.address, port), (report.address, memory_port or port)}
        masters.append(Master(process_group=group, address=report.address, port=port, memory_port=memory_port))
    return tuple(masters)


def _hosts(gang: Gang, assignment: dict[str, str]) -> tuple[str, ...]:
    """The address of each place in order; nothing for gangs that are too large for it, or if one isn't known."""
    if len(assignment) > MAX_HOSTS:
        return ()
    reports = [gang.report(member) for member in assignment.values()]
    known = [report.address for report in reports if report is not None and _is_address(report.address)]
    return tuple(known) if len(known) == len(reports) else ()


def _is_address(text: str) -> bool:
    """Whether it can be an IP address or a DNS name: a status that had something else could not be stored."""
    return 0 < len(text) <= MAX_ADDRESS and text.isascii() and text.isprintable()


def _spare_events(gang: Gang, assignment: dict[str, str]) -> Iterable[Event]:
    """Who runs a place that another member ran before."""
    holders = gang.holders
    for place, member in assignment.items():
        before = holders.get(place, place)
        if member != before:
            text = decisions.spare_took_rank(member, place, "" if before == place else before)
            yield Event(Reason.SPARE_TOOK_RANK, text, member)


def _signal_events(status: Status) -> Iterable[Event]:
    """Whose workers made the restart wait for SIGKILL."""
    incident = status.incidents[0]
    if incident.kept_signal is not None and (text := advice(incident)) is not None:
        yield Event(Reason.SIGNAL_KEPT, text, incident.kept_signal.member)


def _step_events(gang: Gang, rejected: tuple[RejectedStep, ...]) -> Iterable[Event]:
    """Which steps don't exist any more from now on."""
    for entry in rejected:
        if entry not in gang.status.rejected_steps:
            yield Event(Reason.STEP_REJECTED, decisions.step_rejected(entry.step, entry.tier))
