"""The hub tells a pod to run, not a member: two pods of one incarnation may be connected."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import aiohttp

from gangctl.api.gangjob import GangJob
from gangctl.api.model import changed
from gangctl.api.status import Fencing, GangPhase
from gangctl.cluster.port import MemberIdentity
from gangctl.controller.hub import Hub
from gangctl.core.facts.world import Pod
from gangctl.core.lifecycle.directive import directives
from gangsidecar import wire
from tests.controller.fake_sidecars import Served, Sidecar, job
from tests.wait import until_async

TOLD = Fencing(revision=1, isolation_seconds=9, stop_grace_seconds=3, longest_stop_grace_seconds=3)


def no_one(_gang: str) -> None:
    """Do nothing."""


async def identify(token: str) -> MemberIdentity:
    return MemberIdentity("uid-g", "worker-1", 0, token)


def stored(phase: GangPhase, attempt: int, version: str) -> GangJob:
    return job(attempt, phase, version, attempt_generation=job().metadata.generation)


async def told(sidecar: Sidecar) -> wire.Directive:
    said = await sidecar.hear()
    assert isinstance(said, wire.Directive)
    return said


async def test_a_pod_that_thaws_is_not_told_to_run_beside_its_successor() -> None:
    shown = ["first"]

    def pods(_gang: str) -> tuple[Pod, ...]:
        return tuple(Pod("g-worker-1-0", uid, "worker-1", 0) for uid in shown)

    def ready(pod: str, attempt: int, seq: int) -> wire.Report:
        return wire.Report("uid-g", "worker-1", 0, pod, f"session-{pod}", seq, attempt, wire.Phase.READY)

    hub = Hub(identify, partial(directives, pods), no_one, no_one)
    async with aiohttp.ClientSession() as session, hub.serve("127.0.0.1", 0) as url:
        here = Served(hub, url, session)
        hub.publish(stored(GangPhase.PENDING, 1, "1"))
        first = await here.dial("first")
        await first.say(ready("first", 1, 1))
        assert (await told(first)).verb is wire.Verb.HOLD
        shown[:] = ["second"]  # The first is silent and was deleted by force.
        second = await here.dial("second")
        await second.say(ready("second", 1, 1))
        assert (await told(second)).verb is wire.Verb.HOLD
        hub.publish(stored(GangPhase.RUNNING, 1, "2"))
        assert (await told(second)).verb is wire.Verb.RUN
        await second.say(replace(ready("second", 1, 2), phase=wire.Phase.RUNNING))
        await first.say(ready("first", 1, 2))
        await until_async(
            "both have spoken again", lambda: all(one.report.seq == 2 for one in hub.reports.heard("uid-g"))
        )
        shown[:] = ["first"]
        again = stored(GangPhase.RUNNING, 1, "3")
        hub.publish(changed(again, status=changed(again.status, fencing=TOLD)))
        assert (await told(second)).isolation_ms == 9000
        hub.publish(stored(GangPhase.GATHERING, 2, "4"))
        held = await told(first)
        assert (held.attempt, held.verb) == (2, wire.Verb.HOLD), "it was told to run in between"
        await session.close()
