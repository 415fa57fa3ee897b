"""A worker for tests of traces: how long each part of its start takes is known, and it says so through gangclient.

It reports steps, saves a checkpoint now and then, and sends one span of its own, without any library for that. SIGUSR1
makes it exit with EXIT_CODE, SIGUSR2 makes it ask for a restart. What it did and when stands in its member's file.
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
    """Start slowly, load, train for ever."""
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(int(os.environ["EXIT_CODE"])))
    signal.signal(signal.SIGUSR2, ask)
    say("started", at=born())
    gang = gangclient.connect()
    time.sleep(IMPORT_SECONDS)
    begin = time.time_ns()
    time.sleep(LOAD_SECONDS)
    step = 0
    if gang.restore:
        step = gang.restore.step
        gang.checkpoint_loaded(LOAD_SECONDS)
        tell("trainer.load", begin)
    while True:
        time.sleep(STEP_SECONDS)
        step += 1
        gang.progress(step, seconds=STEP_SECONDS)
        say("step", step)
        if RANK == 0 and (step == FIRST_SAVE or step % SAVE_EVERY == 0):
            save(step)
        if asked.is_set():
            asked.clear()
            gang.request_restart(os.environ["REASON"])


def ask(_number: int, _frame: "FrameType | None") -> None:
    """The loop does it: a handler must not wait."""
    asked.set()


def say(what: str, step: int = 0, at: "float | None" = None) -> None:
    """Note it, with the time."""
    noted = {"what": what, "attempt": ATTEMPT, "step": step, "time": time.time() if at is None else at}
    with (DIRECTORY / MEMBER).open("a") as file:
        file.write(json.dumps(noted) + "\n")


def born() -> float:
    """When this process was made: Python itself takes a while to start on a busy machine."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def save(step: int) -> None:
    """A checkpoint with nothing in it."""
    folder = DIRECTORY / f"step-{step}"
    folder.mkdir(exist_ok=True)
    (folder / "DONE").touch()


def tell(name: str, begin: int) -> None:
    """A span below the incident, as any tracing library would send it: OTLP as JSON over HTTP."""
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
        sys.exit("the span was refused")


if __name__ == "__main__":
    main()
