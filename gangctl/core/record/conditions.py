"""Conditions: what machines read of the status. A condition's time changes only when its state does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gangctl.api.changes import changed
from gangctl.api.conditions import ConditionType
from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.api.model import sentence
from gangctl.api.reasons import Reason
from gangctl.api.status import ENDED, Condition, GangPhase, Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.trace_context import trace_of
from gangctl.core.record.incidents import told_of
from gangctl.words.decisions import as_stored
from gangctl.words.message import Message, said_again

State = Literal["True", "False", "Unknown"]
Warned = tuple[Reason, Message]
"""The thing that a user should look at, in one word and in a sentence."""

PHASE_REASONS = {
    GangPhase.PENDING: Reason.PENDING,
    GangPhase.GATHERING: Reason.GATHERING,
    GangPhase.RUNNING: Reason.RUNNING,
    GangPhase.SUSPENDED: Reason.SUSPENDED,
    GangPhase.HELD: Reason.HELD,
    GangPhase.SUCCEEDED: Reason.SUCCEEDED,
    GangPhase.FAILED: Reason.BUDGET_EXHAUSTED,
}


def with_message(status: Status, message: Message) -> Status:
    """Return the status with this message; the same object if it says that already, in whatever words."""
    if message.is_same(status.said):
        return status
    return changed(status, message=str(message), said=message.said())


def with_message_again(gang: Gang, status: Status) -> Status:
    """Return the status whose message and conditions have what the worker at fault for its newest incident printed."""
    cause = status.incidents[0].cause

    def update(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        is_cause = name == "cause" and (given.get("member"), given.get("rank")) == (cause.member, cause.rank)
        return {"printed": cause.printed} if is_cause else {}

    again = None if status.said is None else said_again(status.said, update)
    if again is None:
        return status
    text = _with_trace(gang.job, again, told_of(status))
    kept = {ConditionType.ACCEPTED, *([ConditionType.DEGRADED] if warning(status) else [])}
    told = (each if each.type in kept else changed(each, message=text) for each in status.conditions)
    return changed(status, message=str(again), said=again.said(), conditions=tuple(told))


def with_conditions(
    job: GangJob,
    status: Status,
    now: float,
    reason: Reason | None = None,
    degraded: Warned | None = None,
    *,
    refused: Message | None = None,
) -> Status:
    """Return the status with all conditions, in a fixed order. Where they are about an incident, they name its trace.

    ``reason`` is more exact than the phase's; ``degraded`` says what a user should look at, ``refused`` why the cluster
    takes no pods of the gang.
    """
    stored = refused is not None and refused.name == as_stored.__name__
    return changed(
        status,
        conditions=_conditions(job, status, now, reason, degraded, refused=refused or ""),
        warning=None if degraded is None else degraded[1].said(),
        refusal=status.refusal if stored else None if refused is None else refused.said(),
    )


def _conditions(
    job: GangJob, status: Status, now: float, reason: Reason | None, degraded: Warned | None, *, refused: str
) -> tuple[Condition, ...]:
    phase, generation = status.phase, job.metadata.generation
    text = _with_trace(job, status.message, told_of(status))
    why = reason or PHASE_REASONS.get(phase, Reason.SUBMITTED)
    restarting = phase is GangPhase.GATHERING or (phase is GangPhase.PENDING and status.attempt > 1)
    progressing = phase in {GangPhase.GATHERING, GangPhase.RUNNING} or (phase is GangPhase.PENDING and not refused)
    states: list[tuple[ConditionType, bool]] = [
        (ConditionType.READY, phase is GangPhase.RUNNING),
        (ConditionType.PROGRESSING, progressing),
        (ConditionType.SUSPENDED, phase is GangPhase.SUSPENDED),
        (ConditionType.RESTARTING, restarting),
        (ConditionType.FINISHED, phase in ENDED),
        (ConditionType.SUCCEEDED, phase is GangPhase.SUCCEEDED),
        (ConditionType.FAILED, phase is GangPhase.FAILED),
    ]
    old = {condition.type: condition for condition in status.conditions}
    accepted = _accepted(old.get(ConditionType.ACCEPTED), why, status.message, refused, at=(generation, now))
    rest = (
        _condition(old.get(kind), kind, state="True" if holds else "False", why=why, text=text, at=(generation, now))
        for kind, holds in states
    )
    found = (accepted, *rest)
    seen = old.get(ConditionType.DEGRADED)
    if not degraded and seen is None:
        return found
    looking = _condition(
        seen,
        ConditionType.DEGRADED,
        state="True" if degraded else "False",
        why=degraded[0] if degraded else why,
        text=degraded[1] if degraded else text,
        at=(generation, now),
    )
    return (*found, looking)


def _with_trace(job: GangJob, message: str, incident: Incident | None) -> str:
    return sentence(message, "" if incident is None else f" (trace {trace_of(job, incident)})")


def warning(status: Status) -> Condition | None:
    """The condition Degraded; None if it doesn't hold."""
    return next((one for one in status.conditions if one.type == ConditionType.DEGRADED and one.status == "True"), None)


def warned_of(status: Status) -> str:
    """The reason of the condition Degraded; empty if it doesn't hold."""
    found = warning(status)
    return "" if found is None else found.reason


def hangs(status: Status) -> bool:
    """Whether the gang runs, and hangs, and nothing is restarted because of it."""
    return status.phase is GangPhase.RUNNING and warned_of(status) == Reason.HANG


def _condition(
    old: Condition | None, kind: ConditionType, *, state: State, why: Reason, text: str, at: tuple[int, float]
) -> Condition:
    return Condition(
        type=kind,
        status=state,
        reason=why,
        message=text,
        observed_generation=at[0],
        last_transition_time=old.last_transition_time if old is not None and old.status == state else at[1],
    )


def _accepted(old: Condition | None, why: Reason, text: str, refused: str, at: tuple[int, float]) -> Condition:
    """An accepted gang keeps its condition: it does not change with each decision."""
    if refused:
        return _condition(old, ConditionType.ACCEPTED, state="False", why=Reason.TEMPLATE_REFUSED, text=refused, at=at)
    if old is not None and old.status == "True":
        return old
    reason = why if old is None else Reason.TEMPLATE_ACCEPTED
    return _condition(old, ConditionType.ACCEPTED, state="True", why=reason, text=text, at=at)
