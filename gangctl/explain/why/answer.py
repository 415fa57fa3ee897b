"""The whole answer to `gangctl why`: state, findings, the last restart, and what could not be read."""

from __future__ import annotations

from dataclasses import dataclass

from gangctl.api.gangjob import GangJob
from gangctl.api.status import ENDED, GangPhase
from gangctl.explain.why.findings import Finding
from gangctl.explain.why.restarts import Restarts, restarts
from gangctl.explain.why.waiting import findings
from gangctl.explain.why.world import MissingRight, Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Why a gang does not run, or why it restarted."""

    phase: str
    since: float
    attempt: int
    ready: str
    message: str
    """The controller's last decision, as the status has it."""
    runs: bool
    """Whether it runs; if not, and it has not ended, ``findings`` say why."""
    findings: tuple[Finding, ...]
    restarts: Restarts | None
    missing_rights: tuple[MissingRight, ...]
    unknown_fields: tuple[str, ...]


def answer(job: GangJob, around: Surroundings, now: float, unknown_fields: tuple[str, ...] = ()) -> Answer:
    """Answer for one gang.

    Args:
        job: The gang as it is stored.
        around: What was read beside it.
        now: Seconds since the epoch.
        unknown_fields: Fields of the gang that another release wrote and this one can't read.
    """
    status = job.status
    return Answer(
        phase=status.phase or "New",
        since=status.phase_time or job.metadata.creation_timestamp,
        attempt=status.attempt,
        ready=status.ready,
        message=status.message,
        runs=status.phase is GangPhase.RUNNING,
        findings=findings(job, around, now),
        restarts=restarts(job, now),
        missing_rights=around.missing,
        unknown_fields=unknown_fields,
    )


def has_ended(answered: Answer) -> bool:
    """Whether the gang has succeeded or failed."""
    return answered.phase in ENDED
