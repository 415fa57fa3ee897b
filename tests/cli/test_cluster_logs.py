"""`gangctl logs` on a cluster, against a fake API server: which lines are shown, and broken connections."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.cli.kube import Shell, on, shell, with_gang
from tests.cluster.kube.fakeapi import status
from tests.wait import SECONDS, until_async

OWN = "gangctl-supervisor: a session begins"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Shell]:
    async with shell(tmp_path) as one:
        yield one


async def test_a_log_that_is_followed_over_a_broken_connection_has_no_line_twice_and_none_missing(here: Shell) -> None:
    await with_gang(here)
    lines = [f"2026-01-31T12:00:0{at // 3}.{at:09}Z line {at}\n".encode() for at in range(6)]
    asked: list[str | None] = []

    async def log(request: web.Request) -> web.StreamResponse:
        asked.append(request.query.get("sinceTime"))
        answer = web.StreamResponse(headers={"Content-Length": "100000"} if len(asked) == 1 else {})
        await answer.prepare(request)
        # The API server knows whole seconds: from there it tells everything again.
        for line in lines[:5] if len(asked) == 1 else lines[3:]:
            await answer.write(line)
        if len(asked) == 1:
            assert request.transport is not None
            request.transport.close()
        return answer

    here.api.faults.append(on("/pods/demo-worker-1-0/log", log))
    done = await here.gangctl("logs", "demo", "--rank", "1", "-f", "--tail", "10")
    assert done.out.splitlines() == [f"line {at}" for at in range(6)]
    assert asked == [None, "2026-01-31T12:00:01Z"]


def _stamped(*texts: str) -> list[bytes]:
    """Lines as the kubelet has them; gangctl's own begin with their time once more."""
    return [
        f"2026-01-31T12:00:00.{at:09}Z {f'2026-01-31T12:00:00.000Z info {text}' if OWN in text else text}\n".encode()
        for at, text in enumerate(texts)
    ]


async def test_lines_of_the_supervisor_are_left_out_and_do_not_count_for_the_tail(here: Shell) -> None:
    await with_gang(here)
    worker = _stamped("one", "two", "three", *[OWN] * 300, "four")
    worker[-2] = worker[-2].replace(b"Z 2026", b"Z 50%2026")
    sidecar = [b"2026-01-31T12:00:00.000000001Z 2026-01-31T12:00:00.000Z info gangctl-sidecar: the sidecar listens\n"]

    async def log(request: web.Request) -> web.Response:
        lines = worker if request.query["container"] == "main" else sidecar
        return web.Response(body=b"".join(lines[-int(request.query.get("tailLines", len(lines))) :]))

    here.api.faults.append(on("/pods/demo-worker-1-0/log", log))
    words = ("logs", "demo", "worker-1")
    shown = ["one", "two", "three", "50%", "four"]
    assert (await here.gangctl(*words)).out.splitlines() == shown
    assert (await here.gangctl(*words, "--tail", "3")).out.splitlines() == shown[-3:]
    assert (await here.gangctl(*words, "--tail", "0")).out == ""
    own = (await here.gangctl(*words, "--gangctl")).out.splitlines()
    assert len(own) == 301
    assert own[0].endswith("gangctl-sidecar: the sidecar listens"), "the two logs are merged by time"
    assert all(OWN in line for line in own[1:])
    assert (await here.gangctl(*words, "--gangctl", "--tail", "1")).out.splitlines() == own[-1:]
    assert (await here.gangctl(*words, "--sidecar")).out.splitlines() == own[:1]


async def test_a_followed_log_begins_with_its_last_lines_and_ends_with_its_reader(here: Shell) -> None:
    await with_gang(here)
    lines = _stamped("one", "two", OWN, "three")

    async def log(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for line in lines:
            await answer.write(line)
        if "follow" in request.query:
            await until_async("the reader is gone", lambda: request.transport is None)  # the container runs on
        return answer

    here.api.faults.append(on("/pods/demo-worker-1-0/log", log))
    shell_line = f"{sys.executable} -m gangctl logs demo worker-1 -f --tail 2 | head -n 2; echo ${{PIPESTATUS[0]}}"
    child = await asyncio.create_subprocess_exec(
        *("bash", "-c", shell_line),
        cwd=here.path,
        env={**os.environ, "HOME": str(here.path), "KUBECONFIG": str(here.config)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(SECONDS):
        out, _ = await child.communicate()
    assert out.decode().splitlines() == ["two", "three", "141"]


async def test_of_many_logs_one_that_cannot_be_read_does_not_hide_the_others(here: Shell) -> None:
    await with_gang(here)

    async def waiting(_: web.Request) -> web.Response:
        return status(400, "BadRequest", 'container "main" in pod "demo-worker-0-0" is waiting to start')

    async def log(_: web.Request) -> web.Response:
        return web.Response(body=b"2026-01-31T12:00:00.000000000Z hello\n2026-01-31T12:00:00.000000001Z \n")

    here.api.faults += [on("/demo-worker-0-0/log", waiting), on("/demo-worker-1-0/log", log)]
    done = await here.gangctl("logs", "demo")
    assert done.out == "worker-1 | hello\nworker-1 | \n"
    assert "is waiting to start" in done.err
    assert (await here.gangctl("logs", "demo", "worker-0")).code == 2
