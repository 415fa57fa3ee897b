"""Sends batches of spans in the SDK's thread, and says when it can't: one line a minute, without anything secret."""

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
"""Between two lines about spans that are lost."""
_REASON_LETTERS: Final = 300
SECRET_LETTERS: Final = 4
_TRIED: Final = re.compile("Transient error (.*) encountered while exporting.*", re.DOTALL)


class BatchExporter(SpanExporter):
    """Sends batches, in the processor's thread, and says at most once a minute that it can't."""

    def __init__(self, settings: TraceSettings) -> None:
        self.exported = 0
        self.failed = 0
        self._to = settings.shown
        self._heard = SdkErrors(settings)
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
        self._said_at: float | None = None
        self._said = 0
        """How many had failed when that was said last."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; what fails is lost, since the exporter has tried again for as long as it may."""
        self._heard.first = ""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a batch that was not sent
            result, self._heard.first = SpanExportResult.FAILURE, self._heard.shown(f"{type(error).__name__}: {error}")
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


def _session() -> Session:
    """Sends requests. The exporter follows no redirection, and would count one as a success."""
    session = Session()
    session.hooks["response"].append(_refuse_redirection)
    return session


def _refuse_redirection(response: Response, *_: object, **__: object) -> None:
    if 300 <= response.status_code < 400:  # noqa: PLR2004 - as HTTP has it
        response.close()
        raise RequestException(f"it answers {response.status_code} and points elsewhere, which is not followed")


class SdkErrors(logging.Handler):
    """Keeps what the SDK would log for each try: the first of it is the reason. Nothing secret is kept."""

    def __init__(self, settings: TraceSettings) -> None:
        super().__init__(logging.WARNING)
        self.first = ""
        secrets = [value for _, value in settings.headers]
        secrets += re.findall(r"//([^/?#]*)@", settings.endpoint) + re.findall(r"\?(.+)", settings.endpoint)
        written = {form for secret in secrets for form in (secret, repr(secret)[1:-1], unquote(secret))}
        # What is shorter is in every text, and would say by its gaps what it is.
        self._secrets = sorted((one for one in written if len(one) >= SECRET_LETTERS), key=len, reverse=True)
        self._has_short = any(0 < len(one) < SECRET_LETTERS for one in secrets)
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, if it is the first."""
        if self.first:
            return
        self.first = self.shown(_TRIED.sub(r"\1", record.getMessage()))

    def shown(self, text: str) -> str:
        """The text without secrets, fit for a log."""
        if self._has_short and "header" in text.lower():
            return "one of its headers is refused; it is not shown, since it may be secret"
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return escaped(text)[:_REASON_LETTERS]

    def end(self) -> None:
        """Hear nothing any more."""
        logging.getLogger("opentelemetry").removeHandler(self)
