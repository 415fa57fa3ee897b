"""Start and memory of a sidecar, which dials a controller in this process over TLS, as in a pod.

    python -m bench.sidecar [--rounds 20] [--seconds 60] [--python PYTHON ...]

Each PYTHON has gangsidecar installed, so that one release can be compared with another; they take turns, so that other
work on the machine hits all alike. Medians (least) in milliseconds from just before the exec to the controller's
request: the CPU time, which other work changes little, and the time. Then memory in MB, resident and what of it no file
backs: after a minute with nothing but pings, and after a supervisor's report and a hundred calls to the framework API.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from aiohttp import ClientSession, UnixConnector, web
from cryptography import x509

from bench.supervisor import memory
from gangsidecar import wire
from tests.sidecar.agent.sidecars import REPORT, supervisor
from tests.sidecar.agent.tls_hubs import Authority, authority

NAME = "gangctl.svc"
PING_SECONDS = 5.0
PATIENCE = 60.0
"""Seconds after which a sidecar is given up."""
CALLS = 100


class Start(NamedTuple):
    """Of one sidecar, in milliseconds."""

    cpu: float
    elapsed: float


async def measured(python: str, folder: Path, trusted: Authority, seconds: float) -> tuple[Start, tuple[float, ...]]:
    """Start a sidecar, and keep it for so many seconds; 0: its memory isn't measured."""
    connected: asyncio.Future[Start] = asyncio.get_running_loop().create_future()
    sidecar: asyncio.subprocess.Process

    async def serve(request: web.Request) -> web.StreamResponse:
        connected.set_result(Start(1e3 * cpu_seconds(sidecar.pid), 1e3 * (time.perf_counter() - begin)))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        while not socket.closed:
            await socket.send_str(wire.encode(wire.Ping()))
            try:
                await socket.receive(PING_SECONDS)
            except TimeoutError:
                continue
        return socket

    application = web.Application()
    application.router.add_get(wire.CONNECT_PATH, serve)
    runner = web.AppRunner(application, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trusted.context(folder, x509.DNSName(NAME))).start()
    environment = in_a_pod(folder, f"wss://{NAME}:{runner.addresses[0][1]}{wire.CONNECT_PATH}", trusted)
    begin = time.perf_counter()
    sidecar = await asyncio.create_subprocess_exec(
        *(python, "-m", "gangsidecar.agent"), env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(PATIENCE):
            start = await connected
        return start, await used(sidecar.pid, folder, seconds) if seconds else ()
    finally:
        sidecar.terminate()
        await runner.cleanup()
        await sidecar.wait()


def in_a_pod(folder: Path, url: str, trusted: Authority) -> dict[str, str]:
    """The environment that the container and its image give the sidecar, with the files that it names."""
    given = {"PATH": os.defpath, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    given["GANG_DIR"] = str(folder)
    texts = {"CONTROLLER": url, "TOKEN": "token", "ADDRESS": "127.0.0.1", "CA": trusted.pem}
    for name, text in texts.items():
        file = folder / name.lower()
        file.write_text(text)
        given[f"GANG_{name}_FILE"] = str(file)
    return given


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process with all its threads, by the clock that clock_getcpuclockid(3) names."""
    return time.clock_gettime((~pid << 3) | 2)


async def used(pid: int, folder: Path, seconds: float) -> tuple[float, ...]:
    """Memory after the seconds, and after the calls."""
    await asyncio.sleep(seconds)
    idle = memory(pid)
    async with (
        supervisor(folder, REPORT),
        ClientSession(connector=UnixConnector(str(folder / wire.FRAMEWORK_SOCKET))) as session,
    ):
        done = 0
        while done < CALLS:
            async with session.get("http://gang/v1/attempt") as answer:
                await answer.read()
                done += answer.status == web.HTTPOk.status_code
    return *idle, *memory(pid)


async def compare(pythons: list[str], rounds: int, seconds: float) -> None:
    """Print a line for each."""
    starts: dict[str, list[Start]] = {python: [] for python in pythons}
    sizes: dict[str, tuple[float, ...]] = {}
    trusted = authority()
    for number in range(rounds):
        for python in pythons:
            with tempfile.TemporaryDirectory(prefix="gang-") as folder:
                is_last = number == rounds - 1
                start, sizes[python] = await measured(python, Path(folder), trusted, seconds if is_last else 0)
                starts[python].append(start)
    print("   CPU (least)   time (least)    idle   (own)  called   (own)")
    for python, found in starts.items():
        columns = [(statistics.median(one), min(one)) for one in zip(*found, strict=True)]
        times = "  ".join(f"{middle:6.0f} {least:7.0f}" for middle, least in columns)
        print(times, "".join(f"{size:8.1f}" for size in sizes[python]), f"  {python}")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


def main() -> None:
    """Measure, and print the table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rounds", type=int, default=20)
    flags.add_argument("--seconds", type=float, default=60.0, help="of rest before its memory is measured")
    flags.add_argument("--python", action="append", help="an interpreter that has gangsidecar; may be repeated")
    options = flags.parse_args()
    asyncio.run(compare(options.python or [sys.executable], options.rounds, options.seconds))


if __name__ == "__main__":
    main()
