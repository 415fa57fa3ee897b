from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from gangctl.api.gangjob import GangJob
from gangctl.controller import hub as hub_module
from gangctl.controller.gate import parse_message
from gangctl.core.lifecycle.plan import AskScan
from gangctl.core.policy.checks import AskCheck
from gangsidecar import wire
from gangsidecar.wire import coding
from tests.controller.fake_sidecars import Served, held, job, report, served
from tests.wait import until_async

READY = wire.Phase.READY
SCAN = wire.Scan(1, (wire.Tier("shared", "/c", "step-{step}"),))


async def heard(here: Served, at: int = 0) -> wire.Report:
    """Wait until the hub knows worker-AT."""
    found = await until_async(
        f"the report of pod-{at} arrives",
        lambda: [one for one in here.hub.reports.heard("uid-g") if one.report.pod == f"pod-{at}"],
    )
    known: wire.Report = found[0].report
    return known


def connected(here: Served) -> list[bool]:
    return [one.connected for one in here.hub.reports.heard("uid-g")]


async def test_a_member_that_reports_gets_the_directive_of_the_stored_object() -> None:
    async with served() as here:
        here.hub.publish(job(attempt=3))
        sidecar = await here.dial()
        await sidecar.say(report())
        assert await sidecar.hear() == wire.Directive("uid-g", "pod-0", 3, wire.Verb.HOLD, "version 1")
        assert here.woken == ["uid-g"]
        here.hub.publish(job(attempt=4, version="2"))
        assert (await sidecar.hear()).attempt == 4


async def test_a_directive_needs_a_stored_object_and_a_report() -> None:
    async with served() as here:
        early, silent = await here.dial("token-0"), await here.dial("token-1")
        await early.say(report(0))
        await heard(here)
        here.hub.publish(job())
        assert (await early.hear()).pod == "pod-0"
        await silent.say(report(1))
        assert (await silent.hear()).pod == "pod-1"


async def test_a_session_gets_the_same_directive_once() -> None:
    async with served() as here:
        here.hub.publish(job())
        sidecar = await here.dial()
        await sidecar.say(report(seq=1))
        first = await sidecar.hear()
        await sidecar.say(report(seq=2, phase=wire.Phase.STOPPING))
        await sidecar.say(report(seq=3, attempt=1, phase=READY))
        await sidecar.say(report(session="session-after-a-restart", seq=1))
        assert await sidecar.hear() == first
        here.hub.publish(job(attempt=2, version="2"))
        assert (await sidecar.hear()).attempt == 2, "and there was nothing between"


async def test_a_directive_is_computed_again_only_when_its_inputs_change() -> None:
    computed: list[tuple[str, wire.Phase]] = []

    def tell(stored: GangJob, said: wire.Report) -> wire.Directive | None:
        computed.append((stored.metadata.resource_version, said.phase))
        return held(stored, said)

    async with served(tell) as here:
        stored = job()
        here.hub.publish(stored)
        sidecar = await here.dial()
        for seq in range(1, 6):
            await here.taken(sidecar, report(seq=seq, phase_age_ms=seq))
        await sidecar.say(report(seq=6, phase=READY))
        here.hub.publish(stored)
        await until_async("the directive for Ready is computed", lambda: computed and computed[-1][1] is READY)
        assert computed == [("1", wire.Phase.IDLE), ("1", READY)]


async def test_an_older_report_of_a_session_is_ignored() -> None:
    async with served() as here:
        sidecar = await here.dial()
        await here.taken(sidecar, report(seq=5, attempt=2, phase=READY))
        await here.taken(sidecar, report(seq=4, attempt=1, phase=wire.Phase.RUNNING))
        await here.taken(sidecar, report(seq=5, attempt=1, phase=wire.Phase.RUNNING))
        await here.taken(sidecar, report(seq=6, attempt=2, phase=READY, stop_ms=7))
        assert here.hub.reports.heard("uid-g")[0].report.seq == 6
        assert here.woken == ["uid-g"] * 2, "what is old is no news"
        await sidecar.say(report(session="a-new-one", seq=1))
        await until_async(
            "the report of the new session is taken",
            lambda: here.hub.reports.heard("uid-g")[0].report.session == "a-new-one",
        )


async def test_of_the_reports_that_wait_for_their_turn_the_newest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = list[int]()

    def parse(frame: aiohttp.WSMessage, *words: Any, **more: Any) -> wire.Message:
        message = parse_message(frame, *words, **more)
        taken.append(getattr(message, "seq", 0))
        return message

    monkeypatch.setattr(hub_module, "parse_message", parse)
    async with served() as here:
        sidecar = await here.dial()
        for seq in range(1, 101):
            await sidecar.say(report(seq=seq))
        await sidecar.say(wire.Scanned(1, "pod-0"))
        await sidecar.say(report(seq=101))
        await sidecar.socket.close()
        await until_async("the connection has ended", lambda: not len(here.hub.connections))
    assert taken[-3:] == [100, 0, 101], "none gives way to another message, and the end loses none"
    assert taken[:-3] == sorted(taken[:-3])
    assert len(taken) < 100


@pytest.mark.parametrize("kind", ["too large for a report", "not JSON"])
async def test_what_is_not_a_report_ends_the_connection_whatever_comes_after_it(kind: str) -> None:
    async with served() as here:
        sidecar = await here.dial()
        size = wire.MAX_REPORT_BYTES if kind == "too large for a report" else 0
        for text in (f"{wire.REPORT_BEGINS if size else ''}{'x' * size}", wire.encode(report())):
            await sidecar.say(text)
        assert await sidecar.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
        assert here.hub.reports.heard("uid-g") == ()


async def test_a_sidecar_that_reconnects_and_repeats_its_report_gets_its_directive() -> None:
    async with served() as here:
        first = await here.dial()
        await first.say(report(seq=7))
        await until_async("the report arrives", lambda: len(here.hub.reports.heard("uid-g")) == 1)
        await first.socket.close()
        await until_async(
            "the member counts as not connected", lambda: not here.hub.reports.heard("uid-g")[0].connected
        )
        here.hub.publish(job(2))
        again = await here.dial()
        await again.say(report(seq=7))
        assert (await again.hear()).attempt == 2
        assert here.hub.reports.heard("uid-g")[0].connected


async def test_a_report_that_changes_only_ages_wakes_no_gang() -> None:
    end = wire.End(1, 0, 100, exit_code=3)
    progress = wire.Progress(1, 10, 100)
    async with served() as here:
        sidecar = await here.dial()
        await sidecar.say(report(seq=1, ends=(end,), progress=progress))
        await heard(here)
        await sidecar.say(report(seq=2, ends=(replace(end, age_ms=900),), progress=replace(progress, age_ms=900)))
        await until_async("the second report is taken", lambda: here.hub.reports.heard("uid-g")[0].report.seq == 2)
        assert here.woken == ["uid-g"]
        await sidecar.say(report(seq=3, ends=(end,), progress=replace(progress, step=11)))
        await until_async("the gang is woken again", lambda: here.woken == ["uid-g"] * 2)


async def test_a_member_whose_connection_ended_counts_as_not_connected() -> None:
    async with served() as here:
        sidecar = await here.dial()
        await sidecar.say(report(seq=4, attempt=2, phase=READY))
        await heard(here)
        here.woken.clear()
        await sidecar.socket.close()
        await until_async("the member counts as not connected", lambda: connected(here) == [False])
        assert here.woken == ["uid-g"]
        assert here.hub.reports.heard("uid-g")[0].report.attempt == 2


async def test_a_report_is_kept_until_no_decision_needs_it() -> None:
    async with served() as here:
        gone, there = await here.dial("token-0"), await here.dial("token-1")
        for at, sidecar in enumerate((gone, there)):
            await sidecar.say(report(at))
            await heard(here, at)
        await gone.socket.close()
        await until_async(
            "one of two members counts as not connected", lambda: sorted(connected(here)) == [False, True]
        )
        here.hub.reports.prune("uid-g", {"pod-0"})
        assert len(here.hub.reports.heard("uid-g")) == 2
        here.hub.reports.prune("uid-g", set())
        assert [one.report.pod for one in here.hub.reports.heard("uid-g")] == ["pod-1"], "a connected pod is kept"
        here.hub.forget("uid-g")
        assert here.hub.reports.heard("uid-g") == ()
        assert await there.closed() == aiohttp.WSCloseCode.GOING_AWAY


def numbered(stored: GangJob, said: wire.Report) -> wire.Directive | None:
    """A directive with all fields that came later."""
    return wire.Directive(said.gang, said.pod, stored.status.attempt, wire.Verb.HOLD, fencing=7)


async def test_a_ping_with_the_time_of_the_report_comes_before_its_directive() -> None:
    async with served(numbered) as here:
        here.hub.publish(job())
        sidecar = await here.dial()
        await sidecar.say(report(sent_ms=1234))
        assert await sidecar.hear_all() == wire.Ping(heard_ms=1234)
        assert (await sidecar.hear_all()).fencing == 7


async def test_a_report_that_was_overtaken_prolongs_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "PING_SECONDS", 0.05)
    async with served() as here:
        sidecar = await here.dial()
        await here.taken(sidecar, report(seq=2, sent_ms=2000))
        await here.taken(sidecar, report(seq=1, sent_ms=9000))
        pinging = asyncio.create_task(here.hub.keep_alive())
        assert [await sidecar.hear_all() for _ in range(3)] == [wire.Ping(heard_ms=2000)] * 3
        pinging.cancel()


async def test_before_the_first_report_a_ping_prolongs_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "PING_SECONDS", 0.05)
    async with served() as here:
        sidecar = await here.dial()
        pinging = asyncio.create_task(here.hub.keep_alive())
        assert await sidecar.hear_all() == wire.Ping(heard_ms=0)
        pinging.cancel()


async def test_an_older_sidecar_gets_nothing_that_it_would_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "REVISION", 2)
    monkeypatch.setattr(coding, "ADDED", {wire.Directive: {"fencing": 2}})
    async with served(numbered) as here:
        here.hub.publish(job())
        sidecar = await here.dial(revision=1)
        await sidecar.say(report())
        assert isinstance(await sidecar.hear_all(), wire.Ping)
        assert (await sidecar.hear_all()).fencing == 0


async def test_the_hub_pings_sidecars_and_a_silent_supervisor_counts_as_not_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_module, "PING_SECONDS", 0.05)
    monkeypatch.setattr(hub_module, "SILENT_SECONDS", 0.2)
    async with served() as here:
        sidecar = await here.dial()
        await sidecar.say(report(seq=1))
        await heard(here)
        pinging = asyncio.create_task(here.hub.keep_alive())
        assert isinstance(await sidecar.hear_all(), wire.Ping)
        await until_async("the member counts as not connected", lambda: connected(here) == [False])
        assert here.woken == ["uid-g"] * 2
        await sidecar.say(report(seq=2))
        await until_async("the member counts as connected", lambda: connected(here) == [True])
        assert here.woken == ["uid-g"] * 3, "that it is there again is news"
        pinging.cancel()


async def test_a_scan_is_sent_once_and_its_answer_wakes_the_gang_once() -> None:
    async with served() as here:
        sidecar, other = await here.dial("token-0"), await here.dial("token-1")
        here.hub.ask("uid-g", AskScan("pod-0", SCAN))
        assert await sidecar.hear() == SCAN
        here.hub.ask("uid-g", AskScan("pod-0", SCAN))
        here.hub.ask("uid-g", AskScan("pod-9", SCAN))
        here.hub.ask("uid-of-another", AskScan("pod-1", SCAN))
        here.hub.ask("uid-g", AskScan("pod-1", replace(SCAN, attempt=2)))
        assert (await other.hear()).attempt == 2
        answer = wire.Scanned(1, "pod-0", (wire.Found("shared", 5, "/c/step-5", "7"),))
        await sidecar.say(answer)
        await until_async("the answer to the scan is taken", lambda: here.hub.reports.scanned("uid-g")[0] == answer)
        await sidecar.say(answer)
        await sidecar.say(report())
        await heard(here)
        assert here.woken == ["uid-g"] * 2
        here.hub.publish(job())
        assert isinstance(await sidecar.hear(), wire.Directive), "the scan was not asked again within the moment"


async def test_a_check_is_sent_once_beside_a_scan() -> None:
    check = wire.Check(1, 1, "disk", 1000, command=("true",))
    async with served() as here:
        sidecar = await here.dial("token-0")
        for action in (AskCheck("pod-0", check), AskScan("pod-0", SCAN), AskCheck("pod-0", check)):
            here.hub.ask("uid-g", action)
        assert [await sidecar.hear() for _ in range(2)] == [check, SCAN]
        here.hub.ask("uid-g", AskCheck("pod-0", replace(check, turn=2)))
        assert (await sidecar.hear()).turn == 2


async def test_a_slow_receiver_delays_no_other_and_gets_only_the_newest_directive() -> None:
    """It takes nothing from its socket while two thousand large directives are published."""
    padding = "x" * 8000

    def tell(stored: GangJob, said: wire.Report) -> wire.Directive | None:
        found = held(stored, said)
        assert found is not None
        return replace(found, reason=f"{found.reason} {padding}")

    async with served(tell) as here:
        here.hub.publish(job(version="0"))
        slow, quick = await here.dial("token-0"), await here.dial("token-1")
        for at, sidecar in enumerate((slow, quick)):
            await sidecar.say(report(at))
            await sidecar.hear()
        transport = slow.socket._writer.transport  # noqa: SLF001 - a peer that does not read
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        last = 2000
        for version in range(1, last + 1):
            here.hub.publish(job(version=str(version)))
            if version % 50 == 0:
                while not (await quick.hear()).reason.startswith(f"version {version} "):
                    pass
        transport.resume_reading()
        heard_by_slow = 0
        while not (await slow.hear()).reason.startswith(f"version {last} "):
            heard_by_slow += 1
        assert heard_by_slow < last / 2, "what was overtaken while it did not read was never sent"
