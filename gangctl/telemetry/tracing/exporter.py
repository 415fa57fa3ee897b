"""Where spans go: to a collector, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gangctl.telemetry.spans import Span


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """What became of the spans of this process."""

    exported: int = 0
    failed: int = 0
    """Lost, since the collector didn't take them."""
    dropped: int = 0
    """Lost, since too many waited."""


class Exporter(Protocol):
    """Where spans go. Nothing of it waits but ``close``."""

    def export(self, span: Span) -> None:
        """Send a span that has ended, some time."""

    def counts(self) -> SpanCounts:
        """What became of all spans so far."""

    async def close(self) -> None:
        """Send what waits, and wait a moment for it."""


class NoExporter:
    """The exporter of who wants no traces."""

    def export(self, span: Span) -> None:
        """Forget it."""

    def counts(self) -> SpanCounts:
        """None."""
        return SpanCounts()

    async def close(self) -> None:
        """Nothing waits."""
