from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.cluster.fair_slots import FairSlots
from tests.wait import until_async


@dataclass
class Requests:
    """Requests that hold a slot until the test ends them, in the order in which they got it."""

    slots: FairSlots
    tasks: asyncio.TaskGroup
    under_way: list[str] = field(default_factory=list)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    made: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def make(self, *names: str, first_start: bool = False) -> None:
        """Make requests, each named by its namespace, perhaps a gang in capitals, and a number: ``a1``, ``aX1``."""
        for name in names:
            self.gates[name] = asyncio.Event()
            self.made[name] = self.tasks.create_task(self._request(name, first_start=first_start))
        await settled()

    async def end(self, *names: str) -> None:
        for name in names:
            self.gates[name].set()
        await settled()

    async def _request(self, name: str, *, first_start: bool) -> None:
        async with self.slots.slot(name[0], name.rstrip("0123456789"), first_start=first_start):
            self.under_way.append(name)
            await self.gates[name].wait()
            self.under_way.remove(name)


async def settled() -> None:
    """All tasks have gone as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def requests(total: int) -> AsyncIterator[Requests]:
    async with asyncio.TaskGroup() as tasks:
        found = Requests(FairSlots(total), tasks)
        yield found
        for task in found.made.values():
            task.cancel()


async def test_one_namespace_gets_half_of_the_slots_and_the_next_one_half_of_the_rest() -> None:
    async with requests(8) as made:
        await made.make("aX0", "aX1", "aX2", "aY0", "aY1", "aZ0", "aW0")
        assert made.under_way == ["aX0", "aX1", "aY0", "aZ0"]
        await made.make("bX0", "bX1", "bY0", "bZ0", "c0", "c1", "d0", "e0")
        assert made.under_way[4:] == ["bX0", "bY0", "c0", "d0"], "all slots are taken; each namespace has one at least"
        await made.end("aX0")
        assert made.under_way[-1] == "e0", "a has its share, and e has none"


async def test_one_gang_gets_half_of_what_its_namespace_has_and_the_next_one_half_of_the_rest() -> None:
    async with requests(32) as made:
        await made.make(*(f"aX{at}" for at in range(9)), *(f"aY{at}" for at in range(9)), "aZ0", "aZ1", "aZ2")
        gangs = [name[:2] for name in made.under_way]
        assert (gangs.count("aX"), gangs.count("aY"), gangs.count("aZ")) == (8, 4, 2)


async def test_a_recovery_goes_before_the_first_starts_that_wait_longer() -> None:
    async with requests(4) as made:
        await made.make("aX0", "aY0", "b0", "c0", "d0", first_start=True)
        assert made.under_way == ["aX0", "aY0", "b0", "c0"]
        await made.make("e0")
        await made.end("b0")
        assert made.under_way == ["aX0", "aY0", "c0", "e0"]
        await made.end("c0")
        assert made.under_way == ["aX0", "aY0", "e0", "d0"]


async def test_a_recovery_in_the_namespace_of_ten_thousand_first_starts_waits_for_none_of_them() -> None:
    async with requests(128) as made:
        await made.make(*(f"aX{at}" for at in range(10_000)), first_start=True)
        assert len(made.under_way) == 32
        await made.make("aY0", "b0")
        assert made.under_way[-2:] == ["aY0", "b0"]
        await made.make("aX10000")
        await made.end("aX0", "aX1")
        assert made.under_way[-1] == "aX10000", "a recovery of the gang itself comes next"


async def test_namespaces_take_turns_and_in_each_its_gangs() -> None:
    async with requests(2) as made:
        await made.make("x0", "y0")
        await made.make("aX0", "aX1", "aY0", "b0", "b1")
        order = list[str]()
        for ended in ("x0", "y0", "aX0", "b0", "aY0"):
            await made.end(ended)
            order += [name for name in made.under_way if name not in order]
        assert order == ["y0", "aX0", "b0", "aY0", "b1", "aX1"]


async def test_what_is_cancelled_while_it_waits_or_runs_leaves_its_slot() -> None:
    async with requests(2) as made:
        await made.make("a0", "b0", "a1", "b1")
        made.made["a1"].cancel()
        made.made["b0"].cancel()
        await until_async("the next one runs", lambda: made.under_way[-1] == "b1")
        await made.end("a0")
        await made.make("c0")
        assert made.under_way[-1] == "c0"


async def test_one_that_is_cancelled_as_it_gets_its_slot_gives_it_back() -> None:
    async with requests(1) as made:
        await made.make("a0", "b0")
        made.gates["a0"].set()
        await asyncio.sleep(0)  # a0 has ended, so b0 has been granted its slot, but has not run.
        made.made["b0"].cancel()
        await made.make("c0")
        assert made.under_way == ["c0"]


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.integers(0, 2)), max_size=60))
def test_slots_are_never_lost_nor_idle_while_a_namespace_may_have_them(steps: list[tuple[str, bool, int]]) -> None:
    async def play() -> None:
        async with requests(6) as made:
            waiting: dict[str, None] = {}
            for number, (namespace, first_start, act) in enumerate(steps):
                if act:
                    name = f"{namespace}{number}"
                    waiting[name] = None
                    await made.make(name, first_start=first_start)
                elif made.under_way:
                    await made.end(made.under_way[0])
                for name in made.under_way:
                    waiting.pop(name, None)
                assert len(made.under_way) <= 6
                for name in waiting:
                    own = sum(one[0] == name[0] for one in made.under_way)
                    others = len(made.under_way) - own
                    assert len(made.under_way) == 6 or own >= max(1, max(1, (6 - others) // 2) // 2)

    asyncio.run(play())


async def test_a_namespace_without_room_costs_no_look_at_its_gangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand gangs wait in a namespace that has half of all slots: each release serves one, and looks at few."""
    looked: list[str] = []

    class Used(Counter[str]):
        def __getitem__(self, name: str) -> int:
            looked.append(name)
            return super().__getitem__(name)

    async with requests(8) as made:
        monkeypatch.setattr(made.slots, "_of_gangs", Used())
        await made.make(*(f"a{chr(0x4E00 + at)}1" for at in range(1000)))
        assert len(looked) < 20 * 1000
