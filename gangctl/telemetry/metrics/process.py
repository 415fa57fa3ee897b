"""The metrics of one process, and where their values come from."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gangctl import __version__
from gangctl.api.gangjob import GangJob
from gangctl.api.status import Status
from gangctl.core.lifecycle.plan import PlannedAction
from gangctl.core.policy.brake import BrakeState
from gangctl.telemetry.metrics.exposition import NAMESPACES, Exposition, LabelValues
from gangctl.telemetry.metrics.gangs import BUCKETS, GangMetrics
from gangctl.telemetry.metrics.incidents import IncidentMetrics
from gangctl.telemetry.port import Telemetry

# Metrics that other parts count: the hub, the watches, the election, the span exporter. Read at each scrape.


class Watch(Protocol):
    """How fresh the known objects of one kind are. Times are in seconds."""

    @property
    def kind(self) -> str:
        """The plural name of the objects."""

    @property
    def broken(self) -> float:
        """For how long the watch has been broken; 0 while it is open."""

    @property
    def silent(self) -> float:
        """How long ago the watch received something."""


class Counts(NamedTuple):
    """Counts by the values of one label, as one metric."""

    name: str
    documentation: str
    label: str
    values: Mapping[str, float]
    family: type[CounterMetricFamily | GaugeMetricFamily] = CounterMetricFamily


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to read. A source of counts has every label value from the beginning, from zero on.

    Prometheus sees no increase in a series that is new.
    """

    leads: Callable[[], bool]
    connections: Callable[[], int]
    """Pods that are connected to the hub."""
    refused: Callable[[], Mapping[str, int]]
    """Connections that the hub refused or closed, by reason."""
    pauses: Callable[[], Mapping[str, int]]
    """Messages that were read later, by whose share of the controller's time was used up."""
    stale: Callable[[], Mapping[str, int]]
    """Messages that came too late to change anything, by reason."""
    status_write_failures: Callable[[], Mapping[str, int]]
    """By the kind of error."""
    watches: Callable[[], Iterable[Watch]]
    spans: Callable[[], Mapping[str, int]]
    """By outcome."""
    events: Callable[[], Mapping[str, int]]
    """By outcome."""
    companions: Callable[[], Iterable[Counts]]
    """What runs beside the loop of the gangs, and counts for itself."""
    brake: Callable[[], BrakeState | None]
    """The last count of all members; None while this process does not lead."""
    unreadable: Callable[[], int | None]
    """Gangs that can't be read; None while this process does not lead."""


class SourceMetrics:
    """A collector for the Prometheus client."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics, with the values of now."""
        sources = self._sources
        build = GaugeMetricFamily("gangctl_build_info", "The version of the controller; always 1.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        yield GaugeMetricFamily("gangctl_leader", "1 while this process leads, else 0.", value=sources.leads())
        yield GaugeMetricFamily(
            "gangctl_hub_connections", "Pods connected to this process as leader.", value=sources.connections()
        )
        yield _by_label(
            "gangctl_hub_refusals", "Connections that the hub refused or closed.", "reason", sources.refused()
        )
        yield _by_label(
            "gangctl_hub_pauses",
            "Messages read later, because a pod or a namespace had used up its share of the controller's time.",
            "share",
            sources.pauses(),
        )
        yield _by_label(
            "gangctl_hub_stale_messages",
            "Messages of sidecars that came too late to change anything.",
            "reason",
            sources.stale(),
        )
        yield _by_label(
            "gangctl_status_write_failures", "Status writes that failed.", "reason", sources.status_write_failures()
        )
        yield _by_label("gangctl_events", "Kubernetes Events by outcome.", "outcome", sources.events())
        for counts in sources.companions():
            yield _by_label(*counts)
        yield _by_label("gangctl_spans", "Spans of incidents by outcome.", "outcome", sources.spans())
        yield from _braking(sources.brake())
        unreadable = GaugeMetricFamily(
            "gangctl_gangs_unreadable", "Gangs that this release cannot read and leaves alone.", labels=[]
        )
        count = sources.unreadable()
        if count is not None:
            unreadable.add_metric([], count)
        yield unreadable
        broken = GaugeMetricFamily(
            "gangctl_watch_broken_seconds", "How long a watch has been broken; 0 while it is open.", labels=["kind"]
        )
        silent = GaugeMetricFamily(
            "gangctl_watch_silent_seconds", "Time since a watch last received something.", labels=["kind"]
        )
        for watch in sources.watches():
            broken.add_metric([watch.kind], watch.broken)
            silent.add_metric([watch.kind], watch.silent)
        yield broken
        yield silent


def _braking(state: BrakeState | None) -> Iterable[Metric]:
    """Yield what only the leader knows, so that a sum over all controllers is right."""
    on = GaugeMetricFamily(
        "gangctl_brake",
        "1 while the controller blames no member for the silence of many (Silence), or no gang for the faults of many "
        "(Failures), else 0.",
        labels=["kind"],
    )
    members = GaugeMetricFamily(
        "gangctl_members", "Members that should be connected: connected or silent.", labels=["state"]
    )
    if state is not None:
        on.add_metric(["Silence"], state.brake.since is not None)
        on.add_metric(["Failures"], bool(state.brake.waves or state.waves))
        members.add_metric(["connected"], state.expected - state.silent)
        members.add_metric(["silent"], state.silent)
    yield on
    yield members


def _by_label(
    name: str,
    documentation: str,
    label: str,
    values: Mapping[str, float],
    kind: type[CounterMetricFamily | GaugeMetricFamily] = CounterMetricFamily,
) -> Metric:
    family = kind(name, documentation, labels=[label])
    for value, amount in values.items():
        family.add_metric([value], amount)
    return family


# All metrics of one controller process. docs/reference/metrics.md lists them.
#
# The rule: a counter belongs to the process that did the work and goes on over all its terms, so that sums over all
# controllers are right. Only the leader exports which gangs exist (gangs.py). Labels are bounded (exposition.py).


ACTIONS: Final = tuple(action.__name__ for action in get_args(PlannedAction))
_UNTIL_A_STEP: Final = ("start_up", "recovery")
_DECIDE_SECONDS: Final = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
_CALL_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics(Telemetry):
    """Counts over all terms of one process."""

    def __init__(self, sources: Sources) -> None:
        self.registry = CollectorRegistry()
        self.exposition = Exposition(self.registry)
        self._namespaces = LabelValues(NAMESPACES)
        self._known: dict[str, GangJob] = {}
        """By UID: the stored object of each gang of this term that was counted last."""
        self._gangs = GangMetrics(sources.leads)
        self._incidents = IncidentMetrics(self.registry)
        counter, histogram = partial(Counter, registry=self.registry), partial(Histogram, registry=self.registry)
        self._spent = counter(
            "gangctl_spent_seconds",
            "Time of gangs by what it was spent on, as written into their statuses.",
            ["namespace", "bucket"],
        )
        self._decide = histogram("gangctl_decide_seconds", "Duration of a decision.", buckets=_DECIDE_SECONDS)
        self._write = histogram(
            "gangctl_status_write_seconds", "Duration of a status write that succeeded.", buckets=_CALL_SECONDS
        )
        self._action = histogram(
            "gangctl_action_seconds",
            "Duration of an action that succeeded or failed.",
            ["action"],
            buckets=_CALL_SECONDS,
        )
        self._failures = counter("gangctl_action_failures", "Actions that failed and are retried.", ["action"])
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

    def decision_finished(self, seconds: float) -> None:
        self._decide.observe(seconds)

    def status_written(self, before: GangJob, after: GangJob, seconds: float) -> None:
        self._write.observe(seconds)
        self._count(self._known.get(after.metadata.uid, before), after)

    def action_finished(self, action: str, seconds: float, *, done: bool) -> None:
        self._action.labels(action).observe(seconds)
        if not done:
            self._failures.labels(action).inc()

    def gang_gone(self, uid: str) -> None:
        self._known.pop(uid, None)
        self._gangs.drop(uid)

    def term_ended(self) -> None:
        """The term is over: from now on another process exports which gangs exist."""
        self._known.clear()
        self._gangs.drop_all()

    def _begin(self, job: GangJob) -> None:
        namespace = self._namespaces.label(job.metadata.namespace)
        self._incidents.begin(namespace)
        for bucket in BUCKETS:
            self._spent.labels(namespace, bucket)
        self._gangs.keep(namespace, job)

    def _count(self, before: GangJob, after: GangJob) -> None:
        """Count what is new since the object that was counted last."""
        self._known[after.metadata.uid] = after
        namespace = self._namespaces.label(after.metadata.namespace)
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
