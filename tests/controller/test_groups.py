"""The real loop with two gangs of one group: of two planned restarts at once, one waits for the other."""

from __future__ import annotations

import asyncio
import time

from gangctl.api.gangjob import GangJob, ReplicaGroup, Rolling
from gangctl.api.model import changed
from gangctl.api.roles import roles_hash
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.world import Pod
from gangctl.core.lifecycle.decide import decide
from tests.controller.fake_cluster import FakeCluster, running
from tests.controller.fake_sidecars import job
from tests.wait import until_async

GANGS = ("uid-a", "uid-b")


def gang(uid: str, *, group: str = "model") -> GangJob:
    """A replica that serves and is asked to restart."""
    one = job(attempt=1)
    role = one.spec.roles[0].model_copy(update={"replicas": 1})
    linked = {"replica_group": ReplicaGroup(name=group), "rolling": Rolling(min_ready_seconds=0)}
    spec = one.spec.model_copy(update={"roles": (role,), **linked, "restart_token": "now"})
    metadata = one.metadata.model_copy(update={"uid": uid, "name": uid})
    status = Status(
        attempt=1,
        started_attempt=1,
        phase=GangPhase.RUNNING,
        phase_time=time.time() - 100,
        roles_hash=roles_hash(spec.roles),
    )
    return one.model_copy(update={"metadata": metadata, "spec": spec, "status": status})


def pod(uid: str) -> Pod:
    ready = (("Ready", "True", ""),)
    return Pod(f"{uid}-0", f"pod-{uid}", "worker-0", 0, node="n", scheduled_at=1.0, started_at=1.0, conditions=ready)


def cluster(*gangs: GangJob) -> FakeCluster:
    jobs = {one.metadata.uid: one for one in gangs}
    return FakeCluster(jobs=jobs, shown={uid: (pod(uid),) for uid in jobs})


def phases(world: FakeCluster) -> list[GangPhase]:
    return [one.status.phase for one in world.jobs.values()]


def back(status: Status) -> Status:
    """What the status is when the gang serves again."""
    return status.model_copy(update={"phase": GangPhase.RUNNING, "phase_time": time.time() - 1})


async def test_the_second_waits_until_the_first_serves_again() -> None:
    world = cluster(*map(gang, GANGS))
    async with running(world, decide) as here:
        await until_async(
            "one restarts and the other says that it waits",
            lambda: any(one.status.restart_wait_time for one in world.jobs.values()) and "Gathering" in phases(world),
        )
        assert phases(world).count(GangPhase.RUNNING) == 1
        (first,) = (uid for uid in GANGS if world.jobs[uid].status.phase is GangPhase.GATHERING)
        (second,) = (uid for uid in GANGS if uid != first)
        assert f"waits for {first} (" in world.jobs[second].status.message
        world.change(first, back(world.jobs[first].status))
        here.wakes.wake(first)
        await until_async("the second restarts", lambda: world.jobs[second].status.phase is GangPhase.GATHERING)
        assert world.jobs[second].status.restart_wait_time is None


async def test_a_restart_that_is_not_stored_yet_counts() -> None:
    writing = asyncio.get_running_loop().create_future()
    held_up: list[str] = []

    def hang_if_it_stops(stored: GangJob) -> object:
        if not held_up:
            held_up.append(stored.metadata.uid)
            return writing
        return None

    world = cluster(*map(gang, GANGS))
    world.before_write = hang_if_it_stops
    async with running(world, decide):
        await until_async("the other waits", lambda: any(one.status.restart_wait_time for one in world.jobs.values()))
        assert phases(world) == [GangPhase.RUNNING, GangPhase.RUNNING]
        writing.set_result(None)
        await until_async("the first restarts", lambda: world.jobs[held_up[0]].status.phase is GangPhase.GATHERING)
        assert phases(world).count(GangPhase.GATHERING) == 1


async def test_a_gang_that_is_gone_is_not_waited_for() -> None:
    world = cluster(*map(gang, GANGS))
    world.change("uid-a", world.jobs["uid-a"].status.model_copy(update={"phase": GangPhase.HELD}))
    world.jobs["uid-a"] = world.jobs["uid-a"].model_copy(
        update={"spec": changed(world.jobs["uid-a"].spec, restart_token="")}
    )
    async with running(world, decide) as here:
        await until_async("the other waits", lambda: world.jobs["uid-b"].status.restart_wait_time is not None)
        del world.jobs["uid-a"]
        here.wakes.wake("uid-a")
        await until_async("it restarts", lambda: world.jobs["uid-b"].status.phase is GangPhase.GATHERING)


async def test_gangs_of_other_groups_and_namespaces_are_not_waited_for() -> None:
    elsewhere = gang("uid-c")
    metadata = elsewhere.metadata.model_copy(update={"namespace": "other"})
    world = cluster(gang("uid-a"), gang("uid-b", group="another"), elsewhere.model_copy(update={"metadata": metadata}))
    async with running(world, decide):
        await until_async("all restart", lambda: phases(world) == [GangPhase.GATHERING] * 3)
