"""The exposition of metrics: the format, and labels with few values."""

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

from gangctl.api.incident import Incident
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase

# The label values of metrics.
#
# The rule: the number of label values is bounded. An unknown reason, or a namespace above the bound, is counted under a
# common value. The name of a gang or a pod must not be a label value, nor that of a node that nothing is wrong with.


NAMESPACES: Final = 200
"""How many namespaces get their own series: the first ones that are seen."""
OTHER_REASON: Final = "Other"
MAX_NODES: Final = 200
"""How many nodes at fault get their own series: the first ones that are seen."""
OTHERS: Final = "_other"
"""All other namespaces or nodes. None of them can have such a name."""
GANG_PHASES: Final = tuple(phase for phase in GangPhase if phase is not GangPhase.NEW)
_REASONS: Final = frozenset(reason.value for reason in Reason)


class LabelValues:
    """The names that have their own series, for the lifetime of this process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: set[str] = set()

    def label(self, name: str) -> str:
        if name not in self._seen and len(self._seen) >= self._most:
            return OTHERS
        self._seen.add(name)
        return name


def cause_label(incident: Incident) -> str:
    return known_reason(incident.cause.reason)


def known_reason(reason: str) -> str:
    """The label value of a reason that a status has: a status may be of another release."""
    return reason if reason in _REASONS else OTHER_REASON


# The metrics as text, in the format that the scraper asks for.
#
# The rule: scraping must not keep the event loop busy. The values are collected on the event loop, which takes little
# time; a thread writes the text; a second scrape within :data:`KEPT_SECONDS` gets the same text.


KEPT_SECONDS: Final = 1.0
"""How long a text is served again."""
_OPEN: Final = "application/openmetrics-text"


@dataclass(frozen=True, slots=True)
class RenderedMetrics:
    """Metrics in one format."""

    content_type: str
    body: bytes
    at: float
    """When its values were collected, on the monotonic clock."""


class Exposition:
    """The text of one registry: OpenMetrics (with exemplars) or the plain text format."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._lock = asyncio.Lock()
        self._kept: dict[str, RenderedMetrics] = {}

    async def text(self, accept: str) -> RenderedMetrics:
        """The metrics. ``accept``: the request's header Accept."""
        content_type = OPEN_METRICS if _OPEN in accept.lower() else CONTENT_TYPE_PLAIN_0_0_4
        async with self._lock:
            kept = self._kept.get(content_type)
            now = time.monotonic()
            if kept is None or now - kept.at > KEPT_SECONDS:
                body = await asyncio.to_thread(_text, content_type, tuple(self._registry.collect()))
                kept = self._kept[content_type] = RenderedMetrics(content_type, body, now)
            return kept


def _text(content_type: str, metrics: Iterable[Metric]) -> bytes:
    write: Callable[[CollectorRegistry], bytes] = open_metrics if content_type == OPEN_METRICS else plain
    registry = CollectorRegistry()
    registry.register(_Collected(metrics))
    return write(registry)


class _Collected:
    """A collector of metrics that were collected before."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """Nothing: names cannot clash in a registry with one collector."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The metrics without their ``_created`` samples, which would double the number of series."""
        for metric in self._metrics:
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric
