"""What the loop does when a write, a decision or an action fails."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from tenacity import AsyncRetrying, RetryCallState

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Status
from gangctl.cluster.errors import ClusterError, Retryable, Terminal
from gangctl.controller import loop
from gangctl.controller.actions import FIRST_SECONDS
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle.plan import Event, Plan
from gangctl.core.policy.pods import CreatePod
from gangctl.telemetry import logs
from gangctl.words.decisions import unstored
from tests.controller.fake_cluster import FakeCluster, running
from tests.controller.fake_sidecars import job
from tests.controller.test_loop import CREATE, attempt_after, once
from tests.messages import words
from tests.wait import until_async


async def test_a_conflict_drops_the_plan_and_repeats_the_decision_on_the_current_object() -> None:
    world = FakeCluster()
    seen: list[str] = []

    def interfere(stored: GangJob) -> None:
        if stored.metadata.resource_version == "1":
            world.change("uid-g", stored.status.model_copy(update={"message": "of another writer"}))

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        seen.append(stored.metadata.resource_version)
        return once(0.0, stored, observed)

    world.before_write = interfere
    async with running(world, decide):
        await until_async("the status, the pod and the event are done", lambda: len(world.done) == 3)
        assert seen[:2] == ["1", "2"]
        status = world.done[0]
        assert isinstance(status, Status)
        assert (status.message, status.attempt) == ("of another writer", 1)
        assert world.done.count(CREATE) == 1, "of the dropped plan nothing was done"


async def test_a_failed_status_write_is_retried_and_delays_no_other_gang(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = iter([Retryable("the disk is full")] * 4)
    other = job(version="1", attempt=0)
    other = other.model_copy(update={"metadata": other.metadata.model_copy(update={"uid": "uid-h", "name": "h"})})
    world = FakeCluster(jobs={"uid-g": job(version="1", attempt=0), "uid-h": other})

    def fail(stored: GangJob) -> None:
        error = next(failures, None) if stored.metadata.uid == "uid-g" else None
        if error is not None:
            assert CREATE not in world.done[:1]
            raise error

    world.before_write = fail
    caplog.handler.addFilter(logs.GangContextFilter())
    with caplog.at_level(logging.INFO):
        async with running(world, once):
            await until_async("both gangs have a status, a pod and an event", lambda: len(world.done) == 6)
    assert caplog.text.count(unstored("the disk is full")) == 4
    begun = [vars(entry)["gang"] for entry in caplog.records if entry.message == "Gathering: it begins"]
    assert begun == ["h", "g"]


async def test_a_status_write_is_repeated_when_the_api_server_asks_for_it() -> None:
    world, writes = FakeCluster(), list[float]()

    def fail(_stored: GangJob) -> None:
        writes.append(time.monotonic())
        if len(writes) == 1:
            error = Retryable("too many requests")
            error.after = 0.5
            raise error

    world.before_write = fail
    async with running(world, once):
        await until_async("the status, the pod and the event are done", lambda: len(world.done) == 3)
    assert writes[1] - writes[0] >= 0.5


async def test_a_crashed_round_is_logged_with_its_traceback_and_affects_no_other_gang(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = job(version="1", attempt=0)
    other = other.model_copy(update={"metadata": other.metadata.model_copy(update={"uid": "uid-h"})})
    world = FakeCluster(jobs={"uid-g": job(version="1", attempt=0), "uid-h": other})
    crashes = 0

    def decide(now: float, stored: GangJob, observed: Observed) -> Plan:
        nonlocal crashes
        if stored.metadata.uid == "uid-g" and crashes < 3:
            crashes += 1
            raise ZeroDivisionError("a bug in a rule")
        return once(now, stored, observed)

    async with running(world, decide):
        await until_async("both gangs have a status, a pod and an event", lambda: len(world.done) == 6)
    assert caplog.text.count("a round crashed") == 3
    assert "ZeroDivisionError: a bug in a rule" in caplog.text
    assert "Traceback" in caplog.text


async def test_a_failed_pod_creation_is_retried_later_and_delays_nothing_else() -> None:
    failures = iter([Retryable("no space"), Terminal("no such command")])
    tried: list[float] = []

    def fail(create: CreatePod) -> None:
        if create.member == "worker-0":
            tried.append(time.monotonic())
            if (error := next(failures, None)) is not None:
                raise error

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        there = {pod.member for pod in observed.pods}
        wanted = tuple(CreatePod(name, 0) for name in ("worker-0", "worker-1") if name not in there)
        next_attempt = attempt_after(stored, 1) if stored.status.attempt == 0 else None
        return Plan(words("pods"), next_attempt, wanted)

    world = FakeCluster(before_create=fail)
    async with running(world, decide) as here:
        await until_async("the pod of worker-1 is created", lambda: CreatePod("worker-1", 0) in world.done)
        for _ in range(20):
            here.wakes.wake("uid-g")
            await here.member(1)
        await until_async("the pod of worker-0 is created", lambda: CREATE in world.done)
        first, second, third = tried
        assert second - first > 0.9 * FIRST_SECONDS, "wake-ups don't hammer what has just failed"
        assert third - second > 1.8 * FIRST_SECONDS
        assert world.done.count(CreatePod("worker-1", 0)) == 1


async def test_an_action_that_fails_again_and_again_is_told_once() -> None:
    failures = iter([Retryable(f"another pod has the name g-worker-0-0 ({at})") for at in range(4)])

    def fail(_create: CreatePod) -> None:
        error = next(failures, None)
        if error is not None:
            raise error

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        next_attempt = attempt_after(stored, 1) if stored.status.attempt == 0 else None
        return Plan(words("pods"), next_attempt, () if observed.pods else (CREATE,))

    world = FakeCluster(before_create=fail)
    async with running(world, decide):
        await until_async("the pod is created", lambda: CREATE in world.done)
    told = [(one.reason, one.member, one.message) for one in world.done if isinstance(one, Event)]
    text = "pod g-worker-0-0 can't be created, and it is tried again: another pod has the name g-worker-0-0 (2)"
    assert told == [("ActionFails", "worker-0", text)]


async def test_a_gang_that_goes_while_a_round_is_repeated_is_forgotten() -> None:
    world = FakeCluster()
    woken: list[str] = []

    def go(stored: GangJob) -> None:
        del world.jobs[stored.metadata.uid]
        here.wakes.wake(stored.metadata.uid)
        woken.append(stored.metadata.uid)
        raise Retryable("it has moved to another controller")

    world.before_write = go
    async with running(world, once) as here:
        await until_async("its status can't be written", lambda: woken == ["uid-g"])
        await until_async("its task has ended", lambda: "gang uid-g" not in _tasks())


def _tasks() -> set[str]:
    return {one.get_name() for one in asyncio.all_tasks()}


def test_a_round_that_only_a_person_can_mend_is_repeated_rarely() -> None:
    def longest(error: ClusterError) -> float:
        state = RetryCallState(AsyncRetrying(), None, (), {})
        state.attempt_number = 30
        state.set_exception((type(error), error, None))
        return max(loop._pause(state) for _ in range(200))  # noqa: SLF001 - no clock is waited for

    assert longest(Retryable("timeout")) <= loop.LONGEST_RETRY_SECONDS
    assert loop.LONGEST_RETRY_SECONDS < longest(Terminal("no right")) <= loop.TERMINAL_RETRY_SECONDS
