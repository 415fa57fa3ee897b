"""Where final spans go: to a collector, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gangctl.story.spans import Span


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """Spans of this process by outcome."""

    exported: int = 0
    failed: int = 0
    """Lost: the collector did not accept them."""
    dropped: int = 0
    """Lost: too many were waiting."""


class Exporter(Protocol):
    """Takes final spans. Only ``close`` waits."""

    def export(self, span: Span) -> None:
        """Send a span that has ended, in the background."""

    def counts(self) -> SpanCounts:
        """The outcomes so far."""

    async def close(self) -> None:
        """Send the spans that wait, for a limited time."""


class NoExporter:
    """The exporter where traces are off."""

    def export(self, span: Span) -> None:
        """Drop it."""

    def counts(self) -> SpanCounts:
        """All zero."""
        return SpanCounts()

    async def close(self) -> None:
        """Do nothing."""
