"""The controller is upgraded, replica by replica, while 200 members run: none of them is restarted.

As the Deployment does it (maxSurge 1, maxUnavailable 0): a new replica is ready before an old one is asked to end. The
replicas are real, with TLS, tokens and a Lease; the members are simulated. They try one replica after the other, where
a real sidecar is named the leader, so they are back later than real ones. The time is shown by

    pytest tests/controller/test_rolling_upgrade.py -o log_cli=true --log-cli-level=info | grep "were back"
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from bench.simulated_sidecars import Fleet, Member
from gangctl.api.names import pod_name
from gangsidecar import wire
from tests.cluster.kube import objects
from tests.cluster.kube.auth.tokens import Issuer, claims, sign
from tests.cluster.kube.fakeapi import FakeApi, serving
from tests.controller.replicas import Replica, holder, replica
from tests.wait import until_async

pytestmark = pytest.mark.nightly
log = logging.getLogger(__name__)

MEMBERS = 200
UID = "uid-g"
PATIENT = ("--lease-duration", "15", "--renew-deadline", "10", "--retry-period", "0.5")
"""As the chart sets them, but for the period."""
BACK_SECONDS = 100.0


def running(at: int) -> dict[str, Any]:
    """The pod of a member, in which everything runs."""
    state = {"running": {"startedAt": "2026-11-21T10:00:00Z"}}
    container = {"name": "m", "restartCount": 0, "started": True, "state": state}
    status = {"phase": "Running", "podIP": f"10.0.{at // 250}.{at % 250 + 1}", "containerStatuses": [container]}
    named: dict[str, Any] = {"uid": f"pod-{at}", "owner": UID, "label": UID, "spec": {"nodeName": "n1"}}
    return objects.pod(f"worker-{at}", **named, status=status)


def member(fleet: Fleet, at: int) -> Member:
    """Its sidecar, with a token of its pod."""
    payload = claims()
    pod = {"name": pod_name("g", f"worker-{at}", 0), "uid": f"pod-{at}"}
    bound = {**payload["kubernetes.io"], "namespace": "default", "pod": pod}
    token = sign({**payload, "sub": "system:serviceaccount:default:default", "kubernetes.io": bound})
    return Member(
        fleet, token, wire.Report(UID, f"worker-{at}", 0, f"pod-{at}", f"session-{at}", 0, 0, wire.Phase.IDLE)
    )


@dataclass
class Running:
    """The gang, its members, and where the replicas will be."""

    api: FakeApi
    fleet: Fleet
    stack: AsyncExitStack

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects["gangjobs", "default", "g"]["status"]
        return found

    async def add(self, name: str) -> Replica:
        """Start a replica, and wait until it is ready."""
        started = await self.stack.enter_async_context(replica(self.api, name, *PATIENT))
        await started.until_ready()
        return started

    async def all_ran(self, attempt: int) -> None:
        members = self.fleet.members
        await until_async(f"attempt {attempt} runs", lambda: all(attempt in one.ran for one in members), 120)

    async def is_back(self, ending: Replica) -> float:
        """Wait until another replica leads and all members are connected to it; the seconds that it took."""
        began = time.monotonic()
        await until_async("another leads", lambda: holder(self.api) not in {"", ending.name})
        await until_async("all are connected", lambda: self.fleet.connected == MEMBERS, BACK_SECONDS)
        return time.monotonic() - began

    def written(self, method: str) -> int:
        """Number of requests that create or delete pods; a dry run is none."""
        return sum(one == method and "/pods" in path and "dryRun" not in q for one, path, q in self.api.requests)


@pytest.fixture
async def gang() -> AsyncIterator[Running]:
    async with AsyncExitStack() as stack:
        api, _ = await stack.enter_async_context(serving())
        api.faults.append(Issuer())
        job = objects.gang("g", UID)
        job["spec"]["roles"][0]["replicas"] = MEMBERS
        for plural, value in (
            ("nodes", objects.node()),
            ("gangjobs", job),
            *(("pods", running(at)) for at in range(MEMBERS)),
        ):
            await api.put(plural, value)
        yield Running(api, Fleet([]), stack)


async def test_an_upgrade_restarts_no_member_and_all_are_connected_again(gang: Running) -> None:
    old = [await gang.add(name) for name in ("old-1", "old-2")]
    new, back = dict[str, Replica](), list[float]()
    async with asyncio.TaskGroup() as tasks:
        gang.fleet.urls = urls = [one.options.address for one in old]
        gang.fleet.members += [member(gang.fleet, at) for at in range(MEMBERS)]
        dialling = [tasks.create_task(one.run()) for one in gang.fleet.members]
        dialling.append(tasks.create_task(gang.fleet.keep_alive()))
        await gang.all_ran(1)
        before = dict(gang.status)
        for number, ending in enumerate(old, 1):
            name = f"new-{number}"
            new[name] = await gang.add(name)
            urls.append(new[name].options.address)
            led = holder(gang.api) == ending.name
            ending.ended.set()
            if led:
                back.append(await gang.is_back(ending))
        await until_async("a new one leads", lambda: holder(gang.api) in new)
        await until_async("all are connected", lambda: gang.fleet.connected == MEMBERS, BACK_SECONDS)
        assert back, "a leader was replaced"
        log.info("the leader was asked to end; another led, and all members were back, after %.1f s", max(back))
        assert (gang.status["attempt"], gang.status["phase"]) == (1, "Running")
        assert gang.status["startTime"] == before["startTime"]
        assert gang.status.get("incidents", []) == []
        assert {tuple(one.ran) for one in gang.fleet.members} == {(1,)}, "no worker was told to start again"
        assert {tuple(one.held) for one in gang.fleet.members} == {(1,)}
        assert (gang.written("POST"), gang.written("DELETE")) == (0, 0)
        gang.fleet.members[7].say(ends=(wire.End(1, 0, 0, exit_code=1),))
        await gang.all_ran(2)
        assert gang.status["attempt"] == 2, "the new leader directs them all"
        for task in dialling:
            task.cancel()
