"""How many gangs are degraded, by reason."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from gangctl.api.status import Condition, GangPhase
from gangctl.telemetry.metrics.gangs import GangMetrics
from tests.telemetry.gangs import NOW, gang


def degraded(reason: str, state: str = "True") -> tuple[Condition, ...]:
    """The condition Degraded."""
    return (Condition(type="Degraded", status=state, reason=reason, message="it is slow", last_transition_time=NOW),)


def counted(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """(namespace, reason) -> gangs."""
    return {
        (sample.labels["namespace"], sample.labels["reason"]): sample.value
        for metric in registry.collect()
        if metric.name == "gangctl_gangs_degraded"
        for sample in metric.samples
    }


def test_gangs_are_counted_by_the_reason_of_their_condition_and_no_longer_when_it_is_over() -> None:
    metrics, registry = GangMetrics(lambda: True), CollectorRegistry()
    registry.register(metrics)
    for uid in ("a", "b"):
        slow = gang(uid, phase=GangPhase.RUNNING, conditions=degraded("DeviceDegraded"))
        metrics.keep("research", slow)
    metrics.keep("research", gang("c", phase=GangPhase.RUNNING, conditions=degraded("Running", "False")))
    metrics.keep("other", gang("d", phase=GangPhase.RUNNING, conditions=degraded("no reason of ours")))
    assert counted(registry) == {("research", "DeviceDegraded"): 2, ("other", "Other"): 1}
    metrics.keep("research", gang("a", phase=GangPhase.RUNNING))
    metrics.drop("d")
    assert counted(registry) == {("research", "DeviceDegraded"): 1}
    metrics.drop("b")
    assert counted(registry) == {}
