"""Checks before an attempt: what the coming attempt waits for though every member is ready, and what follows.

The rule: each turn of a check is written before it is asked for, and its result before anything follows from it; a
result that all have passed is written with what comes next. A member that is to blame is replaced once, with its node
avoided; where it ran the attempt that failed for an unclear cause, it is the cause. If that
computed wrongly, its checkpoints since the newest verified step aren't trusted. Whatever a check says, it must not be
charged by itself, and no other checkpoint is blamed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from gangctl.api.gangjob import CheckSpec
from gangctl.api.incident import Cause, CheckFailure, CheckResult, IncidentLevel
from gangctl.api.model import changed
from gangctl.api.names import signal_name
from gangctl.api.reasons import Reason
from gangctl.api.status import Checks, Status
from gangctl.core.facts.evidence import Fault, strength
from gangctl.core.facts.fitness import Defect
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.printed import mask_secrets
from gangctl.core.lifecycle import plan
from gangctl.core.lifecycle.plan import Event, Plan, plan_write, wait
from gangctl.core.lifecycle.resting import plan_hold
from gangctl.core.policy import checkpoints, pods
from gangctl.core.policy.admission import check_deadline
from gangctl.core.policy.cause import Settlement, judge_fault, note_cause
from gangctl.core.policy.checks import Blame, Look, Turn, of_attempt, turn_of
from gangctl.core.policy.recovery import highest_level
from gangctl.core.record import incidents
from gangctl.words import checks as words
from gangctl.words import decisions
from gangctl.words.message import Message
from gangsidecar.wire import Level

KEPT: Final = 8
"""Results in a status."""
NAMED: Final = 3
"""Members in a result."""
AGAIN_SECONDS: Final = 5.0
"""A member that hasn't told its result is asked again."""


def decide_checks(
    gang: Gang, status: Status, settlement: Settlement | None, assignment: Mapping[str, str]
) -> Plan | Status:
    """The plan that checks the members, or acts on what that found; else the status with which the attempt may start.

    ``assignment``: place -> the ready member that runs it.
    """
    look = Look(gang, None if settlement is None else settlement.cause, tuple(assignment.values()))
    known = of_attempt(gang)
    turn = turn_of(look, known)
    if turn is not None:
        deadline = check_deadline(gang, turn.missing, known.turn_time, turn.check.timeout_seconds)
        if turn.missing and gang.now < deadline:
            times = [deadline, gang.now + AGAIN_SECONDS]
            return wait(gang, _runs(turn), times, (*pods.actions(gang, gang.status), *turn.asks()))
        if turn.has_next:
            return _turned(look, status, changed(known, turn=known.turn + 1, turn_time=gang.now))
        result = _result(gang, turn)
        known = changed(known, check="", judged_turn=known.turn, results=(*known.results, result)[-KEPT:])
        if result.result != "Passed":
            return _not_passed(gang, changed(status, checks=known), turn)
    due = look.due(known)
    if due is None:
        return changed(status, checks=changed(known, check="")) if known.turn else status
    check, members = due
    new, now = known.turn + 1, gang.now
    sessions = look.sessions(members)
    begun = changed(known, turn=new, check=check.name, first_turn=new, time=now, turn_time=now, sessions=sessions)
    return _turned(look, status, begun)


def failed_check(gang: Gang, members: Collection[str]) -> Message | None:
    """The check that the last pod of one of these members didn't pass; None if none is known."""
    failed = (failure for one in reversed(of_attempt(gang).results) for failure in one.failed)
    for one in failed:
        if one.member in members and one.incarnation + 1 == gang.incarnation(one.member):
            return words.check_failed_last(one.member, one.detail)
    return None


def _turned(look: Look, status: Status, known: Checks) -> Plan:
    """The plan that begins a turn."""
    gang = look.gang
    turn = turn_of(look, known)
    assert turn is not None
    status = note_cause(gang, status) if incidents.is_open(gang) else status
    plan = plan_write(gang, changed(status, checks=known), Reason.CHECKING, _runs(turn), requeue_after=AGAIN_SECONDS)
    return replace(plan, actions=(*plan.actions, *turn.asks()))


def _runs(turn: Turn) -> Message:
    known, check = turn.known, turn.check
    members, again = sum(map(len, turn.groups)), known.turn > known.first_turn
    return words.attempt_checked(known.attempt, check.name, members, check.scope, again)


def _result(gang: Gang, turn: Turn) -> CheckResult:
    """What the status keeps of a check that is over."""
    bad = turn.blame.bad
    failed = (
        CheckFailure(
            member=name,
            incarnation=gang.incarnation(name),
            node=gang.pods[name].node,
            detail=_told(turn, name),
        )
        for name in bad[:NAMED]
    )
    return CheckResult(
        name=turn.check.name,
        result=turn.blame.result,
        members=len(turn.members),
        failures=len(bad),
        failed=tuple(failed),
        nodes=_passed_nodes(gang, turn),
        note=mask_secrets(turn.note),
        verifies=turn.verifies,
        time=turn.known.time,
        milliseconds=max(0, round((gang.now - turn.known.time) * 1000)),
    )


def _passed_nodes(gang: Gang, turn: Turn) -> tuple[str, ...]:
    """The nodes that did well: each member there ended with exit code 0. One that can't tell, or is silent, says no."""
    if turn.check.when not in {"NewPod", "Suspect"} or turn.check.scope != "Member":
        return ()
    nodes = {name: gang.pods[name].node for name in turn.members}
    ends = {name: turn.last_end(name) for name in nodes}
    unsure = {nodes[name] for name, end in ends.items() if end is None or end.exit_code != 0}
    return tuple(sorted({*nodes.values()} - unsure)[:NAMED])


def _seen(turn: Turn, member: str) -> tuple[Message, str]:
    """How the check ended in the member, and what it printed last."""
    end, name = turn.last_end(member), turn.check.name
    if end is None or end.exit_code == 0:
        return words.check_not_passed(name), ""
    is_late = end.exit_code is None and end.signal is None
    signal = "" if end.signal is None else signal_name(end.signal)
    said = words.check_not_passed(name, end.exit_code, signal, turn.check.timeout_seconds if is_late else 0)
    return said, mask_secrets(end.detail)


def _not_passed(gang: Gang, status: Status, turn: Turn) -> Plan:
    """What follows from a check that not all have passed."""
    check, blame = turn.check, turn.blame
    if blame.result == "Failed" and check.on_failure != "Note" and turn.finds_corruption:
        since = checkpoints.first_unverified(gang)
        known = status.corrupt_since
        status = changed(status, corrupt_since=since if known is None else min(since, known))
    if blame.result == "Failed" and check.on_failure == "Replace":
        return _replace(gang, status, turn)
    holds = check.on_failure == "Hold" and bool(blame.bad)
    then = words.is_held_for_check() if holds else words.attempt_goes_on()
    because = _because(turn, blame, then)
    if holds:
        return plan_hold(gang, incidents.finish_incident(gang, status, "Held"), Reason.CHECK_FAILED, because)
    is_faulty = blame.result == "CheckFaulty"
    return plan_write(
        gang, status, Reason.CHECK_FAULTY if is_faulty else Reason.CHECK_FAILED, because, requeue_after=1.0
    )


def _because(turn: Turn, blame: Blame, then: Message) -> Message:
    name, members = turn.check.name, list(blame.bad)
    match blame.result:
        case "Undecided":
            return words.check_undecided(name, members, then)
        case "CheckFaulty":
            return words.check_faulty(name, members, _told(turn, members[0]), then)
        case _:
            return words.check_failed(members, _told(turn, members[0]), then)


def _told(turn: Turn, member: str) -> str:
    return ": ".join(filter(None, _seen(turn, member)))


def _replace(gang: Gang, status: Status, turn: Turn) -> Plan:
    """The pods of those who are to blame are replaced, while the others keep theirs."""
    bad = turn.blame.bad
    causes = {name: _cause(gang, turn, name) for name in bad}
    status = _explained(gang, status, turn.check, causes.values())
    why = {name: Defect(Reason.CHECK_FAILED, cause.message, against_node=True) for name, cause in causes.items()}
    because = words.check_failed(list(bad), _told(turn, bad[0]), words.pods_leave(list(bad), status.corrupt_since))
    events = [Event(Reason.CHECK_FAILED, because, bad[0])]
    if not pods.has_room(status, why):
        status = plan.recreate(gang, pods.recreate_members(gang, status, why))
        return plan_write(
            gang, status, Reason.GANG_RECREATED, decisions.all_replaced("Many", cause=because), events=events
        )
    status = pods.replace_members(gang, status, why)
    return plan_write(gang, status, Reason.POD_REPLACED, because, events=events, requeue_after=1.0)


def _cause(gang: Gang, turn: Turn, member: str) -> Cause:
    message, printed = _seen(turn, member)
    fault = Fault(
        Reason.CHECK_FAILED,
        member,
        gang.now,
        gang.incarnation(member),
        node=gang.pods[member].node or None,
        level=Level.POD,
        message=message,
        words=printed,
    )
    return judge_fault(gang.spec, fault)


def _explained(gang: Gang, status: Status, check: CheckSpec, causes: Iterable[Cause]) -> Status:
    """The status whose open incident has the first of these as its cause, if that ran in the attempt that failed.

    What a user asked for, or what is known for certain, has its cause already.
    """
    if not incidents.is_open(gang) or check.when not in {"Fault", "Suspect"}:
        return status
    first = status.incidents[0]
    old = next((one for one in causes if not gang.never_ran(one.member)), None)
    if old is None or strength(first.cause) >= strength(old):
        return status
    level = highest_level(first.level, IncidentLevel.POD)
    return changed(status, incidents=(changed(first, cause=old, level=level), *status.incidents[1:]))
