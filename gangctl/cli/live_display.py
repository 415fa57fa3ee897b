"""The live view of `gangctl run` on a terminal."""

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
"""Head, reason, footer, headings and empty lines."""


class LiveDisplay:
    """Draws the gang at the bottom of the terminal; workers' output and notes scroll above it."""

    def __init__(self, out: Console, footer: str) -> None:
        self._out = out
        self._footer = footer
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._last: tuple[GangView, float] | None = None
        self._live = Live(console=out, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def update(self, look: GangView, now: float) -> None:
        """Draw the gang as it is."""
        self._last = look, now
        self._live.update(self._picture(look, now), refresh=True)

    def note(self, text: str) -> None:
        """Add a line below the tables; the last few are shown."""
        self._notes.append(clean(text))
        if self._last is not None:
            self.update(*self._last)

    def output(self, member: str, line: str) -> None:
        """A line above the picture."""
        self._out.print(Text(f"{clean(member)} | ", style="dim").append(output_line(line), style=""))

    def close(self) -> None:
        """The last picture stays; the cursor is below it again."""
        self._live.stop()

    def _picture(self, look: GangView, now: float) -> RenderableType:
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
            parts.append(Text("no controller answers now; workers train on", style="yellow"))
        parts.append(Text(self._footer, style="dim"))
        return Group(*parts)
