from __future__ import annotations

import json

import pytest

from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube.election import lease_object, parse_lease
from tests.cluster.kube.leases.elections import elections


async def test_one_of_two_candidates_leads_and_the_other_knows_its_address() -> None:
    async with elections("a", "b") as them:
        await them.run_well(5)
        (leader,) = them.leaders()
        standby = next(one for one in them.candidates if one.name != leader)
        assert standby.election.leader_address() == f"wss://{leader}/v1/connect"
        assert [one.working for one in them.candidates if one.name == leader] == [1]
        assert standby.working == 0


async def test_a_leader_keeps_its_lease_while_nothing_happens() -> None:
    async with elections("a", "b") as them:
        await them.run_well(600)
        assert sorted(one.terms for one in them.candidates) == [0, 1]
        assert them.store.record is not None
        assert them.store.record.transitions == 0


async def test_a_stopped_leader_ends_its_work_before_it_releases_the_lease() -> None:
    async with elections("a") as them:
        await them.run_well(3)
        (first,) = them.candidates
        second = them.add("b")
        await them.run_well(3)
        first.ends_at_once = False
        first.process.cancel()
        await them.run_well(30)
        assert them.leaders() == ["a"], "the leader keeps the Lease while its work ends"
        first.ends_at_once = True
        await them.run_well(3)
        assert first.process.cancelled()
        assert them.leaders() == ["b"]
        assert second.working == 1
        assert them.store.record is not None
        assert them.store.record.transitions == 1


async def test_a_standby_leads_when_the_lease_of_a_killed_leader_has_expired() -> None:
    async with elections("a") as them:
        await them.run_well(3)
        them.add("b")
        await them.run_well(3)
        them.candidates[0].is_frozen = True
        await them.run_well(14)
        assert "b" not in them.leaders()
        await them.run_well(4)
        assert them.leaders() == ["b"]


async def test_a_leader_frozen_for_longer_than_its_lease_writes_nothing_when_it_wakes_up() -> None:
    async with elections("a") as them:
        await them.run_well(3)
        first, second = them.candidates[0], them.add("b")
        first.election.guard()
        first.is_frozen = True
        await them.run_well(20)
        first.is_frozen = False
        assert first.working == 1, "nothing in it has run since it was frozen"
        with pytest.raises(Retryable, match="doesn't lead"):
            first.election.guard()
        second.election.guard()
        await them.run_well(3)
        assert (first.working, second.working) == (0, 1)
        assert first.election.leader_address() == "wss://b/v1/connect"
        await them.run_well(60)
        assert first.terms == 1


async def test_a_short_freeze_does_not_end_a_term() -> None:
    async with elections("a", "b") as them:
        await them.run_well(3)
        leader = next(one for one in them.candidates if one.working)
        leader.is_frozen = True
        await them.run_well(7)
        leader.is_frozen = False
        await them.run_well(20)
        assert leader.terms == leader.working == 1


async def test_a_leader_that_cannot_renew_stops_at_the_deadline_and_leads_again_later() -> None:
    async with elections("a") as them:
        await them.run_well(3)
        (alone,) = them.candidates
        for _ in range(24):
            them.advance(0.5)
            alone.lose(on_the_way=False)
            alone.wake()
            await them.settle()
        assert alone.working == 0
        assert alone.election.problem == "the network is down"
        await them.run_well(5)
        assert (alone.working, alone.terms) == (1, 2)
        assert alone.election.problem == ""
        assert them.store.record is not None
        assert them.store.record.transitions == 0


async def test_a_term_continues_when_the_answer_to_a_renewal_is_lost() -> None:
    async with elections("a", "b") as them:
        await them.run_well(3)
        leader = next(one for one in them.candidates if one.working)
        while not leader.requests:
            them.advance(0.5)
            leader.wake()
            await them.settle()
        them.reach(leader)
        leader.lose(on_the_way=False)
        await them.run_well(60)
        assert leader.terms == leader.working == 1


async def test_only_the_leader_creates_a_deleted_lease_again() -> None:
    async with elections("a", "b") as them:
        await them.run_well(3)
        before = them.leaders()
        them.store.record = None
        await them.run_well(30)
        assert them.leaders() == before
        assert sorted(one.terms for one in them.candidates) == [0, 1]


async def test_no_candidate_takes_a_cleared_lease_before_its_holder_has_noticed() -> None:
    async with elections("a", "b") as them:
        await them.run_well(3)
        assert them.store.record is not None
        cleared = lease_object(them.store.record, "", 15, "", 0.0)
        cleared["metadata"]["resourceVersion"] = "by-hand"
        them.store.record = parse_lease(json.dumps(cleared).encode())
        await them.run_well(40)
        assert len(them.leaders()) == 1
