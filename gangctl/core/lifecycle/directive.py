"""The directive to a member: a function of the stored job, of what its attempt began with, and of the member's report.

The rule: Run goes only to a session that reported Ready for the stored attempt, and names it. One whose role waits for
others (``facts/order.py``) is told nothing until the status says that the role may start. A session that doesn't know a
running attempt gets no directive: decide() takes it for a fault. A directive must not say what the status doesn't: how
long a worker may run without a controller is told as the status has it, not as the spec does.

What may start is a pod and a session, never a member and a number: one incarnation may have had two pods. What starts
is the same for all: a Run is made from the spec that write 2 was made from, however the spec changes later. Where this
leader doesn't know that spec, a member that hasn't started isn't told to: that is a failed start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from gangctl.api.gangjob import FileProgress, GangJob, LogProgress
from gangctl.api.reasons import Reason
from gangctl.api.roles import Numbering, number_places
from gangctl.api.status import ENDED, GangPhase, Status
from gangctl.core.facts.barrier import is_planned, stop_grace
from gangctl.core.facts.gang import holders, raised_incarnations, roles_of, waiting_roles
from gangctl.core.facts.world import Pod
from gangctl.core.policy.cause import log_patterns
from gangctl.core.policy.launch import hostfiles, processes_to_start
from gangctl.core.policy.restore import tier_with
from gangctl.words.decisions import is_spare, pod_was_replaced
from gangsidecar.wire import Directive, Phase, Report, Restore, Run, Source, Verb

_FINISHING = frozenset({GangPhase.SUSPENDED, *ENDED})
_HOLDING = frozenset({GangPhase.PENDING, GangPhase.GATHERING, GangPhase.HELD})
Pods = Callable[[str], tuple[Pod, ...]]
"""The pods of a gang, by its UID, as this leader's watch shows them."""


def directives(pods: Pods, job: GangJob, before: object) -> Directives:
    """The directives that follow from a stored job. ``before``: those of the object that was stored before it.

    They are the same object where nothing that they tell has changed: most writes are news for people only.
    """
    if isinstance(before, Directives) and before.begun.is_same(job.status):
        made = Directives(job, before.begun)
        return before if made.inputs == before.inputs else made
    return Directives(job, Begun.of(job, pods(job.metadata.uid)))


@dataclass(frozen=True)
class Begun:
    """What the Runs of an attempt are made from, whatever changes while it runs."""

    job: GangJob
    pods: Mapping[str, str]
    """Member -> UID of its pod."""

    @classmethod
    def of(cls, job: GangJob, pods: tuple[Pod, ...]) -> Begun:
        """Of an attempt that this leader has begun just now, or finds begun."""
        raised, base = raised_incarnations(job.status), job.status.base_incarnation
        return cls(job, {pod.member: pod.uid for pod in pods if pod.incarnation == raised.get(pod.member, base)})

    def is_same(self, status: Status) -> bool:
        """Whether it is the attempt that runs."""
        mine = self.job.status
        return mine.phase is status.phase is GangPhase.RUNNING and mine.attempt == status.attempt

    @cached_property
    def places(self) -> dict[str, str]:
        """Member -> the place that it holds."""
        return {holder: place for place, holder in holders(self.job.spec, self.job.status).items()}

    @cached_property
    def numbering(self) -> Numbering:
        """Who has which ranks."""
        return number_places(roles_of(self.job.spec, self.job.status))

    @cached_property
    def hostfiles(self) -> dict[str, tuple[str, ...]]:
        """Process group -> the lines of its members' host file."""
        return hostfiles(self.job.status, self.numbering)

    def may_start(self, report: Report) -> bool:
        """Whether the attempt counts on this pod, and its spec is known."""
        is_known = self.job.metadata.generation == self.job.status.attempt_generation
        return is_known and self.pods.get(report.member) == report.pod

    def run(self, place: str, report: Report) -> Run:
        """What the session that sent ``report`` runs at the place."""
        job, point = self.job, self.job.status.restore_point
        return Run(
            session=report.session,
            processes=processes_to_start(job, self.numbering, place, report),
            restore=None if point is None else Restore(point.step, point.tier, point.path),
            checkpointed=job.spec.checkpoint is not None,
            process_tier="" if (kept := tier_with(job.spec, "Process")) is None else kept.name,
            hosts=self.hostfiles.get(self.numbering.roles[place].group, ()),
            source=_source(job),
            log_patterns=log_patterns(job.spec, report.member.rpartition("-")[0]),
        )


@dataclass(frozen=True)
class Directives:
    """The directives to the members of one stored job. What is the same for all of them is computed once."""

    job: GangJob
    begun: Begun

    @cached_property
    def inputs(self) -> tuple[object, ...]:
        """All that they are made from while an attempt runs, beside what it has begun with."""
        job, status = self.job, self.job.status
        of_attempt = (status.message, status.fencing, self.raised, status.base_incarnation, self.waiting)
        return (job.metadata.uid, *of_attempt, job.spec.recovery, job.spec.network)

    @cached_property
    def raised(self) -> dict[str, int]:
        """Member -> its incarnation, where that isn't ``base_incarnation``."""
        return raised_incarnations(self.job.status)

    @cached_property
    def waiting(self) -> frozenset[str]:
        """The roles whose workers must not start yet."""
        return waiting_roles(self.begun.job.spec, self.job.status)

    def __call__(self, report: Report) -> Directive | None:
        """Return the directive to the supervisor that sent ``report``; None = none."""
        job, status, begun = self.job, self.job.status, self.begun
        if report.gang != job.metadata.uid or status.phase is GangPhase.NEW:
            return None
        current = self.raised.get(report.member, status.base_incarnation)
        if report.incarnation < current:
            return _directive(job, report, Verb.FINISH, pod_was_replaced())
        if report.incarnation > current:
            return None  # A look at the status that is older than the pod.
        if status.phase in _FINISHING:
            return _directive(job, report, Verb.FINISH, status.message)
        if status.phase in _HOLDING:
            told = _directive(job, report, Verb.HOLD, status.message)
            return replace(told, stacks=_hangs(status))
        place = begun.places.get(report.member)
        if place is None:
            return _directive(job, report, Verb.HOLD, is_spare())
        waits = begun.numbering.roles[place].name in self.waiting
        starts = report.phase is Phase.READY and not waits and begun.may_start(report)
        if report.attempt != status.attempt or not (starts or report.phase is Phase.RUNNING):
            return None
        return _directive(job, report, Verb.RUN, status.message, begun.run(place, report))


def _hangs(status: Status) -> bool:
    """Whether a hang has opened the incident that is open: the stacks of all members tell who holds the others up."""
    last = status.incidents[0] if status.incidents else None
    is_open = last is not None and not last.settled and last.attempt == status.attempt
    return is_open and last is not None and last.cause.reason == Reason.HANG


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
