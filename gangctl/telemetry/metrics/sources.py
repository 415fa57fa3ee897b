"""Metrics that other parts count: the hub, the watches, the election, the span exporter. Read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gangctl import __version__
from gangctl.core.policy.brake import BrakeState


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
    guard: Callable[[], Mapping[str, int]]
    """Requests of the device guard to evict a pod, by result."""
    brake: Callable[[], BrakeState | None]
    """The last count of all members; None while this process does not lead."""
    unreadable: Callable[[], int | None]
    """Gangs that can't be read; None while this process does not lead."""


class SourceMetrics:
    """A collector for the Prometheus client."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def describe(self) -> Iterable[Metric]:
        """See :meth:`collect`."""
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics, with the values of now."""
        sources = self._sources
        build = GaugeMetricFamily("gangctl_build_info", "The version of the controller; always 1.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        yield GaugeMetricFamily("gangctl_leader", "1 while this process leads, else 0.", value=sources.leads())
        yield GaugeMetricFamily(
            "gangctl_hub_connections", "Pods whose sidecar is connected to this process.", value=sources.connections()
        )
        yield _counter(
            "gangctl_hub_refusals", "Connections that the hub refused or closed.", "reason", sources.refused()
        )
        yield _counter(
            "gangctl_hub_pauses",
            "Messages that were read later, because a pod or a namespace had used up its share of the controller's "
            "time.",
            "share",
            sources.pauses(),
        )
        yield _counter(
            "gangctl_hub_stale_messages",
            "Messages of sidecars that came too late to change anything.",
            "reason",
            sources.stale(),
        )
        yield _counter(
            "gangctl_status_write_failures",
            "Status writes that failed. After a conflict the decision is repeated on the current status.",
            "reason",
            sources.status_write_failures(),
        )
        yield _counter("gangctl_events", "Kubernetes Events by outcome.", "outcome", sources.events())
        yield _counter(
            "gangctl_device_guard_evictions",
            "Requests of the device guard to evict a pod outside gangs, by result.",
            "result",
            sources.guard(),
        )
        yield _counter("gangctl_spans", "Spans of incidents by outcome.", "outcome", sources.spans())
        yield from _braking(sources.brake())
        unreadable = GaugeMetricFamily(
            "gangctl_gangs_unreadable",
            "Gangs that this release cannot read and leaves alone. Only the leader exports it.",
            labels=[],
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
        "(Failures), else 0. Only the leader exports it.",
        labels=["kind"],
    )
    members = GaugeMetricFamily(
        "gangctl_members",
        "Members that should be connected: connected or silent. Only the leader exports it.",
        labels=["state"],
    )
    if state is not None:
        on.add_metric(["Silence"], state.brake.since is not None)
        on.add_metric(["Failures"], bool(state.brake.waves or state.waves))
        members.add_metric(["connected"], state.expected - state.silent)
        members.add_metric(["silent"], state.silent)
    yield on
    yield members


def _counter(name: str, documentation: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, documentation, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
