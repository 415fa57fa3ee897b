"""The real loop under the brake: it counts all gangs, wakes them when the brake changes, and tells the log."""

from __future__ import annotations

import logging

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase
from gangctl.controller import fleet
from gangctl.core.facts.world import Observed, Pod
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.policy import brake
from tests.controller.fake_cluster import FakeCluster, running
from tests.controller.fake_sidecars import job
from tests.messages import words
from tests.wait import until_async

GANGS = ("uid-a", "uid-b", "uid-c")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "COUNT_SECONDS", 0.05)
    monkeypatch.setattr(brake, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(brake, "CALM_SECONDS", 0.2)


def gang(uid: str) -> GangJob:
    one = job(version="1", attempt=1)
    metadata = one.metadata.model_copy(update={"uid": uid, "name": uid})
    status = one.status.model_copy(update={"phase": GangPhase.RUNNING})
    return one.model_copy(update={"metadata": metadata, "status": status})


def pod(uid: str) -> Pod:
    return Pod(f"{uid}-worker-0-0", f"pod-of-{uid}", "worker-0", 0, node="n", scheduled_at=1.0, started_at=1.0)


async def test_the_brake_goes_on_for_all_gangs_and_off_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    seen: dict[str, Observed] = {}

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        seen[stored.metadata.uid] = observed
        return Plan(words("nothing to do"))

    world = FakeCluster(jobs={uid: gang(uid) for uid in GANGS}, shown={uid: (pod(uid),) for uid in GANGS})
    began = world.since
    async with running(world, decide) as here:
        await until_async("the brake is on", lambda: len(seen) == 3 and all(one.brake.since for one in seen.values()))
        assert min(one.listening_since for one in seen.values()) > began
        assert "the brake is on: 3 of 3 members" in caplog.text
        for uid in GANGS[:2]:
            world.shown[uid] = ()
            here.wakes.wake(uid)
        await until_async("the brake is off", lambda: not any(one.brake.since for one in seen.values()))
        assert min(one.listening_since for one in seen.values()) > began, "time under the brake counts for nothing"
        assert "the brake is off after" in caplog.text


async def test_gangs_that_cannot_be_read_do_not_hold_the_brake() -> None:
    seen: dict[str, Observed] = {}

    def decide(_now: float, stored: GangJob, observed: Observed) -> Plan:
        seen[stored.metadata.uid] = observed
        return Plan(words("nothing to do"))

    world = FakeCluster(jobs={uid: gang(uid) for uid in GANGS}, shown={uid: (pod(uid),) for uid in GANGS})
    async with running(world, decide) as here:
        await until_async("the brake is on", lambda: len(seen) == 3 and all(one.brake.since for one in seen.values()))
        for uid in GANGS[:2]:
            world.broken[uid] = "status.phase: it is Dancing"
            here.wakes.wake(uid)
        await until_async("the brake is off", lambda: seen[GANGS[2]].brake.since is None)
