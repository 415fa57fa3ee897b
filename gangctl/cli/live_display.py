"""The live display of `gangctl run` on a terminal."""

from __future__ import annotations

from collections import deque
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gangctl.cli import tables
from gangctl.cli.gang_view import GangView
from gangctl.cli.text import clean, output_line

NOTES: Final = 4
MOST_INCIDENTS: Final = 5
_OTHER_LINES: Final = 8
"""Number of lines for head, reason, footer, headings and empty lines."""


class LiveDisplay:
    """A display that draws the gang at the bottom of the terminal; the workers' output scrolls above it."""

    def __init__(self, out: Console, footer: str) -> None:
        self._out = out
        self._footer = footer
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._last: tuple[GangView, float] | None = None
        self._live = Live(console=out, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def update(self, look: GangView, now: float) -> None:
        """Redraw the gang."""
        self._last = look, now
        self._live.update(self._drawing(look, now), refresh=True)

    def note(self, text: str) -> None:
        """Add a note below the tables; only the last few are shown."""
        self._notes.append(clean(text))
        if self._last is not None:
            self.update(*self._last)

    def output(self, member: str, line: str) -> None:
        """Print a line of a worker's output above the drawing."""
        self._out.print(Text(f"{clean(member)} | ", style="dim").append(output_line(line), style=""))

    def close(self) -> None:
        """Keep the last drawing, and move the cursor below it."""
        self._live.stop()

    def _drawing(self, look: GangView, now: float) -> RenderableType:
        status = look.snapshot.status
        incidents = status.incidents[:MOST_INCIDENTS]
        room = self._out.size.height - _OTHER_LINES - 2 * len(incidents) - len(self._notes)
        parts: list[RenderableType] = [tables.head(look, now), Text(f"because: {clean(status.message) or '-'}")]
        advice = tables.advice(look.job)
        if advice:
            parts.append(Text(f"next: {clean(advice)}", style="bold"))
        parts += [Text(), tables.members(look.snapshot.members, max(3, room), live=look.live)]
        if incidents:
            parts += [Text(), Text("Incidents, newest first (seconds)", style="bold"), tables.incidents(incidents)]
        parts += [Text(), *(Text(note, style="yellow") for note in self._notes)]
        if not look.live and not all(one.terminated for one in look.snapshot.members):
            parts.append(Text("the controller does not answer; workers continue to train", style="yellow"))
        parts.append(Text(self._footer, style="dim"))
        return Group(*parts)
