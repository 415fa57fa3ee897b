"""Exports spans by OTLP over HTTP with the OpenTelemetry SDK. It is imported only where traces are on.

The rule: taking a span takes microseconds and does not fail. A thread sends batches. A collector that is down, slow or
wrong costs spans, which are counted, and nothing else; the end of the process must not wait for it longer than
:data:`CLOSE_SECONDS`.
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
from gangctl.story.spans import ROOT, Span
from gangctl.telemetry.tracing.batch_exporter import BatchExporter
from gangctl.telemetry.tracing.exporter import SpanCounts
from gangctl.telemetry.tracing.settings import RATIOS, TraceSettings

log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 2.0
"""How long the end of the process waits for spans to be sent."""
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class OtlpExporter:
    """A :class:`~gangctl.telemetry.tracing.exporter.Exporter`."""

    def __init__(self, settings: TraceSettings) -> None:
        """Raises ValueError where the SDK refuses one of its own settings."""
        self._ids = _Ids()
        self._queue = settings.queue
        self._sampler = _sampler(settings)
        self._batches = BatchExporter(settings)
        self._provider = TracerProvider(
            ALWAYS_ON,  # The sampler below decides before a span is made, for a trace as a whole.
            _resource(settings),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        delay = settings.schedule_delay * 1000
        self._provider.add_span_processor(BatchSpanProcessor(self._batches, settings.queue, delay, settings.batch))
        self._tracer = self._provider.get_tracer("gangctl", __version__)
        self._taken = 0
        self._dropped = 0
        self._closed = False
        """Spans that still wait are lost then."""

    def export(self, span: Span) -> None:
        """See :class:`~gangctl.telemetry.tracing.exporter.Exporter`."""
        trace = int(span.trace_id, 16)
        if span.end is None or self._sampler.should_sample(Context(), trace, ROOT).decision is Decision.DROP:
            return
        if self._waiting() >= self._queue:
            self._dropped += 1
            return
        self._ids.trace, self._ids.span = trace, int(span.span_id, 16)
        sdk_span = self._tracer.start_span(
            span.name,
            _in_parent(trace, span.parent_id),
            attributes=dict(span.attributes),
            links=[Link(_context(int(span.link, 16), root_span_id(span.link)))] if span.link else [],
            start_time=_nanoseconds(span.begin),
        )
        if span.failed:
            sdk_span.set_status(Status(StatusCode.ERROR, span.failed))
        sdk_span.end(_nanoseconds(span.end))
        self._taken += 1

    def counts(self) -> SpanCounts:
        """See :class:`~gangctl.telemetry.tracing.exporter.Exporter`."""
        lost = max(0, self._waiting()) if self._closed else 0
        return SpanCounts(self._batches.exported, self._batches.failed + lost, self._dropped)

    async def close(self) -> None:
        """Send the spans that wait, for at most :data:`CLOSE_SECONDS`."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        # Not an executor's thread, because the interpreter would wait for it at its exit.
        threading.Thread(target=_shut_down, args=(self._provider, loop, done), daemon=True, name="spans-end").start()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await done.wait()
        self._batches.shutdown()
        self._batches.detach()
        left = self._waiting()
        self._closed = True
        if left > 0:
            log.warning("%d spans are lost: they could not be sent within %g s after the end", left, CLOSE_SECONDS)

    def _waiting(self) -> int:
        return self._taken - self._batches.exported - self._batches.failed


class _Ids(IdGenerator):
    """Gives the SDK the ids that were computed from the status."""

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
    """The same for every controller: if two leaders send a span, it must be the same, or it is shown twice."""
    sdk: Mapping[str, str] = {
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": sdk_version,
    }
    return Resource({"service.version": __version__, **sdk, **dict(settings.resource)})


def _in_parent(trace: int, parent_id: str) -> Context:
    return set_span_in_context(NonRecordingSpan(_context(trace, parent_id)), Context()) if parent_id else Context()


def _context(trace: int, span_id: str) -> SpanContext:
    return SpanContext(trace, int(span_id, 16), is_remote=True, trace_flags=_SAMPLED)


def _nanoseconds(seconds: float) -> int:
    """Rounded to the microsecond: a float of seconds since the epoch is no more precise."""
    return round(seconds * 1e6) * 1000


def _shut_down(provider: TracerProvider, loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    try:
        provider.shutdown()
    finally:
        with suppress(RuntimeError):  # The event loop is closed: close() has given up.
            loop.call_soon_threadsafe(done.set)
