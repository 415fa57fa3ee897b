"""All metrics of one controller process. docs/reference/metrics.md lists them.

The rule: a counter belongs to the process that did the work and goes on over all its terms, so that sums over all
controllers are right. Only the leader exports which gangs exist (gangs.py). Labels are bounded (labels.py).
"""

from __future__ import annotations

from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Status
from gangctl.core.lifecycle.plan import Action
from gangctl.telemetry.metrics.exposition import Exposition
from gangctl.telemetry.metrics.gangs import BUCKETS, GangMetrics
from gangctl.telemetry.metrics.incidents import IncidentMetrics
from gangctl.telemetry.metrics.labels import Namespaces
from gangctl.telemetry.metrics.sources import SourceMetrics, Sources

ACTIONS: Final = tuple(action.__name__ for action in get_args(Action))
_UNTIL_A_STEP: Final = ("start_up", "recovery")
_DECIDE_SECONDS: Final = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
_CALL_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """A :class:`~gangctl.telemetry.port.Telemetry` over all terms of one process."""

    def __init__(self, sources: Sources) -> None:
        self.registry = CollectorRegistry()
        self.exposition = Exposition(self.registry)
        self._namespaces = Namespaces()
        self._known: dict[str, GangJob] = {}
        """By UID: the stored object of each gang of this term that was counted last."""
        self._gangs = GangMetrics(sources.leads)
        self._incidents = IncidentMetrics(self.registry)
        self._spent = Counter(
            "gangctl_spent_seconds",
            "Time of gangs by what it was spent on, as written into their statuses.",
            ["namespace", "bucket"],
            registry=self.registry,
        )
        self._decide = Histogram(
            "gangctl_decide_seconds", "Duration of a decision.", buckets=_DECIDE_SECONDS, registry=self.registry
        )
        self._write = Histogram(
            "gangctl_status_write_seconds",
            "Duration of a status write that succeeded.",
            buckets=_CALL_SECONDS,
            registry=self.registry,
        )
        self._action = Histogram(
            "gangctl_action_seconds",
            "Duration of an action that succeeded or failed.",
            ["action"],
            buckets=_CALL_SECONDS,
            registry=self.registry,
        )
        self._failures = Counter(
            "gangctl_action_failures",
            "Actions that failed and are retried.",
            ["action"],
            registry=self.registry,
        )
        for action in ACTIONS:
            self._action.labels(action)
            self._failures.labels(action)
        self.registry.register(self._gangs)
        self.registry.register(SourceMetrics(sources))
        ProcessCollector(registry=self.registry)

    def round_began(self, job: GangJob) -> None:
        """See :class:`~gangctl.telemetry.port.Telemetry`. What a term finds at its beginning was counted before."""
        known = self._known.setdefault(job.metadata.uid, job)
        if known is job:
            self._begin(job)
        else:
            self._count(known, job)

    def decided(self, seconds: float) -> None:
        """See :class:`~gangctl.telemetry.port.Telemetry`."""
        self._decide.observe(seconds)

    def status_written(self, before: GangJob, after: GangJob, seconds: float) -> None:
        """See :class:`~gangctl.telemetry.port.Telemetry`."""
        self._write.observe(seconds)
        self._count(self._known.get(after.metadata.uid, before), after)

    def action_finished(self, action: str, seconds: float, *, done: bool) -> None:
        """See :class:`~gangctl.telemetry.port.Telemetry`."""
        self._action.labels(action).observe(seconds)
        if not done:
            self._failures.labels(action).inc()

    def gang_gone(self, uid: str) -> None:
        """See :class:`~gangctl.telemetry.port.Telemetry`."""
        self._known.pop(uid, None)
        self._gangs.drop(uid)

    def term_ended(self) -> None:
        """The term is over: from now on another process exports which gangs exist."""
        self._known.clear()
        self._gangs.drop_all()

    def _begin(self, job: GangJob) -> None:
        namespace = self._namespaces.label(job)
        self._incidents.begin(namespace)
        for bucket in BUCKETS:
            self._spent.labels(namespace, bucket)
        self._gangs.keep(namespace, job)

    def _count(self, before: GangJob, after: GangJob) -> None:
        """Count what is new since the object that was counted last."""
        self._known[after.metadata.uid] = after
        namespace = self._namespaces.label(after)
        self._incidents.count(namespace, before, after)
        for bucket, had, has in zip(BUCKETS, _spent(before.status), _spent(after.status), strict=True):
            if has > had:
                self._spent.labels(namespace, bucket).inc(has - had)
        self._gangs.keep(namespace, after)


def _spent(status: Status) -> tuple[float, ...]:
    """The seconds that are counted, by bucket.

    Start-up and recovery of a gang that has never reported a step are not counted, since it may be training. The
    process that stores the first step counts all of them.
    """
    unknown = () if status.first_step is not None else _UNTIL_A_STEP
    return tuple(0.0 if bucket in unknown else getattr(status.spent, bucket) for bucket in BUCKETS)
