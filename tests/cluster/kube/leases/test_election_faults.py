"""Elections under faults: each point of a renewal, then any sequence of faults."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.kube.leases.elections import TIMING, Elections, elections
from tests.effort import examples

SENT = (
    "nothing is sent",
    "it is on its way",
    "it is stored",
    "a write was lost",
    "the answer to a stored write was lost",
)

AFTER = tuple(permutations(("wake", "reach", "answer")))


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("frozen", [1, 5, 8, 9.5, 11, 13, 16, 18, 25])
async def test_a_freeze_during_a_renewal_never_makes_two_leaders(sent: str, frozen: float) -> None:
    for order in AFTER:
        async with elections("a") as them:
            await them.run_well(3)
            first, second = them.candidates[0], them.add("b")
            await them.run_well(3)
            while sent != SENT[0] and not first.requests:
                them.advance(0.5)
                first.wake()
                await them.settle()
            if "stored" in sent:
                them.reach(first)
            if "lost" in sent:  # it reads again: the answer to a read must not prolong the term either
                first.lose(on_the_way=False)
                while not first.requests:
                    them.advance(0.5)
                    first.wake()
                    await them.settle()
                them.reach(first)
            first.is_frozen = True
            await them.run_well(frozen)
            first.is_frozen = False
            for move in order:
                await make(them, move, 0)
                assert first.working == 1 or second.working == 1 or not them.leaders()
            await them.run_well(20)
            assert len(them.leaders()) == first.working + second.working == 1
            assert second.working == 1 or frozen < TIMING.duration + TIMING.retry_period


CANDIDATE = st.integers(0, 1)

MOVES = st.one_of(
    st.tuples(st.just("well"), st.sampled_from([0.5, 1.0, 2.0, 3.0, 6.0, 12.0])),
    st.tuples(st.just("time"), st.sampled_from([0.1, 0.5, 2.0, 4.0, 9.0, 11.0, 16.0])),
    st.tuples(st.sampled_from(["wake", "reach", "answer", "lose", "lose late"]), CANDIDATE),
    st.tuples(
        st.sampled_from(["freeze", "thaw", "freeze", "thaw", "slow end", "quick end", "stop", "kill"]), CANDIDATE
    ),
)

SPEEDS = st.sampled_from([1.0, 0.9, 1.1])

OFFSETS = st.sampled_from([0.0, -1e6, 1e6])


async def play(moves: list[tuple[str, Any]], speeds: tuple[float, float], offsets: tuple[float, float]) -> None:
    """Make the moves; the candidates check the invariants at each instant."""
    async with elections() as them:
        for name, speed, offset in zip("ab", speeds, offsets, strict=True):
            them.add(name, speed, offset)
        await them.settle()
        for move, detail in moves:
            await make(them, move, detail)
        for one in them.candidates:
            one.is_frozen, one.ends_at_once = False, True
        them.add("last")
        await them.run_well(60)
        assert len(them.leaders()) == 1, "one candidate leads when the faults stop"


async def make(them: Elections, move: str, detail: Any) -> None:
    """Make one move."""
    match move:
        case "well":
            await them.run_well(detail)
            return
        case "time":
            them.advance(detail)
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


@examples(250)
@given(st.lists(MOVES, min_size=5, max_size=40), st.tuples(SPEEDS, SPEEDS), st.tuples(OFFSETS, OFFSETS))
def test_two_candidates_never_lead_at_once_under_any_faults(
    moves: list[tuple[str, Any]], speeds: tuple[float, float], offsets: tuple[float, float]
) -> None:
    asyncio.run(play(moves, speeds, offsets))
