"""Records docs/pictures/jaeger.png: a real restart of the demo in Jaeger's own pages.

    python -m bench.jaeger_picture --jaeger JAEGER --ui FOLDER

It runs the demo's training with Jaeger beside it, kills one worker, and takes a picture of the trace with Chromium.
JAEGER is the program (`make e2e` builds it from its Go module, which lacks the pages), FOLDER what `vite build` makes
of the jaeger-ui of the same version (v1.62.0; `yarn install`, `yarn build`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench.pictures import FOLDER, demo

PAGES: Final = "http://127.0.0.1:16686"
COLLECTOR: Final = "http://127.0.0.1:4318"
SIZE: Final = "1300,760"
SECONDS: Final = 60.0
_TIME_FOR_SCRIPTS_MS: Final = 20_000


def main() -> int:
    """Record the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jaeger", required=True, help="the program of Jaeger all-in-one")
    parser.add_argument("--ui", required=True, type=Path, help="its built pages")
    parser.add_argument("--chromium", default="chromium", help="default: %(default)s")
    given = parser.parse_args()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = COLLECTOR
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [given.jaeger, "--query.static-files", str(given.ui.resolve())], stdout=log, stderr=log
        ) as jaeger,
    ):
        try:
            _picture(_restarted(), given.chromium)
        finally:
            jaeger.terminate()
    return 0


def _restarted() -> str:
    """Train, kill a worker; returns the ID of the trace of the restart, when Jaeger has it whole."""
    with demo() as run:
        run.inject("worker-1", "--signal", "SIGKILL")
        trace = run.reaches(2, 15).snapshot.status.incidents[0].trace_id
        end = time.monotonic() + SECONDS
        while "gang.restart" not in _read(f"{PAGES}/api/traces/{trace}"):
            if time.monotonic() > end:
                raise TimeoutError(f"Jaeger doesn't have the root span of trace {trace} after {SECONDS:.0f} s")
            time.sleep(1.0)
        return trace


def _read(url: str) -> str:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())
    return ""


def _picture(trace: str, chromium: str) -> None:
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                f"--user-data-dir={profile}",
                f"--window-size={SIZE}",
                f"--virtual-time-budget={_TIME_FOR_SCRIPTS_MS}",
                f"--screenshot={(FOLDER / 'jaeger.png').absolute()}",
                f"{PAGES}/trace/{trace}",
            ],
            check=True,
            timeout=SECONDS,
        )


if __name__ == "__main__":
    raise SystemExit(main())
