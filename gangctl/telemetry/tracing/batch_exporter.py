"""Sends batches of spans in the SDK's thread, and logs failures: at most one line a minute, without secrets."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from requests import RequestException, Response, Session

from gangctl.api.escaping import escaped
from gangctl.telemetry.tracing.settings import TraceSettings

log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 60.0
"""The least time between two lines about lost spans."""
_NO_LOG: Final = logging.NullHandler()
"""Without any handler, Python would write the SDK's warnings to stderr, with secrets."""
_MAX_REASON: Final = 300
MIN_SECRET: Final = 4
"""Letters. Shorter values are not searched for."""
_TRIED: Final = re.compile("Transient error (.*) encountered while exporting.*", re.DOTALL)


class BatchExporter(SpanExporter):
    """Sends batches, and counts what became of their spans."""

    def __init__(self, settings: TraceSettings) -> None:
        self.exported = 0
        self.failed = 0
        self._to = settings.shown
        self._errors = SdkErrors(settings)
        self._exporter = OTLPSpanExporter(
            settings.endpoint,
            settings.certificate,
            settings.client_key,
            settings.client_certificate,
            dict(settings.headers),
            settings.timeout,
            Compression(settings.compression),
            _session(),
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

    def __init__(self, settings: TraceSettings) -> None:
        super().__init__(logging.WARNING)
        self.first = ""
        secrets = [value for _, value in settings.headers]
        secrets += re.findall(r"//([^/?#]*)@", settings.endpoint) + re.findall(r"\?(.+)", settings.endpoint)
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
