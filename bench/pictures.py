"""Records the pictures in docs/pictures: what a terminal and a browser show of a restart of the demo.

    make pictures             as root if Chromium isn't installed

It trains with four members as the demo does, kills one worker, asks another to leave, and runs gangctl's commands in a
terminal (a pty of 100 columns) beside it. What they print, with its colours, becomes an SVG that loads nothing else.
After the first restart a headless Chromium takes a picture of the controller's page, in each scheme.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from e2e import browser
from e2e.browser import Browser, chromium
from examples.demo import Run, heading
from tests.wait import until

FOLDER: Final = Path("docs") / "pictures"
COLUMNS: Final = 100
ROWS: Final = 60
PAGE: Final = (1100, 920)
"""Width and height of a picture of the page, in pixels."""
_PROMPT: Final = "$ "
_BLOCK: Final = 65_536
_FORMAT: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}">
<title>TITLE</title>
<style>
.{unique_id}-matrix{{font:{char_height}px ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace;\
line-height:{line_height}px}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As rich's own, without the fonts that it would load from elsewhere."""


class Session:
    """Commands that were run in a terminal, and what it showed."""

    def __init__(self, run: Run) -> None:
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "GANGCTL_STATE_DIR": str(run.state.path),
            "TERM": "xterm-256color",
        }
        self._environment.pop("NO_COLOR", None)
        self._shown = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False, markup=False)

    def type(self, command: str) -> None:
        """Run a command in a terminal, and keep what was typed and shown.

        Raises:
            subprocess.CalledProcessError: the command failed.
        """
        outside, inside = pty.openpty()
        termios.tcsetwinsize(inside, (ROWS, COLUMNS))
        child = subprocess.Popen(
            shlex.split(command), env=self._environment, stdin=inside, stdout=inside, stderr=inside
        )
        os.close(inside)
        text = _all(outside).decode()
        os.close(outside)
        print(f"{_PROMPT}{command}\n{text}", flush=True)
        if child.wait() != 0:
            raise subprocess.CalledProcessError(child.returncode, command)
        self._shown.print(Text(_PROMPT, style="green").append(command, style="bold"))
        self._shown.print(Text.from_ansi(text.replace("\r\n", "\n").rstrip("\n")))
        self._shown.print()

    def save(self, name: str, title: str) -> None:
        """Write what was shown so far into the folder of pictures."""
        made = _FORMAT.replace("TITLE", title)
        picture = self._shown.export_svg(title=title, theme=DIMMED_MONOKAI, code_format=made, unique_id=name)
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.svg").write_text(picture, encoding="utf-8")


def _all(terminal: int) -> bytes:
    """What is written to a terminal until the last program has closed it."""
    found = b""
    while True:
        try:
            block = os.read(terminal, _BLOCK)
        except OSError:  # EIO: Linux says so of a terminal that all programs have closed
            return found
        if not block:
            return found
        found += block


@contextmanager
def demo() -> Iterator[Run]:
    """The demo, warm and with checkpoints in its first attempt; what is left of it is ended afterwards."""
    run = Run("demo", "Fork")
    try:
        run.reaches(1, 1)
        run.warms_up()
        run.reaches(1, 45)
        heading("recording")
        yield run
    finally:
        run.end()


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


def page(window: Browser, scheme: str) -> bytes:
    """The top of the page as a PNG, when it shows the restart and the timeline."""
    window.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    window.command(
        "Emulation.setDeviceMetricsOverride", width=PAGE[0], height=PAGE[1], deviceScaleFactor=1, mobile=False
    )
    window.driver.refresh()
    window.shows("#connection", "Live")
    window.shows("article h3", "restarted")
    until("the timeline is drawn", lambda: window.evaluate("document.querySelector('img.timeline').naturalWidth > 500"))
    shot = window.command("Page.captureScreenshot", format="png")["data"]
    return base64.b64decode(shot)


def main() -> int:
    """Record the pictures."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    browser.install()
    with demo() as run:
        session = Session(run)
        session.type("gangctl inject demo worker-1 --signal SIGKILL")
        run.reaches(2, 35)
        session.type("gangctl trace demo")
        session.save("restart", "A worker is killed, and gangctl trace draws where the time of the restart went")
        with served(run) as address, chromium(*PAGE) as window:
            window.command("Emulation.setScrollbarsHidden", hidden=True)
            window.driver.get(address)
            for scheme in ("light", "dark"):
                (FOLDER / f"page-{scheme}.png").write_bytes(page(window, scheme))
        run.inject("worker-2", "--signal", "SIGUSR1")
        run.reaches(3, 15)
        run.finish()
        session = Session(run)
        session.type("gangctl timeline demo")
        session.save("timeline-in-the-terminal", "gangctl timeline: two restarts of four members, as text")
        session.type(f"gangctl timeline demo --svg {FOLDER / 'timeline.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
