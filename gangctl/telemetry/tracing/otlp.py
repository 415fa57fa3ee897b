"""Exports spans by OTLP over HTTP with the OpenTelemetry SDK. It is imported only where traces are on.

The rule: taking a span takes microseconds and does not fail. A thread sends batches. A collector that is down, slow or
wrong costs spans, which are counted, and nothing else; the end of the process must not wait for it longer than
:data:`CLOSE_SECONDS`.
"""

import asyncio
import logging
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
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
from requests import RequestException, Response, Session

from gangctl import __version__
from gangctl.api.model import escaped
from gangctl.core.facts.gang import root_span_id
from gangctl.story.spans import ROOT, Span
from gangctl.telemetry.tracing.exporter import Collector, Exporter, SpanCounts

log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 2.0
"""How long the end of the process waits for spans to be sent."""
QUIET_SECONDS: Final = 60.0
"""The least time between two lines about lost spans."""
_NO_LOG: Final = logging.NullHandler()
"""Without any handler, Python would write the SDK's warnings to stderr, with secrets."""
_MAX_REASON: Final = 300
MIN_SECRET: Final = 4
"""Letters. Shorter values are not searched for."""
_TRIED: Final = re.compile("Transient error (.*) encountered while exporting.*", re.DOTALL)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class OtlpExporter(Exporter):
    """Sends spans to a collector."""

    def __init__(self, collector: Collector) -> None:
        """Raises ValueError where the SDK refuses a setting. Where it takes its default instead, a line is logged."""
        self._ids = _Ids()
        self._queue = collector.queue
        self._batches = BatchExporter(collector)  # First, since it takes the SDK's warnings.
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False, id_generator=self._ids)
        self._provider.add_span_processor(
            BatchSpanProcessor(self._batches, collector.queue, max_export_batch_size=collector.batch)
        )
        self._batches.log_warnings()
        self._tracer = self._provider.get_tracer("gangctl", __version__)
        self._taken = 0
        self._dropped = 0
        self._closed = False
        """Spans that still wait are lost then."""

    def export(self, span: Span) -> None:
        trace = int(span.trace_id, 16)
        # Decided for a trace as a whole, by its root: a parent that isn't exported would be missing.
        if span.end is None or self._provider.sampler.should_sample(Context(), trace, ROOT).decision is Decision.DROP:
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


class BatchExporter(SpanExporter):
    """Sends batches, and counts what became of their spans."""

    def __init__(self, collector: Collector) -> None:
        self.exported = 0
        self.failed = 0
        self._to = collector.shown
        self._errors = SdkErrors(collector.secrets)
        self._exporter = OTLPSpanExporter(
            collector.endpoint, headers=collector.headers, timeout=collector.timeout, session=_session()
        )
        self._stopped = False
        self._logged_at: float | None = None
        self._logged_failures = 0
        """How many had failed when that was logged last."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch. If it fails, its spans are lost: the exporter has retried for as long as it may."""
        self._errors.first = ""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - whatever the error is, the batch was not sent
            result = SpanExportResult.FAILURE
            self._errors.first = self._errors.shown(f"{type(error).__name__}: {error}")
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
            if self._logged_at is not None:
                log.info("spans are exported to %s again; %d were lost so far", self._to, self.failed)
                self._logged_at = None
        else:
            self.failed += len(spans)
            if not self._stopped:
                self._log_loss()
        return result

    def shutdown(self) -> None:
        """Stop retrying. Spans that are lost from now on are counted and not logged."""
        if not self._stopped:
            self._stopped = True
            self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - as the SDK has it
        """Do nothing: no span waits here."""
        return True

    def log_warnings(self) -> None:
        """Log the first warning of the SDK about its settings."""
        if self._errors.first:
            log.warning("OpenTelemetry: %s", self._errors.first)

    def detach(self) -> None:
        """Give the SDK's logger back."""
        self._errors.detach()

    def _log_loss(self) -> None:
        now = time.monotonic()
        if self._logged_at is not None and now - self._logged_at < QUIET_SECONDS:
            return
        lost, self._logged_at, self._logged_failures = self.failed - self._logged_failures, now, self.failed
        log.warning(
            "%d spans are lost, and nothing else is affected: they could not be exported to %s: %s",
            lost,
            self._to,
            self._errors.first or "the SDK gave no reason",
        )


def _session() -> Session:
    """An HTTP session in which a redirection fails. The exporter would not follow it, and count it as a success."""
    session = Session()
    session.hooks["response"].append(_refuse_redirection)
    return session


def _refuse_redirection(response: Response, *_: object, **__: object) -> None:
    if 300 <= response.status_code < 400:  # noqa: PLR2004 - as HTTP has it
        response.close()
        raise RequestException(f"it answered {response.status_code}, a redirection, which is not followed")


class SdkErrors(logging.Handler):
    """Takes what the SDK logs about failures. The first line of a batch is the reason; secrets are removed from it."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__(logging.WARNING)
        self.first = ""
        written = {form for secret in secrets for form in (secret, repr(secret)[1:-1], unquote(secret))}
        # A shorter secret occurs in every text, and replacing it would reveal it.
        self._secrets = sorted((one for one in written if len(one) >= MIN_SECRET), key=len, reverse=True)
        self._has_short = any(0 < len(one) < MIN_SECRET for one in secrets)
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.addHandler(_NO_LOG)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line if it is the first."""
        if self.first:
            return
        self.first = self.shown(_TRIED.sub(r"\1", record.getMessage()))

    def shown(self, text: str) -> str:
        """The text without secrets and control characters."""
        if self._has_short and "header" in text.lower():
            return "one of its headers is invalid; it is not shown, because it may be secret"
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return escaped(text)[:_MAX_REASON]

    def detach(self) -> None:
        """Give the SDK's logger back."""
        logging.getLogger("opentelemetry").removeHandler(self)


class _Ids(IdGenerator):
    """Gives the SDK the ids that were computed from the status."""

    def __init__(self) -> None:
        self.trace = 0
        self.span = 0

    def generate_span_id(self) -> int:
        return self.span

    def generate_trace_id(self) -> int:
        return self.trace


def _resource() -> Resource:
    """The same for every controller: if two leaders send a span, it must be the same, or it is shown twice.

    The SDK's own default has a random ID for each process.
    """
    ours = {
        "service.name": "gangctl",
        "service.version": __version__,
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": sdk_version,
    }
    return Resource(ours).merge(OTELResourceDetector().detect())


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
