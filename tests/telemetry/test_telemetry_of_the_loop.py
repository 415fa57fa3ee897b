"""Telemetry does not slow down the loop, whatever the collector does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from operator import methodcaller

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.api.status import GangPhase
from gangctl.core.lifecycle.decide import decide
from gangctl.core.lifecycle.directive import directives
from gangctl.telemetry.port import TelemetryFanout
from gangctl.telemetry.tracing.tracer import IncidentTracer
from gangsidecar import wire
from tests.controller.fake_cluster import FakeCluster, Running, running
from tests.controller.fake_sidecars import Sidecar, job, report
from tests.telemetry.collectors import COLLECTORS, down
from tests.telemetry.otlp_receiver import Receiver, receiving
from tests.telemetry.traced_restart import environment, restarted, traced, tracer_with
from tests.wait import SECONDS, until_async

TIMEOUT = f"{3 * SECONDS * 1000:.0f}"
"""Milliseconds of an export: a loop that waited for a collector that hangs would miss every deadline of this test."""


async def restart(here: Running, members: list[Sidecar], seq: int) -> None:
    """End a worker and play all members until all run again."""
    attempt = here.world.jobs["uid-g"].status.attempt
    end = wire.End(attempt, 0, 0, rank=1, exit_code=3)
    await members[1].say(report(1, seq=seq, attempt=attempt, phase=wire.Phase.RUNNING, ends=(end,)))
    await directed(members, attempt + 1, wire.Verb.HOLD)
    for at, member in enumerate(members):
        ready = report(
            at, seq=seq + 1, attempt=attempt + 1, phase=wire.Phase.READY, address="127.0.0.1", ports=(29400,)
        )
        await member.say(replace(ready, ends=(end,) if at == 1 else ()))
    await directed(members, attempt + 1, wire.Verb.RUN)
    for at, member in enumerate(members):
        await member.say(report(at, seq=seq + 2, attempt=attempt + 1, phase=wire.Phase.RUNNING))


async def directed(members: list[Sidecar], attempt: int, verb: wire.Verb) -> None:
    """Wait until every member has this directive."""
    for member in members:
        while True:
            said = await member.hear()
            if isinstance(said, wire.Directive) and (said.attempt, said.verb) == (attempt, verb):
                break


@pytest.mark.parametrize(
    "collector",
    ["well", *(name if name == "hanging" else pytest.param(name, marks=pytest.mark.nightly) for name in COLLECTORS)],
)
async def test_a_bad_collector_does_not_slow_down_restarts(collector: str) -> None:
    stored = job(version="1", attempt=0, phase=GangPhase.NEW)
    recovery = stored.spec.recovery.model_copy(update={"evidence_window_seconds": 0, "replace_after": 100})
    world = FakeCluster(
        jobs={"uid-g": stored.model_copy(update={"spec": stored.spec.model_copy(update={"recovery": recovery})})}
    )
    async with receiving() as receiver, COLLECTORS.get(collector, down)() as url:
        target = receiver if collector == "well" else Receiver(url)
        tracer = tracer_with(environment(target, OTEL_EXPORTER_OTLP_TIMEOUT=TIMEOUT))
        tell = partial(directing, world)
        async with running(world, decide, tracer, tell=tell) as here, asyncio.TaskGroup() as tasks:
            checking = tasks.create_task(tracer.run())
            members = await started(here)
            for seq in (10, 20, 30):
                await restart(here, members, seq)
            # A gang that reports no steps is done with a restart when the next one has begun.
            await until_async("three incidents are stored", lambda: len(_incidents(world)) == 3)
            if collector == "well":
                await until_async("two root spans arrive", lambda: receiver.names["gang.restart"] == 2)
                assert not receiver.differing()
            checking.cancel()
        await tracer.close()


def directing(world: FakeCluster, stored: GangJob, said: wire.Report) -> wire.Directive | None:
    """What follows from the stored object."""
    return directives(world.pods, stored, None)(said)


async def started(here: Running) -> list[Sidecar]:
    """Start attempt 1, and return the members."""
    world = here.world
    await until_async("four pods are created", lambda: len(world.shown.get("uid-g", ())) == 4)
    now = time.time()
    world.shown["uid-g"] = tuple(
        replace(pod, uid=f"pod-{at}", started_at=now, scheduled_at=now) for at, pod in enumerate(world.shown["uid-g"])
    )
    members = [await here.member(at) for at in range(4)]
    for at, member in enumerate(members):
        await directed([member], 1, wire.Verb.HOLD)
        await member.say(report(at, seq=2, attempt=1, phase=wire.Phase.READY, address="127.0.0.1", ports=(29400,)))
    await directed(members, 1, wire.Verb.RUN)
    for at, member in enumerate(members):
        await member.say(report(at, seq=3, attempt=1, phase=wire.Phase.RUNNING))
    return members


def _incidents(world: FakeCluster) -> tuple[Incident, ...]:
    return world.jobs["uid-g"].status.incidents


async def test_an_error_in_telemetry_is_logged_once_and_affects_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(IncidentTracer):
        """It always fails."""

        def round_began(self, job: GangJob) -> None:
            raise LookupError(job.metadata.name)

    jobs = restarted()
    async with traced() as (tracer, receiver):
        both = TelemetryFanout(Failing(tracer._exporter), tracer)  # noqa: SLF001
        for one in jobs:
            both.report(methodcaller("round_began", one))
        await until_async("the root span arrives", lambda: receiver.names["gang.restart"])
    assert caplog.text.count("Failing has failed, which is a bug") == 1
