"""The controller of local mode: hub, loop and local cluster for all gangs of one state directory.

It ends on SIGTERM and SIGINT, and at the end of its standard input if that is a pipe (from ``gangctl run``). However it
ends, gangs keep training, and the next controller takes them over. A state directory has at most one controller.

Its live endpoint serves the page, and a snapshot of a gang at ``/v1/gangs/NAME``, to the user who runs the controller:
the random token is in a file that only this user can read.
"""

import argparse
import asyncio
import hmac
import logging
import os
import secrets
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from gangctl.api.gangjob import GangJob
from gangctl.api.status import Endpoint
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local.atomic_files import write_file
from gangctl.cluster.local.cluster import LocalCluster
from gangctl.cluster.local.layout import DEFAULT_STATE_DIRECTORY, StateDirectory, only_controller
from gangctl.cluster.local.log_files import rotate_logs
from gangctl.controller.hub import Hub
from gangctl.controller.loop import Loop, Wakes
from gangctl.controller.page.routes import GangSource, Page, traces_from_environment
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle.decide import decide
from gangctl.core.lifecycle.directive import directives
from gangctl.core.record.snapshot import snapshot
from gangctl.telemetry import logs
from gangctl.telemetry.port import TelemetryFanout
from gangctl.telemetry.tracing.tracer import IncidentTracer, tracer_from_environment

log = logging.getLogger(__name__)

LIVE: Final = "/v1/gangs/"
SHUTDOWN_SECONDS: Final = 0.5

GangLookup = Callable[[str], tuple[GangJob, Observed] | None]
"""Finds a gang by its name, with what the controller observes of it now."""


@asynccontextmanager
async def serve_live(host: str, look: GangLookup, page: Page) -> AsyncIterator[Endpoint]:
    """Serve the page and snapshots on a free port of ``host`` until the end."""
    token = secrets.token_urlsafe(32)
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def authorized(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, expected):
            raise web.HTTPUnauthorized(text="the request needs the token from the state directory\n")
        return await handler(request)

    async def answer(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        found = look(name)
        if found is None:
            raise web.HTTPNotFound(text=f"this controller knows no gang {name!r:.80}\n")
        text = snapshot(clock.now(), *found).model_dump_json(by_alias=True, exclude_none=True)
        return web.Response(text=text, content_type="application/json")

    application = web.Application(middlewares=[authorized])
    application.router.add_get(LIVE + "{name}", answer)
    page.add_to(application)
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        handler_cancellation=True,  # A viewer that has left makes room at once.
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        name, port = runner.addresses[0][:2]
        yield Endpoint(url=f"http://{name}:{port}{LIVE}", token=token)
    finally:
        await runner.cleanup()


FAILED: Final = 1
HOST: Final = "127.0.0.1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller. Returns the exit code: 0 after a signal or the end of its input, 1 if it cannot run."""
    parser = argparse.ArgumentParser(
        prog="python -m gangctl.controller",
        description="The controller of local mode. gangctl run starts it; gangs keep running when it ends.",
    )
    parser.add_argument("--state-dir", type=Path, default=DEFAULT_STATE_DIRECTORY, help="default: %(default)s")
    parser.add_argument("--log-format", choices=logs.FORMATS, default="text", help="default: %(default)s")
    parser.add_argument("--log-file", type=Path, help="append the log to this file (default: stderr)")
    settings = parser.parse_args(arguments)
    try:
        state = StateDirectory(settings.state_dir.absolute())
        state.gangs.mkdir(mode=0o700, parents=True, exist_ok=True)
        logs.set_up(settings.log_format, settings.log_file)
        with only_controller(state):
            tracer = asyncio.run(control_directory(state))
        # The lock is released: the next controller need not wait for the collector.
        asyncio.run(tracer.close())
    except (ClusterError, OSError) as error:
        sys.stderr.write(f"gangctl controller: {error}\n")
        return FAILED
    return 0


async def control_directory(state: StateDirectory) -> IncidentTracer:
    """Control every gang of a state directory until it has to end. Returns the tracer, which is still open.

    Raises:
        ClusterError: the state directory cannot be used.
        OSError: the hub cannot listen.
    """
    ended = asyncio.Event()
    _set_on_end(ended)
    wakes = Wakes()
    cluster = LocalCluster(state)
    hub = Hub(cluster.authenticate, partial(directives, cluster.pods), wakes.wake, wakes.wake_later)
    tracer = tracer_from_environment()
    loop = Loop(cluster, hub, wakes, decide, TelemetryFanout(tracer))

    def look(name: str) -> tuple[GangJob, Observed] | None:
        job = cluster.named(name)
        return None if job is None else (job, loop.observed(job.metadata.uid))

    page = Page(GangSource(cluster, lambda: loop, traces=traces_from_environment()))
    async with hub.serve(HOST, 0) as url, serve_live(HOST, look, page) as endpoint:
        write_file(state.url, url.encode(), durable=False)
        write_file(state.live, endpoint.model_dump_json().encode(), durable=False)
        log.info("controller %d is listening on %s", os.getpid(), url)
        parts = (cluster.watch(wakes.wake), hub.keep_alive(), loop.run(), tracer.run(), rotate_logs(state))
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(part) for part in parts]
                await ended.wait()
                log.info("the controller ends; gangs keep running")
                for task in running:
                    task.cancel()
        except* ClusterError as errors:
            raise errors.exceptions[0] from None
    return tracer


def _set_on_end(ended: asyncio.Event) -> None:
    """Set the event on a signal, and at the end of a standard input that is a pipe."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    descriptor = sys.stdin.fileno() if sys.stdin is not None else -1
    kind = 0 if descriptor < 0 else os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):  # A pipe from asyncio is a socket.
        return

    def read() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            ended.set()

    loop.add_reader(descriptor, read)
