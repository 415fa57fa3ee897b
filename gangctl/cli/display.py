"""What `gangctl run` shows while it runs: a port with two ways to do it, a live view and a line for each change."""

from __future__ import annotations

from typing import Protocol

from gangctl.cli.gang_view import GangView


class Display(Protocol):
    """Shows a gang to the user. Every call may raise OSError: the terminal or the reader of the pipe is gone."""

    def update(self, look: GangView, now: float) -> None:
        """Show the gang as it is; ``now`` in seconds since the epoch."""

    def note(self, text: str) -> None:
        """Say something that is not in the gang's status."""

    def output(self, member: str, line: str) -> None:
        """Show one line of a worker's output."""

    def close(self) -> None:
        """Leave the terminal as it was."""
