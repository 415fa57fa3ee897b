"""The metrics of a process with set sources, and their samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import cast

from prometheus_client import CollectorRegistry

from gangctl.annexes.device_guard.loop import DeviceGuard
from gangctl.annexes.device_guard.pods import WatchedPods
from gangctl.annexes.device_taints import companion as taints
from gangctl.annexes.jobset import companion as jobsets
from gangctl.annexes.node_records import companion as node_records
from gangctl.annexes.node_records import hand_over
from gangctl.annexes.node_records.records import NodeRecord
from gangctl.cluster.kube.events import OUTCOMES
from gangctl.cluster.kube.reflector import WatchHealth
from gangctl.controller.gate import RefusalLog
from gangctl.controller.intake import Owner
from gangctl.controller.relay import counted
from gangctl.controller.reports import StaleReason
from gangctl.core.policy.brake import BrakeState
from gangctl.telemetry.metrics.process import Metrics, Sources
from gangctl.telemetry.tracing.exporter import SpanCounts


@dataclass
class FakeSources:
    """The sources of the metrics of one process, as a test sets them."""

    leads: bool = True
    connections: int = 0
    refused: dict[str, int] = field(default_factory=lambda: dict(RefusalLog().counts))
    pauses: dict[str, int] = field(default_factory=lambda: dict.fromkeys(Owner, 0))
    stale: dict[str, int] = field(default_factory=lambda: dict.fromkeys(StaleReason, 0))
    status_write_failures: dict[str, int] = field(default_factory=lambda: {"Conflict": 0})
    spans: dict[str, int] = field(default_factory=lambda: asdict(SpanCounts()))
    brake: BrakeState | None = field(default_factory=BrakeState)
    unreadable: int | None = 0
    events: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    watches: tuple[WatchHealth, ...] = (
        WatchHealth("gangjobs", 0, 1),
        WatchHealth("pods", 0, 1),
        WatchHealth("nodes", 0, 1),
    )

    def metrics(self) -> Metrics:
        """The metrics of the process."""
        return Metrics(
            Sources(
                leads=lambda: self.leads,
                connections=lambda: self.connections,
                refused=lambda: self.refused,
                pauses=lambda: self.pauses,
                stale=lambda: self.stale,
                status_write_failures=lambda: self.status_write_failures,
                watches=lambda: self.watches,
                spans=lambda: self.spans,
                companions=lambda: [
                    *counted(None, None),
                    DeviceGuard(cast("WatchedPods", None)).requests,
                    *(one.counts(dict.fromkeys(one.RESULTS, 0)) for one in (node_records, jobsets, taints)),
                    *node_records.gauges({"n1": NodeRecord(namespaces={"a": 1.0})}, 0.0),
                    *(
                        hand_over.counts(flag, dict.fromkeys(hand_over.RESULTS, 0))
                        for flag in (hand_over.CONDITION_FLAG, hand_over.REQUEST_FLAG)
                    ),
                ],
                events=lambda: self.events,
                brake=lambda: self.brake,
                unreadable=lambda: self.unreadable,
            )
        )


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    """The sum of all samples of this name that have these labels."""
    samples = [sample for metric in registry.collect() for sample in metric.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def samples(registry: CollectorRegistry, name: str) -> list[Mapping[str, str]]:
    """The labels of all samples of this name."""
    return [one.labels for metric in registry.collect() for one in metric.samples if one.name == name]
