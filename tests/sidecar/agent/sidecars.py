"""A real sidecar process; the test plays its controller and its supervisor over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
from aiohttp import web

from gangsidecar import wire
from tests.wait import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

T = TypeVar("T")
TOKEN = "first-token"
REPORT = wire.Report(
    gang="gang-uid",
    member="worker-2",
    incarnation=0,
    pod="pod-uid",
    session="session-a",
    seq=1,
    attempt=0,
    phase=wire.Phase.IDLE,
)
HOLD = wire.Directive(gang="gang-uid", pod="pod-uid", attempt=1, verb=wire.Verb.HOLD, reason="it begins")


def process(rank: int, local_rank: int) -> wire.Process:
    env = {"WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29401", "RANK": str(rank)}
    env |= {"GANG_CHECKPOINT_TIERS": "ram=API,near=API,shared=Directory", "GANG_MEMORY_TIER": "near"}
    return wire.Process(local_rank, tuple(env.items()), rank)


def run(attempt: int, restore: wire.Restore | None = None, session: str = "session-a") -> wire.Directive:
    given = wire.Run(session, (process(4, 0), process(5, 1)), restore, checkpointed=True)
    return replace(HOLD, attempt=attempt, verb=wire.Verb.RUN, reason="worker-1 was killed", run=given)


async def until(condition: Callable[[], T | None]) -> T:
    """Wait for a condition of the sidecar or its peers, and return what it found."""
    return await until_async("what the test waits for", condition, every=0.005)


@dataclass
class Connection:
    """One WebSocket that a sidecar has opened."""

    socket: web.WebSocketResponse
    token: str
    received: list[Any] = field(default_factory=list)

    def reports(self) -> list[wire.Report]:
        return [one for one in self.received if isinstance(one, wire.Report)]

    async def send(self, message: wire.Message) -> None:
        await self.socket.send_str(wire.encode(message))


class Controller:
    """Listens on a port of its own and keeps what it receives."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.refusal: tuple[int, str] | None = None
        self.refused = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def open(self) -> None:
        application = web.Application()
        application.router.add_get(wire.CONNECT_PATH, self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"ws://127.0.0.1:{self._runner.addresses[0][1]}{wire.CONNECT_PATH}"

    async def close(self) -> None:
        for one in self.connections:
            await one.socket.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def connected(self, count: int = 1) -> Connection:
        await until(lambda: len(self.connections) >= count)
        return self.connections[count - 1]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.refusal is not None:
            self.refused += 1
            return web.Response(status=self.refusal[0], text=self.refusal[1])
        socket = web.WebSocketResponse(max_msg_size=wire.MAX_BYTES + 1, timeout=0.5)
        socket.headers[wire.REVISION_HEADER] = str(wire.REVISION)
        await socket.prepare(request)
        connection = Connection(socket, request.headers["Authorization"])
        self.connections.append(connection)
        await self.reads.wait()
        async for frame in socket:
            connection.received.append(wire.decode(frame.data))
        return socket


@dataclass
class Supervisor:
    """One connection to the sidecar's supervisor socket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    received: list[Any] = field(default_factory=list)
    ended: bool = False

    async def send(self, message: wire.Message) -> None:
        await self.send_raw(wire.encode(message).encode() + b"\n")

    async def send_raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def wait_for(self, kind: type[T], count: int = 1) -> T:
        """The newest message of this kind, as soon as so many have arrived."""
        await until(lambda: len(self.all(kind)) >= count)
        return self.all(kind)[-1]

    def all(self, kind: type[T]) -> list[T]:
        return [one for one in self.received if isinstance(one, kind)]

    async def listen(self) -> None:
        try:
            while line := await self.reader.readline():
                self.received.append(wire.decode(line[:-1]))
        except ConnectionError:
            pass
        self.ended = True


@dataclass
class Sidecar:
    """A sidecar's process and its directory."""

    directory: Path
    process: asyncio.subprocess.Process

    @property
    def socket(self) -> Path:
        return self.directory / "gang.sock"

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def resident_kilobytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self.socket))) as session,
            session.request(method, f"http://gang{path}", data=data) as answer,
        ):
            return answer.status, await answer.json()

    async def terminate(self) -> int:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


@asynccontextmanager
async def controller() -> AsyncIterator[Controller]:
    here = Controller()
    await here.open()
    try:
        yield here
    finally:
        await here.close()


def folder() -> Iterator[Path]:
    """A directory whose path is short enough for a socket."""
    made = Path(tempfile.mkdtemp(prefix="gang-"))
    yield made
    shutil.rmtree(made)


@asynccontextmanager
async def sidecar(directory: Path, url: str, *more: str, token: str | None = TOKEN) -> AsyncIterator[Sidecar]:
    """A sidecar that listens. It reads the address of the controller from a file, as in local mode."""
    directory.mkdir(exist_ok=True, parents=True)  # noqa: ASYNC240 - a test has time
    (directory / "controller").write_text(url)
    if token is not None:
        (directory / "token").write_text(token + "\n")
    with (directory / "log").open("ab") as log:
        command = (sys.executable, "-m", "gangsidecar.agent", "--dir", str(directory))
        files = ("--controller-file", str(directory / "controller"), "--token-file", str(directory / "token"))
        started = await asyncio.create_subprocess_exec(*command, *files, *more, stderr=log)
    here = Sidecar(directory, started)
    listening = here.log().count("the sidecar listens")
    try:
        await until(lambda: here.log().count("the sidecar listens") > listening or started.returncode is not None)
        yield here
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


@asynccontextmanager
async def supervisor(directory: Path, *messages: wire.Message) -> AsyncIterator[Supervisor]:
    """Connect and send these messages."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        reader, writer = await asyncio.open_unix_connection(
            f"/proc/self/fd/{opened}/supervisor.sock", limit=2 * wire.MAX_BYTES
        )
    finally:
        os.close(opened)
    here = Supervisor(reader, writer)
    listening = asyncio.create_task(here.listen())
    try:
        for message in messages:
            await here.send(message)
        yield here
    finally:
        writer.transport.abort()
        await listening


@dataclass
class World:
    """A member in the middle of training."""

    controller: Controller
    connection: Connection
    sidecar: Sidecar
    supervisor: Supervisor

    async def report(self, **changes: Any) -> None:
        """The supervisor reports, and the controller gets it."""
        before = len(self.connection.reports())
        await self.supervisor.send(replace(REPORT, **changes))
        await until(lambda: len(self.connection.reports()) > before)

    async def direct(self, directive: wire.Directive) -> None:
        """The controller sends a directive, and the supervisor gets it."""
        before = len(self.supervisor.all(wire.Directive))
        await self.connection.send(directive)
        await self.supervisor.wait_for(wire.Directive, before + 1)


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    """A member that the controller knows, with an Idle supervisor."""
    async with (
        controller() as above,
        sidecar(directory, above.url) as between,
        supervisor(directory, REPORT) as below,
    ):
        connection = await above.connected()
        await until(connection.reports)
        yield World(above, connection, between, below)


@asynccontextmanager
async def training(directory: Path, restore: wire.Restore | None = None) -> AsyncIterator[World]:
    """A member that runs attempt 3 with ranks 4 and 5."""
    async with world(directory) as here:
        await here.report(attempt=3, phase=wire.Phase.READY)
        await here.direct(run(3, restore))
        await here.report(attempt=3, phase=wire.Phase.RUNNING)
        yield here
