"""Containers that have ended and don't come back: each is a fault, and none is waited for without end."""

from __future__ import annotations

from dataclasses import replace

from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.world import StartFailure
from tests.core.scenario import sentence
from tests.core.world import World

STARTS, BARRIER = 300, 100
DEVICE = "RunContainerError: nvidia-container-cli: device error"


def _given(world: World, *sentences: str) -> Status:
    for one in sentences:
        sentence(world, one)
    return world.job.status


def _running() -> World:
    world = World()
    world.submit(
        f"recovery: {{podStartTimeoutSeconds: {STARTS}, barrierTimeoutSeconds: {BARRIER}, evidenceWindowSeconds: 0}}"
    )
    _given(world, "the gang runs", "1000 s pass")
    return world


def _gathering() -> World:
    """The attempt gathers for another's fault, and that one is ready."""
    world = _running()
    status = _given(world, "worker-0 ends with 1", "decide", "worker-0 is Ready", "decide")
    assert status.phase is GangPhase.GATHERING
    return world


def _is_replaced(world: World) -> bool:
    world.decide()
    return [one.member for one in world.job.status.replaced] == ["worker-1"]


def test_a_container_that_can_not_be_started_again_ends_the_attempt_after_a_minute() -> None:
    world = _running()
    _given(world, f"the container of worker-1 has ended, and can't be started again: {DEVICE}")
    assert _given(world, "decide", "59 s pass", "decide").phase is GangPhase.RUNNING
    assert _given(world, "1 s pass", "decide").phase is GangPhase.GATHERING


def test_so_does_one_that_ends_again_and_again_without_a_word() -> None:
    world = _running()
    _given(world, "worker-1 loses its connection")
    world.pod("worker-1", started_at=None, ended_at=world.now, reason="CrashLoopBackOff")
    assert _given(world, "decide", "59 s pass", "decide").phase is GangPhase.RUNNING
    assert _given(world, "1 s pass", "decide").phase is GangPhase.GATHERING


def test_the_clock_of_a_node_hides_no_container_that_can_not_be_started() -> None:
    world = _running()
    _given(world, f"the container of worker-1 has ended, and can't be started again: {DEVICE}")
    world.pod("worker-1", ended_at=world.now - 3600)
    assert _given(world, "60 s pass", "decide").phase is GangPhase.GATHERING


def test_a_new_leader_takes_a_container_that_can_not_be_started_for_no_worker() -> None:
    world = _running()
    _given(world, f"the container of worker-1 has ended, and can't be started again: {DEVICE}", "1 s pass")
    _given(world, "a new controller starts", "worker-0 connects again")
    assert _given(world, "decide", "60 s pass", "decide").phase is GangPhase.GATHERING


def test_a_supervisor_that_speaks_is_believed_whatever_the_cluster_shows() -> None:
    world = _running()
    world.pod("worker-1", started_at=None, ended_at=world.now, start_failure=StartFailure("RunContainerError"))
    for _ in range(20):
        assert _given(world, "60 s pass", "worker-1 runs", "decide").phase is GangPhase.RUNNING


def test_a_pod_that_was_heard_has_as_long_to_start_again_as_a_new_one() -> None:
    world = _gathering()
    _given(world, f"the container of worker-1 has ended, and can't be started again: {DEVICE}", f"{STARTS - 1} s pass")
    assert not _is_replaced(world)
    _given(world, "1 s pass")
    assert _is_replaced(world)


def test_so_has_one_whose_sidecar_alone_has_ended() -> None:
    world = _gathering()
    _given(world, "worker-1 loses its connection")
    world.pod("worker-1", started_at=None)
    _given(world, f"{STARTS - 1} s pass")
    assert not _is_replaced(world)
    _given(world, "1 s pass")
    assert _is_replaced(world)


def test_no_try_of_a_container_that_can_not_be_started_begins_the_wait_anew() -> None:
    world = _gathering()
    _given(world, "worker-1 loses its connection")
    for _ in range(STARTS // 100):
        world.pod("worker-1", started_at=None, ended_at=world.now, reason="CrashLoopBackOff", restarts=9)
        assert not _is_replaced(world)
        _given(world, "100 s pass")
    assert _is_replaced(world)


def test_a_container_that_ended_a_moment_ago_has_the_time_to_start_again() -> None:
    world = _gathering()
    _given(world, "worker-1 begins to stop", "worker-1 is Ready 1", f"{STARTS} s pass", "worker-1 loses its connection")
    world.pod("worker-1", started_at=None, ended_at=world.now)
    status = _given(world, "59 s pass")
    world.decide()
    assert [(one.member, one.incarnation) for one in status.replaced] == [
        (one.member, one.incarnation) for one in world.job.status.replaced
    ]


def test_what_speaks_has_started_and_the_barrier_waits_no_longer_for_it() -> None:
    world = _gathering()
    _given(world, "worker-1 begins to stop")
    uid = world.newest("worker-1")
    world.pods[uid] = replace(world.pods[uid], started_at=None)
    _given(world, f"{BARRIER + 3} s pass", "worker-1 begins to stop")
    assert _is_replaced(world)
