"""An eviction that repeats after each start ends the job, or waits longer and longer."""

from __future__ import annotations

from gangctl.api.status import GangPhase
from tests.core.scenario import sentence
from tests.core.world import World

HOURS = 2


def _gathers(world: World) -> bool:
    return world.job.status.phase is GangPhase.GATHERING


def _evicted_again_and_again(*lines: str) -> tuple[World, int]:
    """The world after hours in which worker-1 is evicted a minute after each start, and how often it was."""
    world, evictions = World(), 0
    sentence(world, "the gang runs")
    end = world.now + HOURS * 3600
    while world.now < end and world.job.status.phase is GangPhase.RUNNING:
        world.now += 60
        evictions += 1
        for line in lines:
            sentence(world, line)
        sentence(world, "decide")
        sentence(world, "worker-0 is Ready")
        while _gathers(world):
            world.now += 20
            if any(pod.member == "worker-1" and not pod.terminated for pod in world.pods.values()):
                sentence(world, "worker-1 starts")
                sentence(world, "worker-1 is Ready")
            sentence(world, "decide")
        sentence(world, "everyone runs")
    return world, evictions


def test_evictions_for_the_storage_of_the_pod_itself_end_the_job_by_its_budget() -> None:
    full = "the pod of worker-1 has ended: Evicted: Usage of EmptyDir volume data exceeds the limit 1Gi"
    world, evictions = _evicted_again_and_again(full)
    assert world.job.status.phase is GangPhase.FAILED
    assert "the budget is used up" in world.job.status.message
    assert evictions < 20


def test_evictions_for_the_needs_of_the_node_wait_longer_and_longer() -> None:
    world, evictions = _evicted_again_and_again(
        "the pod of worker-1 is disrupted: TerminationByKubelet",
        "the pod of worker-1 has ended: Evicted: The node was low on resource: memory",
    )
    assert world.job.status.phase is GangPhase.RUNNING
    assert world.job.status.restarts.counted == 0
    assert evictions < HOURS * 3600 / 200


def test_an_eviction_is_known_though_its_pod_is_deleted_by_then() -> None:
    world = World()
    for line in (
        "the gang runs",
        "worker-1 reports that its pod is terminating",
        "decide",
        "the pod of worker-1.0 is being deleted",
        "the pod of worker-1.0 has ended: Evicted: Usage of EmptyDir volume data exceeds the limit 1Gi",
        "decide",
    ):
        sentence(world, line)
    assert world.job.status.incidents[0].cause.reason == "StorageExceeded"
