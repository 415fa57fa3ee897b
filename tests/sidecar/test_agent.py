"""The sidecar relays, whatever becomes of the controller, the supervisor, or itself."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gangsidecar import wire
from gangsidecar.agent import downlink, uplink
from gangsidecar.agent.relay import Relay
from tests.sidecar.sidecars import (
    HOLD,
    REPORT,
    TOKEN,
    controller,
    folder,
    run,
    sidecar,
    supervisor,
    training,
    until,
    world,
)

if TYPE_CHECKING:
    from pathlib import Path

directory = pytest.fixture(folder)
END = wire.End(attempt=1, local_rank=0, age_ms=7, signal=9)


async def test_a_report_reaches_the_controller_with_the_token(directory: Path) -> None:
    async with world(directory) as here:
        assert here.connection.token == f"Bearer {TOKEN}"
        assert [replace(one, phase_age_ms=0) for one in here.connection.reports()] == [REPORT]
        await here.supervisor.say(replace(REPORT, seq=2, ends=(END,)))
        await until(lambda: len(here.connection.reports()) == 2)
        assert here.connection.reports()[-1].ends[0].signal == 9


async def test_directives_scans_and_pings_reach_the_supervisor_and_its_answer_comes_back(directory: Path) -> None:
    async with world(directory) as here:
        scan = wire.Scan(1, (wire.Tier("shared", "/checkpoints", "{step}"),))
        for message in (HOLD, scan, wire.Ping()):
            await here.connection.say(message)
        await here.supervisor.heard(wire.Ping)
        assert here.supervisor.received == [HOLD, scan, wire.Ping()]
        answer = wire.Scanned(1, "pod-uid", (wire.Found("shared", 12, "/checkpoints/12", "marker"),))
        await here.supervisor.say(answer)
        await until(lambda: answer in here.connection.received)


async def test_relaying_takes_milliseconds(directory: Path) -> None:
    async with world(directory) as here:
        took = []
        for attempt in range(1, 41):
            began = time.perf_counter()
            await here.direct(replace(HOLD, attempt=attempt))
            await here.report(seq=attempt + 1, attempt=attempt, phase=wire.Phase.READY)
            took.append(time.perf_counter() - began)
        assert sorted(took)[len(took) // 2] < 0.03  # two looks of the test itself, 5 ms apart, are in it


async def test_a_new_controller_on_another_port_gets_the_whole_report_with_grown_ages(directory: Path) -> None:
    async with controller() as old, sidecar(directory, old.url), supervisor(directory) as below:
        await below.say(replace(REPORT, ends=(END,), phase_age_ms=100))
        await until((await old.connected()).reports)
        async with controller() as new:
            (directory / "controller").write_text(new.url)
            (directory / "token").write_text("second-token")
            began = time.monotonic()
            await old.close()
            connection = await new.connected()
            waited = (time.monotonic() - began) * 1000
            report = (await until(connection.reports))[0]
            assert connection.token == "Bearer second-token"
            assert report.ends[0].signal == 9
            assert report.ends[0].age_ms - 7 == report.phase_age_ms - 100
            assert 0 < report.phase_age_ms - 100 < waited + 2000


MEASURED = replace(
    REPORT,
    loaded=wire.Loaded(1, 5, 2500, rank=4),
    progress=wire.Progress(1, 7, 5, first_step=7, first_age_ms=5, first_ms=90),
)


async def test_a_controller_of_this_release_gets_what_the_framework_has_measured(directory: Path) -> None:
    async with world(directory) as here:
        await here.report(seq=2, loaded=MEASURED.loaded, progress=MEASURED.progress)
        told = here.connection.reports()[-1]
        assert told.loaded is not None
        assert told.loaded.milliseconds == 2500
        assert told.loaded.age_ms >= 5
        assert told.progress is not None
        assert told.progress.first_ms == 90


@pytest.mark.parametrize("revision", ["", "1", "0", "-2", "2.0", "two", "٢", "9" * 400])
async def test_another_controller_gets_no_field_that_it_doesnt_say_it_knows(directory: Path, revision: str) -> None:
    async with controller() as above:
        above.revision = revision
        async with sidecar(directory, above.url), supervisor(directory, MEASURED):
            told = (await until((await above.connected()).reports))[0]
            assert told.loaded is None
            assert told.progress is not None
            assert (told.progress.step, told.progress.first_ms) == (7, None)


async def test_after_an_upgrade_of_the_controller_it_gets_everything(directory: Path) -> None:
    async with controller() as above:
        above.revision = ""
        async with sidecar(directory, above.url), supervisor(directory, MEASURED):
            old = await above.connected()
            assert (await until(old.reports))[0].loaded is None
            above.revision = "3"
            await old.socket.close()
            told = (await until((await above.connected(2)).reports))[0]
            assert told.loaded is not None
            assert told.loaded.age_ms > 5


async def test_a_controller_that_comes_late_gets_only_the_newest_report(directory: Path) -> None:
    async with controller() as late, sidecar(directory, "ws://127.0.0.1:9/v1/connect"):
        async with supervisor(directory) as below:
            for seq in range(1, 101):
                await below.say(replace(REPORT, seq=seq))
            (directory / "controller").write_text(late.url)
            connection = await late.connected()
            await until(connection.reports)
        assert [one.seq for one in connection.reports()] == [100]


async def test_a_controller_that_reads_slowly_is_spared_all_but_the_newest_report(directory: Path) -> None:
    async with controller() as slow:
        slow.reads.clear()
        async with sidecar(directory, slow.url), supervisor(directory) as below:
            connection = await slow.connected()
            large = tuple(wire.Checkpoint("ram", step, 0, 1, "p" * 4000) for step in range(100))
            for seq in range(1, 101):
                await below.say(replace(REPORT, seq=seq, checkpoints=large))
            await below.say(replace(REPORT, seq=101))
            slow.reads.set()
            await until(lambda: connection.reports() and connection.reports()[-1].seq == 101)
            assert len(connection.reports()) < 60


async def test_a_supervisor_that_comes_back_gets_the_newest_directive(directory: Path) -> None:
    async with world(directory) as here:
        await here.direct(HOLD)
        await here.direct(replace(HOLD, attempt=2))
        here.supervisor.writer.transport.abort()
        async with supervisor(directory, replace(REPORT, session="session-b")) as back:
            assert await back.heard(wire.Directive) == replace(HOLD, attempt=2)
            await until(lambda: here.connection.reports()[-1].session == "session-b")


async def test_a_directive_of_a_former_connection_is_not_handed_on(directory: Path) -> None:
    async with world(directory) as here:
        await here.direct(HOLD)
        here.supervisor.writer.transport.abort()
        await here.connection.socket.close()
        again = await here.controller.connected(2)
        async with supervisor(directory, replace(REPORT, seq=2)) as back:
            await until(lambda: again.reports() and again.reports()[-1].seq == 2)
            await again.say(wire.Ping())
            await back.heard(wire.Ping)
            assert back.received == [wire.Ping()]


async def test_a_scan_waits_for_a_supervisor_that_is_away_for_a_moment(directory: Path) -> None:
    async with world(directory) as here:
        here.supervisor.writer.transport.abort()
        await until(lambda: "the supervisor's connection ended" in here.sidecar.log())
        await here.connection.say(wire.Scan(1, ()))
        async with supervisor(directory, REPORT) as back:
            assert await back.heard(wire.Scan) == wire.Scan(1, ())


async def test_the_newest_supervisor_connection_wins(directory: Path) -> None:
    async with world(directory) as here, supervisor(directory, replace(REPORT, session="session-b")) as newer:
        await until(lambda: here.supervisor.ended and here.connection.reports()[-1].session == "session-b")
        await here.connection.say(HOLD)
        await newer.heard(wire.Directive)
        assert here.supervisor.received == []


async def test_a_frozen_controller_is_left_and_dialled_again(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setattr(uplink, "SILENCE", 0.3)
    monkeypatch.setattr(uplink, "LAST_WAIT", 0.2)
    (directory / "token").write_text(TOKEN)
    async with controller() as frozen:
        address = uplink.Address(directory / "token", frozen.url)
        relay = Relay(asyncio.get_running_loop())
        connection = asyncio.create_task(uplink.stay_connected(address, relay))
        await frozen.connected(3)
        assert frozen.connections[0].socket.closed
        connection.cancel()
        await asyncio.wait([connection])


async def test_a_controller_that_pings_is_kept(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setattr(uplink, "SILENCE", 0.4)
    (directory / "token").write_text(TOKEN)
    async with controller() as alive:
        relay = Relay(asyncio.get_running_loop())
        task = asyncio.create_task(uplink.stay_connected(uplink.Address(directory / "token", alive.url), relay))
        connection = await alive.connected()
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            await connection.say(wire.Ping())
            await asyncio.sleep(0.1)  # the beat of a controller
        assert len(alive.connections) == 1
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize(("status", "text"), [(401, "the token has expired"), (409, "pod-uid was replaced")])
async def test_a_refusal_is_logged_with_its_reason_and_tried_again_slowly(
    directory: Path, status: int, text: str
) -> None:
    async with controller() as above, sidecar(directory, "ws://127.0.0.1:9/") as here:
        above.refusal = status, text
        (directory / "controller").write_text(above.url)
        await until(lambda: above.refused)
        began = time.monotonic()
        await until(lambda: text in here.log())
        assert f"answered {status}" in here.log()
        above.refusal = None
        await above.connected()
        assert time.monotonic() - began > 2
        assert above.refused == 1


MALFORMED = {
    "no JSON": "{",
    "no object": "[]",
    "another version": '{"v":2,"type":"Ping"}',
    "an unknown type": '{"v":1,"type":"Pong"}',
    "an unknown field": '{"v":1,"type":"Ping","x":1}',
    "a report of the wrong side": wire.encode(REPORT),
    "over the limit": '{"v":1,"type":"Ping"' + " " * wire.MAX_BYTES + "}",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_message_of_the_controller_ends_that_connection_only(directory: Path, text: str) -> None:
    async with world(directory) as here:
        with suppress(ConnectionError):  # it may hang up before it has read all of a large one
            await here.connection.socket.send_str(text)
        await until(lambda: here.connection.socket.closed)
        await until(lambda: "there is no connection to the controller" in here.sidecar.log())
        assert "the controller sent" in here.sidecar.log()
        assert not here.supervisor.ended
        assert here.supervisor.received == []
        assert (await here.sidecar.call("GET", "/v1/attempt"))[0] == 200


async def test_a_binary_message_of_the_controller_ends_that_connection(directory: Path) -> None:
    async with world(directory) as here:
        await here.connection.socket.send_bytes(wire.encode(HOLD).encode())
        await until(lambda: here.connection.socket.closed)
        assert here.supervisor.received == []


@pytest.mark.parametrize(
    "line",
    [
        *(text.encode() for name, text in MALFORMED.items() if not name.startswith("a report")),
        wire.encode(HOLD).encode(),
        b"\xff\xfe",
    ],
    ids=[*(name for name in MALFORMED if not name.startswith("a report")), "a directive of the wrong side", "no text"],
)
async def test_a_malformed_message_of_a_supervisor_ends_that_socket_only(directory: Path, line: bytes) -> None:
    async with world(directory) as here:
        await here.supervisor.say_raw(line + b"\n")
        await until(lambda: here.supervisor.ended)
        await until(lambda: "the supervisor's connection ended" in here.sidecar.log())
        async with supervisor(directory, replace(REPORT, seq=2)):
            await until(lambda: len(here.connection.reports()) == 2)
        assert not here.connection.socket.closed


async def test_messages_of_exactly_the_limit_pass_both_ways(directory: Path) -> None:
    async with world(directory) as here:
        report, directive = (
            text + " " * (wire.MAX_BYTES - len(text))
            for text in (wire.encode(replace(REPORT, seq=2)), wire.encode(HOLD))
        )
        await here.supervisor.say_raw(report.encode() + b"\n")
        await until(lambda: len(here.connection.reports()) == 2)
        await here.connection.socket.send_str(directive)
        assert await here.supervisor.heard(wire.Directive) == HOLD


async def test_newlines_between_tokens_dont_break_the_supervisors_lines(directory: Path) -> None:
    async with world(directory) as here:
        await here.connection.socket.send_str(wire.encode(HOLD).replace(",", ",\n"))
        assert await here.supervisor.heard(wire.Directive) == HOLD


async def test_a_supervisor_that_reads_nothing_is_cut_off_in_the_end(directory: Path) -> None:
    async with controller() as above, sidecar(directory, above.url) as here:
        reader, writer = await asyncio.open_unix_connection(str(directory / "supervisor.sock"), limit=1024)
        writer.write(wire.encode(REPORT).encode() + b"\n")
        connection = await above.connected()
        await until(connection.reports)
        large = wire.encode(HOLD) + " " * 500_000
        for _ in range(12):
            await connection.socket.send_str(large)
        await until(lambda: "the supervisor reads nothing any more" in here.log())
        assert here.resident_kilobytes() < 60_000
        assert not connection.socket.closed
        writer.close()
        assert reader is not None


async def test_a_supervisor_that_says_nothing_for_too_long_is_logged(
    monkeypatch: pytest.MonkeyPatch, directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(downlink, "SILENCE", 0.1)
    monkeypatch.chdir(directory)
    link = downlink.Downlink(Relay(asyncio.get_running_loop()))
    await link.open("supervisor.sock")
    said = ""

    def logged(text: str) -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return text in said

    await until(lambda: logged("no supervisor has connected"))
    async with supervisor(directory) as below:
        await until(lambda: logged("has connected, but sent no report"))
        await below.say(REPORT)
    await until(lambda: logged("has not come back"))
    await link.close()


async def test_it_stays_below_40_mb(directory: Path) -> None:
    async with training(directory, wire.Restore(1200, "shared", "/checkpoints/1200")) as here:
        for step in range(1, 101):
            await here.sidecar.call(
                "POST", "/v1/progress", {"attempt": 3, "rank": 4, "phase": "Step", "step": 1200 + step}
            )
            await here.report(seq=step, attempt=3, phase=wire.Phase.RUNNING)
        assert here.sidecar.resident_kilobytes() < 40_000


async def test_sigterm_ends_it_politely_within_two_seconds(directory: Path) -> None:
    async with training(directory) as here:
        events = asyncio.create_task(here.sidecar.call("GET", "/v1/events"))
        began = time.monotonic()
        assert await here.sidecar.terminate() == 0
        assert time.monotonic() - began < 2
        await until(lambda: here.connection.socket.closed)
        assert here.connection.socket.close_code == 1001
        await until(lambda: here.supervisor.ended)
        await asyncio.wait([events])
        assert "Traceback" not in here.sidecar.log()


async def test_sigterm_ends_it_within_two_seconds_while_the_controller_doesnt_answer(directory: Path) -> None:
    async with controller() as frozen, sidecar(directory, frozen.url) as here:
        frozen.reads.clear()
        await frozen.connected()
        began = time.monotonic()
        assert await here.terminate() == 0
        assert time.monotonic() - began < 2
        frozen.reads.set()


async def test_it_ends_by_itself_when_its_supervisor_has_ended_deliberately(directory: Path) -> None:
    async with training(directory) as here:
        await here.report(seq=9, attempt=3, phase=wire.Phase.DONE)
        here.supervisor.writer.close()
        async with asyncio.timeout(20):
            assert await here.sidecar.process.wait() == 0


async def test_a_second_sidecar_takes_over_the_directory_of_a_killed_one(directory: Path) -> None:
    async with controller() as above:
        async with sidecar(directory, above.url) as first:
            first.process.send_signal(signal.SIGKILL)
            await first.process.wait()
        async with sidecar(directory, above.url) as second, supervisor(directory, REPORT) as below:
            connection = (await until(lambda: [one for one in above.connections if one.reports()]))[0]
            await connection.say(run(1))
            await below.heard(wire.Directive)
            assert (await second.call("GET", "/v1/attempt"))[0] == 200


async def test_a_directory_may_have_a_longer_path_than_a_socket(directory: Path) -> None:
    deep = directory / ("d" * 60) / ("e" * 60)
    async with controller() as above, sidecar(deep, above.url), supervisor(deep, REPORT):
        await until((await above.connected()).reports)
        assert deep.stat().st_mode & 0o777 in {0o700, 0o755}


async def _run(*arguments: str) -> tuple[int | None, str]:
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gangsidecar.agent",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await started.communicate()
    return started.returncode, output.decode()


async def test_help_teaches() -> None:
    code, text = await _run("--help")
    assert code == 0
    assert "GANG_CONTROLLER" in text
    assert "supervisor.sock" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--dir"),
        (("--dir", "d"), "--token-file"),
        (("--dir", "d", "--token-file", "t"), "--controller"),
        (("--dir", "d", "--token-file", "t", "--controller", "http://x"), "ws://"),
        (("--nonsense",), "usage"),
    ],
)
async def test_bad_usage_exits_with_2_and_says_what_is_wrong(arguments: tuple[str, ...], said: str) -> None:
    code, text = await _run(*arguments)
    assert code == 2
    assert said in text


async def test_a_directory_that_cant_be_made_is_said(directory: Path) -> None:
    (directory / "file").write_text("")
    code, text = await _run(
        "--dir", str(directory / "file" / "dir"), "--token-file", "t", "--controller", "ws://127.0.0.1:9/"
    )
    assert code == 2
    assert "can't listen" in text


async def test_a_directory_that_is_made_is_private(directory: Path) -> None:
    (directory / "t").write_text(TOKEN)
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gangsidecar.agent", "--dir", str(directory / "new"), "--token-file",
        str(directory / "t"), "--controller", "ws://127.0.0.1:9/", stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    await until((directory / "new" / "gang.sock").exists)
    assert (directory / "new").stat().st_mode & 0o777 == 0o700
    started.terminate()
    assert await started.wait() == 0
