"""The controllers of bench/size.py: each a process of its own, which prints the lag of its event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gangctl.cluster.kube.client import Client
from gangctl.controller import flags, housekeeping
from gangctl.controller.kube import Controller
from gangsidecar import wire
from tests.cluster.kube.fakeapi import FakeApi
from tests.ports import free_port

SAMPLE_SECONDS: Final = 0.02
TOLD_SECONDS: Final = 0.25
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Replica:
    """A controller process."""

    name: str
    port: int
    process: asyncio.subprocess.Process
    lags: list[float] = field(default_factory=list)
    """The longest lag of its event loop since :meth:`begin`, a quarter of a second each."""

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    @property
    def url(self) -> str:
        """What sidecars dial."""
        return f"wss://127.0.0.1:{self.port}{wire.CONNECT_PATH}"

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def waited_seconds(self) -> float:
        """How long it could have run, but had no processor."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9

    @property
    def memory_mib(self) -> float:
        """Resident memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE / 2**20

    def listens(self) -> bool:
        """Return whether it accepts connections."""
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    async def read(self) -> None:
        """Take what it prints, until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lags.append(float(line))
        code = await self.process.wait()
        if code > 0:
            raise RuntimeError(f"the controller {self.name} has ended with exit code {code}")


async def replica(name: str, url: str, *more: str) -> None:
    """Be a controller with these flags; print the longest lag of the event loop, in seconds, four times a second."""

    async def sample() -> None:
        while True:
            began, longest = time.monotonic(), 0.0
            while time.monotonic() < began + TOLD_SECONDS:
                before = time.monotonic()
                await asyncio.sleep(SAMPLE_SECONDS)
                longest = max(longest, time.monotonic() - before - SAMPLE_SECONDS)
            print(longest, flush=True)

    words = ("--namespace", "default", "--pod-name", name, "--sidecar-image", "none")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    housekeeping.raise_limit()
    async with Client(FakeApi(url).credentials()) as client:
        sampling = asyncio.create_task(sample())
        await Controller(flags.parse([*words, *more]), client).run(ended)
        sampling.cancel()


@asynccontextmanager
async def controllers(api: FakeApi, replicas: int = 2, *more: str) -> AsyncIterator[list[Replica]]:
    """So many replicas, with these flags."""
    found = list[Replica]()
    async with asyncio.TaskGroup() as tasks:
        try:
            for name in ("first", "second", "third", "fourth", "fifth")[:replicas]:
                port, health, metrics = free_port(), free_port(), free_port()
                ports = ("--hub-port", str(port), "--health-port", str(health), "--metrics-port", str(metrics))
                words = ("-m", "bench.size_replicas", name, api.url, *ports, *more)
                process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
                found.append(Replica(name, port, process))
                tasks.create_task(found[-1].read())
            yield found
        finally:
            for one in found:
                if one.process.returncode is None:
                    one.process.kill()


if __name__ == "__main__":
    asyncio.run(replica(*sys.argv[1:]))
