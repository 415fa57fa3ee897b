"""What doctor sees inside a container, by a program that it runs there; the other end is a fake API server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.annexes.doctor.gpucluster import gpu_cluster
from tests.cli.kube import Shell, on
from tests.cluster.kube.fakeapi import status


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Shell]:
    async with gpu_cluster(tmp_path) as one:
        yield one


async def test_without_exec_rights_the_link_is_unknown(here: Shell) -> None:
    async def no(_: web.Request) -> web.Response:
        return status(403, "Forbidden", 'User "me" cannot create resource "pods/exec"')

    here.api.faults.append(on("/exec", no))
    done = await here.gangctl("doctor", "train-0", "--exec")
    assert done.code == 0
    assert "unknown  inside" in done.out
    assert "you lack the right to get and create pods/exec" in done.out


def run_here(program: str) -> bytes:
    """What the program that was sent prints, with two variables of an image."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, env=OF_IMAGE).stdout


OF_IMAGE = {"CUDA_VERSION": "12", "NV_CUDA_COMPAT_PACKAGE": "cuda-compat-12-0"}
SUCCESS = b'\x03{"status": "Success"}'


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (
            [b'\x01{"files": ["/dev/nvidia0"], "env": {"CUDA_VERSION": "13.0.1"}}\n', SUCCESS],
            1,
            "CUDA 13.0 (by CUDA_VERSION)",
        ),
        ([b'\x01{"files": ["/dev/nvidia0", "/dev/nvidia1"], "env": {}}\n', SUCCESS], 0, "/dev/nvidia0, /dev/nvidia1"),
        ([b"\x01hello\n", SUCCESS], 0, "the program in container main printed something else"),
        (
            [b'\x03{"status": "Failure", "message": "python3: not found"}'],
            0,
            "could not run python3: python3: not found",
        ),
        ([], 0, "could not run python3: the connection ended first"),
    ],
)
async def test_what_a_program_sees_inside_the_container_is_told(
    here: Shell, sent: list[bytes], code: int, said: str
) -> None:
    programs: list[str] = []

    async def execute(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        programs.append((await socket.receive_bytes())[1:].decode())
        for one in sent:
            await socket.send_bytes(one)
        await socket.close()
        return socket

    here.api.faults.append(on("/train-0/exec", execute))
    done = await here.gangctl("doctor", "train-0", "--exec")
    assert (done.code, said in done.out) == (code, True)
    ran = await asyncio.to_thread(run_here, programs[0])
    assert json.loads(ran)["env"] == OF_IMAGE
