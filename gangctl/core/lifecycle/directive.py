"""The directive to a member: a function of the stored job and of the member's own report, and of nothing else.

The rule: Run goes only to a session that reported Ready for the stored attempt, and names it. A session that doesn't
know a running attempt gets no directive: decide() takes it for a fault. A directive must not say what the status
doesn't: how long a worker may run without a controller is told as the status has it, not as the spec does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from gangctl.api.gangjob import FileProgress, GangJob, LogProgress
from gangctl.api.reasons import Reason
from gangctl.api.status import ENDED, GangPhase, Status
from gangctl.core.facts.gang import holders, is_planned, stop_grace
from gangctl.core.facts.layout import layout
from gangctl.core.facts.numbering import Numbering, numbered
from gangctl.core.policy.launch import hostfiles, processes
from gangctl.core.policy.rules import log_patterns
from gangsidecar.wire import Directive, Phase, Report, Restore, Run, Source, Verb

_FINISHING = frozenset({GangPhase.SUSPENDED, *ENDED})
_HOLDING = frozenset({GangPhase.PENDING, GangPhase.GATHERING, GangPhase.HELD})


def directive(job: GangJob, report: Report) -> Directive | None:
    """The directive to the supervisor that sent ``report``; None = none."""
    return Directives(job).of(report)


@dataclass(frozen=True)
class Directives:
    """The directives to the members of one stored job. What is the same for all of them is computed once."""

    job: GangJob

    @cached_property
    def places(self) -> dict[str, str]:
        """Member -> the place that it holds."""
        return {holder: place for place, holder in holders(self.job.spec, self.job.status).items()}

    @cached_property
    def incarnations(self) -> dict[str, int]:
        """Member -> its current incarnation."""
        status = self.job.status
        raised = {entry.member: entry.incarnation for entry in status.replaced}
        return {**dict.fromkeys(layout(self.job.spec.roles).members, status.base_incarnation), **raised}

    @cached_property
    def numbering(self) -> Numbering:
        """Who has which ranks."""
        return numbered(self.job.spec)

    @cached_property
    def hostfiles(self) -> dict[str, tuple[str, ...]]:
        """Process group -> the lines of its members' host file."""
        return hostfiles(self.job.status, self.numbering)

    def of(self, report: Report) -> Directive | None:
        """The directive to the supervisor that sent ``report``; None = none."""
        job, status = self.job, self.job.status
        if report.gang != job.metadata.uid or status.phase is GangPhase.NEW:
            return None
        current = self.incarnations.get(report.member)
        if current is None or report.incarnation < current:
            return _directive(job, report, Verb.FINISH, "its pod was replaced")
        if report.incarnation > current:
            return None  # A look at the status that is older than the pod.
        if status.phase in _FINISHING:
            return _directive(job, report, Verb.FINISH, status.message)
        if status.phase in _HOLDING:
            told = _directive(job, report, Verb.HOLD, status.message)
            return replace(told, stacks=_hangs(status, report))
        place = self.places.get(report.member)
        if place is None:
            return _directive(job, report, Verb.HOLD, "it is a spare")
        if report.attempt != status.attempt or report.phase not in {Phase.READY, Phase.RUNNING}:
            return None
        point = status.restore_point if job.spec.checkpoint is not None else None
        run = Run(
            session=report.session,
            processes=processes(job, self.numbering, place, report),
            restore=None if point is None else Restore(point.step, point.tier, point.path),
            checkpointed=job.spec.checkpoint is not None,
            hosts=self.hostfiles.get(self.numbering.roles[place].group, ()),
            source=_source(job),
            log_patterns=log_patterns(job.spec, report.member.rpartition("-")[0]),
        )
        return _directive(job, report, Verb.RUN, status.message, run)


def _hangs(status: Status, report: Report) -> bool:
    """Whether this pod is at fault for the incident that is open, and that a hang has opened."""
    last = status.incidents[0] if status.incidents else None
    if last is None or last.settled or last.attempt != status.attempt or last.cause.reason != Reason.HANG:
        return False
    return (last.cause.member, last.cause.incarnation) == (report.member, report.incarnation)


def _source(job: GangJob) -> Source | None:
    """What a supervisor reads progress from itself."""
    match job.spec.progress.source:
        case LogProgress(pattern=pattern):
            return Source(pattern=pattern)
        case FileProgress(path=path):
            return Source(file=path)
        case _:
            return None


def _directive(job: GangJob, report: Report, verb: Verb, reason: str, run: Run | None = None) -> Directive:
    recovery, network, status = job.spec.recovery, job.spec.network, job.status
    told = status.fencing
    isolation = recovery.isolation_timeout_seconds if told is None else told.isolation_seconds
    grace = stop_grace(job.spec, status) if told is None else told.stop_grace_seconds
    return Directive(
        gang=report.gang,
        pod=report.pod,
        attempt=status.attempt,
        verb=verb,
        reason=reason[:1024],
        planned=is_planned(status),
        grace_ms=grace * 1000,
        base_port=network.base_port,
        port_count=network.port_count,
        isolation_ms=None if isolation is None else isolation * 1000,
        orphan_ms=recovery.orphan_timeout_seconds * 1000,
        fencing=0 if told is None else told.revision,
        run=run,
    )
