"""A restart that happens now, as the core stores it, and a tracer that exports it to a receiver."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from unittest.mock import patch

from gangctl.api.gangjob import GangJob
from gangctl.telemetry.tracing.tracer import IncidentTracer, tracer_from_environment
from gangsidecar.wire import Progress
from tests.core import given
from tests.core.world import World
from tests.telemetry.otlp_receiver import Receiver, receiving

AGO = 30.0
"""Seconds since it began: long enough to be complete now."""


def restarted(window: int = 0, began: float = AGO) -> list[GangJob]:
    """Every stored version of a gang, from before a fault until after the first step."""
    world = World(now=float(round(time.time() - began)))  # Times are stored with this precision.
    world.listening_since = world.now - 3600
    world.submit(f"{{roles: [{{name: worker, replicas: 2}}], recovery: {{evidenceWindowSeconds: {window}}}}}")
    given.runs(world)
    world.decide()
    stepped(world, 7)
    world.now += 1
    found = [world.job]
    world.ends("worker-1", exit_code=3)
    decided(world, found)
    world.now += 0.4
    given.each(given.ready)(world)
    decided(world, found)
    world.now += 0.1
    given.each(given.run)(world)
    decided(world, found)
    world.now += 2.5
    stepped(world, 8)
    world.now += 11
    decided(world, found)
    world.now += 31
    decided(world, found)
    return found


def stepped(world: World, step: int) -> None:
    """Both members report a step."""
    attempt = world.job.status.attempt
    for member in ("worker-0", "worker-1"):
        world.again(member, progress=Progress(attempt, step, 0, first_age_ms=0))


def decided(world: World, found: list[GangJob]) -> None:
    """Decide, and add the stored object if it changed."""
    before = world.job
    world.decide()
    if world.job is not before:
        found.append(world.job)


def environment(receiver: Receiver, **more: str) -> dict[str, str]:
    """Settings for a receiver, with a short delay."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "20"} | more


def tracer_with(settings: Mapping[str, str]) -> IncidentTracer:
    """A tracer of a process that has these variables."""
    with patch.dict(os.environ, settings):
        return tracer_from_environment()


@asynccontextmanager
async def traced(**more: str) -> AsyncIterator[tuple[IncidentTracer, Receiver]]:
    """A tracer, and the receiver that it exports to."""
    async with receiving() as receiver:
        tracer = tracer_with(environment(receiver, **more))
        try:
            yield tracer, receiver
        finally:
            await tracer.close()
