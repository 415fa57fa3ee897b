"""Faults on nodes are counted by node, once, and the nodes are bounded."""

from __future__ import annotations

from gangctl.api.incident import Incident, IncidentLevel
from gangctl.telemetry.metrics.exposition import MAX_NODES, OTHERS
from gangctl.telemetry.metrics.process import Metrics
from tests.telemetry.gangs import at_fault, gang, incident, later
from tests.telemetry.samples import FakeSources, value

NAME = "gangctl_node_faults_total"


def stored(*incidents: Incident) -> Metrics:
    """The metrics of a process that has stored these incidents, one after the other."""
    metrics = FakeSources().metrics()
    job = gang(attempt=1)
    metrics.round_began(job)
    for one in incidents:
        before, job = job, later(job, attempt=one.attempt, incidents=(one,))
        metrics.status_written(before, job, 0.01)
    return metrics


def test_a_device_that_fails_is_counted_at_its_node_once() -> None:
    fault = at_fault(2, "node-7")
    registry = stored(fault.model_copy(update={"settled": False}), fault, fault).registry
    assert value(registry, NAME, node="node-7", reason="DeviceLost") == 1
    assert value(registry, NAME) == 1


def test_a_new_leader_does_not_count_again_what_is_settled() -> None:
    metrics, job = FakeSources().metrics(), gang(attempt=2, incidents=(at_fault(2, "node-7"),))
    metrics.round_began(job)
    metrics.status_written(job, later(job, attempt=3, incidents=(incident(3), at_fault(2, "node-7"))), 0.01)
    assert value(metrics.registry, NAME) == 0


def test_what_the_cluster_has_said_itself_is_not_counted() -> None:
    fault = at_fault(2, "node-7")
    for reason in ("NodeLost", "NodeUnhealthy", "Evicted", "PodDeleted"):
        said = fault.model_copy(update={"cause": fault.cause.model_copy(update={"reason": reason})})
        assert value(stored(said).registry, NAME) == 0, reason


def test_what_only_the_ladder_moved_is_no_fault_of_the_node_and_what_a_rule_moves_is() -> None:
    fault = at_fault(2, "node-7")
    own = fault.cause.model_copy(update={"reason": "ExitCode", "exit_code": 134})
    assert value(stored(fault.model_copy(update={"cause": own})).registry, NAME) == 0
    asked = own.model_copy(update={"level": IncidentLevel.POD})
    assert value(stored(fault.model_copy(update={"cause": asked})).registry, NAME) == 1
    alike = asked.model_copy(update={"alike": True})
    assert value(stored(fault.model_copy(update={"cause": alike})).registry, NAME) == 0


def test_nodes_beyond_the_bound_share_a_series() -> None:
    registry = stored(*(at_fault(number + 2, f"node-{number}") for number in range(MAX_NODES + 3))).registry
    assert value(registry, NAME, node="node-0") == 1
    assert value(registry, NAME, node=OTHERS) == 3
