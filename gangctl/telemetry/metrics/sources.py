"""Figures that others keep: the hub, the watches, the election, the exporter of spans. They are read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gangctl import __version__
from gangctl.cluster.kube.watch.informers import WatchHealth
from gangctl.cluster.port import RefusalReason

REFUSALS: Final = (
    *(reason.value for reason in RefusalReason),
    "Broken",
    "Malformed",
    "NoRequest",
    "Standby",
    "Superseded",
    "TooMany",
    "TooSlow",
    "WrongIdentity",
)
STALE: Final = ("OlderAttempt", "Overtaken", "Superseded")
UNWRITTEN: Final = ("Conflict", "Retryable", "Terminal")
SPANS: Final = ("exported", "failed", "dropped")
EVENTS: Final = ("sent", "combined", "left_out", "lost")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to look."""

    leads: Callable[[], bool]
    connections: Callable[[], int]
    """Pods that are connected to the hub."""
    refused: Callable[[], Mapping[str, int]]
    """Connections that the hub refused or closed, by reason."""
    stale: Callable[[], Mapping[str, int]]
    """Messages that came too late to change anything, by reason."""
    unwritten: Callable[[], Mapping[str, int]]
    """Status writes that failed, by how."""
    watches: Callable[[], Iterable[WatchHealth]]
    spans: Callable[[], Mapping[str, int]]
    """Spans: exported, failed, dropped."""
    events: Callable[[], Mapping[str, int]]
    """Events: sent, combined, left_out, lost."""


class SourceMetrics:
    """A collector."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def describe(self) -> Iterable[Metric]:
        """See :meth:`collect`."""
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """One family after the other."""
        look = self._sources
        build = GaugeMetricFamily("gangctl_build_info", "The version of the controller; always 1.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        yield GaugeMetricFamily("gangctl_leader", "1 while this process leads, else 0.", value=look.leads())
        yield GaugeMetricFamily(
            "gangctl_hub_connections", "Pods whose sidecar is connected to this process.", value=look.connections()
        )
        yield _counted(
            "gangctl_hub_refusals",
            "Connections that the hub refused, or closed from its side.",
            "reason",
            REFUSALS,
            look.refused(),
        )
        yield _counted(
            "gangctl_hub_stale_messages",
            "Messages of sidecars that came too late to change anything.",
            "reason",
            STALE,
            look.stale(),
        )
        yield _counted(
            "gangctl_status_write_failures",
            "Writes of a status that failed; after a conflict the gang is decided upon anew.",
            "reason",
            UNWRITTEN,
            look.unwritten(),
        )
        yield _counted("gangctl_events", "Kubernetes Events, by what became of them.", "outcome", EVENTS, look.events())
        yield _counted("gangctl_spans", "Spans of incidents, by what became of them.", "outcome", SPANS, look.spans())
        broken = GaugeMetricFamily(
            "gangctl_watch_broken_seconds", "For how long a watch has been broken; 0 while it stands.", labels=["kind"]
        )
        silent = GaugeMetricFamily(
            "gangctl_watch_silent_seconds", "How long ago something was heard on a watch.", labels=["kind"]
        )
        for watch in look.watches():
            broken.add_metric([watch.kind], watch.broken)
            silent.add_metric([watch.kind], watch.silent)
        yield broken
        yield silent


def _counted(name: str, help_: str, label: str, known: Iterable[str], counts: Mapping[str, int]) -> CounterMetricFamily:
    """A family with a series for all that is known, from zero: an increase is only seen in a series that is there."""
    family = CounterMetricFamily(name, help_, labels=[label])
    for value, count in {**dict.fromkeys(known, 0), **counts}.items():
        family.add_metric([value], count)
    return family
