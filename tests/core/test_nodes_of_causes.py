"""A cause names the node that its pod ran on: by it users find what is ill."""

from __future__ import annotations

import pytest

from tests.core.scenario import sentence
from tests.core.world import World


@pytest.mark.parametrize(
    "what",
    [
        "worker-1 ends with 1",
        "worker-1 ends with SIGKILL",
        "device gpu-0 of worker-1 is Unhealthy",
        "the pod of worker-1 is disrupted: EvictionByEvictionAPI",
        "the pod of worker-1 has ended: Evicted",
        "worker-1 asks for a restart because asked, on another node",
        "worker-1 is Stuck",
    ],
)
def test_a_cause_names_the_node_of_its_pod(what: str) -> None:
    world = World()
    world.submit("")
    sentence(world, "the gang runs")
    node = world.pods[world.newest("worker-1")].node
    sentence(world, what)
    world.decide()
    cause = world.job.status.incidents[0].cause
    assert node
    assert (cause.member, cause.node) == ("worker-1", node)
