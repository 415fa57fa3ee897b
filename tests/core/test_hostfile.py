"""Host files: who finds whom, in which order, in which attempt."""

from __future__ import annotations

import pytest

from gangctl.api.status import Status
from gangctl.core.lifecycle.gathering import MAX_HOSTS
from gangsidecar.wire import Phase
from tests.core.given import each, over, ready, runs
from tests.core.world import World

ROLES = """\
roles:
- {name: launcher, replicas: 1, processGroup: ""}
- {name: worker, replicas: 2, spares: 1, processGroup: train, processesPerPod: 4, launch: PerProcess}
- {name: extra, replicas: 1, processGroup: train}
- {name: reward, replicas: 1}
"""
TRAIN = ("10.0.0.1 slots=4", "10.0.0.2 slots=4", "10.0.0.1 slots=1")
REWARD = ("10.0.0.1 slots=1",)


def hosts(world: World, member: str) -> tuple[str, ...]:
    """The host file that the member is told of."""
    said = world.said(member)
    assert said is not None
    assert said.run is not None
    return said.run.hosts


def test_a_member_finds_its_process_group_and_one_without_a_group_finds_all() -> None:
    world = World()
    world.submit(ROLES)
    runs(world)
    assert hosts(world, "worker-1") == hosts(world, "extra-0") == TRAIN
    assert hosts(world, "reward-0") == REWARD
    assert hosts(world, "launcher-0") == TRAIN + REWARD


def test_a_spare_that_takes_a_place_is_found_at_that_place() -> None:
    world = World()
    world.submit(ROLES)
    runs(world)
    over(world, "worker-0")
    world.decide()
    each(lambda where, member: None if member == "worker-0" else ready(where, member))(world)
    world.decide()
    assert world.job.status.ranks
    assert hosts(world, "worker-2") == ("10.0.0.3 slots=4", *TRAIN[1:])


def test_addresses_are_those_of_write_2_for_the_whole_attempt() -> None:
    world = World()
    runs(world)
    before = hosts(world, "worker-0")
    world.says("worker-1", Phase.RUNNING, 1, address="10.9.9.9")
    assert hosts(world, "worker-0") == before == ("10.0.0.1 slots=1", "10.0.0.2 slots=1")


def test_no_member_gets_a_host_file_while_one_address_is_unknown() -> None:
    world = World()
    world.decide()
    for member in ("worker-0", "worker-1"):
        world.starts(member)
        world.says(member, Phase.READY, 1, address="" if member == "worker-1" else "10.0.0.1")
    world.decide()
    assert world.job.status.attempt == 1
    assert hosts(world, "worker-0") == ()


@pytest.mark.parametrize("address", ["a" * 254, "10.0.0.1\n", "\ud800"])
def test_what_can_be_no_address_is_not_stored(address: str) -> None:
    world = World()
    world.decide()
    for member in ("worker-0", "worker-1"):
        world.starts(member)
        world.says(member, Phase.READY, 1, address=address)
    world.decide()
    assert (world.job.status.phase, world.job.status.hosts) == ("Running", ())
    assert Status.model_validate_json(world.job.status.model_dump_json(by_alias=True)) == world.job.status


def test_a_gang_that_is_too_large_has_no_host_file() -> None:
    world = World()
    world.submit(f"roles: [{{name: worker, replicas: {MAX_HOSTS + 1}}}]")
    runs(world)
    while world.job.status.phase != "Running":  # its pods are created in several rounds
        runs(world)
    assert world.job.status.hosts == ()
    assert hosts(world, "worker-0") == ()
