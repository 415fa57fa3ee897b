"""Logs of workers at fault are read beside the rounds: once, whatever comes of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from gangctl.api.gangjob import GangJob
from gangctl.cluster.errors import Retryable
from gangctl.controller.actions import LOGS_AT_ONCE, OutputReader
from gangctl.core.facts.printed import OutputRead, Printed, ReadOutput
from tests.controller.fake_cluster import FakeCluster
from tests.controller.fake_sidecars import job
from tests.wait import until_async

FIRST, SECOND = ReadOutput("worker-0", 0, 1), ReadOutput("worker-0", 0, 2)
SAID = Printed(("RuntimeError: no dataset",), "RuntimeError: no dataset")
JOB = job(version="1", attempt=2)
UID = JOB.metadata.uid


@dataclass
class Logs(FakeCluster):
    """Logs that are read when the test says so."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None

    async def printed(self, job: GangJob, query: ReadOutput) -> Printed:
        await super().printed(job, query)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.output


@dataclass
class Reading:
    """A reader with its logs and those whom it woke."""

    logs: Logs
    reader: OutputReader
    tasks: asyncio.TaskGroup
    woken: list[str]

    def want(self, *queries: ReadOutput) -> None:
        self.reader.want(self.tasks, JOB, queries)


@asynccontextmanager
async def reading(output: Printed = SAID) -> AsyncIterator[Reading]:
    async with asyncio.TaskGroup() as tasks:
        logs, woken = Logs(output=output), list[str]()
        yield Reading(logs, OutputReader(logs, woken.append), tasks, woken)
        logs.gate.set()


async def test_a_query_of_each_plan_is_made_once() -> None:
    async with reading() as here:
        for _ in range(3):
            here.want(FIRST)
        here.logs.gate.set()
        await until_async("it is answered", lambda: here.woken == [UID])
        here.want(FIRST)
        await asyncio.sleep(0)
        assert here.logs.done == [FIRST]
        assert here.reader.answer(UID) == OutputRead(FIRST, SAID)


async def test_an_answer_that_comes_after_another_query_is_dropped() -> None:
    async with reading() as here:
        here.want(FIRST)
        await until_async("it is asked", lambda: here.logs.done == [FIRST])
        here.want(SECOND)
        here.logs.gate.set()
        await until_async("the second is answered", lambda: here.woken == [UID])
        assert here.reader.answer(UID) == OutputRead(SECOND, SAID)


@pytest.mark.parametrize("error", [Retryable("the kubelet does not answer"), ValueError("a bug")])
async def test_a_log_that_can_not_be_read_counts_as_an_empty_one(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async with reading() as here:
        here.logs.error = error
        with caplog.at_level(logging.WARNING):
            here.want(FIRST)
            here.logs.gate.set()
            await until_async("it is answered", lambda: here.reader.answer(UID) is not None)
    assert here.reader.answer(UID) == OutputRead(FIRST, Printed())
    assert (len(caplog.records), here.woken) == (1, [])


async def test_a_gang_that_is_gone_is_forgotten() -> None:
    async with reading() as here:
        here.want(FIRST)
        await until_async("it is asked", lambda: here.logs.done == [FIRST])
        here.reader.forget(UID)
    assert here.reader.answer(UID) is None


async def test_many_gangs_that_fail_at_once_do_not_read_all_logs_at_once() -> None:
    async with reading() as here:
        for number in range(3 * LOGS_AT_ONCE):
            one = JOB.model_copy(update={"metadata": JOB.metadata.model_copy(update={"uid": f"uid-{number}"})})
            here.reader.want(here.tasks, one, [FIRST])
        await until_async("some are asked", lambda: len(here.logs.done) == LOGS_AT_ONCE)
        here.logs.gate.set()
        await until_async("all are answered", lambda: len(here.woken) == 3 * LOGS_AT_ONCE)
