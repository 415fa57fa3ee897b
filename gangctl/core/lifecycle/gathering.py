"""Pending and Gathering: which members are replaced, how long the gang waits, and how the attempt starts (write 2).

The rule: there is no new attempt while one gathers, since no worker of it has started; whatever happens to a waiting
member only means that it is replaced or waits again. Each write keeps the strongest evidence so far. The gang must not
wait without end for something that is there and doesn't answer.

Write 2: an attempt starts.

The rule: the barrier is complete, so one write fixes ranks, masters, restore point and the settled cause for the whole
attempt. A gang that should have a restore point and finds none must not start from the beginning by itself: it
looks into its directories again until the barrier's deadline, says so, and is held then. Where little was trained and
nothing is on record, it starts anew. What only members know is not looked for twice.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gangctl.api.gangjob import RuleLevel
from gangctl.api.incident import Cause, IncidentLevel
from gangctl.api.model import changed
from gangctl.api.reasons import Reason
from gangctl.api.roles import number_places
from gangctl.api.status import GangPhase, Master, RejectedStep, Status
from gangctl.core.facts import barrier
from gangctl.core.facts.barrier import Blocking, is_without_port, port_range, without_port
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.faults import corrupt_since, faults, is_corruption_of_most, is_missing_for_most
from gangctl.core.facts.fitness import NODE_EVIDENCE, Defect, must_report
from gangctl.core.facts.gang import Gang, asks_for_restart
from gangctl.core.lifecycle import plan
from gangctl.core.lifecycle.checking import decide_checks, failed_check
from gangctl.core.lifecycle.plan import AskScan, Event, Plan, plan_write, wait
from gangctl.core.lifecycle.resting import plan_failure, plan_give_back, plan_hold
from gangctl.core.policy import admission, checkpoints, pods, quota, recovery, requests, restore, size
from gangctl.core.policy.admission import barrier_deadline, replacement_timeout
from gangctl.core.policy.cause import Settlement, awaits_end_reason, note_cause, settle_cause, strongest, verdict
from gangctl.core.policy.recovery import assign, has_progressed, held_ranks, suspected_member
from gangctl.core.policy.size import size_of_attempt
from gangctl.core.record import incidents, timings
from gangctl.core.record.degraded import degraded, is_news, next_silence
from gangctl.core.record.incidents import advice
from gangctl.core.record.waiting import Known, due_at, find_waiting, known_of_waiting, says_otherwise
from gangctl.words import checkpoints as checkpoint_words
from gangctl.words import decisions, waits
from gangctl.words import faults as faults_words
from gangctl.words.message import Message
from gangsidecar.wire import Level


def decide_gathering(gang: Gang) -> Plan:
    """Decide for a gang whose attempt gathers (or is Pending: all its pods are new)."""
    settlement = settle_cause(gang, strongest(gang)) if incidents.is_open(gang) else None
    ending = settlement is not None and settlement.outcome != "Restarted"
    if asks_for_restart(gang.spec, gang.status) and not ending:  # A gang that is held takes it then.
        return _take_request(gang)
    never = None if ending else recovery.start_obstacle(gang)
    if never is not None:
        return _give_up(gang, Reason.START_FAILED, never, recovery.how_it_ends(gang))
    unfit = pods.unfit(gang)
    if unfit:
        return _replace(gang, unfit, create=not ending)
    timeout = replacement_timeout(gang)
    late = _late(gang, timeout)
    if late is not None:
        return late
    blocking = barrier.blocking_pods(gang)
    if settlement is not None and ending:
        patience = max(settlement.not_before, recovery.stopped_by(gang)) + pods.ENDING_MARGIN_SECONDS
        if gang.now >= settlement.not_before and (not blocking or gang.now >= patience):
            return _end(gang, settlement)
    if gang.is_elastic and not blocking and (change := quota.taken(gang)) is not None:
        return plan_write(gang, change.status, Reason.QUOTA_CHANGED, change.because, requeue_after=1.0)
    refreshed = pods.forget_gone_pods(gang, gang.status)
    assignment = assign(gang)
    missing = [*recovery.awaited_members(gang, assignment), *without_port(gang, assignment)]
    if blocking or missing or ending:
        return _wait(gang, refreshed, settlement if ending else None, blocking, missing, timeout)
    if settlement is not None and awaits_end_reason(gang, settlement):
        member = settlement.cause.member
        because = waits.end_reason_awaited(gang.status.attempt, member)
        return wait(gang, because, [settlement.not_before], pods.actions(gang, gang.status))
    complete = {place: member for place, member in assignment.items() if member is not None}
    more = None if settlement is None else _level(gang, settlement) or _hold_back(gang, refreshed, settlement, complete)
    more = more or (None if gang.spec.replica_group is None else _await_group(gang, refreshed))
    if more is not None:
        return more
    checked = decide_checks(gang, refreshed, settlement, complete) if gang.spec.recovery.checks else refreshed
    return checked if isinstance(checked, Plan) else plan_start(gang, checked, settlement, complete)


def _hold_back(gang: Gang, refreshed: Status, settlement: Settlement, assignment: dict[str, str]) -> Plan | None:
    """The plan that lets the attempt wait though it could start; None if it needn't, or that is still to be known."""
    joined = recovery.coalesces_until(gang, settlement.cause)
    until = joined or recovery.backs_off_until(gang, settlement.cause)
    is_known = gang.status.incidents[0].back_off_time is not None or has_progressed(gang) is not None
    if until is None or not (joined or is_known or not restore.may_have_saved(gang, assignment)):
        return None
    reason, back_off = Reason.GATHERING, ""
    if not joined:
        reason = Reason.RESTART_BACK_OFF
        back_off = recovery.row_described(gang, recovery.in_a_row(gang, settlement.cause) - 1)
    name = gang.job.metadata.name
    because = waits.held_back(gang.status.attempt, until, settlement.because, name, back_off)
    status = note_cause(gang, refreshed)
    first = changed(status.incidents[0], back_off_time=until)
    if (refreshed, first) == (gang.status, gang.status.incidents[0]):
        return wait(gang, because, [until], pods.actions(gang, gang.status))
    status = changed(status, incidents=(first, *status.incidents[1:]))
    return plan_write(gang, status, reason, because, requeue_after=until - gang.now)


def _await_group(gang: Gang, refreshed: Status) -> Plan | None:
    """The plan that lets the attempt wait for other gangs of the group; None if it needn't."""
    because, seconds = requests.awaited_group(gang), gang.spec.recovery.scheduling_timeout_seconds
    if because is None:
        return None
    until = None if seconds is None else seconds + max(one.phase_since for one in gang.heard.values())
    if until is not None and gang.now >= until:
        late = waits.group_late(seconds or 0, because)
        return _give_up(gang, Reason.UNSCHEDULABLE, late, gang.spec.recovery.on_exhausted)
    due = due_at(gang)
    if refreshed is not gang.status or (gang.now >= due and says_otherwise(gang, because)):
        return plan_write(gang, refreshed, Reason.GROUP_INCOMPLETE, because, requeue_after=1.0)
    return wait(gang, because, [until, due if gang.now < due else None], pods.actions(gang, gang.status))


def _take_request(gang: Gang) -> Plan:
    """A user asks for a restart while the gang gathers: the attempt that gathers is the one."""
    status = recovery.with_waits_ended(gang, requests.take_request(gang.spec, gang.status))
    if status.size is not None:  # A restart by hand starts with all that are there.
        status = changed(status, size=changed(status.size, growing_attempt=status.attempt))
    reason = Reason.PENDING if status.phase is GangPhase.PENDING else Reason.GATHERING
    where = requests.describe_request(gang.spec, gang.status, status)
    because = decisions.token_accepted(decisions.attempt_gathers(status.attempt, where))
    return plan_write(gang, status, reason, because, requeue_after=1.0)


def _wait(
    gang: Gang,
    refreshed: Status,
    ending: Settlement | None,
    blocking: Blocking,
    missing: list[str],
    timeout: float | None,
) -> Plan:
    """The barrier isn't complete: say what it waits for, keep the strongest evidence so far, watch the deadlines.

    ``missing``: those who hold the places without a ready member.
    """
    deadline = barrier_deadline(gang, missing)
    if deadline is not None and gang.now >= deadline and ending is None:
        return _deadline_passed(gang, missing, blocking)
    if incidents.is_open(gang):
        refreshed = note_cause(gang, refreshed)
    refreshed = checkpoints.remember_steps(gang, refreshed)  # What a rank saves while it stops may go with its pod.
    found = find_waiting(gang, blocking, missing if ending is None else ())
    is_told = ending is None or gang.now >= ending.not_before
    warned, due = degraded(gang, refreshed.phase), due_at(gang, found)
    must, is_due = refreshed is not gang.status or is_news(gang, warned), is_told and gang.now >= due
    details = known_of_waiting(gang, found) if is_told and (must or is_due) else Known()
    warning = (
        warned[1] if warned else (size.outlook(gang) if gang.is_elastic and missing and not blocking else None) or ""
    )
    if ending is None:
        attempt, awaited = gang.status.attempt, found.members
        because = waits.attempt_waits(attempt, awaited, details.texts, details.others, details.trouble, warning)
    elif is_told:
        outcome, awaited = ending.outcome, found.members
        because = waits.ending_waits(ending.because, outcome, awaited, details.texts, details.others, warning)
    else:
        because = waits.evidence_awaited(ending.because, ending.not_before, warning)
    if must or (is_due and says_otherwise(gang, because)):
        reason = Reason.PENDING if refreshed.phase is GangPhase.PENDING else Reason.GATHERING
        return plan_write(gang, refreshed, reason, because, create=ending is None, requeue_after=1.0)
    times = [
        deadline,
        timeout,
        due if is_told and not is_due else None,
        size.shrinks_at(gang) if gang.is_elastic else None,
        admission.gives_up_at(gang),
        barrier.next_release(gang),
        pods.next_creation(gang, gang.status),
        next_silence(gang, warned),
    ]
    if ending is not None:
        times += [ending.not_before if gang.now < ending.not_before else gang.now + 1.0]
    times += must_report(gang).values()
    return wait(gang, because, times, pods.actions(gang, gang.status, create=ending is None))


def _late(gang: Gang, timeout: float | None) -> Plan | None:
    """The plan for a pod that isn't replaced or scheduled in time; None if none is late."""
    if timeout is not None and gang.now >= timeout:
        return _give_up_replacing(gang)
    place = admission.gives_up_at(gang)
    if place is not None and gang.now >= place:
        seconds = gang.spec.recovery.scheduling_timeout_seconds
        because = waits.unscheduled(seconds or 0, admission.trouble(gang))
        return _give_up(gang, Reason.UNSCHEDULABLE, because, gang.spec.recovery.on_exhausted)
    return None


def _give_up_replacing(gang: Gang) -> Plan:
    """A replacement has taken too long while the others wait and hold their devices."""
    seconds, how = gang.spec.recovery.replacement_timeout_seconds, gang.spec.recovery.on_replacement_timeout
    late = recovery.awaited_members(gang, assign(gang))
    because = waits.replacement_late(seconds or 0, admission.trouble(gang) or failed_check(gang, late) or "")
    if how == "Suspend":
        return plan_give_back(gang, because)
    return _give_up(gang, Reason.REPLACEMENT_TIMEOUT, because, how)


def _replace(gang: Gang, unfit: Mapping[str, Defect], *, create: bool) -> Plan:
    who = [decisions.member_replaced(name, why.message) for name, why in sorted(unfit.items())]
    status = gang.status
    if incidents.is_open(gang):  # The replaced pod takes its evidence with it.
        status = note_cause(gang, status)
    room = pods.has_room(status, unfit)
    if not room or (pods.needs_recreation(gang, unfit) and status.phase is not GangPhase.PENDING):
        status = plan.recreate(gang, pods.recreate_members(gang, status, unfit))
        because = decisions.all_replaced("Most" if room else "Many", who)
        return plan_write(gang, status, Reason.GANG_RECREATED, because, create=create)
    status = pods.replace_members(gang, status, unfit)
    because = decisions.get_new_pods(who, others_wait=True)
    return plan_write(gang, status, Reason.POD_REPLACED, because, create=create, requeue_after=1.0)


def _level(gang: Gang, settlement: Settlement) -> Plan | None:
    """The plan that throws away what the settled cause asks for and isn't thrown away yet.

    An echo can only raise the level for its own member.
    """
    cause, status = settlement.cause, gang.status
    suspect, number = suspected_member(cause)
    why = {suspect: Defect(cause.reason, faults_words.suspected()) if cause.suspect else _why(cause)}
    first = changed(status.incidents[0], cause=cause, level=settlement.level)
    status = changed(status, incidents=(first, *status.incidents[1:]))
    if settlement.level is IncidentLevel.GANG and status.base_incarnation <= number:
        suspects = why if suspect in gang.members else {}
        status = plan.recreate(gang, pods.recreate_members(gang, status, suspects))
        return plan_write(gang, status, Reason.GANG_RECREATED, decisions.all_replaced(cause=settlement.because))
    known = suspect in gang.members and gang.incarnation(suspect) <= number
    bad = why if settlement.level is IncidentLevel.POD and known else {}
    bad |= {fault.member: _why(fault) for fault in faults(gang) if fault.member != cause.member and _asks(gang, fault)}
    if not pods.has_room(status, bad):
        status = plan.recreate(gang, pods.recreate_members(gang, status, bad))
        because = decisions.all_replaced("Many", cause=settlement.because)
        return plan_write(gang, status, Reason.GANG_RECREATED, because)
    if bad:
        status = pods.replace_members(gang, status, bad)
        because = decisions.get_new_pods(list(bad), settlement.because)
        return plan_write(gang, status, Reason.POD_REPLACED, because, requeue_after=1.0)
    return None


def _why(fault: Fault | Cause) -> Defect:
    elsewhere = fault.reason in NODE_EVIDENCE or (fault.reason == Reason.REQUESTED and fault.node is not None)
    return Defect(fault.reason, fault.message, elsewhere)


def _asks(gang: Gang, fault: Fault) -> bool:
    """Whether the fault itself, or the rule that catches it, asks for a new pod."""
    if fault.reason is Reason.CORRUPTION and not is_corruption_of_most(gang):
        return True
    return RuleLevel.PROCESS is not verdict(gang.spec, fault).level or fault.level in {Level.POD, Level.GANG}


def _deadline_passed(gang: Gang, missing: list[str], blocking: Blocking) -> Plan:
    """Past the first deadline the missing members are replaced, past the next the gang, past the last it ends."""
    status = gang.status
    count = status.barrier_timeouts + 1
    seconds = gang.spec.recovery.barrier_timeout_seconds
    late = list(find_waiting(gang, blocking, ()).stops)
    who = [*late, *(name for name in missing if name not in late)]
    status = changed(status, barrier_timeouts=count, deadline_time=gang.now)
    without_ports = missing and not late and all(is_without_port(gang, name) for name in missing)
    ports = port_range(gang) if without_ports else ""
    what = decisions.barrier_late(who, seconds, ports)
    seen = faults_words.found_no_port(ports, seconds) if ports else faults_words.did_not_answer(seconds)
    why = Defect(Reason.BARRIER_TIMEOUT, seen)
    unready = dict.fromkeys(missing, why)
    room = pods.has_room(status, unready)
    if count == 1 and room:
        status = pods.replace_members(gang, status, unready)
        because = decisions.late_replaced(what, list(unready))
        return plan_write(gang, status, Reason.BARRIER_TIMEOUT, because, requeue_after=1.0)
    if count <= 2:  # noqa: PLR2004 - the second of three deadlines
        status = plan.recreate(gang, pods.recreate_members(gang, status, unready))
        because = decisions.late_all_replaced(what, again=count > 1)
        return plan_write(gang, status, Reason.GANG_RECREATED, because)
    return _give_up(gang, Reason.BARRIER_TIMEOUT, decisions.late_for_good(what), gang.spec.recovery.on_exhausted)


def _end(gang: Gang, settlement: Settlement) -> Plan:
    """Write 2 of an incident that ends the job, or holds it."""
    status = incidents.settle_incident(gang, gang.status, settlement, gang.status.restore_point, assign(gang))
    if settlement.outcome == "Held":
        return plan_hold(gang, status, settlement.reason, settlement.because)
    late = asks_for_restart(gang.spec, gang.status)
    because = decisions.token_too_late(settlement.because) if late else settlement.because
    return plan_failure(gang, status, settlement.reason, because)


def _give_up(gang: Gang, reason: Reason, because: Message, how: str) -> Plan:
    """The end after a deadline. ``how``: Fail, or anything else for Held."""
    if how == "Fail":
        return plan_failure(gang, incidents.finish_incident(gang, gang.status, "Failed"), reason, because)
    return plan_hold(gang, incidents.finish_incident(gang, gang.status, "Held"), reason, because)


# Write 2: an attempt starts


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
    if gang.status.started_attempt:  # What it has made beyond that point is undone.
        rejected = restore.rejections(gang, assignment, 0 if point is None else point.step + 1, rejected)
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
    status = plan.start(
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
    is_first = status.said is None or status.said.name != because.name
    is_late = deadline is not None and gang.now >= deadline
    if _is_final(gang, unknown, assignment) or (is_late and not is_first):
        held = incidents.finish_incident(gang, status, "Held")
        return plan_hold(gang, held, Reason.NO_RESTORE_POINT, finally_because, out)
    if is_late:  # The members may have been complete only now. What they are asked for now can't be late yet.
        status = changed(status, deadline_time=gang.now)
    if is_late or (says_enough and (is_first or (gang.now >= due_at(gang) and says_otherwise(gang, because)))):
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
