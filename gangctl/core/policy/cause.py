"""Settling: the cause of an incident, with all evidence in, and what follows from it.

The rule: the strongest evidence is the cause, among equals the earliest, and the action comes from the cause alone.
What ends the job waits ``evidenceWindowSeconds`` for stronger evidence, and needs the strictly earliest end, or all
tied ends matching, or the same tie in the next attempt. Never is the budget charged twice for one incident.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gangctl.api.changes import changed
from gangctl.api.gangjob import Action, Rule, Spec
from gangctl.api.reasons import Reason
from gangctl.api.status import Cause, Incident, IncidentLevel, Status
from gangctl.core.facts.containers import has_ended
from gangctl.core.facts.evidence import VAGUE_REASONS, Fault, Strength, as_cause, from_cause, tied
from gangctl.core.facts.faults import faults
from gangctl.core.facts.gang import Gang
from gangctl.core.policy import budget, ladder
from gangctl.core.policy.rules import Verdict, verdict


@dataclass(frozen=True, slots=True)
class Settlement:
    """What an incident comes to, as far as the evidence goes."""

    cause: Cause
    level: IncidentLevel
    outcome: Literal["Restarted", "Failed", "Held"]
    reason: Reason
    because: str
    charged: bool = False
    not_before: float = 0.0
    """Stronger evidence is expected until then: an end is not final before."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The strongest evidence of an incident so far."""

    cause: Cause
    verdict: Verdict
    level: IncidentLevel
    found: tuple[Fault, ...]
    """All of it that can be seen now."""


def strongest(gang: Gang) -> Evidence:
    """The strongest evidence so far of the open incident, stored or new, and the rule that catches it."""
    incident = gang.status.incidents[0]
    old = from_cause(incident.cause)
    found = faults(gang)
    new = found[0] if found else None
    said = None if new is None else verdict(gang.spec, new)
    if new is not None and said is not None and (_outranks(new, old) or _refines(new, said, incident.cause, old)):
        return Evidence(as_cause(new, said.rule, tied(new, found)), said, ladder.level(gang, new, said), found)
    said = stored_verdict(gang.spec, incident.cause)
    level = ladder.level(gang, old, said)
    if old.reason is not Reason.RESTORE_POINT_MISSING:  # Whose fault that is is known when everybody has looked.
        level = max(incident.level, level, key=ladder.LEVELS.index)
    return Evidence(_with_ties(incident.cause, old, found), said, level, found)


def noted(gang: Gang, status: Status) -> Status:
    """The status whose open incident has the strongest evidence so far; the same object if nothing is new."""
    first = status.incidents[0]
    evidence = strongest(gang)
    # A worker that ended by itself leaves the others in the lurch: they can't save together any more.
    planned = first.planned and not any(fault.strength is Strength.END for fault in evidence.found)
    if (evidence.cause, evidence.level, planned) == (first.cause, first.level, first.planned):
        return status
    first = changed(first, cause=evidence.cause, level=evidence.level, planned=planned)
    return changed(status, incidents=(first, *status.incidents[1:]))


def stored_verdict(spec: Spec, cause: Cause) -> Verdict:
    """What the policy says of a stored cause: its rule was found when the evidence was whole."""
    if cause.rule is None:
        return verdict(spec, from_cause(cause))
    rule = next(
        (rule for at, rule in enumerate(spec.pod_failure_policy.rules) if cause.rule in {rule.name, f"rules[{at}]"}),
        None,
    )
    return verdict(spec, from_cause(cause)) if rule is None else _of_rule(rule, cause.rule)


def settle(gang: Gang) -> Settlement:
    """What the open incident comes to now."""
    incident = gang.status.incidents[0]
    evidence = strongest(gang)
    cause, said, level = evidence.cause, evidence.verdict, evidence.level
    charged = said.action is not Action.IGNORE
    not_before = incident.time + gang.spec.recovery.evidence_window_seconds
    what = describe(cause)
    ending = _ends_job(gang, cause, said)
    if ending is not None:
        cause, said = ending
        because = f"{describe(cause)}; rule {said.rule} says FailJob: {said.why}"
        return Settlement(cause, level, "Failed", Reason.FAILED_BY_RULE, because, not_before=not_before)
    exhausted: Literal["Failed", "Held"] = "Held" if gang.spec.recovery.on_exhausted == "Hold" else "Failed"
    if charged and ladder.rung(gang) is ladder.Rung.END:
        because = f"{what}; again and again from the same restore point without progress, nothing is left to try"
        return Settlement(cause, level, exhausted, Reason.NO_PROGRESS, because, not_before=not_before)
    if charged and not budget.allows(gang.spec, gang.status, gang.now):
        used, window = budget.charged(gang.spec, gang.status, gang.now), budget.window_seconds(gang.spec)
        because = f"{what}; the budget is used up: {used} restarts in {window} s"
        return Settlement(cause, level, exhausted, Reason.BUDGET_EXHAUSTED, because, not_before=not_before)
    because = f"{what}; {'charged' if charged else 'not charged'} ({said.why})"
    return Settlement(cause, level, "Restarted", Reason.RESTARTED, because, charged, not_before)


def is_being_told(gang: Gang, settlement: Settlement) -> bool:
    """Whether the cluster hasn't said yet why the container at fault has ended: it does so a moment after the restart.

    A rule for the reason (OOMKilled) is to act at once, so it is waited for, but not beyond the evidence's window.
    """
    pod = gang.pods.get(settlement.cause.member)
    return (
        settlement.cause.reason == Reason.CONTAINER_RESTARTED
        and pod is not None
        and pod.incarnation == settlement.cause.incarnation
        and not pod.terminated
        and not has_ended(gang, pod)
        and gang.now < settlement.not_before
    )


def describe(cause: Cause) -> str:
    """The cause in words: ``worker-1 (rank 1): ended by SIGKILL``."""
    who = cause.member or "the gang"
    rank = "" if cause.rank is None else f" (rank {cause.rank})"
    return f"{who}{rank}: {cause.message or cause.reason}"


def _outranks(new: Fault, old: Fault) -> bool:
    if old.reason is Reason.RESTART_REQUESTED:
        return False  # Somebody asked for this attempt: whatever else happens is not what it is put down to.
    if new.strength != old.strength:
        return new.strength > old.strength
    return _identity(new) != _identity(old) and new.time < old.time


def _refines(new: Fault, said: Verdict, stored: Cause, old: Fault) -> bool:
    """Whether it is the same end of the same pod or container, told more exactly."""
    if (new.member, new.incarnation, new.strength) != (old.member, old.incarnation, old.strength):
        return False
    clearer = old.reason in VAGUE_REASONS and new.reason not in VAGUE_REASONS
    return old.strength in {Strength.CONTAINER, Strength.DISRUPTION} and (
        clearer or (stored.rule is None and said.rule is not None)
    )


def _identity(fault: Fault) -> tuple[object, ...]:
    """The same for the same evidence, however often it is told."""
    return fault.member, fault.incarnation, fault.reason, fault.rank, fault.exit_code, fault.signal


def _with_ties(stored: Cause, fault: Fault, found: tuple[Fault, ...]) -> Cause:
    ties = tied(fault, found)
    names = tuple(sorted({*stored.tied, *(tie.member for tie in ties)}))[:8]
    return stored if len(names) <= 1 else changed(stored, tied=names)


def _ends_job(gang: Gang, cause: Cause, said: Verdict) -> tuple[Cause, Verdict] | None:
    """The cause and rule that end the job, if a FailJob rule may.

    It may if there is no tie, if all tied ends match, or if it is the same tie again.
    """
    if len(cause.tied) <= 1:
        return (cause, said) if said.action is Action.FAIL_JOB else None
    found = faults(gang)
    ties = [fault for fault in tied(from_cause(cause), found) if fault.member in cause.tied]
    judged = [(fault, verdict(gang.spec, fault)) for fault in ties]
    failing = [(fault, one) for fault, one in judged if one.action is Action.FAIL_JOB]
    before = _previous(gang)
    again = before is not None and before.cause.tied == cause.tied
    if not failing or not (again or (len(failing) == len(cause.tied))):
        return None
    fault, one = min(failing, key=lambda pair: pair[0].time)
    return as_cause(fault, one.rule, tuple(ties)), one


def _previous(gang: Gang) -> Incident | None:
    incidents = gang.status.incidents
    if len(incidents) > 1 and incidents[1].attempt == incidents[0].attempt - 1:
        return incidents[1]
    return None


def _of_rule(rule: Rule, name: str) -> Verdict:
    return Verdict(rule.action, rule.level, name, f"rule {name} matched")
