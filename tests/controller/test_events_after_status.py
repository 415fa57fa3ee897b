"""Events are said after the status that says the same is stored, or not at all."""

from __future__ import annotations

import logging

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Status
from gangctl.cluster.errors import Retryable, Terminal
from gangctl.cluster.port import UnreadableGang
from gangctl.core.lifecycle.plan import Event
from tests.controller.fake_cluster import FakeCluster, running
from tests.controller.test_loop import CREATE, EVENT, once
from tests.wait import until_async


@pytest.mark.parametrize("refusal", [Terminal("it is too large"), Retryable("etcd is away")])
async def test_a_status_that_is_refused_emits_no_event(refusal: Exception) -> None:
    world = FakeCluster()
    refused: list[GangJob] = []

    def refuse(job: GangJob) -> None:
        refused.append(job)
        if len(refused) <= 3:
            assert not world.done
            raise refusal

    world.before_write = refuse
    async with running(world, once):
        await until_async("the status, the pod and the event are done", lambda: len(world.done) == 3)
    assert len(refused) == 4
    assert type(world.done[0]) is Status
    assert {type(one) for one in world.done[1:]} == {type(CREATE), Event}, "once, after the write that succeeded"


async def test_a_plan_that_met_a_conflict_emits_no_event() -> None:
    world = FakeCluster()

    def interfere(job: GangJob) -> None:
        if job.metadata.resource_version == "1":
            world.change("uid-g", job.status.model_copy(update={"attempt": 7}))

    world.before_write = interfere
    async with running(world, once) as here:
        await until_async("attempt 7 is stored", lambda: world.jobs["uid-g"].status.attempt == 7)
        here.wakes.wake("uid-g")
        await until_async("version 2 is stored", lambda: world.jobs["uid-g"].metadata.resource_version == "2")
    assert not any(isinstance(one, Event) for one in world.done), (
        "another process decided attempt 7 and emits its event"
    )


async def test_a_lost_event_is_logged_and_delays_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf(FakeCluster):
        """It can't take events, as an API server without room for them."""

        async def emit(self, gang: GangJob | UnreadableGang, event: Event) -> None:
            await super().emit(gang, event)
            raise Retryable("1000 events wait to be sent")

    world = Deaf()
    with caplog.at_level(logging.WARNING):
        async with running(world, once):
            await until_async("the loss of the event is logged", lambda: "an event is lost" in caplog.text)
    assert "an event is lost: 1000 events wait to be sent" in caplog.text
    assert world.done.count(EVENT) == 1, "it is not said twice either"
