"""Records docs/pictures/page-light.png and page-dark.png: the controller's page of the demo after a restart.

    python -m bench.page_picture             as root if Chromium isn't installed

It trains with four members as the demo does, kills one worker, opens the page with `gangctl ui` in a headless Chromium
of a set size, and takes a picture of it in each scheme.
"""

from __future__ import annotations

import argparse
import base64
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.pictures import FOLDER, demo
from e2e import browser
from e2e.browser import Browser, chromium
from examples.demo import Run
from tests.wait import until

WIDTH: Final = 1100
HEIGHT: Final = 920


def main() -> int:
    """Record the pictures."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    browser.install()
    with demo() as run:
        run.inject("worker-1", "--signal", "SIGKILL")
        run.reaches(2, 35)
        with served(run) as address, chromium(WIDTH, HEIGHT) as window:
            window.command("Emulation.setScrollbarsHidden", hidden=True)
            window.driver.get(address)
            for scheme in ("light", "dark"):
                (FOLDER / f"page-{scheme}.png").write_bytes(picture(window, scheme))
    return 0


@contextmanager
def served(run: Run) -> Iterator[str]:
    """The address of the page of the run's gang, from `gangctl ui`."""
    command = [sys.executable, "-m", "gangctl", "ui", run.name, *run.flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            yield next(word for line in serving.stdout for word in line.split() if "/enter/" in word)
        finally:
            serving.send_signal(signal.SIGINT)


def picture(window: Browser, scheme: str) -> bytes:
    """The top of the page as a PNG, when it shows the restart and the timeline."""
    window.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    window.command("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
    window.driver.refresh()
    window.shows("#connection", "Live")
    window.shows("article h3", "restarted")
    until("the timeline is drawn", lambda: window.evaluate("document.querySelector('img.timeline').naturalWidth > 500"))
    shot = window.command("Page.captureScreenshot", format="png")["data"]
    return base64.b64decode(shot)


if __name__ == "__main__":
    sys.exit(main())
