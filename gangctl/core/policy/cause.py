"""The cause of an incident, with all evidence in, what the pod failure policy says of it, and what follows from it.

The pod failure policy: which rule catches a fault.

The rule: rules are tried in order, all matchers of a rule must hold, the first match wins; no match means Count. A rule
must see all of a fault: 128+n matches a process that signal n ended, as users of shells expect. A line of the log never
matches by itself: it says more of an end that has happened.

The cause of an incident, and what follows from it.

The rule: the strongest evidence is the cause, among equals the earliest, and the action comes from the cause alone. The
end of a job waits ``evidenceWindowSeconds`` for stronger evidence, and needs the strictly earliest end, or all tied
ends matching, or the same tie in the next attempt. If all members end alike at one moment, no pod is suspected. The
budget must not be charged twice for one incident.
"""

from dataclasses import dataclass
from typing import Final, Literal

from gangctl.api.gangjob import Action, OnDeviceHealth, Rule, RuleLevel, Spec
from gangctl.api.incident import Cause, Incident, IncidentLevel
from gangctl.api.model import changed
from gangctl.api.names import signal_name
from gangctl.api.reasons import Reason
from gangctl.api.status import Status
from gangctl.core.facts.evidence import VAGUE_REASONS, Fault, Strength, default, simultaneous_faults, strength, tied_to
from gangctl.core.facts.faults import container_has_ended, faults, member_that_stayed
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.printed import mask_secrets
from gangctl.core.facts.progress import held_up
from gangctl.core.policy import hangs, recovery
from gangctl.words import decisions
from gangctl.words import faults as faults_words
from gangctl.words.message import Message, said_again, said_of
from gangsidecar.wire import LOG_LINE

# The pod failure policy


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says of one fault."""

    action: Action
    level: RuleLevel = RuleLevel.PROCESS
    rule: str | None = None
    """Its name, or ``rules[3]``; absent = no rule matched."""
    why: str = ""


def verdict(spec: Spec, fault: Fault) -> Verdict:
    """The first rule that matches, and what it says."""
    for at, rule in enumerate(spec.pod_failure_policy.rules):
        why = matches(spec, rule, fault)
        if why is not None:
            return Verdict(rule.action, rule.level, rule.name or f"rules[{at}]", why)
    if not default(fault.reason).charged:
        grows, by_hand = fault.reason is Reason.GROWING, fault.reason is Reason.RESTART_REQUESTED
        return Verdict(
            Action.IGNORE, why=faults_words.not_charged("" if by_hand or grows else str(fault.reason), grows)
        )
    return Verdict(Action.COUNT, why=faults_words.counts())


def matches(spec: Spec, rule: Rule, fault: Fault) -> str | None:
    """Why the rule matches the fault, in words; None if it doesn't."""
    role_name = fault.member.rpartition("-")[0]
    if rule.roles and role_name not in rule.roles:
        return None
    reasons: list[str] = []
    codes = rule.on_exit_codes
    if codes is not None:
        worker = next((role.worker.name for role in spec.roles if role.name == role_name), None)
        code = _code(fault)
        if code is None or (codes.container_name is not None and codes.container_name != worker):
            return None
        if (code in codes.values) is (codes.operator == "NotIn"):
            return None
        reasons.append(faults_words.code_matches(code, codes.values, codes.operator == "In"))
    if rule.on_signals:
        if fault.signal is None or signal_name(fault.signal) not in rule.on_signals:
            return None
        reasons.append(faults_words.signal_matches(signal_name(fault.signal)))
    if rule.on_reasons:
        if str(fault.reason) not in {str(reason) for reason in rule.on_reasons}:
            return None
        reasons.append(faults_words.reason_matches(str(fault.reason)))
    if rule.on_pod_conditions:
        wanted = {(condition.type, condition.status) for condition in rule.on_pod_conditions}
        seen = next((kind for kind, state, _ in fault.conditions if (kind, state) in wanted), None)
        if seen is None:
            return None
        reasons.append(faults_words.condition_matches(seen))
    if rule.on_device_health is not None:
        if not _is_of(rule.on_device_health, fault):
            return None
        reasons.append(faults_words.device_matches(fault.device, fault.health))
    if rule.on_log is not None:
        found = next((one for one in fault.lines if one.pattern == rule.on_log.pattern), None)
        if found is None:
            return None
        reasons.append(faults_words.log_matches(mask_secrets(found.line)[:LOG_LINE], found.pattern))
    return faults_words.rule_matches(reasons) if reasons else None


def _is_of(health: OnDeviceHealth, fault: Fault) -> bool:
    of_resource = not health.resource_names or fault.resource in health.resource_names
    return fault.health in health.health and of_resource


def log_patterns(spec: Spec, role: str) -> tuple[str, ...]:
    """What is searched for in the output of this role's workers, each pattern once."""
    rules = [rule for rule in spec.pod_failure_policy.rules if not rule.roles or role in rule.roles]
    return tuple(dict.fromkeys(rule.on_log.pattern for rule in rules if rule.on_log is not None))


def _code(fault: Fault) -> int | None:
    if fault.exit_code is not None:
        return fault.exit_code
    return None if fault.signal is None else 128 + fault.signal


# The cause of an incident, and what follows from it


NAMED: Final = 8
"""Tied members that a status names."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What an incident comes to, as far as the evidence goes."""

    cause: Cause
    level: IncidentLevel
    outcome: Literal["Restarted", "Failed", "Held"]
    reason: Reason
    because: Message
    charged: bool = False
    not_before: float = 0.0
    """Stronger evidence is expected until then: an end is not final before."""


@dataclass(frozen=True, slots=True)
class StrongestEvidence:
    """The strongest evidence of an incident so far, and what it asks for."""

    cause: Cause
    level: IncidentLevel
    found: tuple[Fault, ...]
    """All evidence that can be seen now."""


def judge_fault(spec: Spec, fault: Fault, found: tuple[Fault, ...] = ()) -> Cause:
    """Judge a fault as the cause of an incident, with what the pod failure policy says of it.

    ``found``: all evidence, for the ends that are tied with this one.
    """
    said, ties = verdict(spec, fault), simultaneous_faults(fault, found)
    return Cause(
        reason=fault.reason,
        member=fault.member,
        incarnation=fault.incarnation,
        rank=fault.rank,
        exit_code=fault.exit_code,
        signal=None if fault.signal is None else signal_name(fault.signal),
        device=fault.device,
        node=fault.node,
        rule=said.rule,
        action=said.action,
        why=said.why,
        level=recovery.highest_level(IncidentLevel(said.level), IncidentLevel(fault.level)),
        message=fault.message,
        said=said_of(fault.message),
        words=fault.words,
        time=fault.time,
        exact=fault.exact,
        tied=_names(fault.member, ties),
    )


def first_cause(gang: Gang, found: tuple[Fault, ...]) -> Cause:
    """The first of all evidence as the cause, and whether all members ended like that."""
    cause = judge_fault(gang.spec, found[0], found)
    return changed(cause, alike=_ended_alike(gang, cause, found))


def manual_cause(gang: Gang) -> Cause:
    return planned_cause(gang, Reason.RESTART_REQUESTED, faults_words.token_changed())


def planned_cause(gang: Gang, reason: Reason, text: Message) -> Cause:
    """The cause of a restart that no fault asks for."""
    return judge_fault(gang.spec, Fault(reason, "", gang.now, message=text))


@once
def strongest(gang: Gang) -> StrongestEvidence:
    """The strongest evidence so far of the open incident, stored or new."""
    incident = gang.status.incidents[0]
    found = faults(gang)
    stored = _exactly(gang, incident.cause, found)
    if found:
        new = first_cause(gang, found)
        if _outranks(gang, new, stored) or _refines(new, stored):
            return StrongestEvidence(new, recovery.level_of(gang, new), found)
    ties = {*stored.tied, *_names(stored.member, tied_to(stored, found))}
    cause = changed(stored, tied=tuple(sorted(ties))[:NAMED]) if len(ties) > 1 else stored
    cause = _located(gang, changed(cause, alike=stored.alike or _ended_alike(gang, stored, found)))
    if (
        strength(cause) is Strength.END
        and not cause.suspect
        and (member := member_that_stayed(gang, cause.member, found))
    ):
        cause = changed(cause, suspect=f"{member}.{gang.incarnation(member)}")
    level = recovery.level_of(gang, cause)
    # A fault can't be put down to one rank or one gang while it may be that of all, nor to a member that it was not.
    shared = stored.reason in {*recovery.OF_MOST, *gang.observed.brake.waves} or cause.alike
    if not shared and cause.member == stored.member:
        level = recovery.highest_level(incident.level, level)
    return StrongestEvidence(cause, level, found)


def _located(gang: Gang, cause: Cause) -> Cause:
    """The cause, put down to the member that holds the others up where all hang, or to none if nothing tells which."""
    attempt = gang.status.incidents[0].attempt - 1
    found = held_up(gang, attempt) if cause.reason == Reason.HANG and hangs.was_of_all(gang, cause.time) else None
    if found is None or (not found.member and hangs.is_alone_behind(gang, cause.member)):
        return cause
    member, text = found.member, faults_words.all_hang_by_stacks(found.text)
    located = changed(cause, message=str(text), said=text.said())
    if member == cause.member:
        return located
    return changed(located, member=member, incarnation=gang.incarnation(member) if member else 0, rank=None)


def note_cause(gang: Gang, status: Status) -> Status:
    """The status whose open incident has the strongest evidence so far; the same object if nothing is new."""
    first = status.incidents[0]
    finding = strongest(gang)
    # A worker that ended by itself leaves the others in the lurch: they can't save together any more.
    planned = first.planned and not any(fault.strength is Strength.END for fault in finding.found)
    if (_value(finding.cause), finding.level, planned) == (_value(first.cause), first.level, first.planned):
        return status
    first = changed(first, cause=finding.cause, level=finding.level, planned=planned)
    return changed(status, incidents=(first, *status.incidents[1:]))


def _value(cause: Cause) -> Cause:
    """The cause without sentences: those don't make it another."""
    return changed(cause, message="", why="")


def settle_cause(gang: Gang, finding: StrongestEvidence) -> Settlement:
    """Settle cause, level, charge and outcome of the open incident, as far as the evidence goes."""
    incident = gang.status.incidents[0]
    cause, level = finding.cause, finding.level
    charged = cause.action is not Action.IGNORE if cause.action else default(cause.reason).charged
    not_before = recovery.evidence_until(gang, incident)
    what = describe(cause, whole=True)
    ending = _ends_job(gang, cause, finding.found)
    if ending is not None:
        because = decisions.failed_by_rule(describe(ending), ending.rule or "", ending.why)
        return Settlement(ending, level, "Failed", Reason.FAILED_BY_RULE, because, not_before=not_before)
    exhausted: Literal["Failed", "Held"] = "Held" if gang.spec.recovery.on_exhausted == "Hold" else "Failed"
    if charged and recovery.rung(gang) is recovery.Rung.END:
        because = decisions.no_progress(what)
        return Settlement(cause, level, exhausted, Reason.NO_PROGRESS, because, not_before=not_before)
    if charged and recovery.is_row_of_failed_starts(gang, cause):
        because = decisions.starts_failed(what, recovery.TRIES)
        return Settlement(cause, level, exhausted, Reason.START_FAILED, because, not_before=not_before)
    if charged and (spent := recovery.budget_spent(gang)) is not None:
        because = decisions.budget_exhausted(what, *spent)
        return Settlement(cause, level, exhausted, Reason.BUDGET_EXHAUSTED, because, not_before=not_before)
    because = decisions.charged(what, charged, cause.rule or "", cause.why)
    return Settlement(cause, level, "Restarted", Reason.RESTARTED, because, charged, not_before)


def awaits_end_reason(gang: Gang, settlement: Settlement) -> bool:
    """Whether the cluster doesn't show yet why the container at fault ended: it does so a moment after the restart.

    A rule for the reason (OOMKilled) is to act at once, so it is waited for, but not beyond the evidence's window.
    """
    pod = gang.pods.get(settlement.cause.member)
    return (
        settlement.cause.reason == Reason.CONTAINER_RESTARTED
        and pod is not None
        and pod.incarnation == settlement.cause.incarnation
        and not pod.terminated
        and not container_has_ended(gang, pod)
        and gang.now < settlement.not_before
        and not recovery.is_wait_over(gang)
    )


def describe(cause: Cause | Fault, *, whole: bool = False) -> Message:
    """Return the cause in words: ``worker-1 (rank 1): ended by SIGKILL``, and what the worker printed if that is known.

    ``whole``: also whether all members ended alike, and who is suspected in place of the member.
    """
    stored = cause if isinstance(cause, Cause) else None
    return faults_words.cause(
        member=cause.member,
        rank=cause.rank,
        reason=str(cause.reason),
        seen=cause.message if stored is None or stored.said is None else said_again(stored.said) or cause.message,
        words=cause.words,
        printed="" if stored is None else stored.printed,
        alike=whole and stored is not None and stored.alike,
        suspect=recovery.suspected_member(stored)[0] if whole and stored is not None and stored.suspect else "",
    )


def _outranks(gang: Gang, new: Cause, old: Cause) -> bool:
    """Whether it is stronger, or as strong and earlier. A time to come is of another clock: it tells no order."""
    if old.reason == Reason.RESTART_REQUESTED:
        return False  # A user asked for this attempt: no fault can become its cause.
    if strength(new) != strength(old):
        return strength(new) > strength(old)
    return _identity(new) != _identity(old) and new.time < old.time <= gang.now


def _refines(new: Cause, old: Cause) -> bool:
    """Whether it is the same end of the same pod or container, known more exactly."""
    if (new.member, new.incarnation, strength(new)) != (old.member, old.incarnation, strength(old)):
        return False
    clearer = old.reason in VAGUE_REASONS and new.reason not in VAGUE_REASONS
    return strength(old) in {Strength.CONTAINER, Strength.DISRUPTION} and (
        clearer or (old.rule is None and new.rule is not None)
    )


def _exactly(gang: Gang, stored: Cause, found: tuple[Fault, ...]) -> Cause:
    """The stored cause, with its time where that is known exactly by now. What was never told exactly stays tied."""
    if stored.exact:
        return stored
    same = (judge_fault(gang.spec, one, found) for one in found if one.exact and one.member == stored.member)
    exact = next((one for one in same if _identity(one) == _identity(stored)), None)
    return stored if exact is None else changed(exact, printed=stored.printed)


def _identity(cause: Cause) -> tuple[object, ...]:
    """The same for the same evidence, however often it is reported."""
    return cause.member, cause.incarnation, cause.reason, cause.rank, cause.exit_code, cause.signal


def _names(member: str, ties: tuple[Fault, ...]) -> tuple[str, ...]:
    """The members whose ends are tied, none if it is one member alone."""
    return tuple(sorted({member, *(tie.member for tie in ties)}))[:NAMED] if ties else ()


def _ended_alike(gang: Gang, cause: Cause, found: tuple[Fault, ...]) -> bool:
    """Whether all workers of its process group ended by themselves, alike and at one moment: that is no pod's fault."""
    how = (cause.reason, cause.exit_code, cause.signal)
    same = {
        tie.member
        for tie in tied_to(cause, found)
        if how == (tie.reason, tie.exit_code, None if tie.signal is None else signal_name(tie.signal))
    }
    world = gang.world_of(cause.member)
    return bool(same and world) and world <= same | {cause.member}


def _ends_job(gang: Gang, cause: Cause, found: tuple[Fault, ...]) -> Cause | None:
    """The cause whose rule ends the job, if a FailJob rule may.

    It may if there is no tie, if all tied ends match, or if it is the same tie again. A tie of more members than a
    status names can't be known again.
    """
    if len(cause.tied) <= 1:
        return cause if cause.action is Action.FAIL_JOB else None
    ties = tied_to(cause, found)
    members = {cause.member, *cause.tied, *(fault.member for fault in ties)}
    failing = [cause] if cause.action is Action.FAIL_JOB else []
    failing += [judge_fault(gang.spec, one) for one in ties if verdict(gang.spec, one).action is Action.FAIL_JOB]
    before = _previous(gang)
    again = before is not None and len(members) < NAMED and set(before.cause.tied) == members
    if not failing or not (again or {one.member for one in failing} == members):
        return None
    return changed(min(failing, key=lambda one: one.time), tied=_names(cause.member, ties))


def _previous(gang: Gang) -> Incident | None:
    incidents = gang.status.incidents
    if len(incidents) > 1 and incidents[1].attempt == incidents[0].attempt - 1:
        return incidents[1]
    return None
