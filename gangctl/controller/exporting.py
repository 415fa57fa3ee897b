"""Sends spans by OTLP over HTTP: the only file that knows OpenTelemetry, imported only where spans are wanted.

The rule: to hand a span over takes microseconds and never fails. A thread sends in batches; a collector that is away,
slow or wrong costs spans, which are counted, and nothing else. Never does an end wait for it longer than a moment.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
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
from gangctl.api.escaping import escaped
from gangctl.controller.spansink import Counts
from gangctl.controller.tracesettings import RATIOS, TraceSettings
from gangctl.core.tracing import ROOT, Span

log = logging.getLogger(__name__)

CLOSING_SECONDS: Final = 2.0
"""For so long an end waits for spans to be sent."""
QUIET_SECONDS: Final = 60.0
"""Between two lines about spans that are lost."""
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_REASON_LETTERS: Final = 300


class Exporter:
    """A :class:`~gangctl.controller.spansink.Sink`."""

    def __init__(self, settings: TraceSettings) -> None:
        """Raises ValueError where the SDK refuses one of its own settings."""
        self._ids = _Ids()
        self._queue = settings.queue
        self._sampler = _sampler(settings)
        self._sending = _Sending(settings)
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

    def export(self, span: Span) -> None:
        """See :class:`~gangctl.controller.spansink.Sink`."""
        trace = int(span.trace_id, 16)
        if span.end is None or self._sampler.should_sample(Context(), trace, ROOT).decision is Decision.DROP:
            return
        if self._waiting() >= self._queue:
            self._dropped += 1
            return
        self._taken += 1
        self._ids.trace, self._ids.span = trace, int(span.span_id, 16)
        made = self._tracer.start_span(
            span.name,
            _below(trace, span.parent_id),
            attributes=dict(span.attributes),
            links=[Link(_context(int(span.link, 16), span.link[:16]))] if span.link else [],
            start_time=_nanoseconds(span.begin),
        )
        if span.failed:
            made.set_status(Status(StatusCode.ERROR, span.failed))
        made.end(_nanoseconds(span.end))

    def counts(self) -> Counts:
        """See :class:`~gangctl.controller.spansink.Sink`."""
        return Counts(self._sending.exported, self._sending.failed, self._dropped)

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
        if left:
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


class _Sending(SpanExporter):
    """Sends batches, in the processor's thread, and says at most once a minute that it can't."""

    def __init__(self, settings: TraceSettings) -> None:
        self.exported = 0
        self.failed = 0
        self._to = settings.shown
        self._heard = _Hearing(settings)
        self._exporter = OTLPSpanExporter(
            settings.endpoint,
            settings.certificate,
            settings.client_key,
            settings.client_certificate,
            dict(settings.headers),
            settings.timeout,
            Compression(settings.compression),
        )
        self._said_at: float | None = None
        self._said = 0
        """How many had failed when that was said last."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; what fails is lost, since the exporter has tried again for as long as it may."""
        self._heard.first = ""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a batch that was not sent
            result, self._heard.first = SpanExportResult.FAILURE, f"{type(error).__name__}: {error}"
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
            if self._said_at is not None:
                log.info("spans are sent to %s again; %d were lost so far", self._to, self.failed)
                self._said_at = None
        else:
            self.failed += len(spans)
            self._say()
        return result

    def shutdown(self) -> None:
        """Give up what is being tried again."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - as the SDK has it
        """Nothing is kept here."""
        return True

    def forget(self) -> None:
        """Don't listen to the SDK any more."""
        self._heard.end()

    def _say(self) -> None:
        now = time.monotonic()
        if self._said_at is not None and now - self._said_at < QUIET_SECONDS:
            return
        lost, self._said_at, self._said = self.failed - self._said, now, self.failed
        log.warning(
            "%d spans are lost, which harms nothing else: they could not be sent to %s: %s",
            lost,
            self._to,
            self._heard.first or "no reason was given",
        )


class _Hearing(logging.Handler):
    """Keeps what the SDK would log for each try: the first of it is the reason. Nothing secret is kept."""

    def __init__(self, settings: TraceSettings) -> None:
        super().__init__(logging.WARNING)
        self.first = ""
        secrets = [value for _, value in settings.headers if value]
        secrets += re.findall(r"//([^/?#]*)@", settings.endpoint) + re.findall(r"\?(.+)", settings.endpoint)
        self._secrets = sorted(secrets, key=len, reverse=True)
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, if it is the first."""
        if self.first:
            return
        text = record.getMessage()
        for secret in self._secrets:
            text = text.replace(secret, "***")
        self.first = escaped(text)[:_REASON_LETTERS]

    def end(self) -> None:
        """Hear nothing any more."""
        logging.getLogger("opentelemetry").removeHandler(self)


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
    end: Callable[[], None] = done.set
    try:
        provider.shutdown()
    finally:
        with suppress(RuntimeError):  # nobody waits any more, the event loop is closed
            loop.call_soon_threadsafe(end)
