"""The port for what `gangctl run` shows: a live display on a terminal, plain output elsewhere."""

from __future__ import annotations

from typing import Protocol

from gangctl.cli.gang_view import GangView


class Display(Protocol):
    """Shows a gang to the user. Each call may raise OSError if the terminal or the reader of the pipe is gone."""

    def update(self, look: GangView, now: float) -> None:
        """Show the current view of the gang; ``now`` in seconds since the epoch."""

    def note(self, text: str) -> None:
        """Show a note that is not part of the gang's status."""

    def output(self, member: str, line: str) -> None:
        """Show one line of a worker's output."""

    def close(self) -> None:
        """Restore the terminal."""
