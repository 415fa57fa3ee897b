"""Makes OpenTelemetry's spans of core's and sends them by OTLP over HTTP; imported only where spans are wanted.

The rule: to hand a span over takes microseconds and never fails. A thread sends in batches; a collector that is away,
slow or wrong costs spans, which are counted, and nothing else. Never does an end wait for it longer than a moment.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Decision, Sampler, TraceIdRatioBased
from opentelemetry.sdk.version import __version__ as sdk_version
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from gangctl import __version__
from gangctl.core.facts.trace_context import root_span_id
from gangctl.telemetry.spans import ROOT, Span
from gangctl.telemetry.tracing.batch_exporter import BatchExporter
from gangctl.telemetry.tracing.exporter import SpanCounts
from gangctl.telemetry.tracing.settings import RATIOS, TraceSettings

log = logging.getLogger(__name__)

CLOSING_SECONDS: Final = 2.0
"""For so long an end waits for spans to be sent."""
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class OtlpExporter:
    """A :class:`~gangctl.telemetry.tracing.exporter.Exporter`."""

    def __init__(self, settings: TraceSettings) -> None:
        """Raises ValueError where the SDK refuses one of its own settings."""
        self._ids = _Ids()
        self._queue = settings.queue
        self._sampler = _sampler(settings)
        self._sending = BatchExporter(settings)
        self._provider = TracerProvider(
            ALWAYS_ON,  # It is asked for each trace once and for all, before anything of it is made.
            _resource(settings),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        delay = settings.schedule_delay * 1000
        self._provider.add_span_processor(BatchSpanProcessor(self._sending, settings.queue, delay, settings.batch))
        self._tracer = self._provider.get_tracer("gangctl", __version__)
        self._taken = 0
        self._dropped = 0
        self._closed = False
        """What waits still is lost then."""

    def export(self, span: Span) -> None:
        """See :class:`~gangctl.telemetry.tracing.exporter.Exporter`."""
        trace = int(span.trace_id, 16)
        if span.end is None or self._sampler.should_sample(Context(), trace, ROOT).decision is Decision.DROP:
            return
        if self._waiting() >= self._queue:
            self._dropped += 1
            return
        self._ids.trace, self._ids.span = trace, int(span.span_id, 16)
        made = self._tracer.start_span(
            span.name,
            _below(trace, span.parent_id),
            attributes=dict(span.attributes),
            links=[Link(_context(int(span.link, 16), root_span_id(span.link)))] if span.link else [],
            start_time=_nanoseconds(span.begin),
        )
        if span.failed:
            made.set_status(Status(StatusCode.ERROR, span.failed))
        made.end(_nanoseconds(span.end))
        self._taken += 1

    def counts(self) -> SpanCounts:
        """See :class:`~gangctl.telemetry.tracing.exporter.Exporter`."""
        lost = max(0, self._waiting()) if self._closed else 0
        return SpanCounts(self._sending.exported, self._sending.failed + lost, self._dropped)

    async def close(self) -> None:
        """Send what waits, as far as that is possible at once."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        # Not an executor's thread: the interpreter would wait for that one at its exit.
        threading.Thread(target=_shut_down, args=(self._provider, loop, done), daemon=True, name="spans-end").start()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await done.wait()
        self._sending.forget()
        left = self._waiting()
        self._closed = True
        if left > 0:
            log.warning("%d spans are lost: they could not be sent within %g s of the end", left, CLOSING_SECONDS)

    def _waiting(self) -> int:
        return self._taken - self._sending.exported - self._sending.failed


class _Ids(IdGenerator):
    """Ids that were computed from the status: whoever sends a span, it is the same one."""

    def __init__(self) -> None:
        self.trace = 0
        self.span = 0

    def generate_span_id(self) -> int:
        return self.span

    def generate_trace_id(self) -> int:
        return self.trace


def _sampler(settings: TraceSettings) -> Sampler:
    if settings.sampler in RATIOS:
        return TraceIdRatioBased(settings.ratio)
    return ALWAYS_OFF if settings.sampler.endswith("always_off") else ALWAYS_ON


def _resource(settings: TraceSettings) -> Resource:
    """The same for every controller: a span that two leaders send must be the same in all, or it is shown twice."""
    sdk: Mapping[str, str] = {
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": sdk_version,
    }
    return Resource({"service.version": __version__, **sdk, **dict(settings.resource)})


def _below(trace: int, parent_id: str) -> Context:
    return set_span_in_context(NonRecordingSpan(_context(trace, parent_id)), Context()) if parent_id else Context()


def _context(trace: int, span_id: str) -> SpanContext:
    return SpanContext(trace, int(span_id, 16), is_remote=True, trace_flags=_SAMPLED)


def _nanoseconds(seconds: float) -> int:
    """To the microsecond, which is what a time since the epoch is good for."""
    return round(seconds * 1e6) * 1000


def _shut_down(provider: TracerProvider, loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    try:
        provider.shutdown()
    finally:
        with suppress(RuntimeError):  # nobody waits any more, the event loop is closed
            loop.call_soon_threadsafe(done.set)
