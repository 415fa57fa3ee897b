"""Addresses of IPv6: bare where a variable is an address, in brackets where a port follows."""

from __future__ import annotations

from gangsidecar.wire import Phase
from tests.core.world import World

ROLES = """\
roles:
- {name: worker, replicas: 2}
- {name: torch, replicas: 1, launch: Torchrun}
"""


def test_a_port_follows_an_address_in_brackets() -> None:
    world = World()
    world.submit(ROLES)
    world.decide()
    for at, member in enumerate(("worker-0", "worker-1", "torch-0")):
        world.starts(member)
        world.says(member, Phase.READY, 1, address=f"fd00::{at}", ports=(29_400,))
    world.decide()
    assert [(one.address, one.port) for one in world.job.status.masters] == [("fd00::0", 29_400), ("fd00::2", 29_400)]
    told = {}
    for member in ("worker-1", "torch-0"):
        said = world.said(member)
        assert said is not None
        assert said.run is not None
        told[member] = dict(said.run.processes[0].env)
    assert told["worker-1"]["MASTER_ADDR"] == "fd00::0"
    assert told["worker-1"]["JAX_COORDINATOR_ADDRESS"] == "[fd00::0]:29400"
    assert told["torch-0"]["PET_MASTER_ADDR"] == "fd00::2"
