"""The sidecar as a process: memory, signals, command line, its directory."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from gangsidecar import wire
from tests.sidecar.agent.sidecars import (
    REPORT,
    TOKEN,
    controller,
    run,
    sidecar,
    supervisor,
    training,
    until,
)
from tests.wait import SECONDS

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_sidecar_stays_below_30_mb(directory: Path) -> None:
    async with training(directory, wire.Restore(1200, "shared", "/checkpoints/1200")) as here:
        for step in range(1, 101):
            await here.sidecar.call(
                "POST", "/v1/progress", {"attempt": 3, "rank": 4, "phase": "Step", "step": 1200 + step}
            )
            await here.report(seq=step, attempt=3, phase=wire.Phase.RUNNING)
        assert here.sidecar.resident_kilobytes() < 30_000


async def test_sigterm_ends_a_sidecar_cleanly(directory: Path) -> None:
    async with training(directory) as here:
        events = asyncio.create_task(here.sidecar.call("GET", "/v1/events"))
        assert await here.sidecar.terminate() == 0
        await until(lambda: here.connection.socket.closed)
        assert here.connection.socket.close_code == 1001
        await until(lambda: here.supervisor.ended)
        await asyncio.wait([events])
        assert "Traceback" not in here.sidecar.log()


async def test_sigterm_ends_a_sidecar_while_the_controller_doesnt_answer(directory: Path) -> None:
    async with controller() as frozen, sidecar(directory, frozen.url) as here:
        frozen.reads.clear()
        await frozen.connected()
        async with asyncio.timeout(SECONDS):
            assert await here.terminate() == 0
        frozen.reads.set()


async def test_a_sidecar_ends_when_its_supervisor_has_ended_deliberately(directory: Path) -> None:
    async with training(directory) as here:
        await here.report(seq=9, attempt=3, phase=wire.Phase.DONE)
        here.supervisor.writer.close()
        async with asyncio.timeout(SECONDS):
            assert await here.sidecar.process.wait() == 0


async def test_a_second_sidecar_takes_over_the_directory_of_a_killed_one(directory: Path) -> None:
    async with controller() as above:
        async with sidecar(directory, above.url) as first:
            first.process.send_signal(signal.SIGKILL)
            await first.process.wait()
        async with sidecar(directory, above.url) as second, supervisor(directory, REPORT) as below:
            connection = (await until(lambda: [one for one in above.connections if one.reports()]))[0]
            await connection.send(run(1))
            await below.wait_for(wire.Directive)
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


async def test_help_describes_flags_and_exit_codes() -> None:
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
async def test_bad_usage_exits_with_2_and_names_the_mistake(arguments: tuple[str, ...], said: str) -> None:
    code, text = await _run(*arguments)
    assert code == 2
    assert said in text


async def test_a_directory_that_cant_be_made_is_an_error(directory: Path) -> None:
    (directory / "file").write_text("")
    code, text = await _run(
        "--dir", str(directory / "file" / "dir"), "--token-file", "t", "--controller", "ws://127.0.0.1:9/"
    )
    assert code == 2
    assert "can't listen" in text


async def test_a_new_directory_is_private(directory: Path) -> None:
    (directory / "t").write_text(TOKEN)
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gangsidecar.agent", "--dir", str(directory / "new"), "--token-file",
        str(directory / "t"), "--controller", "ws://127.0.0.1:9/", stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    await until((directory / "new" / "gang.sock").exists)
    assert (directory / "new").stat().st_mode & 0o777 == 0o700
    started.terminate()
    assert await started.wait() == 0
