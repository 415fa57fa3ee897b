"""The live display of `gangctl run` on a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gangctl.cli.gang_view import GangView
from gangctl.cli.printers import tables
from gangctl.cli.printers.text import clean, output_line

NOTES: Final = 4
MOST_INCIDENTS: Final = 5
_LEAST_MEMBERS: Final = 3
_MEMBERS_OTHER_LINES: Final = 3
"""Heading of the members, number of those left out, and the line of the cursor."""


class LiveDisplay:
    """A display that draws the gang at the bottom of the terminal; the workers' output scrolls above it."""

    def __init__(self, out: Console, footer: Sequence[str]) -> None:
        """``footer``: lines that stay at the bottom."""
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
        because = clean(look.stopped or status.message) or "-"
        above: list[RenderableType] = [tables.head(look, now), Text(f"because: {because}")]
        advice = "" if look.stopped else tables.advice(look.job)
        if advice:
            above.append(Text(f"next: {clean(advice)}", style="bold"))
        below: list[RenderableType] = []
        if incidents:
            below += [Text(), Text("Incidents, newest first (seconds)", style="bold"), tables.incidents(incidents)]
        below += [Text(), *(Text(note, style="yellow") for note in self._notes)]
        if not look.live and not all(one.terminated for one in look.snapshot.members):
            below.append(Text("the controller does not answer; workers continue to train", style="yellow"))
        below += [] if look.stopped else [Text(line, style="dim") for line in self._footer]
        others = Group(*above, Text(), *below)
        room = self._out.size.height - len(self._out.render_lines(others, pad=False)) - _MEMBERS_OTHER_LINES
        members = tables.members(look.snapshot.members, max(_LEAST_MEMBERS, room), live=look.live)
        return Group(*above, Text(), members, *below)
