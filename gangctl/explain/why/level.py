"""Why an incident has its level: what asked for it, as far as the status tells.

The rule: the fault's own level, the default of its reason and the rule that matched ask first; more than that comes of
repetition (``core/policy/recovery.py``) or of a barrier that could not be reached.
"""

from __future__ import annotations

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident, IncidentLevel
from gangctl.api.reasons import Reason
from gangctl.core.facts.evidence import Strength, default, strength
from gangctl.core.policy.recovery import highest, ledger_in_window, suspected


def level_because(job: GangJob, incident: Incident) -> str:
    """The end of a sentence, after ``because``."""
    cause, level, least = incident.cause, incident.level, default(incident.cause.reason).level
    if level is not highest(level, cause.level, least):
        return _less(incident)
    if level is least:
        return f"that is the default of {cause.reason}"
    if level is cause.level:
        return f"rule {cause.rule} asks for it" if cause.rule else "the fault itself asks for it"
    if level is IncidentLevel.GANG:
        return "too many members needed a new pod, or did not get ready in time (recovery.barrierTimeoutSeconds)"
    if level is IncidentLevel.POD:
        return _repeated(job, incident)
    return "stronger evidence asked for it before"


def _less(incident: Incident) -> str:
    if incident.cause.reason == Reason.RESTORE_POINT_MISSING:
        return "most members did not see the checkpoint, so no pod is to blame"
    if incident.cause.alike:
        return "every member ended alike, so no pod is to blame"
    return "other evidence came first"


def _repeated(job: GangJob, incident: Incident) -> str:
    cause, after, checkpoint = incident.cause, job.spec.recovery.replace_after, job.spec.checkpoint
    ledger = ledger_in_window(job.spec, job.status, incident.time)
    member, number = suspected(cause)
    before = [one for one in ledger if (one.member, one.incarnation) == (member, number)]
    times = 1 + sum(one.attempt < incident.attempt for one in before)
    if times >= after and strength(cause) is not Strength.REQUEST:
        return f"it was the {_ordinal(times)} fault of {member} with this pod (recovery.replaceAfter: {after})"
    if checkpoint is not None:
        return (
            "the gang failed again and again from one restore point without progress "
            f"(checkpoint.fallbackAfter: {checkpoint.fallback_after})"
        )
    return "stronger evidence asked for it before"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
