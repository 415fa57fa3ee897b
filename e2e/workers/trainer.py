"""A worker for tests of traces. Each part of its start takes a known time, which it reports through gangclient.

It reports steps, saves a checkpoint now and then, and sends a span of its own without a tracing library. On SIGUSR1 it
exits with EXIT_CODE, on SIGUSR2 it requests a restart. It notes what it did, and when, in a file of its member.
"""

import http.client
import json
import os
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import gangclient  # the supervisor puts it into PYTHONPATH

DIRECTORY = Path(os.environ["CHECKPOINT_DIR"])
MEMBER, ATTEMPT, RANK = os.environ["GANG_MEMBER"], int(os.environ["GANG_ATTEMPT"]), int(os.environ["RANK"])
IMPORT_SECONDS, LOAD_SECONDS, STEP_SECONDS = (
    float(os.environ[f"{part}_SECONDS"]) for part in ("IMPORT", "LOAD", "STEP")
)
FIRST_SAVE, SAVE_EVERY = 2, 50
asked = threading.Event()


def main() -> None:
    """Start slowly, load a checkpoint, train without end."""
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(int(os.environ["EXIT_CODE"])))
    signal.signal(signal.SIGUSR2, ask)
    note("started", at=born())
    gang = gangclient.connect()
    time.sleep(IMPORT_SECONDS)
    begin = time.time_ns()
    time.sleep(LOAD_SECONDS)
    step = 0
    if gang.restore:
        step = gang.restore.step
        gang.checkpoint_loaded(LOAD_SECONDS)
        send_span("trainer.load", begin)
    while True:
        time.sleep(STEP_SECONDS)
        step += 1
        note("step", step)  # First: a worker may be killed at any moment, and what it reported must be in its file.
        gang.progress(step, seconds=STEP_SECONDS)
        if RANK == 0 and (step == FIRST_SAVE or step % SAVE_EVERY == 0):
            save(step)
        if asked.is_set():
            asked.clear()
            gang.request_restart(os.environ["REASON"])


def ask(_number: int, _frame: "FrameType | None") -> None:
    """Let the loop do it: a signal handler must not wait."""
    asked.set()


def note(what: str, step: int = 0, at: "float | None" = None) -> None:
    """Append a line with the time to the member's file."""
    noted = {"what": what, "attempt": ATTEMPT, "step": step, "time": time.time() if at is None else at}
    with (DIRECTORY / MEMBER).open("a") as file:
        file.write(json.dumps(noted) + "\n")


def born() -> float:
    """When this process began: on a busy machine Python takes a while to start."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def save(step: int) -> None:
    """Save an empty checkpoint."""
    folder = DIRECTORY / f"step-{step}"
    folder.mkdir(exist_ok=True)
    (folder / "DONE").touch()


def send_span(name: str, begin: int) -> None:
    """Send a span below the incident as a tracing library does: OTLP as JSON over HTTP."""
    url = urlsplit(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
    _, trace, parent, _ = os.environ["TRACEPARENT"].split("-")
    span = {
        "traceId": trace,
        "spanId": secrets.token_hex(8),
        "parentSpanId": parent,
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(begin),
        "endTimeUnixNano": str(time.time_ns()),
        "attributes": [{"key": "rank", "value": {"intValue": str(RANK)}}],
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "trainer"}}]}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=10)
    connection.request("POST", "/v1/traces", json.dumps(body), {"Content-Type": "application/json"})
    if connection.getresponse().status != http.client.OK:
        sys.exit("the collector refused the span")


if __name__ == "__main__":
    main()
