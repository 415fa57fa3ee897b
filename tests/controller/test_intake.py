"""Turns and shares together, in virtual time: pods that send what they like, each as soon as it is read.

To the simulation of the whole, a report that is read later is a message that arrives late, as any may
(``tests/simulation/moves.py``). What it takes for granted of the intake is shown here: nothing is lost, the messages of
a pod stay in order, and no namespace waits for more than its turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangctl.controller import intake, turns
from gangctl.controller.intake import SHARES, Intake, Owner

COSTS = st.floats(0.0, 0.05)
"""Seconds. The largest report takes about 0.01 s."""
SENT = st.dictionaries(
    st.tuples(st.sampled_from(["red", "green", "blue"]), st.integers(0, 3)), st.lists(COSTS, max_size=25), max_size=8
)
"""What each pod of a namespace sends: the cost of each message."""


@dataclass
class Told:
    """A message that was taken."""

    pod: tuple[str, int]
    number: int
    asked: int
    """How many messages had been taken when it was read."""
    ahead: int
    """How many of its namespace waited then."""


@dataclass
class World:
    """A clock that goes on while a message is taken, and when all pods are paused."""

    sent: dict[tuple[str, int], list[float]]
    now: float = 0.0
    taken: list[Told] = field(default_factory=list)
    _waiting: Counter[str] = field(default_factory=Counter)
    _asleep: dict[object, float] = field(default_factory=dict)
    _alive: int = 0

    async def sleep(self, seconds: float) -> None:
        """Pause a connection; once all are paused, the first goes on."""
        until, me = self.now + seconds, object()
        self._asleep[me] = until
        while self.now < until:
            if len(self._asleep) == self._alive:
                self.now = max(self.now, min(self._asleep.values()))
            await asyncio.tasks.sleep(0)
        del self._asleep[me]

    async def run(self) -> None:
        """Let all pods send everything."""
        hub = Intake()
        self._alive = len(self.sent)
        async with asyncio.TaskGroup() as tasks:
            for pod in self.sent:
                tasks.create_task(self._send(hub, pod))

    async def _send(self, hub: Intake, pod: tuple[str, int]) -> None:
        identity = SimpleNamespace(pod=str(pod), namespace=pod[0], member="m")
        connection = SimpleNamespace(identity=identity, pauses=0)
        for number, cost in enumerate(self.sent[pod]):
            told = Told(pod, number, len(self.taken), self._waiting[pod[0]])
            self._waiting[pod[0]] += 1

            def work(told: Told = told, cost: float = cost) -> None:
                self.taken.append(told)
                self._waiting[told.pod[0]] -= 1
                self.now += cost

            assert await hub.take(connection, work) is None  # type: ignore[arg-type]
            connection.pauses = 0  # Here no pod is closed, whatever it sends.
            await hub.pause(connection)  # type: ignore[arg-type]
        self._alive -= 1


def ran(sent: dict[tuple[str, int], list[float]]) -> World:
    """What becomes of it."""
    world = World(sent)
    clock = SimpleNamespace(monotonic=lambda: world.now, thread_time=lambda: world.now)
    with pytest.MonkeyPatch.context() as patch:
        for module in (intake, turns):
            patch.setattr(module, "time", clock)
        patch.setattr(intake, "asyncio", SimpleNamespace(sleep=world.sleep))
        asyncio.run(world.run())
    return world


@given(SENT)
def test_nothing_is_lost_and_the_messages_of_a_pod_stay_in_order(sent: dict[tuple[str, int], list[float]]) -> None:
    numbers = defaultdict[tuple[str, int], list[int]](list)
    for one in ran(sent).taken:
        numbers[one.pod].append(one.number)
    assert numbers == {pod: list(range(len(costs))) for pod, costs in sent.items() if costs}


@given(SENT)
def test_no_namespace_waits_for_more_than_one_message_of_each_other_before_each_of_its_own(
    sent: dict[tuple[str, int], list[float]],
) -> None:
    taken = ran(sent).taken
    for at, one in enumerate(taken):
        between = Counter(other.pod[0] for other in taken[one.asked : at])
        others = [count for namespace, count in between.items() if namespace != one.pod[0]]
        assert max(others, default=0) <= one.ahead + 1


@given(SENT)
@example({("red", at): [0.05] * 30 for at in range(20)})
def test_no_pod_and_no_namespace_takes_more_than_its_share(sent: dict[tuple[str, int], list[float]]) -> None:
    now, most = ran(sent).now, dict[tuple[Owner, str], float]()
    taken = defaultdict[tuple[Owner, str], float](float)
    for pod, costs in sent.items():
        for owner in ((Owner.POD, str(pod)), (Owner.NAMESPACE, pod[0])):
            taken[owner] += sum(costs)
            most[owner] = most.get(owner, 0.0) + max(costs, default=0.0)  # One of each pod may be read already.
    for owner, seconds in taken.items():
        share = SHARES[owner[0]]
        assert seconds <= share.rate * now + share.burst + most[owner] + 1e-6
