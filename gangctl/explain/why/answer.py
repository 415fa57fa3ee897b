"""The whole answer to `gangctl why`: state, findings, the last restart, and what could not be read.

In JSON, amounts of resources are texts, as in Kubernetes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.api.status import ENDED, GangPhase
from gangctl.explain.why.findings import Finding, FindingKind, amount
from gangctl.explain.why.restarts import RestartHistory, gang_restarts
from gangctl.explain.why.waiting import findings
from gangctl.explain.why.walk import Room
from gangctl.explain.why.world import GangSurroundings, MissingRight
from gangctl.story.document import document, gang_document
from gangctl.story.words import STOPPED, attempt_checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a gang does not run, or why it restarted."""

    gang: Mapping[str, str]
    """Name, namespace and UID."""
    phase: str
    since: float | None = None
    attempt: int
    ready: str = ""
    message: str = ""
    """The controller's last decision, as the status has it; of a gang that is stopped, by what."""
    runs: bool
    """If it does not run and has not ended, ``findings`` say why."""
    findings: tuple[Finding, ...]
    checks: tuple[str, ...] = ()
    """Of this attempt, as far as no incident has them."""
    restarts: RestartHistory | None = None
    missing_rights: tuple[MissingRight, ...] = ()
    unknown_fields: tuple[str, ...] = ()


def answer(job: GangJob, around: GangSurroundings, now: float, unknown_fields: tuple[str, ...] = ()) -> Explanation:
    """Answer for one gang.

    Args:
        job: The gang as it is stored.
        around: What was read beside it.
        now: Seconds since the epoch.
        unknown_fields: Fields of the gang that another release wrote and this one can't read.
    """
    status, found = job.status, findings(job, around, now)
    is_over = any(one.kind is FindingKind.ENDED for one in found)
    is_stopped = is_over and status.phase not in ENDED
    return Explanation(
        gang=gang_document(job),
        phase=STOPPED if is_stopped else status.phase or "New",
        since=status.phase_time or job.metadata.creation_timestamp,
        attempt=status.attempt,
        ready="" if is_over else status.ready,
        message=f"{found[0].seen}; {found[0].do}" if is_stopped else status.message,
        runs=status.phase is GangPhase.RUNNING and not is_over,
        findings=found,
        checks=attempt_checks(status),
        restarts=gang_restarts(job, now),
        missing_rights=around.missing,
        unknown_fields=unknown_fields,
    )


def has_ended(answered: Explanation) -> bool:
    """Return whether the gang has succeeded or failed, or `gangctl run` has ended it."""
    return answered.phase in {*ENDED, STOPPED}


@document.register
def _room(room: Room) -> dict[str, Any]:
    amounts = ("needs", "free", "most", "of", "largest")
    return {"resource": room.resource, **{name: amount(room.resource, getattr(room, name)) for name in amounts}}
