from __future__ import annotations

import asyncio
import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangctl.cluster.errors import Retryable
from gangctl.cluster.kube.leases.lease import ADDRESS, lease_object, parse
from tests.cluster.kube.elections import TIMING, Elections, elections

# --- a life without mishaps ------------------------------------------------------------------------------------------


async def test_of_two_candidates_one_leads_and_the_other_knows_where() -> None:
    async with elections("a", "b") as them:
        await them.go_well(5)
        (leader,) = them.leaders()
        standby = next(one for one in them.candidates if one.name != leader)
        assert standby.election.leader_address() == f"wss://{leader}/v1/connect"
        assert [one.working for one in them.candidates if one.name == leader] == [1]
        assert standby.working == 0


async def test_a_leader_stays_for_as_long_as_nothing_happens() -> None:
    async with elections("a", "b") as them:
        await them.go_well(600)
        assert sorted(one.terms for one in them.candidates) == [0, 1]
        assert them.store.record is not None
        assert them.store.record.transitions == 0


async def test_a_leader_that_is_stopped_ends_its_work_then_releases_and_the_other_leads_within_a_retry_period() -> None:
    async with elections("a") as them:
        await them.go_well(3)
        (first,) = them.candidates
        second = them.add("b")
        await them.go_well(3)
        first.ends_at_once = False
        first.process.cancel()
        await them.go_well(30)
        assert them.leaders() == ["a"], "the Lease is kept while the work ends, however long that takes"
        first.ends_at_once = True
        await them.go_well(3)
        assert first.process.cancelled()
        assert them.leaders() == ["b"]
        assert second.working == 1
        assert them.store.record is not None
        assert them.store.record.transitions == 1


async def test_after_a_kill_the_other_leads_when_the_record_is_old() -> None:
    async with elections("a") as them:
        await them.go_well(3)
        them.add("b")
        await them.go_well(3)
        them.candidates[0].is_frozen = True
        await them.go_well(14)
        assert "b" not in them.leaders()
        await them.go_well(4)
        assert them.leaders() == ["b"]


# --- mishaps ---------------------------------------------------------------------------------------------------------


async def test_a_leader_that_was_frozen_for_longer_than_its_lease_writes_nothing_when_it_wakes_up() -> None:
    async with elections("a") as them:
        await them.go_well(3)
        first, second = them.candidates[0], them.add("b")
        first.election.guard()
        first.is_frozen = True
        await them.go_well(20)
        first.is_frozen = False
        assert first.working == 1, "nothing in it has run yet: its work goes on where it was stopped"
        with pytest.raises(Retryable, match="doesn't lead"):
            first.election.guard()
        second.election.guard()
        await them.go_well(3)
        assert (first.working, second.working) == (0, 1)
        assert first.election.leader_address() == "wss://b/v1/connect"
        await them.go_well(60)
        assert first.terms == 1


async def test_a_short_freeze_costs_nothing() -> None:
    async with elections("a", "b") as them:
        await them.go_well(3)
        leader = next(one for one in them.candidates if one.working)
        leader.is_frozen = True
        await them.go_well(7)
        leader.is_frozen = False
        await them.go_well(20)
        assert leader.terms == leader.working == 1


async def test_a_leader_that_cannot_renew_ends_its_work_at_the_deadline_and_leads_again_when_it_can() -> None:
    async with elections("a") as them:
        await them.go_well(3)
        (alone,) = them.candidates
        for _ in range(24):
            them.go_by(0.5)
            alone.lose(on_the_way=False)
            alone.wake()
            await them.settle()
        assert alone.working == 0
        assert alone.election.problem == "the network is down"
        await them.go_well(5)
        assert (alone.working, alone.terms) == (1, 2)
        assert alone.election.problem == ""
        assert them.store.record is not None
        assert them.store.record.transitions == 0


async def test_a_renewal_whose_answer_was_lost_is_found_out_and_the_term_goes_on() -> None:
    async with elections("a", "b") as them:
        await them.go_well(3)
        leader = next(one for one in them.candidates if one.working)
        while not leader.requests:
            them.go_by(0.5)
            leader.wake()
            await them.settle()
        them.reach(leader)
        leader.lose(on_the_way=False)
        await them.go_well(60)
        assert leader.terms == leader.working == 1


async def test_a_lease_that_somebody_deletes_is_made_anew_by_the_leader_alone() -> None:
    async with elections("a", "b") as them:
        await them.go_well(3)
        before = them.leaders()
        them.store.record = None
        await them.go_well(30)
        assert them.leaders() == before
        assert sorted(one.terms for one in them.candidates) == [0, 1]


async def test_a_lease_that_somebody_clears_is_not_taken_before_its_holder_has_noticed() -> None:
    async with elections("a", "b") as them:
        await them.go_well(3)
        assert them.store.record is not None
        cleared = lease_object(them.store.record, "", 15, "", 0.0)
        cleared["metadata"]["resourceVersion"] = "by-hand"
        them.store.record = parse(json.dumps(cleared).encode())
        await them.go_well(40)
        assert len(them.leaders()) == 1


# --- a freeze at each point of a renewal, and each order of what happens after it ------------------------------------

SENT = ("nothing is sent", "it is on its way", "it is stored", "the last was lost", "the last was lost but is stored")
AFTER = tuple(permutations(("wake", "reach", "answer")))


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("frozen", [1, 5, 8, 9.5, 11, 13, 16, 18, 25])
async def test_a_freeze_at_any_point_of_a_renewal_makes_no_second_leader(sent: str, frozen: float) -> None:
    for order in AFTER:
        async with elections("a") as them:
            await them.go_well(3)
            first, second = them.candidates[0], them.add("b")
            await them.go_well(3)
            while sent != SENT[0] and not first.requests:
                them.go_by(0.5)
                first.wake()
                await them.settle()
            if "stored" in sent:
                them.reach(first)
            if "lost" in sent:  # it looks again, then: the answer to a look must not prolong anything either
                first.lose(on_the_way=False)
                while not first.requests:
                    them.go_by(0.5)
                    first.wake()
                    await them.settle()
                them.reach(first)
            first.is_frozen = True
            await them.go_well(frozen)
            first.is_frozen = False
            for move in order:
                await make(them, move, 0)
                assert first.working == 1 or second.working == 1 or not them.leaders()
            await them.go_well(20)
            assert len(them.leaders()) == first.working + second.working == 1
            assert second.working == 1 or frozen < TIMING.duration + TIMING.retry_period


# --- every mishap, in any order --------------------------------------------------------------------------------------

WHO = st.integers(0, 1)
MOVES = st.one_of(
    st.tuples(st.just("well"), st.sampled_from([0.5, 1.0, 2.0, 3.0, 6.0, 12.0])),
    st.tuples(st.just("time"), st.sampled_from([0.1, 0.5, 2.0, 4.0, 9.0, 11.0, 16.0])),
    st.tuples(st.sampled_from(["wake", "reach", "answer", "lose", "lose late"]), WHO),
    st.tuples(st.sampled_from(["freeze", "thaw", "freeze", "thaw", "slow end", "quick end", "stop", "kill"]), WHO),
)
SPEEDS = st.sampled_from([1.0, 0.9, 1.1])
OFFSETS = st.sampled_from([0.0, -1e6, 1e6])


async def play(moves: list[tuple[str, Any]], speeds: tuple[float, float], offsets: tuple[float, float]) -> None:
    """Do it; the candidates check themselves at each instant."""
    async with elections() as them:
        for name, speed, offset in zip("ab", speeds, offsets, strict=True):
            them.add(name, speed, offset)
        await them.settle()
        for move, detail in moves:
            await make(them, move, detail)
        for one in them.candidates:
            one.is_frozen, one.ends_at_once = False, True
        them.add("last")
        await them.go_well(60)
        assert len(them.leaders()) == 1, "when the mishaps stop, somebody leads"


async def make(them: Elections, move: str, detail: Any) -> None:
    """One move."""
    match move:
        case "well":
            await them.go_well(detail)
            return
        case "time":
            them.go_by(detail)
            return
        case "wake":
            them.candidates[detail].wake()
        case "reach":
            them.reach(them.candidates[detail])
        case "answer":
            them.candidates[detail].answer()
        case "lose" | "lose late":
            them.candidates[detail].lose(on_the_way=move == "lose late")
        case "freeze" | "thaw":
            them.candidates[detail].is_frozen = move == "freeze"
        case "slow end" | "quick end":
            them.candidates[detail].ends_at_once = move == "quick end"
        case "stop" if not them.candidates[detail].is_frozen:
            them.candidates[detail].process.cancel()
        case "kill":
            them.replace(detail)
    await them.settle()


@settings(max_examples=250, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(MOVES, min_size=5, max_size=40), st.tuples(SPEEDS, SPEEDS), st.tuples(OFFSETS, OFFSETS))
def test_never_two_may_write_whatever_is_late_lost_frozen_killed_or_set_wrong(
    moves: list[tuple[str, Any]], speeds: tuple[float, float], offsets: tuple[float, float]
) -> None:
    asyncio.run(play(moves, speeds, offsets))


# --- the object ------------------------------------------------------------------------------------------------------


def test_what_others_put_into_the_lease_stays_there_and_only_a_new_holder_counts() -> None:
    stored: dict[str, Any] = {
        "metadata": {"name": "gangctl", "resourceVersion": "7", "labels": {"team": "ml"}, "annotations": {"note": "x"}},
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 3,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "strategy": "OldestEmulationVersion",
        },
    }
    over = parse(json.dumps(stored).encode())
    same = lease_object(over, "a", 15, "wss://a", 1e9)
    assert same["metadata"]["labels"] == {"team": "ml"}
    assert same["metadata"]["annotations"] == {"note": "x", ADDRESS: "wss://a"}
    assert same["metadata"]["resourceVersion"] == "7", "which is what locks the write"
    assert same["spec"] == {
        **stored["spec"],
        "renewTime": "2001-09-09T01:46:40.000000Z",
    }
    other = lease_object(over, "b", 15, "wss://b", 1e9)["spec"]
    assert (other["leaseTransitions"], other["acquireTime"]) == (4, "2001-09-09T01:46:40.000000Z")
    assert lease_object(over, "", 1, "", 1e9)["spec"]["leaseTransitions"] == 3


def test_an_answer_that_is_no_lease_is_a_failure_to_be_tried_again() -> None:
    for answer in (b"<html>a proxy's page</html>", b"[]", b"{}", b'{"metadata": null}'):
        with pytest.raises(Retryable, match="no Lease"):
            parse(answer)
