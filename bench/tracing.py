"""What traces cost a restart: gangs of 64 real members, side by side, with different collectors.

    make bench                                     with the other figures
    python -m bench.tracing --members 16 --restarts 5

Five gangs run at once, each under its own `gangctl run`: without traces (twice: how far they are apart is the noise
of this machine), with a receiver that takes every span, with a closed port, and with one that takes connections
and never answers. They take turns: one restart each, again and again, in an order that moves on, so that whatever else
this machine does meets all of them alike. Workers only sleep; the total is from just before a worker's SIGKILL to the
last worker's exec. Nothing but restarts is measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.restart import Gang, Restart, until
from gangctl.cli.gang_view import GangView

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
OFF, AGAIN, ON, DEAD, HANGING = "off", "off, again", "on", "dead collector", "hanging collector"


class Receiver(ThreadingHTTPServer):
    """Receives and counts spans."""

    daemon_threads = True
    spans = 0


class Request(BaseHTTPRequestHandler):
    """One batch."""

    def do_POST(self) -> None:
        """Take it."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        found = ExportTraceServiceRequest.FromString(body)
        if isinstance(self.server, Receiver):
            self.server.spans += sum(len(s.spans) for r in found.resource_spans for s in r.scope_spans)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as http.server has it
        """Log nothing."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver in a thread."""
    server = Receiver(("127.0.0.1", 0), Request)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()


@contextmanager
def occupied(*, listens: bool) -> Iterator[str]:
    """A port that refuses connections, or one that accepts them into the kernel's queue without ever reading."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        if listens:
            holder.listen(1000)
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


def start(members: int, folder: Path, endpoint: str) -> Gang:
    """A gang whose controller exports spans to this address."""
    folder.mkdir()
    settings = {ENDPOINT: endpoint} if endpoint else {}
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    os.environ.update(settings)  # `gangctl run` passes its environment on
    return Gang(members, folder, "")


def measure(members: int, restarts: int, endpoints: dict[str, str], folder: Path) -> dict[str, list[Restart]]:
    """Restarts of each kind of gang, in turn; the first of each is a warm-up."""
    gangs: dict[str, Gang] = {}
    found: dict[str, list[Restart]] = {kind: [] for kind in endpoints}
    kinds = list(endpoints)
    try:
        seen: dict[str, GangView] = {}
        for at, (kind, endpoint) in enumerate(endpoints.items()):
            gangs[kind] = gang = start(members, folder / str(at), endpoint)
            seen[kind] = until(f"the gang with traces {kind}", lambda gang=gang: gang.running(1))  # type: ignore[misc]
        for at in range(restarts + 1):
            for kind in kinds:
                seen[kind], one = gangs[kind].restart(seen[kind], at)
                if at:
                    found[kind].append(one)
            kinds = [*kinds[1:], kinds[0]]
    finally:
        for gang in gangs.values():
            gang.end()
    return found


def main() -> None:
    """Print the table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--members", type=int, default=64)
    flags.add_argument("--restarts", type=int, default=12)
    options = flags.parse_args()
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="gangctl-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        receiver = stack.enter_context(receiving())
        endpoints = {
            OFF: "",
            AGAIN: "",
            ON: f"http://127.0.0.1:{receiver.server_address[1]}",
            DEAD: stack.enter_context(occupied(listens=False)),
            HANGING: stack.enter_context(occupied(listens=True)),
        }
        found = measure(options.members, options.restarts, endpoints, folder)
        spans = receiver.spans
    totals = {kind: [one.total for one in several] for kind, several in found.items()}
    off = statistics.median(totals[OFF])
    print(
        f"{options.members} members, {options.restarts} restarts each in turns, {os.cpu_count()} cores; milliseconds "
        f"until all run again ({time.monotonic() - began:.0f} s)"
    )
    print(f"{'traces':>18} {'median':>8} {'quarter':>8} {'3/4':>8} {'min':>8} {'max':>8} {'to off':>8}")
    for kind, several in totals.items():
        quarters = statistics.quantiles(several)
        print(
            f"{kind:>18} {statistics.median(several):8.0f} {quarters[0]:8.0f} {quarters[2]:8.0f} {min(several):8.0f} "
            f"{max(several):8.0f} {statistics.median(several) - off:+8.0f}"
        )
    print(f"noise (off against off, again): {abs(statistics.median(totals[AGAIN]) - off):.0f} ms; spans taken: {spans}")


if __name__ == "__main__":
    main()
