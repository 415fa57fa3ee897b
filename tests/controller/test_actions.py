"""Deciding never waits for doing: slow, failing and outdated actions beside the rounds of a real loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Cause, Incident
from gangctl.api.model import changed
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase, Status
from gangctl.cluster.errors import Retryable
from gangctl.cluster.fair_slots import FairSlots
from gangctl.controller.actions import MAX_ACTIONS, SLOTS, Actions, is_first_start
from gangctl.core.facts.world import Observed, Pod
from gangctl.core.lifecycle.plan import DeleteGang, Event, Plan, PlannedAction
from gangctl.core.policy.admission import GIVES_BACK, QueueVerb, TellQueue
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangctl.telemetry.port import TelemetryFanout
from tests.controller.fake_cluster import FakeCluster, running
from tests.controller.test_loop import CREATE, DELETE, attempt_after
from tests.messages import words
from tests.wait import until_async

NEXT = CreatePod("worker-0", 1)


@dataclass
class SlowCluster(FakeCluster):
    """Its requests end when the test says so; those that are cancelled never do."""

    gates: Mapping[Any, asyncio.Event] = field(default_factory=dict)
    began: list[object] = field(default_factory=list)
    cancelled: list[object] = field(default_factory=list)

    async def create_pod(self, job: GangJob, create: CreatePod) -> None:
        await self._pass(create)
        await super().create_pod(job, create)

    async def delete_pod(self, job: GangJob, delete: DeletePod) -> None:
        await self._pass(delete)
        await super().delete_pod(job, delete)

    async def _pass(self, action: object) -> None:
        self.began.append(action)
        try:
            if action in self.gates:
                await self.gates[action].wait()
        except asyncio.CancelledError:
            self.cancelled.append(action)
            raise


def wanting(*stages: tuple[PlannedAction, ...]) -> Callable[[float, GangJob, Observed], Plan]:
    """A core that has one attempt for each report that it has heard, and wants that attempt's actions."""

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        attempt = max(stored.status.attempt, 1 + sum(one.report.seq for one in observed.heard))
        status = attempt_after(stored, attempt) if attempt > stored.status.attempt else None
        wanted = stages[min(attempt, len(stages)) - 1]
        there = {(pod.member, pod.incarnation) for pod in observed.pods}
        return Plan(
            words("on"),
            status,
            tuple(
                one for one in wanted if not isinstance(one, CreatePod) or (one.member, one.incarnation) not in there
            ),
        )

    return decide


async def test_a_slow_creation_delays_neither_the_next_decision_nor_its_status_nor_its_directives() -> None:
    world = SlowCluster(gates={CREATE: asyncio.Event()})
    async with running(world, wanting((CREATE,), (CREATE,))) as here:
        await until_async("the creation begins", lambda: world.began)
        member = await here.member(0)
        await until_async("the next attempt is stored", lambda: world.jobs["uid-g"].status.attempt == 2)
        while (await member.hear()).attempt < 2:
            pass
        assert world.began == [CREATE], "the same creation is under way once"
        world.gates[CREATE].set()
        await until_async("the pod is there", lambda: CREATE in world.done)


async def test_a_slow_deletion_does_not_delay_the_creation_of_the_next_incarnation() -> None:
    shown: dict[str, tuple[Pod, ...]] = {"uid-g": (Pod("g-worker-0-0", "pod-worker-0", "worker-0", 0),)}
    world = SlowCluster(gates={DELETE: asyncio.Event()}, shown=shown)
    async with running(world, wanting((DELETE,), (NEXT, DELETE))) as here:
        await until_async("the deletion begins", lambda: world.began == [DELETE])
        await here.member(0)
        await until_async("the next pod is created", lambda: NEXT in world.done)
        assert world.began == [DELETE, NEXT]


async def test_what_the_newest_plan_does_not_want_does_not_start_late() -> None:
    first = tuple(CreatePod(f"worker-{at}", 0) for at in range(MAX_ACTIONS + 5))
    gates = {create: asyncio.Event() for create in first}
    world = SlowCluster(gates=gates)
    async with running(world, wanting(first, (NEXT,))) as here:
        await until_async("as many begin as may at once", lambda: len(world.began) == MAX_ACTIONS)
        await here.member(0)
        await until_async("the next attempt is stored", lambda: world.jobs["uid-g"].status.attempt == 2)
        for gate in gates.values():
            gate.set()
        await until_async("what the new plan wants is done", lambda: NEXT in world.done)
        assert set(world.began) == {*first[:MAX_ACTIONS], NEXT}


async def test_nothing_of_the_old_plan_starts_while_the_next_status_is_written() -> None:
    first = tuple(CreatePod(f"worker-{at}", 0) for at in range(MAX_ACTIONS + 5))
    gates = {create: asyncio.Event() for create in first}
    writing = asyncio.get_running_loop().create_future()
    held_up: list[GangJob] = []

    def hang(stored: GangJob) -> object:
        held_up.append(stored)
        return writing if len(held_up) == 2 else None

    world = SlowCluster(gates=gates, before_write=hang)
    async with running(world, wanting(first, ())) as here:
        await until_async("as many begin as may at once", lambda: len(world.began) == MAX_ACTIONS)
        await here.member(0)
        await until_async("the second write hangs", lambda: len(held_up) == 2)
        for gate in gates.values():
            gate.set()
        await until_async("those under way end", lambda: len([d for d in world.done if d in first]) == MAX_ACTIONS)
        writing.set_result(None)
        await until_async("the next attempt is stored", lambda: world.jobs["uid-g"].status.attempt == 2)
        assert set(world.began) == set(first[:MAX_ACTIONS])


async def test_what_is_under_way_or_waits_ends_with_the_loop() -> None:
    """As when this process loses the Lease: the term's tasks are cancelled."""
    first = tuple(CreatePod(f"worker-{at}", 0) for at in range(MAX_ACTIONS + 5))
    world = SlowCluster(gates={create: asyncio.Event() for create in first})
    async with running(world, wanting(first)):
        await until_async("as many begin as may at once", lambda: len(world.began) == MAX_ACTIONS)
    assert set(world.cancelled) == set(world.began) == set(first[:MAX_ACTIONS])
    for gate in world.gates.values():
        gate.set()
    assert not any(create in world.done for create in first)


async def test_a_crash_of_an_action_is_logged_and_repeated_and_ends_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crashes = iter([ZeroDivisionError("a bug in a builder")])

    def crash(create: CreatePod) -> None:
        error = next(crashes, None) if create == CREATE else None
        if error is not None:
            raise error

    world = SlowCluster(before_create=crash)
    with caplog.at_level(logging.ERROR):
        async with running(world, wanting((CREATE, CreatePod("worker-1", 0)))):
            await until_async("both pods are there", lambda: len(world.shown.get("uid-g", ())) == 2)
    assert world.began.count(CREATE) == 2
    assert "CreatePod crashed, which is a bug" in caplog.text


async def test_a_gang_is_deleted_after_its_pods() -> None:
    shown: dict[str, tuple[Pod, ...]] = {"uid-g": (Pod("g-worker-0-0", "pod-worker-0", "worker-0", 0),)}
    world = SlowCluster(gates={DELETE: asyncio.Event()}, shown=shown)

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        left = tuple(DELETE for pod in observed.pods if not pod.deleting)
        return Plan(
            words("it ended"), attempt_after(stored, 1) if not stored.status.attempt else None, (*left, DeleteGang())
        )

    async with running(world, decide) as here:
        await until_async("the deletion of the pod begins", lambda: world.began == [DELETE])
        here.wakes.wake("uid-g")
        await here.member(0)
        assert DeleteGang() not in world.done
        world.gates[DELETE].set()
        await until_async("the gang is deleted", lambda: not world.jobs)
        assert world.done[-2:] == [DELETE, DeleteGang()]


def of_namespace(job: GangJob, name: str, namespace: str, status: Status) -> GangJob:
    """The same gang under another name."""
    metadata = changed(job.metadata, uid=f"uid-{name}", name=name, namespace=namespace)
    return changed(job, metadata=metadata, status=status)


async def test_a_gang_of_ten_thousand_pods_delays_no_recovery() -> None:
    """Its requests hang, and those of nine more gangs of its namespace; two gangs lack one pod each."""
    first = tuple(CreatePod(f"worker-{at}", 0) for at in range(10_000))
    world = SlowCluster(gates={create: asyncio.Event() for create in first})
    job = world.jobs.pop("uid-g")
    pending, gathering = Status(attempt=1, phase=GangPhase.PENDING), Status(attempt=2, phase=GangPhase.GATHERING)
    for name in map("big-{}".format, range(10)):
        world.jobs[f"uid-{name}"] = of_namespace(job, name, "crowded", pending)

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        there = {pod.member for pod in observed.pods}
        wanted = first if stored.status.phase is GangPhase.PENDING else (NEXT,)
        return Plan(words("on"), None, tuple(create for create in wanted if create.member not in there))

    def release_one_and_look() -> bool:
        world.gates[next(ended)].set()
        return "uid-neighbour" in world.shown

    ended = iter(first)
    async with running(world, decide) as here:
        await until_async("the namespace has its share of the slots", lambda: len(world.began) >= SLOTS // 2 - 8)
        world.jobs["uid-other"] = of_namespace(job, "other", "quiet", gathering)
        here.wakes.wake("uid-other")
        await until_async("the pod of another namespace is replaced", lambda: "uid-other" in world.shown)
        world.jobs["uid-neighbour"] = of_namespace(job, "neighbour", "crowded", gathering)
        here.wakes.wake("uid-neighbour")
        await until_async("so is that of the same namespace, once one of its requests ends", release_one_and_look)
        assert len(world.began) < 1000, "and not after the 100,000 that waited before it"


def test_the_pods_that_a_restart_recreates_are_no_first_start() -> None:
    incident = Incident(attempt=2, time=1.0, cause=Cause(reason="Gone", time=1.0))
    assert is_first_start(Status(attempt=2, phase=GangPhase.PENDING))
    assert not is_first_start(Status(attempt=2, phase=GangPhase.PENDING, incidents=(incident,)))
    assert is_first_start(Status(attempt=3, phase=GangPhase.PENDING, incidents=(incident,)))
    assert not is_first_start(Status(attempt=1, phase=GangPhase.RUNNING))


async def test_a_gang_whose_requests_are_slow_does_not_stop_another() -> None:
    first = tuple(CreatePod(f"worker-{at}", 0) for at in range(200))
    world = SlowCluster(gates={create: asyncio.Event() for create in first})
    job = world.jobs["uid-g"]
    world.jobs["uid-h"] = job.model_copy(
        update={"metadata": job.metadata.model_copy(update={"uid": "uid-h", "name": "h"})}
    )

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        wanted = first if stored.metadata.uid == "uid-g" else () if observed.pods else (NEXT,)
        return Plan(words("on"), attempt_after(stored, 1) if not stored.status.attempt else None, wanted)

    async with running(world, decide):
        await until_async("the other gang has its pod", lambda: NEXT in world.done)


@pytest.mark.parametrize("verb", sorted(QueueVerb))
async def test_quota_is_not_given_back_while_a_pod_is_being_created(verb: QueueVerb) -> None:
    world, tell = SlowCluster(gates={CREATE: asyncio.Event()}), TellQueue(verb)
    async with running(world, wanting((CREATE,), (tell,))) as here:
        await until_async("the creation begins", lambda: world.began)
        await here.member(0)
        await until_async("the next attempt is stored", lambda: world.jobs["uid-g"].status.attempt == 2)
        if verb not in GIVES_BACK:
            await until_async("the queue is told at once", lambda: tell in world.done)
            return
        for _ in range(20):
            here.wakes.wake("uid-g")
            await asyncio.sleep(0.01)  # waits for nothing: rounds pass
        assert tell not in world.done
        world.gates[CREATE].set()
        await until_async("the queue is told", lambda: tell in world.done)
        effects = [one for one in world.done if one in {CREATE, tell}]
        assert effects[:2] == [CREATE, tell]


async def test_a_request_that_hangs_after_a_failure_asks_for_no_round() -> None:
    world, failures = SlowCluster(gates={CREATE: asyncio.Event()}), [Retryable("the webhook said no")]
    world.gates[CREATE].set()

    def fails_once(_create: CreatePod) -> None:
        if failures:
            raise failures.pop()

    world.before_create = fails_once
    async with asyncio.TaskGroup() as tasks:
        actions = Actions(world, TelemetryFanout(), tasks, FairSlots(SLOTS), lambda: None)
        actions.want(world.jobs["uid-g"], (CREATE,))
        await until_async("it has failed", lambda: not failures)
        await until_async("it backs off", lambda: actions.due_in is not None)
        world.gates[CREATE].clear()

        def is_tried_again() -> bool:
            actions.want(world.jobs["uid-g"], (CREATE,))
            return len(world.began) == 2

        await until_async("it hangs", is_tried_again)
        assert actions.due_in is None
        world.gates[CREATE].set()


async def test_a_pod_that_something_deletes_again_and_again_is_told() -> None:
    world = FakeCluster()
    async with asyncio.TaskGroup() as tasks:
        actions = Actions(world, TelemetryFanout(), tasks, FairSlots(SLOTS), lambda: None)

        def is_created(times: int) -> bool:
            actions.want(world.jobs["uid-g"], (CREATE,))
            return world.done.count(CREATE) == times

        for times in (1, 2, 3):
            await until_async(f"it is created {times} times", partial(is_created, times))
            world.shown.clear()
            actions.want(world.jobs["uid-g"], ())
            assert actions.due_in is None, "nothing is wanted"
    told = [one for one in world.done if isinstance(one, Event)]
    assert [one.reason for one in told] == [Reason.ACTION_FAILS]
