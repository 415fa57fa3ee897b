"""What the sidecar relays between the controller and the supervisor."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gangsidecar import wire
from gangsidecar.agent.relay import Relay
from gangsidecar.wire import coding
from tests.sidecar.agent.sidecars import (
    HOLD,
    REPORT,
    TOKEN,
    controller,
    sidecar,
    supervisor,
    until,
    world,
)
from tests.wait import SECONDS

if TYPE_CHECKING:
    from pathlib import Path


END = wire.End(attempt=1, local_rank=0, age_ms=7, signal=9)


async def test_a_report_reaches_the_controller_with_the_token(directory: Path) -> None:
    async with world(directory) as here:
        assert here.connection.token == f"Bearer {TOKEN}"
        assert [replace(one, phase_age_ms=0) for one in here.connection.reports()] == [REPORT]
        await here.supervisor.send(replace(REPORT, seq=2, ends=(END,)))
        await until(lambda: len(here.connection.reports()) == 2)
        assert here.connection.reports()[-1].ends[0].signal == 9


async def test_directives_scans_and_pings_reach_the_supervisor_and_its_answer_comes_back(directory: Path) -> None:
    async with world(directory) as here:
        scan = wire.Scan(1, (wire.Tier("shared", "/checkpoints", "{step}"),))
        for message in (HOLD, scan, wire.Ping()):
            await here.connection.send(message)
        await here.supervisor.wait_for(wire.Ping)
        assert here.supervisor.received == [HOLD, scan, wire.Ping()]
        answer = wire.Scanned(1, "pod-uid", (wire.Found("shared", 12, "/checkpoints/12", "marker"),))
        await here.supervisor.send(answer)
        await until(lambda: answer in here.connection.received)


async def test_relaying_waits_for_no_tick(directory: Path) -> None:
    """A hundred messages, one after the other: with a tick each second they would take longer than a test may."""
    async with world(directory) as here, asyncio.timeout(SECONDS):
        for attempt in range(1, 51):
            await here.direct(replace(HOLD, attempt=attempt))
            await here.report(seq=attempt + 1, attempt=attempt, phase=wire.Phase.READY)


async def test_a_new_controller_on_another_port_gets_the_whole_report_with_grown_ages(directory: Path) -> None:
    async with controller() as old, sidecar(directory, old.url), supervisor(directory) as below:
        began = time.monotonic()
        await below.send(replace(REPORT, ends=(END,), phase_age_ms=100))
        await until((await old.connected()).reports)
        async with controller() as new:
            (directory / "controller").write_text(new.url)
            (directory / "token").write_text("second-token")
            await old.close()
            connection = await new.connected()
            report = (await until(connection.reports))[0]
            waited = (time.monotonic() - began) * 1000
            assert connection.token == "Bearer second-token"
            assert report.ends[0].signal == 9
            assert report.ends[0].age_ms - 7 == report.phase_age_ms - 100
            assert 0 < report.phase_age_ms - 100 <= waited + 1


async def test_a_controller_that_connects_late_gets_only_the_newest_report(directory: Path) -> None:
    async with controller() as late, sidecar(directory, "ws://127.0.0.1:9/v1/connect"):
        async with supervisor(directory) as below:
            for seq in range(1, 101):
                await below.send(replace(REPORT, seq=seq))
            (directory / "controller").write_text(late.url)
            connection = await late.connected()
            await until(connection.reports)
        assert [one.seq for one in connection.reports()] == [100]


async def test_a_controller_that_reads_slowly_gets_only_the_newest_report(directory: Path) -> None:
    async with controller() as slow:
        slow.reads.clear()
        async with sidecar(directory, slow.url), supervisor(directory) as below:
            connection = await slow.connected()
            large = tuple(wire.Checkpoint("ram", step, 0, 1, "p" * 4000) for step in range(100))
            for seq in range(1, 101):
                await below.send(replace(REPORT, seq=seq, checkpoints=large))
            await below.send(replace(REPORT, seq=101))
            slow.reads.set()
            await until(lambda: connection.reports() and connection.reports()[-1].seq == 101)
            assert len(connection.reports()) < 60


async def test_a_supervisor_that_comes_back_gets_the_newest_directive(directory: Path) -> None:
    async with world(directory) as here:
        await here.direct(HOLD)
        await here.direct(replace(HOLD, attempt=2))
        here.supervisor.writer.transport.abort()
        async with supervisor(directory, replace(REPORT, session="session-b")) as back:
            assert await back.wait_for(wire.Directive) == replace(HOLD, attempt=2)
            await until(lambda: here.connection.reports()[-1].session == "session-b")


async def test_a_directive_of_an_earlier_connection_is_dropped(directory: Path) -> None:
    async with world(directory) as here:
        await here.direct(HOLD)
        here.supervisor.writer.transport.abort()
        await here.connection.socket.close()
        again = await here.controller.connected(2)
        async with supervisor(directory, replace(REPORT, seq=2)) as back:
            await until(lambda: again.reports() and again.reports()[-1].seq == 2)
            await again.send(wire.Ping())
            await back.wait_for(wire.Ping)
            assert back.received == [wire.Ping()]


async def test_a_scan_waits_for_a_supervisor_that_is_away_for_a_moment(directory: Path) -> None:
    async with world(directory) as here:
        here.supervisor.writer.transport.abort()
        await until(lambda: "the supervisor's connection ended" in here.sidecar.log())
        await here.connection.send(wire.Scan(1, ()))
        async with supervisor(directory, REPORT) as back:
            assert await back.wait_for(wire.Scan) == wire.Scan(1, ())


async def test_the_newest_supervisor_connection_wins(directory: Path) -> None:
    async with world(directory) as here, supervisor(directory, replace(REPORT, session="session-b")) as newer:
        await until(lambda: here.supervisor.ended and here.connection.reports()[-1].session == "session-b")
        await here.connection.send(HOLD)
        await newer.wait_for(wire.Directive)
        assert here.supervisor.received == []


async def test_messages_of_exactly_the_limit_pass_both_ways(directory: Path) -> None:
    async with world(directory) as here:
        report, directive = (
            text + " " * (wire.MAX_BYTES - len(text))
            for text in (wire.encode(replace(REPORT, seq=2)), wire.encode(HOLD))
        )
        await here.supervisor.send_raw(report.encode() + b"\n")
        await until(lambda: len(here.connection.reports()) == 2)
        await here.connection.socket.send_str(directive)
        assert await here.supervisor.wait_for(wire.Directive) == HOLD


async def test_newlines_between_tokens_dont_break_the_supervisors_lines(directory: Path) -> None:
    async with world(directory) as here:
        await here.connection.socket.send_str(wire.encode(HOLD).replace(",", ",\n"))
        assert await here.supervisor.wait_for(wire.Directive) == HOLD


async def test_a_controller_of_an_older_release_gets_no_field_that_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coding, "REVISION", 2)
    monkeypatch.setattr(coding, "ADDED", {wire.Report: {"reached": 2}})
    relay, report = (
        Relay(asyncio.get_running_loop()),
        replace(REPORT, reached=(wire.Reached(1, wire.Milestone.CHECKPOINT_LOAD, 5, 2500, rank=4),)),
    )
    relay.from_supervisor(wire.encode(report), report)
    loaded = []
    for revision in (1, 2):
        said = relay.report_after(0, revision)
        assert said is not None
        told = wire.decode(said[1])
        assert isinstance(told, wire.Report)
        loaded.append(bool(told.reached))
    assert loaded == [False, True]


async def test_what_the_worker_imports_reaches_each_controller_once_and_the_supervisor(directory: Path) -> None:
    imports = wire.Imports("gang-uid", "pod-uid", ("/usr/bin/python3", "train.py"), ("torch",))
    async with world(directory) as here:
        await here.supervisor.send(imports)
        await until(lambda: imports in here.connection.received)
        await here.report(seq=2)
        await here.connection.send(replace(imports, pod="a-peer"))
        assert await here.supervisor.wait_for(wire.Imports) == replace(imports, pod="a-peer")
        await here.connection.socket.close()
        again = await here.controller.connected(2)
        await until(lambda: imports in again.received)
        await here.supervisor.send(replace(imports, modules=("torch", "numpy")))
        await until(lambda: len([one for one in again.received if isinstance(one, wire.Imports)]) == 2)
        assert here.connection.received.count(imports) == 1
