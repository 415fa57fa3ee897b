"""Turns and shares together, in virtual time: pods that send what they like, each as soon as it is read.

To the simulation of the whole, a report that is read later is a message that arrives late, as any may
(``tests/simulation/moves.py``). What it takes for granted of the intake is shown here: only a report is passed over,
for a newer one, the messages of a pod stay in order, and no namespace waits for more than its turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangctl.controller import intake, turns
from gangctl.controller.intake import SHARES, Inbox, Intake, Owner
from gangsidecar import wire

COSTS = st.floats(0.0, 0.05)
"""Seconds. The largest report takes about 0.01 s."""
Sent = dict[tuple[str, int], list[tuple[float, bool]]]
"""What each pod of a namespace sends: the cost of each message, and whether it is a report."""
SENT = st.dictionaries(
    st.tuples(st.sampled_from(["red", "green", "blue"]), st.integers(0, 3)),
    st.lists(st.tuples(COSTS, st.booleans()), max_size=25),
    max_size=8,
)


@dataclass
class Told:
    """A message that was taken."""

    pod: tuple[str, int]
    number: int
    cost: float
    asked: int
    """How many messages had been taken when it was read."""
    ahead: int
    """How many of its namespace waited then."""


@dataclass
class World:
    """A clock that goes on while a message is taken, and when all pods are paused."""

    sent: Sent
    now: float = 0.0
    taken: list[Told] = field(default_factory=list)
    _waiting: dict[tuple[str, int], Told] = field(default_factory=dict)
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

        def take(_frame: object) -> None:
            told = self._waiting.pop(pod)
            self.taken.append(told)
            self.now += told.cost

        inbox = Inbox(hub, connection, take)  # type: ignore[arg-type]
        for number, (cost, is_report) in enumerate(self.sent[pod]):
            if not (pod in self._waiting and is_report and self.sent[pod][number - 1][1]):
                await inbox.emptied()
                await hub.pause(connection)  # type: ignore[arg-type]
            ahead = sum(other[0] == pod[0] for other in self._waiting)
            self._waiting[pod] = Told(pod, number, cost, len(self.taken), ahead)
            await inbox.put(aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, wire.REPORT_BEGINS if is_report else "", ""))
            connection.pauses = 0  # Here no pod is closed, whatever it sends.
        await inbox.emptied()
        self._alive -= 1


def ran(sent: Sent) -> World:
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
def test_only_a_report_gives_way_to_the_next_one_and_the_messages_of_a_pod_stay_in_order(sent: Sent) -> None:
    numbers = defaultdict[tuple[str, int], list[int]](list)
    for one in ran(sent).taken:
        numbers[one.pod].append(one.number)
    for pod, messages in sent.items():
        assert numbers[pod] == sorted(set(numbers[pod]))
        for number in set(range(len(messages))).difference(numbers[pod]):
            assert messages[number][1]
            assert messages[number + 1][1]


@given(SENT)
def test_no_namespace_waits_for_more_than_one_message_of_each_other_before_each_of_its_own(sent: Sent) -> None:
    taken = ran(sent).taken
    for at, one in enumerate(taken):
        between = Counter(other.pod[0] for other in taken[one.asked : at])
        others = [count for namespace, count in between.items() if namespace != one.pod[0]]
        assert max(others, default=0) <= one.ahead + 1


@given(SENT)
@example({("red", at): [(0.05, False)] * 30 for at in range(20)})
def test_no_pod_and_no_namespace_takes_more_than_its_share(sent: Sent) -> None:
    world, most = ran(sent), dict[tuple[Owner, str], float]()
    taken = defaultdict[tuple[Owner, str], float](float)
    for one in world.taken:
        for owner in ((Owner.POD, str(one.pod)), (Owner.NAMESPACE, one.pod[0])):
            taken[owner] += one.cost
    for pod, messages in sent.items():
        for owner in ((Owner.POD, str(pod)), (Owner.NAMESPACE, pod[0])):
            # One of each pod may be read already.
            most[owner] = most.get(owner, 0.0) + max((cost for cost, _ in messages), default=0.0)
    for owner, seconds in taken.items():
        share = SHARES[owner[0]]
        assert seconds <= share.rate * world.now + share.burst + most[owner] + 1e-6


async def test_only_what_can_be_a_report_gives_way_to_one() -> None:
    connection = SimpleNamespace(identity=SimpleNamespace(pod="pod-0", namespace="red", member="m"), pauses=0)
    taken = list[str]()
    inbox = Inbox(Intake(), connection, lambda frame: taken.append(frame.data[-1:]))  # type: ignore[arg-type]
    too_large = f"{wire.REPORT_BEGINS}{'x' * wire.MAX_REPORT_BYTES}"
    for text in (
        "a",
        f"{wire.REPORT_BEGINS}b",
        f"{wire.REPORT_BEGINS}c",
        "d",
        f"{too_large}e",
        f"{wire.REPORT_BEGINS}f",
    ):
        await inbox.put(aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, text, ""))
    await inbox.emptied()
    assert taken == ["a", "c", "d", "e", "f"]
