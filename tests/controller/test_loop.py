from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.status import Awaited, GangPhase, Status
from gangctl.controller.turns import TURN_SECONDS
from gangctl.core.facts.world import Observed, Pod
from gangctl.core.lifecycle.decide import decide as real_decide
from gangctl.core.lifecycle.plan import AskScan, DeleteGang, Event, Plan
from gangctl.core.policy.pods import CreatePod, DeletePod
from gangsidecar import wire
from tests.controller.fake_cluster import FakeCluster, Running, running
from tests.controller.fake_sidecars import job, report
from tests.messages import words
from tests.wait import until_async

CREATE = CreatePod("worker-0", 0)
DELETE = DeletePod("g-worker-0-0", "pod-worker-0")
EVENT = Event("Running", words("it runs"))


def attempt_after(stored: GangJob, attempt: int) -> Status:
    return stored.status.model_copy(update={"attempt": attempt, "phase": GangPhase.GATHERING})


def once(_now: float, stored: GangJob, observed: Observed) -> Plan:
    """Attempt 1, one pod, one event."""
    if stored.status.attempt == 0:
        return Plan(words("it begins"), attempt_after(stored, 1), (CREATE,), (EVENT,))
    return Plan(words("nothing is written"), actions=() if observed.pods else (CREATE,))


async def test_the_status_is_written_first_then_pods_and_events() -> None:
    world = FakeCluster()
    async with running(world, once):
        await until_async("the status, the pod and the event are done", lambda: len(world.done) == 3)
        status, *rest = world.done
        assert isinstance(status, Status)
        assert status.attempt == 1
        assert set(rest) == {CREATE, EVENT}


async def test_nothing_is_sent_created_deleted_or_emitted_while_a_write_hangs() -> None:
    writing = asyncio.get_running_loop().create_future()
    began = asyncio.Event()

    def hang(_job: GangJob) -> asyncio.Future[None]:
        began.set()
        return writing

    def decide(_now: float, stored: GangJob, _observed: Observed) -> Plan:
        return Plan(
            words("on"), attempt_after(stored, 9), (CREATE, DELETE, AskScan("pod-0", wire.Scan(9, ()))), (EVENT,)
        )

    world = FakeCluster(before_write=hang, shown={"uid-g": (Pod("g-worker-0-0", "pod-worker-0", "worker-0", 0),)})
    async with running(world, decide) as here:
        await began.wait()
        member = await here.member()
        await until_async("the report arrives", lambda: here.served.hub.reports.heard("uid-g"))
        hearing = asyncio.create_task(member.hear())
        await asyncio.wait([hearing], timeout=0.1)
        assert not hearing.done()
        assert world.done == []
        writing.set_result(None)
        told = [await hearing, await member.hear()]
        assert wire.Scan(9, ()) in told
        assert [one.attempt for one in told] == [9, 9]
        await until_async("the rest is done", lambda: {CREATE, DELETE, EVENT} <= set(world.done[1:]))


async def test_members_get_the_directives_of_the_old_object_while_a_write_hangs() -> None:
    """The old object is durable: a member that comes meanwhile is told what follows from that one."""
    writing = asyncio.get_running_loop().create_future()
    held_up: list[GangJob] = []

    def hang_at_two(stored: GangJob) -> object:
        held_up.append(stored)
        return writing if stored.status.attempt == 1 else None

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        wanted = 1 + len(observed.heard)
        return Plan(words("on"), attempt_after(stored, wanted) if wanted > stored.status.attempt else None)

    async with running(FakeCluster(before_write=hang_at_two), decide) as here:
        await until_async("the first status is stored", lambda: here.world.done)
        first = await here.member(0)
        assert (await first.hear()).attempt == 1
        await until_async("the second write hangs", lambda: len(held_up) == 2)
        second = await here.member(1)
        assert (await second.hear()).attempt == 1
        writing.set_result(None)
        assert (await first.hear()).attempt in {2, 3}


async def test_a_gang_has_one_round_at_a_time_and_changes_meanwhile_cause_one_more() -> None:
    writing = asyncio.get_running_loop().create_future()
    rounds = 0

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        nonlocal rounds
        rounds += 1
        assert len(observed.heard) in {0, 4}
        return Plan(words("on"), attempt_after(stored, 1) if stored.status.attempt == 0 else None)

    async with running(FakeCluster(before_write=lambda _: writing), decide) as here:
        await until_async("the first round begins", lambda: rounds == 1)
        for at in range(4):
            await here.member(at)
        await until_async("four reports arrive", lambda: len(here.served.hub.reports.heard("uid-g")) == 4)
        for _ in range(100):
            here.wakes.wake("uid-g")
        assert rounds == 1
        writing.set_result(None)
        await until_async("the second round begins", lambda: rounds == 2)
        await asyncio.wait([asyncio.create_task(here.wakes.wait("uid-g", 0.1))])
        assert rounds == 2


async def test_a_plan_can_ask_for_another_round_later() -> None:
    looks: list[float] = []

    def decide(now: float, _stored: GangJob, _observed: Observed) -> Plan:
        looks.append(now)
        return Plan(words("later"), requeue_after=0.05 if len(looks) < 3 else None)

    async with running(FakeCluster(), decide):
        await until_async("three rounds have begun", lambda: len(looks) == 3)
        assert looks[2] - looks[0] >= 0.09


async def test_the_report_of_a_vanished_pod_is_kept_while_decisions_await_it() -> None:
    seen: list[tuple[int, int]] = []
    awaited: Callable[[], tuple[Awaited, ...]] = lambda: ()  # noqa: E731

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        seen.append((len(observed.pods), len(observed.heard)))
        if stored.status.awaited != awaited():
            return Plan(words("awaited"), stored.status.model_copy(update={"awaited": awaited()}))
        return Plan(words("nothing"))

    world = FakeCluster(shown={"uid-g": (Pod("g-worker-0-0", "pod-0", "worker-0", 0),)})
    async with running(world, decide) as here:
        sidecar = await here.member(0)
        await until_async("a round sees the pod and its report", lambda: seen[-1] == (1, 1))
        await sidecar.socket.close()
        await until_async(
            "the member counts as not connected", lambda: not here.served.hub.reports.heard("uid-g")[0].connected
        )
        awaited = lambda: (Awaited(member="worker-0", incarnation=0, pod="pod-0"),)  # noqa: E731
        world.shown["uid-g"] = ()
        here.wakes.wake("uid-g")
        await until_async(
            "a round sees the report without the pod",
            lambda: (0, 1) in seen and here.world.jobs["uid-g"].status.awaited,
        )
        seen.clear()
        here.wakes.wake("uid-g")
        await until_async("a later round sees the report without the pod", lambda: (0, 1) in seen)
        awaited = lambda: ()  # noqa: E731
        here.wakes.wake("uid-g")
        await until_async("the report is forgotten", lambda: not here.served.hub.reports.heard("uid-g"))


async def test_a_gang_that_is_gone_is_forgotten_and_can_return() -> None:
    world = FakeCluster()
    async with running(world, once) as here:
        sidecar = await here.member()
        assert (await sidecar.hear()).attempt == 1
        before = world.jobs.pop("uid-g")
        here.wakes.wake("uid-g")
        await sidecar.closed()
        assert here.served.hub.reports.heard("uid-g") == ()
        world.jobs["uid-g"] = before
        here.wakes.wake("uid-g")
        again = await here.member()
        assert (await again.hear()).attempt == 1


async def test_a_decision_with_a_change_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = FakeCluster()
    with caplog.at_level(logging.INFO, "gangctl.telemetry.logs"):
        async with running(world, once) as here:
            await until_async("the status, the pod and the event are done", lambda: len(world.done) == 3)
            await (await here.member()).hear()
    assert caplog.messages == ["Gathering: it begins"]


async def test_the_real_core_brings_a_new_gang_to_running() -> None:
    """With sidecars that say Ready and Running when they are told so: two writes after the first pods."""
    world = FakeCluster(jobs={"uid-g": job(version="1", attempt=0, phase=GangPhase.NEW)})
    async with running(world, real_decide) as here:
        await until_async(
            "four pods are created", lambda: len([one for one in world.done if isinstance(one, CreatePod)]) == 4
        )
        shown, now = world.shown["uid-g"], time.time()
        world.shown["uid-g"] = tuple(
            replace(pod, uid=f"pod-{at}", started_at=now, scheduled_at=now) for at, pod in enumerate(shown)
        )
        members = [await here.member(at) for at in range(4)]
        for at, member in enumerate(members):
            assert (await member.hear()).verb is wire.Verb.HOLD
            ready = report(at, seq=2, attempt=1, phase=wire.Phase.READY, address="127.0.0.1", ports=(29400,))
            await member.say(ready)
        await until_async("the gang runs", lambda: world.jobs["uid-g"].status.phase is GangPhase.RUNNING)
        assert world.jobs["uid-g"].status.attempt == 1


async def test_a_gang_that_a_plan_deletes_is_not_reconciled_any_more() -> None:
    def decide(_now: float, _stored: GangJob, _observed: Observed) -> Plan:
        return Plan(words("it ended long ago"), actions=(DeleteGang(),), requeue_after=0.01)

    world = FakeCluster()
    async with running(world, decide) as here:
        await until_async("the gang is deleted", lambda: not world.jobs)
        here.wakes.wake("uid-g")
    assert world.done == [DeleteGang()]


async def test_a_round_sees_why_the_cluster_refuses_pods() -> None:
    seen: list[tuple[str, ...] | None] = []

    def decide(_now: float, _stored: GangJob, observed: Observed) -> Plan:
        seen.append(observed.refused)
        return Plan(words("nothing to do"))

    world = FakeCluster(refused=("exceeded quota",))
    async with running(world, decide):
        await until_async("a round sees the refusal", lambda: seen == [("exceeded quota",)])


async def test_a_gang_that_cannot_be_read_is_left_alone_with_its_connections() -> None:
    world = FakeCluster()
    async with running(world, once) as here:
        sidecar = await here.member()
        assert (await sidecar.hear()).attempt == 1
        world.broken["uid-g"] = "status.phase: it is Dancing"
        here.wakes.wake("uid-g")
        await until_async("the round is over", lambda: not here.wakes.is_set("uid-g"))
        await sidecar.say(report(0, seq=2, phase=wire.Phase.READY, attempt=1))
        await until_async("its report still arrives", lambda: here.served.hub.reports.heard("uid-g")[0].report.seq == 2)
        assert len(here.served.hub.connections) == 1
        done = len(world.done)
        world.broken.clear()
        world.change("uid-g", attempt_after(world.jobs["uid-g"], 2))
        here.wakes.wake("uid-g")
        assert (await sidecar.hear()).attempt == 2
        assert world.done[done:] == []


async def test_a_gang_that_cannot_be_read_is_told_of_once_for_each_reason() -> None:
    world = FakeCluster(broken={"uid-g": "status.phase: it is Dancing"})

    def told() -> list[str]:
        return [one.message for one in world.done if isinstance(one, Event) and one.reason == Reason.UNREADABLE]

    async def look(here: Running) -> None:
        here.wakes.wake("uid-g")
        await until_async("the round is over", lambda: not here.wakes.is_set("uid-g"))

    async with running(world, lambda *_: Plan(words("nothing to do"))) as here:
        await until_async("it is told", lambda: len(told()) == 1)
        assert told()[0].endswith("no fault is mended. status.phase: it is Dancing")
        await look(here)
        world.broken["uid-g"] = "spec.roles: there are none"
        await look(here)
        await until_async("the next reason is told", lambda: len(told()) == 2)
        assert here.loop.unreadable_count == 1
        world.broken.clear()
        await look(here)
        await until_async("it is counted no more", lambda: not here.loop.unreadable_count)
        assert len(told()) == 2


async def test_a_gang_that_is_woken_all_the_time_takes_at_most_a_quarter_of_the_loop() -> None:
    held, shares, first = 0.0, list[float](), 0.0

    def decide(_now: float, _stored: GangJob, _observed: Observed) -> Plan:
        nonlocal held, first
        began = time.monotonic()
        first = first or began
        if held:
            shares.append(held / (began - first))  # of the time until now: each decision has had its pause
        time.sleep(0.01)  # As the decision about a large gang does.
        held += time.monotonic() - began
        return Plan(words("there is always more"), requeue_after=0.0)

    async with running(FakeCluster(), decide):
        await until_async("many decisions were made", lambda: len(shares) > 30)
    assert max(shares) < 0.3


def named(uid: str, namespace: str) -> GangJob:
    found = job(version="1", attempt=0)
    metadata = found.metadata.model_copy(update={"uid": uid, "name": uid, "namespace": namespace})
    return found.model_copy(update={"metadata": metadata})


async def test_gangs_of_one_namespace_hold_up_no_decision_in_another() -> None:
    """However many of them wait, another namespace's gang is decided about after one decision of theirs."""
    world = FakeCluster(jobs={f"uid-{at}": named(f"uid-{at}", "other" if at == 29 else "default") for at in range(30)})
    order: list[str] = []

    def decide(_now: float, stored: GangJob, _observed: Observed) -> Plan:
        order.append(stored.metadata.namespace)
        until = time.thread_time() + 2 * TURN_SECONDS
        while time.thread_time() < until:
            pass
        return Plan(words("nothing is written"))

    async with running(world, decide):
        await until_async("all are decided about", lambda: len(order) >= 30)
    assert order.index("other") <= 1
