"""A gang whose pods the cluster refuses costs the controller its stored size, and little more."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.names import MAX_MEMBERS
from gangctl.core.lifecycle.decide import decide
from tests.cli.here import manifest
from tests.controller.fake_cluster import FakeCluster, Running, running
from tests.wait import until_async

FIRST = 40
"""So many fill the caches of layouts, which all gangs share."""
MORE = 560
BOUND_KIB = 48
"""Of each gang, beside its object: the status that is written, and what the loop and the hub know of it."""
SECONDS = 3600.0
"""Tracing makes a decision about ten thousand members three times as long."""
WHY = "spec.containers[0].ports[0].containerPort: Invalid value: 99999999: must be between 1 and 65535, inclusive"


def gang(at: int) -> GangJob:
    """A new gang of as many members as a gang may have; no two have the same template."""
    made = manifest(("train", str(at)), MAX_MEMBERS)
    made["metadata"] = {"name": f"huge-{at}", "namespace": "team", "uid": f"uid-{at}", "resourceVersion": "1"}
    return GangJob.model_validate(made)


def traced_kib() -> float:
    """What the process has allocated and can't give back."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1024


async def decided(here: Running, numbers: range) -> None:
    """Add these gangs, wait until each is told that its pods are refused, and decide again about each."""
    uids = [f"uid-{at}" for at in numbers]
    here.world.jobs |= {f"uid-{at}": gang(at) for at in numbers}
    for uid in uids:
        here.wakes.wake(uid)

    def are_told() -> bool:
        return all(here.world.jobs[uid].status.refusal is not None for uid in uids)

    await until_async("each is told that its pods are refused", are_told, SECONDS, every=1)
    here.world.done.clear()
    for uid in uids:
        here.wakes.wake(uid)
    await until_async("each is decided about again", lambda: not any(map(here.wakes.is_set, uids)), SECONDS, every=1)
    assert not here.world.shown, "no pod is created"


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS)
async def test_six_hundred_refused_gangs_of_ten_thousand_members_cost_little_beside_their_stored_size() -> None:
    tracemalloc.start()
    try:
        async with running(FakeCluster(jobs={}, refused=(WHY,)), decide) as here:
            await decided(here, range(FIRST))
            before = traced_kib()
            objects = [gang(at) for at in range(MORE)]
            stored = traced_kib() - before
            objects.clear()
            await decided(here, range(FIRST, FIRST + MORE))
            grown = traced_kib() - before
            assert grown < stored + MORE * BOUND_KIB, f"{grown / MORE:.1f} KiB, stored {stored / MORE:.1f} KiB"
    finally:
        tracemalloc.stop()
