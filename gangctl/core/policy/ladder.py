"""The recovery ladder: how much is thrown away for a cause, and when there is nothing left to try.

    level(cause) = max(what the fault and its rule ask for, what the ledger asks for)

The same member again costs its pod, unless all members ended alike, or others of a process group had finished. The
same restore point again and again without progress leads to an older checkpoint, then to the suspect's pod, then to the
end. The ladder must not lower what a rule asks for, and unknown progress must not count as none. What many gangs fail
for at once (``brake.py``) must not cost a pod.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from gangctl.api.incident import Cause, IncidentLevel
from gangctl.api.reasons import Reason
from gangctl.core.facts.defaults import Strength, default
from gangctl.core.facts.evidence import strength
from gangctl.core.facts.faults import failed_attempt, is_missing_for_most, is_unseen_by_most
from gangctl.core.facts.finished import finished
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.numbering import numbered
from gangctl.core.facts.progress import first_step, highest_step
from gangctl.core.policy.budget import in_window

LEVELS: Final = (IncidentLevel.PROCESS, IncidentLevel.CONTAINER, IncidentLevel.POD, IncidentLevel.GANG)


class Rung(IntEnum):
    """What repeated failures without progress ask for."""

    NOTHING = 0
    OLDER_STEP = 1
    SUSPECT_POD = 2
    END = 3


def level(gang: Gang, cause: Cause) -> IncidentLevel:
    """How much is thrown away for this cause."""
    asked, least = [cause.level], default(cause.reason).level
    if cause.reason != Reason.RESTORE_POINT_MISSING:
        asked.append(least)
    if cause.reason in gang.observed.brake.waves:
        return highest(*asked)
    if cause.reason == Reason.RESTORE_POINT_MISSING:
        return highest(*asked) if is_unseen_by_most(gang) else highest(*asked, least)
    suspected = again(gang, cause) >= gang.spec.recovery.replace_after or rung(gang) >= Rung.SUSPECT_POD
    if suspected and not cause.alike and not is_over(gang):
        asked.append(IncidentLevel.POD)
    return highest(*asked)


def highest(*levels: IncidentLevel) -> IncidentLevel:
    """The one that throws away most."""
    return max(levels, key=LEVELS.index)


def again(gang: Gang, cause: Cause) -> int:
    """How often the member was the cause since it has its pod, this time included. A request blames no member."""
    if not cause.member or strength(cause) is Strength.REQUEST:
        return 0
    ledger = in_window(gang.spec, gang.status, gang.now)
    return 1 + sum((old.member, old.incarnation) == suspected(cause) for old in ledger)


def suspected(cause: Cause) -> tuple[str, int]:
    """The member that the cause is put down to, and the incarnation of its pod."""
    member, _, number = cause.suspect.rpartition(".")
    return (member, int(number)) if number else (cause.member, cause.incarnation)


def rung(gang: Gang) -> Rung:
    """How far failures in a row without progress have gone, this one included."""
    checkpoint = gang.spec.checkpoint
    return Rung.NOTHING if checkpoint is None else Rung(min(failures(gang) // checkpoint.fallback_after, Rung.END))


def failures(gang: Gang) -> int:
    """Failures in a row without progress, this one included; 0 if it made progress or that isn't known."""
    if has_progressed(gang) is not False:
        return 0
    failures = 1
    for entry in reversed(gang.status.ledger):
        if entry.progressed is not False:
            break
        failures += entry.charged  # A disruption says nothing about the step.
    return failures


def has_progressed(gang: Gang) -> bool | None:
    """Whether any rank of the failed attempt reported a step beyond its restore point; None = it is not known.

    A gang that has reported steps before and none now made none: it failed to load its checkpoint. Where most members
    could not look for it, or some had finished, that says nothing about the step.
    """
    if is_unseen_by_most(gang) and not is_missing_for_most(gang):
        return None
    made, status = highest_step(gang, failed_attempt(gang)), gang.status
    if made is None:
        first = first_step(gang)
        if first is not None and first.step is None:
            return first.attempt == failed_attempt(gang)  # It made a step, which is beyond what it had restored.
        return None if status.progress is None or is_over(gang) else False
    point = status.restore_point
    return made.step > (0 if point is None else point.step) or (None if is_over(gang) else False)


def is_over(gang: Gang) -> bool:
    """Whether ranks of a process group had finished, and others had not: no step was left to make."""
    done = finished(gang)
    return bool(done) and any(0 < len(done & {*places}) < len(places) for places in numbered(gang.spec).groups.values())
