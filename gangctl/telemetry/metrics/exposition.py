"""Metrics as text, for whoever scrapes them.

The rule: nobody can keep the loop busy by scraping. Figures are taken on the loop, which is short; they are made text
in a thread; and whoever asks again within a second is given the same text.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.exposition import generate_latest as plain
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPEN_METRICS
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics

KEPT_SECONDS: Final = 1.0
"""So long a text is given out again."""
_OPEN: Final = "application/openmetrics-text"


@dataclass(frozen=True, slots=True)
class Text:
    """Metrics in one format."""

    content_type: str
    body: bytes
    at: float
    """When its figures were taken, on the monotonic clock."""


class Exposition:
    """What one registry holds, in the format that is asked for: OpenMetrics (with exemplars), or plain text."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._lock = asyncio.Lock()
        self._kept: dict[str, Text] = {}

    async def text(self, accept: str) -> Text:
        """The metrics; ``accept``: the header Accept of who asks."""
        content_type = OPEN_METRICS if _OPEN in accept.lower() else CONTENT_TYPE_PLAIN_0_0_4
        async with self._lock:
            kept = self._kept.get(content_type)
            now = time.monotonic()
            if kept is None or now - kept.at > KEPT_SECONDS:
                body = await asyncio.to_thread(_written, content_type, tuple(self._registry.collect()))
                kept = self._kept[content_type] = Text(content_type, body, now)
            return kept


def _written(content_type: str, taken: Iterable[Metric]) -> bytes:
    write: Callable[[CollectorRegistry], bytes] = open_metrics if content_type == OPEN_METRICS else plain
    registry = CollectorRegistry()
    registry.register(_Taken(taken))
    return write(registry)


class _Taken:
    """Figures that were taken before: a collector."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """Nothing can clash in a registry of its own."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """As they were, without the times at which series were made: they would double them, and nobody needs them."""
        for metric in self._metrics:
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric
