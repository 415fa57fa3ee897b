"""The local controller as a process: hub, loop and local cluster over all gangs of one state directory.

It ends on SIGTERM and SIGINT, and at the end of its standard input if that is a pipe (from ``gangctl run``). Gangs go
on training then, and however else it ends: the next controller takes them over. One runs for each state directory.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.local.atomic_files import write
from gangctl.cluster.local.cluster import LocalCluster
from gangctl.cluster.local.controller_lock import only_controller
from gangctl.cluster.local.layout import DEFAULT_STATE_DIRECTORY, StateDirectory
from gangctl.controller import live
from gangctl.controller.directives import DirectiveCache
from gangctl.controller.hub import Hub
from gangctl.controller.loop import Loop
from gangctl.controller.wakes import Wakes
from gangctl.core.facts.world import Observed
from gangctl.core.lifecycle.decide import decide
from gangctl.telemetry import logs
from gangctl.telemetry.port import TelemetryFanout
from gangctl.telemetry.tracing.tracer import IncidentTracer, tracer_from_environment

log = logging.getLogger(__name__)

FAILED: Final = 1
HOST: Final = "127.0.0.1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller; the exit code: 0 after a signal or the end of the input, 1 if it can't run."""
    parser = argparse.ArgumentParser(
        prog="python -m gangctl.controller",
        description="The controller of local mode. It is started by gangctl run; gangs go on when it ends.",
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
            traces = asyncio.run(control(state))
        # The next controller may begin by now: only this one waits for a collector.
        asyncio.run(traces.close())
    except (ClusterError, OSError) as error:
        sys.stderr.write(f"gangctl controller: {error}\n")
        return FAILED
    return 0


async def control(state: StateDirectory) -> IncidentTracer:
    """Look after every gang of a state directory until told to end; the traces, which are still to be closed.

    Raises:
        ClusterError: the state directory can't be used.
        OSError: the hub can't listen.
    """
    ended = asyncio.Event()
    _watch_for_the_end(ended)
    wakes = Wakes()
    cluster = LocalCluster(state)
    hub = Hub(cluster.authenticate, DirectiveCache().directive, wakes.wake, wakes.wake_later)
    traces = tracer_from_environment()
    loop = Loop(cluster, hub, wakes, decide, TelemetryFanout(traces))

    def look(name: str) -> tuple[GangJob, Observed] | None:
        job = cluster.named(name)
        return None if job is None else (job, loop.observed(job.metadata.uid))

    async with hub.serve(HOST, 0) as url, live.serve(HOST, look) as endpoint:
        write(state.url, url.encode(), durable=False)
        write(state.live, endpoint.model_dump_json().encode(), durable=False)
        log.info("controller %d listens on %s", os.getpid(), url)
        parts = (cluster.watch(wakes.wake), hub.keep_alive(), loop.run(), traces.run())
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(part) for part in parts]
                await ended.wait()
                log.info("the controller ends; gangs go on")
                for task in running:
                    task.cancel()
        except* ClusterError as errors:
            raise errors.exceptions[0] from None
    return traces


def _watch_for_the_end(ended: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    descriptor = sys.stdin.fileno() if sys.stdin is not None else -1
    kind = 0 if descriptor < 0 else os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):  # asyncio makes a socket where others make a pipe
        return

    def read() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            ended.set()

    loop.add_reader(descriptor, read)
