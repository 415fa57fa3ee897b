from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from gangctl.api.incident import Incident, IncidentLevel, LedgerEntry, PhaseMilliseconds, WarmStart
from gangctl.api.model import changed
from gangctl.api.scheduling import ReplicaGroup
from gangctl.api.status import FirstStep, GangPhase, RoleSize, RoleStatus, Size, Spent
from gangctl.core.facts.world import Brake
from gangctl.core.policy.brake import BrakeState
from gangctl.telemetry.metrics.exposition import NAMESPACES
from gangctl.telemetry.metrics.process import Metrics
from tests.telemetry.gangs import NOW, gang, incident, later
from tests.telemetry.samples import FakeSources, samples, value

FIRST_STEP = FirstStep(attempt=1, step=1, time=NOW)
SETTLED: dict[str, Any] = {"settled": True, "settled_time": NOW, "outcome": "Restarted"}


@pytest.fixture
def metrics() -> Metrics:
    return FakeSources().metrics()


def settled(one: Incident, **more: Any) -> Incident:
    return one.model_copy(update={**SETTLED, **more})


def test_a_restart_is_counted_once_when_it_is_settled(metrics: Metrics) -> None:
    running = gang(attempt=1)
    gathering = later(running, attempt=2, incidents=(incident(2),))
    restarted = later(gathering, incidents=(settled(incident(2), level=IncidentLevel.POD),))
    metrics.round_began(running)
    metrics.status_written(running, gathering, 0.01)
    assert value(metrics.registry, "gangctl_incidents_total") == 1
    assert value(metrics.registry, "gangctl_restarts_total") == 0
    metrics.status_written(gathering, restarted, 0.01)
    metrics.round_began(restarted)
    again = later(restarted, message="nothing new")
    metrics.status_written(restarted, again, 0.01)
    labels = {"namespace": "research", "reason": "ExitCode", "level": "Pod", "outcome": "Restarted"}
    assert value(metrics.registry, "gangctl_restarts_total", **labels) == 1
    assert value(metrics.registry, "gangctl_restarts_total") == 1
    assert value(metrics.registry, "gangctl_incidents_total") == 1
    assert value(metrics.registry, "gangctl_status_write_seconds_count") == 3


def test_values_stored_before_the_term_are_not_counted_again(metrics: Metrics) -> None:
    old = tuple(settled(incident(attempt), lost_steps=5, lost_seconds=2.0) for attempt in (4, 3, 2))
    stored = gang(attempt=4, incidents=old, spent=Spent(training=100.0), first_step=FIRST_STEP)
    metrics.round_began(stored)
    metrics.status_written(stored, later(stored, attempt=5, incidents=(incident(5), *old)), 0.01)
    assert value(metrics.registry, "gangctl_incidents_total") == 1
    for name in ("restarts", "lost_steps", "lost_seconds", "spent_seconds"):
        assert value(metrics.registry, f"gangctl_{name}_total") == 0, name


def test_forked_and_executed_processes_are_counted_once() -> None:
    metrics = FakeSources().metrics()
    running = gang(attempt=1, phase=GangPhase.RUNNING, first_step=FIRST_STEP)
    restarted = later(running, attempt=2, incidents=(settled(incident(2)),))
    warm = WarmStart(forked=3, executed=1, member="worker-2", obstacle="a thread")
    started = later(restarted, incidents=(settled(incident(2), warm_start=warm),))
    more = warm.model_copy(update={"forked": 5})  # A launcher starts its ranks after itself.
    stepped = later(started, incidents=(settled(incident(2), warm_start=more, lost_steps=7),))
    metrics.round_began(running)
    assert value(metrics.registry, "gangctl_warm_starts_total", type="Fork") == 0
    for before, after in pairwise((running, restarted, started, stepped)):
        metrics.status_written(before, after, 0.01)
    assert value(metrics.registry, "gangctl_warm_starts_total", type="Fork") == 5
    assert value(metrics.registry, "gangctl_warm_starts_total", type="Exec") == 1


def test_the_counts_of_two_leaders_in_a_row_add_up() -> None:
    before, after = FakeSources(), FakeSources()
    first, second = before.metrics(), after.metrics()
    running = gang(attempt=1, phase=GangPhase.RUNNING, spent=Spent(training=10.0), first_step=FIRST_STEP)
    gathering = later(running, attempt=2, incidents=(incident(2),), spent=Spent(training=15.0))
    times = PhaseMilliseconds(detect=1000, stop=500, barrier=100)
    restarted = later(
        gathering,
        incidents=(settled(incident(2), milliseconds=times, lost_steps=7, lost_seconds=3.5),),
        spent=Spent(training=15.0, lost_progress=3.5, recovery=60.0),
    )
    stepped = later(
        restarted,
        incidents=(
            restarted.status.incidents[0].model_copy(
                update={"milliseconds": times.model_copy(update={"start": 50, "first_step": 350})}
            ),
        ),
        spent=Spent(training=25.0, lost_progress=3.5, recovery=60.4),
    )
    first.round_began(running)
    first.status_written(running, gathering, 0.01)
    before.leads = False
    first.term_ended()
    second.round_began(gathering)
    second.status_written(gathering, restarted, 0.01)
    second.status_written(restarted, stepped, 0.01)

    def total(name: str, **labels: str) -> float:
        return sum(value(one.registry, name, **labels) for one in (first, second))

    assert total("gangctl_incidents_total") == total("gangctl_restarts_total") == 1
    assert total("gangctl_lost_steps_total", reason="ExitCode") == 7
    assert total("gangctl_lost_seconds_total") == 3.5
    assert total("gangctl_spent_seconds_total", bucket="training") == 15.0
    assert total("gangctl_spent_seconds_total", bucket="recovery") == pytest.approx(60.4)
    assert total("gangctl_spent_seconds_total", bucket="lost_progress") == 3.5
    for phase in ("detect", "stop", "barrier", "start", "first_step", "total"):
        assert total("gangctl_incident_phase_seconds_count", phase=phase) == 1, phase
    assert total("gangctl_incident_phase_seconds_count", phase="replace") == 0
    assert total("gangctl_incident_phase_seconds_sum", phase="total") == pytest.approx(2.0)
    assert total("gangctl_gangs", phase="Running") == 1


def test_a_write_whose_answer_was_lost_is_counted_when_it_is_observed(metrics: Metrics) -> None:
    running = gang(attempt=1)
    gathering = later(running, attempt=2, incidents=(incident(2),))
    metrics.round_began(running)
    metrics.round_began(gathering)  # The answer to the write was lost, but it is stored.
    assert value(metrics.registry, "gangctl_incidents_total") == 1
    assert value(metrics.registry, "gangctl_status_write_seconds_count") == 0


def test_a_corrected_cause_changes_no_count(metrics: Metrics) -> None:
    running = gang(attempt=1)
    restarted = later(running, attempt=2, incidents=(settled(incident(2)),))
    corrected = later(restarted, incidents=(settled(incident(2, "DeviceLost")),))
    metrics.round_began(running)
    metrics.status_written(running, restarted, 0.01)
    metrics.status_written(restarted, corrected, 0.01)
    assert value(metrics.registry, "gangctl_restarts_total") == 1
    assert value(metrics.registry, "gangctl_restarts_total", reason="ExitCode") == 1
    assert value(metrics.registry, "gangctl_causes_corrected_total", namespace="research") == 1


def test_incidents_that_left_the_status_are_not_counted_again(metrics: Metrics) -> None:
    kept = tuple(settled(incident(attempt)) for attempt in range(11, 1, -1))
    full = gang(attempt=11, incidents=kept)
    metrics.round_began(full)
    metrics.status_written(full, later(full, attempt=12, incidents=(incident(12), *kept[:-1])), 0.01)
    edited = later(full, attempt=12, incidents=(incident(12), *kept[:-1], settled(incident(1))))
    metrics.round_began(edited)
    assert value(metrics.registry, "gangctl_incidents_total") == 1
    assert value(metrics.registry, "gangctl_restarts_total") == 0


def test_a_duration_has_its_trace_as_exemplar(metrics: Metrics) -> None:
    running = gang(attempt=1)
    metrics.round_began(running)
    metrics.status_written(running, later(running, attempt=2, incidents=(incident(2),)), 0.01)
    found = [
        (sample.labels["phase"], sample.exemplar.labels["trace_id"], sample.exemplar.value)
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.exemplar is not None
    ]
    assert found == [("detect", f"{2:032x}", 1.0)]


def test_start_up_is_counted_only_once_a_step_was_reported(metrics: Metrics) -> None:
    submitted = gang(phase=GangPhase.PENDING)
    silent = later(submitted, phase=GangPhase.RUNNING, spent=Spent(pending=5.0, start_up=3600.0))
    metrics.round_began(submitted)
    metrics.status_written(submitted, silent, 0.01)
    assert value(metrics.registry, "gangctl_spent_seconds_total", bucket="pending") == 5.0
    assert value(metrics.registry, "gangctl_spent_seconds_total", bucket="start_up") == 0
    stepped = later(silent, first_step=FIRST_STEP, spent=Spent(pending=5.0, start_up=3610.0, training=1.0))
    other = FakeSources().metrics()  # The next leader counts all of it.
    other.round_began(silent)
    other.status_written(silent, stepped, 0.01)
    assert value(other.registry, "gangctl_spent_seconds_total", bucket="start_up") == 3610.0
    assert value(other.registry, "gangctl_spent_seconds_total", bucket="pending") == 0


def test_gauges_grow_between_writes_and_end_with_the_gang_and_the_term() -> None:
    sources = FakeSources()
    metrics = sources.metrics()
    now = time.time()
    training = gang(
        attempt=1,
        phase=GangPhase.RUNNING,
        phase_time=now - 100,
        spent=Spent(training=60.0, start_up=30.0),
        accounted_time=now - 10,
        first_step=FirstStep(attempt=1, step=1, time=now - 70),
    )
    metrics.round_began(training)
    metrics.round_began(gang("v", phase=GangPhase.GATHERING, phase_time=now - 50))
    registry = metrics.registry
    assert value(registry, "gangctl_gangs", namespace="research") == 2
    assert value(registry, "gangctl_gangs_oldest_seconds", phase="Gathering") == pytest.approx(50, abs=5)
    assert value(registry, "gangctl_gangs_spent_seconds", bucket="training") == pytest.approx(70, abs=5)
    assert value(registry, "gangctl_goodput_ratio") == pytest.approx(0.7, abs=0.05)
    metrics.gang_gone("v")
    assert value(registry, "gangctl_gangs") == 1
    assert value(registry, "gangctl_gangs_oldest_seconds", phase="Gathering") == 0
    sources.leads = False  # It was frozen, and doesn't know yet that its term is over.
    assert samples(registry, "gangctl_gangs") == []
    metrics.term_ended()
    sources.leads = True
    assert samples(registry, "gangctl_gangs") == []
    metrics.round_began(training)
    assert value(registry, "gangctl_gangs") == 1
    assert value(registry, "gangctl_spent_seconds_total") == 0


def test_members_that_lack_cost_their_share_between_writes(metrics: Metrics) -> None:
    now = time.time()
    smaller = gang(
        attempt=2,
        phase=GangPhase.RUNNING,
        spent=Spent(training=1000.0, missing_members=250.0),
        accounted_time=now - 1000,
        first_step=FirstStep(attempt=2, step=1, time=now - 2000),
        roles=(RoleStatus(name="worker", desired=4),),
        size=Size(attempt=2, time=now - 2000, roles=(RoleSize(name="worker", members=3),)),
    )
    metrics.round_began(smaller)
    bucket = value(metrics.registry, "gangctl_gangs_spent_seconds", bucket="missing_members")
    assert bucket == pytest.approx(500, abs=5)
    assert value(metrics.registry, "gangctl_goodput_ratio") == pytest.approx(0.75, abs=0.01)


def test_ages_are_never_negative_and_ended_gangs_have_none(metrics: Metrics) -> None:
    metrics.round_began(gang("a", phase=GangPhase.SUCCEEDED, phase_time=1.0))
    metrics.round_began(
        gang("b", phase=GangPhase.RUNNING, phase_time=time.time() + 3600, accounted_time=time.time() + 3600)
    )
    ages = [
        sample.value
        for metric in metrics.registry.collect()
        if metric.name.endswith("oldest_seconds")
        for sample in metric.samples
    ]
    assert ages == [0.0] * len(ages)
    assert value(metrics.registry, "gangctl_gangs_spent_seconds") == 0


def test_a_budget_is_low_from_four_fifths_until_charges_leave_its_window(metrics: Metrics) -> None:
    now = time.time()

    def charged(uid: str, *ages: float) -> None:
        ledger = tuple(
            LedgerEntry(time=now - age, attempt=at, charged=True, progressed=True) for at, age in enumerate(ages)
        )
        budget = {"type": "Windowed", "maxRestarts": 5, "windowSeconds": 1000}
        metrics.round_began(gang(uid, f"of-{uid}", budget, phase=GangPhase.RUNNING, ledger=ledger))

    charged("three", 10, 20, 30)
    charged("four", 10, 20, 30, 40)
    charged("older", 10, 20, 30, 1001)
    limits = {"type": "Windowed", "maxRestarts": 5, "windowSeconds": 10}
    shared = ReplicaGroup.model_validate({"name": "group", "budget": {**limits, "windowSeconds": 1000}})
    ledger = tuple(LedgerEntry(time=now - 20, attempt=at, charged=True) for at in range(4))
    grouped = gang("group", "of-group", limits, phase=GangPhase.RUNNING, ledger=ledger)
    metrics.round_began(changed(grouped, spec=changed(grouped.spec, replica_group=shared)))
    metrics.round_began(gang("none", "of-none", {"type": "Windowed", "maxRestarts": 0}, phase=GangPhase.RUNNING))
    low = {
        one: value(metrics.registry, "gangctl_gangs_budget_low", namespace=f"of-{one}")
        for one in ("three", "four", "older", "group", "none")
    }
    assert low == {"three": 0, "four": 1, "older": 0, "group": 1, "none": 0}


def test_labels_are_bounded_whatever_the_cluster_holds(metrics: Metrics) -> None:
    for number in range(NAMESPACES + 50):
        running = gang(f"u{number}", f"n{number}", attempt=1, phase=GangPhase.RUNNING)
        metrics.round_began(running)
        metrics.status_written(running, later(running, attempt=2, incidents=(incident(2, 'odd"\n'),)), 0.01)
    namespaces = {labels["namespace"] for labels in samples(metrics.registry, "gangctl_gangs")}
    assert len(namespaces) == NAMESPACES + 1
    assert value(metrics.registry, "gangctl_gangs", namespace="_other", phase="Running") == 50
    assert {labels["reason"] for labels in samples(metrics.registry, "gangctl_restarts_total")} == {"Other"}


def test_no_label_value_is_a_gang_a_pod_or_a_node(metrics: Metrics) -> None:
    running = gang("uid-of-it", attempt=1)
    metrics.round_began(running)
    metrics.status_written(running, later(running, attempt=2, incidents=(settled(incident(2)),)), 0.01)
    values = {
        value for metric in metrics.registry.collect() for sample in metric.samples for value in sample.labels.values()
    }
    assert not {"g-uid-of-it", "uid-of-it", "worker-1"} & values


def test_the_counts_of_the_sources_are_exposed_unchanged() -> None:
    sources = FakeSources(
        connections=3,
        refused={"Standby": 2, "Expired": 0},
        stale={"Overtaken": 4},
        spans={"dropped": 9},
        pauses={"Pod": 7},
    )
    metrics = sources.metrics()
    assert value(metrics.registry, "gangctl_hub_connections") == 3
    assert value(metrics.registry, "gangctl_hub_refusals_total", reason="Standby") == 2
    assert {"reason": "Expired"} in samples(metrics.registry, "gangctl_hub_refusals_total")
    assert value(metrics.registry, "gangctl_hub_stale_messages_total", reason="Overtaken") == 4
    assert value(metrics.registry, "gangctl_hub_pauses_total", share="Pod") == 7
    assert value(metrics.registry, "gangctl_spans_total", outcome="dropped") == 9
    assert value(metrics.registry, "gangctl_leader") == 1
    sources.leads = False
    assert value(metrics.registry, "gangctl_leader") == 0


def test_only_the_leader_tells_of_the_brake_and_of_silent_members() -> None:
    on = Brake(since=1.0, silent=4, expected=10)
    sources = FakeSources(brake=BrakeState(on, silent=3, expected=12))
    metrics = sources.metrics()
    assert value(metrics.registry, "gangctl_brake", kind="Silence") == 1
    assert value(metrics.registry, "gangctl_brake", kind="Failures") == 0
    assert value(metrics.registry, "gangctl_members", state="silent") == 3
    assert value(metrics.registry, "gangctl_members", state="connected") == 9
    sources.brake = BrakeState(Brake(waves=frozenset({"ExitCode"})))
    assert value(metrics.registry, "gangctl_brake", kind="Failures") == 1
    sources.brake = None
    assert samples(metrics.registry, "gangctl_brake") == samples(metrics.registry, "gangctl_members") == []


def test_only_the_leader_tells_how_many_gangs_cannot_be_read() -> None:
    sources = FakeSources(unreadable=2)
    metrics = sources.metrics()
    assert value(metrics.registry, "gangctl_gangs_unreadable") == 2
    sources.unreadable = None
    assert samples(metrics.registry, "gangctl_gangs_unreadable") == []


def test_actions_and_their_failures_are_counted_by_type(metrics: Metrics) -> None:
    metrics.action_finished("CreatePod", 0.2, done=True)
    metrics.action_finished("CreatePod", 0.1, done=False)
    metrics.decision_finished(0.001)
    assert value(metrics.registry, "gangctl_action_seconds_count", action="CreatePod") == 2
    assert value(metrics.registry, "gangctl_action_failures_total", action="CreatePod") == 1
    assert {"action": "DeleteGang"} in samples(metrics.registry, "gangctl_action_failures_total")
    assert value(metrics.registry, "gangctl_decide_seconds_count") == 1
