"""Three replicas relay, as processes with TLS, tokens and a Lease: one is killed or frozen, and no member notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.simulated_sidecars import Fleet
from bench.size import REVIEW, relay_token
from bench.size_replicas import Replica, controllers
from gangsidecar import wire
from tests.cluster.kube import objects
from tests.cluster.kube.auth.tokens import Issuer
from tests.cluster.kube.fakeapi import FakeApi, serving
from tests.controller.test_rolling_upgrade import UID, member, running
from tests.wait import until_async

MEMBERS = 50
LEASE = ("--lease-duration", "8", "--renew-deadline", "6", "--retry-period", "0.2")
"""Long enough that on a busy machine, too, only a replica that is killed or frozen loses it."""


@dataclass
class Relayed:
    """A gang whose members are spread over three replicas."""

    api: FakeApi
    fleet: Fleet
    replicas: list[Replica]

    @property
    def leader(self) -> Replica:
        held = self.api.objects["leases", "default", "gangctl"]["spec"]["holderIdentity"].partition("_")[0]
        return next((one for one in self.replicas if one.name == held), self.replicas[0])

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects["gangjobs", "default", "g"]["status"]
        return found

    def at(self, one: Replica) -> int:
        """How many members are connected to this replica, as they see it."""
        return sum(each.url == one.url for each in self.fleet.members)

    async def all_are_heard(self) -> None:
        """Wait until a leader has answered a report of each member from now on."""
        for one in self.fleet.members:
            one.is_heard = False
        await until_async("all are heard", lambda: self.fleet.connected == MEMBERS, 60)

    def no_worker_was_stopped(self) -> bool:
        return self.status["attempt"] == 1 and {tuple(one.held) for one in self.fleet.members} == {(1,)}


@pytest.fixture
async def gang(tmp_path: Path) -> AsyncIterator[Relayed]:
    async with AsyncExitStack() as stack:
        api, _ = await stack.enter_async_context(serving())
        api.faults.append(Issuer(review=REVIEW))
        job = objects.gang("g", UID)
        job["spec"]["roles"][0]["replicas"] = MEMBERS
        await api.put("nodes", objects.node())
        await api.put("gangjobs", job)
        for at in range(MEMBERS):
            await api.put("pods", running(at))
        flags = ("--relay-token", str(relay_token(tmp_path)), *LEASE)
        replicas = await stack.enter_async_context(controllers(api, 3, *flags))
        await until_async("all replicas listen", lambda: all(one.listens() for one in replicas), 60)
        await until_async("one leads", lambda: ("leases", "default", "gangctl") in api.objects)
        fleet = Fleet([one.url for one in replicas], spread=True)
        fleet.members += [member(fleet, at) for at in range(MEMBERS)]
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        dialling = [tasks.create_task(one.run()) for one in fleet.members]
        dialling.append(tasks.create_task(fleet.keep_alive()))
        found = Relayed(api, fleet, replicas)
        await until_async("attempt 1 runs", lambda: all(1 in one.ran for one in fleet.members), 60)
        yield found
        for task in dialling:
            task.cancel()


async def test_a_leader_that_is_killed_costs_only_the_connections_that_it_had_itself(gang: Relayed) -> None:
    killed = gang.leader
    share, before = gang.at(killed), sum(gang.fleet.lost.values())
    assert 0 < share < MEMBERS
    killed.process.kill()
    await killed.process.wait()
    await until_async("another leads", lambda: gang.leader is not killed, 60)
    await gang.all_are_heard()
    others = sum(gang.fleet.lost.values()) - before - gang.fleet.lost["ConnectionRefusedError"]
    assert others <= share, gang.fleet.lost
    assert gang.no_worker_was_stopped()
    gang.fleet.members[7].say(ends=(wire.End(1, 0, 0, exit_code=1),))
    await until_async("attempt 2 runs", lambda: all(2 in one.ran for one in gang.fleet.members), 60)


@pytest.mark.nightly
async def test_a_relay_that_is_killed_costs_its_own_share_alone(gang: Relayed) -> None:
    killed = next(one for one in gang.replicas if one is not gang.leader)
    share, before = gang.at(killed), gang.fleet.lost["closed"]
    killed.process.kill()
    await killed.process.wait()
    await gang.all_are_heard()
    assert gang.fleet.lost["closed"] - before <= share
    assert gang.no_worker_was_stopped()


@pytest.mark.nightly
async def test_the_members_of_a_relay_that_is_frozen_dial_others_and_train_on(gang: Relayed) -> None:
    frozen = next(one for one in gang.replicas if one is not gang.leader)
    frozen.freeze()
    await until_async("its members have left it", lambda: gang.at(frozen) == 0, 60)
    await gang.all_are_heard()
    assert gang.no_worker_was_stopped()


@pytest.mark.nightly
async def test_a_leader_that_thaws_beside_its_successor_directs_no_member_and_relays_again(gang: Relayed) -> None:
    frozen = gang.leader
    frozen.freeze()
    await until_async("another leads", lambda: gang.leader is not frozen, 60)
    await until_async("its members have left it", lambda: gang.at(frozen) == 0, 60)
    await gang.all_are_heard()
    gang.fleet.members[7].say(ends=(wire.End(1, 0, 0, exit_code=1),))
    await until_async("attempt 2 runs", lambda: all(2 in one.ran for one in gang.fleet.members), 60)
    frozen.thaw()
    for one in gang.replicas:
        if one is not frozen:
            one.process.kill()
            await one.process.wait()
    await until_async("it leads again", lambda: gang.leader is frozen, 60)
    await gang.all_are_heard()
    assert gang.status["attempt"] == 2
    assert {tuple(one.ran) for one in gang.fleet.members} == {(1, 2)}
    assert {tuple(one.held) for one in gang.fleet.members} == {(1, 2)}
