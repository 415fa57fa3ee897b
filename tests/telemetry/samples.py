"""What a process exposes, read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from gangctl.cluster.kube.watch.informers import WatchHealth
from gangctl.telemetry.metrics.process import Metrics
from gangctl.telemetry.metrics.sources import Sources


@dataclass
class Around:
    """What is around the metrics of one process, as a test sets it."""

    leads: bool = True
    connections: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    stale: dict[str, int] = field(default_factory=dict)
    unwritten: dict[str, int] = field(default_factory=dict)
    spans: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    watches: tuple[WatchHealth, ...] = (
        WatchHealth("gangjobs", 0, 1),
        WatchHealth("pods", 0, 1),
        WatchHealth("nodes", 0, 1),
    )

    def metrics(self) -> Metrics:
        """Of this process."""
        return Metrics(
            Sources(
                leads=lambda: self.leads,
                connections=lambda: self.connections,
                refused=lambda: self.refused,
                stale=lambda: self.stale,
                unwritten=lambda: self.unwritten,
                watches=lambda: self.watches,
                spans=lambda: self.spans,
                events=lambda: self.events,
            )
        )


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    """The sum of all samples of this name that have these labels."""
    samples = [sample for metric in registry.collect() for sample in metric.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def samples(registry: CollectorRegistry, name: str) -> list[Mapping[str, str]]:
    """The labels of all samples of this name."""
    return [one.labels for metric in registry.collect() for one in metric.samples if one.name == name]
