"""Directives: a Run is for one pod, and is made from what the attempt began with."""

from __future__ import annotations

from dataclasses import replace

from gangctl.core.lifecycle.plan import Plan
from gangsidecar.wire import Phase, Verb
from tests.core.edits import change
from tests.core.given import controller, each, heard, ready, scan, silent, start
from tests.core.world import World

CHECKPOINT = """\
checkpoint:
  tiers: [{name: shared, scope: Shared, source: {type: Directory, directory: /c, layout: TorchDCP}}]
progress: {source: {type: Log, pattern: "step (?P<step>[0-9]+)"}}
podFailurePolicy: {rules: [{name: nan, action: FailJob, onLog: {pattern: nan}}]}
"""
OTHER = """\
progress: {timeoutSeconds: 60}
"""
ROLES = "roles: [{name: worker, replicas: 2}]\n"
FIRST = "worker-1.0"


def with_a_successor_of_the_same_incarnation() -> World:
    """The first pod of worker-1 was Ready when it fell silent and was deleted by force; its successor runs."""
    world = World()
    world.decide()
    each(start)(world)
    each(ready)(world)
    first = world.heard[FIRST]
    del world.pods[FIRST], world.heard[FIRST]
    world.decide()
    world.pods = {"worker-0.0": world.pods["worker-0.0"], "second": replace(world.pods[FIRST], uid="second")}
    start(world, "worker-1")
    ready(world, "worker-1")
    world.decide()
    world.heard[FIRST] = first
    return world


def decide_until(world: World, what: str) -> Plan:
    for _ in range(5):
        plan = world.decide()
        if what in plan.because:
            return plan
    raise AssertionError(world.job.status.message)


def test_of_two_pods_of_one_incarnation_only_the_one_that_the_attempt_counts_on_is_told_to_run() -> None:
    world = with_a_successor_of_the_same_incarnation()
    assert (world.job.status.attempt, world.heard[FIRST].report.phase) == (1, Phase.READY)
    second = world.said_to("second")
    assert second is not None
    assert (second.verb, second.pod) == (Verb.RUN, "second")
    assert world.said_to(FIRST) is None


def test_a_pod_that_the_cluster_shows_later_is_not_told_to_run() -> None:
    world = with_a_successor_of_the_same_incarnation()
    world.pods[FIRST] = replace(world.pods.pop("second"), uid=FIRST)
    world.publish()
    assert world.said_to(FIRST) is None


def test_a_new_leader_tells_the_pod_to_run_that_the_cluster_shows() -> None:
    world = with_a_successor_of_the_same_incarnation()
    known = dict(world.heard)
    controller(world)
    world.heard = known
    second = world.said_to("second")
    assert second is not None
    assert second.verb is Verb.RUN
    assert world.said_to(FIRST) is None


def test_a_pod_that_vanished_is_waited_for_though_a_twin_of_it_waits() -> None:
    world = with_a_successor_of_the_same_incarnation()
    world.says("worker-1", Phase.RUNNING, 1)
    world.heard[FIRST] = replace(world.heard[FIRST], report=replace(world.heard[FIRST].report, attempt=2))
    del world.pods["second"]
    world.heard["second"] = replace(world.heard["second"], connected=False)
    decide_until(world, "attempt 1 ends")
    assert [one.pod for one in world.job.status.awaited] == ["second"]


def told_late(*lines: str) -> World:
    """Worker-1 was not connected when write 2 was stored; then the spec was changed."""
    world = World()
    world.submit(ROLES + CHECKPOINT)
    world.decide()
    each(start)(world)
    each(ready)(world)
    scan(world, None, "shared", "100", None)
    world.decide()
    world.says("worker-0", Phase.RUNNING, 1)
    silent(world, "worker-1")
    for line in lines:
        world.submit(line)
        world.decide()
    return world


def test_a_member_that_is_told_late_runs_what_the_others_run() -> None:
    early, late = told_late(), told_late(ROLES + OTHER)
    for world in (early, late):
        heard(world, "worker-1")
    expected, said = early.said("worker-1"), late.said("worker-1")
    assert expected is not None
    assert said is not None
    assert expected.run is not None
    assert expected.run.restore is not None
    assert said.run == expected.run


def test_what_is_live_policy_is_told_to_all() -> None:
    world = told_late(ROLES + CHECKPOINT + "recovery: {isolationTimeoutSeconds: 40}\n")
    heard(world, "worker-1")
    for member in ("worker-0", "worker-1"):
        said = world.said(member)
        assert said is not None
        assert said.isolation_ms == 40_000


def test_a_leader_that_does_not_know_the_spec_of_the_attempt_starts_no_member() -> None:
    world = told_late(ROLES + OTHER)
    controller(world)
    for member in ("worker-0", "worker-1"):
        heard(world, member)
    world.decide()
    assert world.said("worker-1") is None
    running = world.said("worker-0")
    assert running is not None
    assert running.verb is Verb.RUN
    world.now += 61
    each(heard)(world)
    assert "did not report its start" in decide_until(world, "attempt 1 ends").because


def test_roles_that_change_end_nothing_before_that_is_stored() -> None:
    world = told_late()
    heard(world, "worker-1")
    before = world.said("worker-1")
    change(world, "replicas of worker", "1")
    assert world.said("worker-1") == before
    world.decide()
    after = world.said("worker-1")
    assert after is not None
    assert after.verb is Verb.FINISH
