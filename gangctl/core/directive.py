"""What a member is told: a function of what is durable and of what it said itself, and of nothing else.

The rule: Run goes only to a session that said Ready for the stored attempt, and names it. A session that knows nothing
of a running attempt is told nothing: decide() takes it for a fault. Never is anything told that isn't in the status.
"""

from __future__ import annotations

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.core.gang import holders, incarnation, members_of
from gangctl.core.launch import processes
from gangsidecar.wire import Directive, Phase, Report, Restore, Run, Verb

_FINISHING = frozenset({GangPhase.SUSPENDED, GangPhase.SUCCEEDED, GangPhase.FAILED})
_HOLDING = frozenset({GangPhase.PENDING, GangPhase.GATHERING, GangPhase.HELD})


def directive(job: GangJob, report: Report) -> Directive | None:
    """What the supervisor that sent ``report`` is told now; None = nothing."""
    status = job.status
    if report.gang != job.metadata.uid or status.phase is GangPhase.NEW:
        return None
    known = {member.name for role in job.spec.roles for member in members_of(role)}
    current = report.member in known and report.incarnation == incarnation(status, report.member)
    if not current and (report.member not in known or report.incarnation < incarnation(status, report.member)):
        return _said(job, report, Verb.FINISH, "its pod was replaced")
    if not current:
        return None  # It is of an incarnation that isn't durable yet, or of a stale look at the status.
    if status.phase in _FINISHING:
        return _said(job, report, Verb.FINISH, status.message)
    if status.phase in _HOLDING:
        return _said(job, report, Verb.HOLD, status.message)
    place = next((place for place, holder in holders(job.spec, status).items() if holder == report.member), None)
    if place is None:
        return _said(job, report, Verb.HOLD, "it is a spare")
    if report.attempt != status.attempt or report.phase not in {Phase.READY, Phase.RUNNING}:
        return None
    point = status.restore_point if job.spec.checkpoint is not None else None
    run = Run(
        session=report.session,
        processes=processes(job, place, report.member),
        restore=None if point is None else Restore(point.step, point.tier, point.path),
        checkpointed=job.spec.checkpoint is not None,
    )
    return _said(job, report, Verb.RUN, status.message, run)


def _said(job: GangJob, report: Report, verb: Verb, reason: str, run: Run | None = None) -> Directive:
    recovery, network, status = job.spec.recovery, job.spec.network, job.status
    planned = status.phase is GangPhase.SUSPENDED or (
        status.phase in _HOLDING and bool(status.incidents) and status.incidents[0].planned
    )
    grace = recovery.planned_stop_grace_period_seconds if planned else recovery.stop_grace_period_seconds
    isolation = recovery.isolation_timeout_seconds
    return Directive(
        gang=report.gang,
        pod=report.pod,
        attempt=status.attempt,
        verb=verb,
        reason=reason[:1024],
        planned=planned,
        grace_ms=grace * 1000,
        base_port=network.base_port,
        port_count=network.port_count,
        isolation_ms=None if isolation is None else isolation * 1000,
        orphan_ms=recovery.orphan_timeout_seconds * 1000,
        run=run,
    )
