"""Exports the spans of incidents, each as soon as it is final.

The rule: the leader exports each span once. A phase is final when its end is stored, a member's span when no stronger
evidence can come any more, the root when the incident is complete. A new leader exports the spans of every incident
that is not complete, or became complete a short time ago, since the old leader may have ended before it could: they are
the same spans with the same ids. A span must not be exported twice with different content, and a gang's round must not
wait or fail because of a span.
"""

import asyncio
import logging
import os
from dataclasses import dataclass, field
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident
from gangctl.api.model import escaped
from gangctl.api.status import ENDED
from gangctl.cluster import clock
from gangctl.core.facts.gang import trace_of
from gangctl.story.spans import MEMBER, Span, incident_spans, is_complete
from gangctl.telemetry.port import Telemetry
from gangctl.telemetry.tracing.exporter import Exporter, SettingError, SpanCounts, collector

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 1.0
"""The interval of checks for incidents that became complete by the passing of time."""
REPEATED_SECONDS: Final = 120.0
"""An incident that was complete for longer when a term began was exported by an earlier leader: this covers storing the
end of a restart, sending a batch and replacing a leader."""


@dataclass(slots=True)
class _GangSpans:
    """The exported spans of a gang's incidents."""

    job: GangJob
    done: set[str]
    """Traces that are exported as a whole."""
    sent: dict[str, set[str]] = field(default_factory=dict)
    """Trace -> its exported spans, for the other traces."""

    @property
    def unfinished(self) -> list[Incident]:
        """The incidents whose traces are not exported as a whole, oldest first."""
        return [one for one in reversed(self.job.status.incidents) if trace_of(self.job, one) not in self.done]


class IncidentTracer(Telemetry):
    """Traces restarts over all terms of one process. The next round sees a status that was written."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._gangs: dict[str, _GangSpans] = {}
        """The gangs of this term, by UID."""
        self._unfinished: dict[str, list[Incident]] = {}
        """Their unfinished incidents, for gangs that have any."""

    async def run(self) -> None:
        """Export what becomes complete by the passing of time, until cancelled."""
        while True:
            try:
                self._check_unfinished(clock.now())
            except Exception:
                log.exception("incidents could not be checked for final spans, which is a bug")
            await asyncio.sleep(CHECK_SECONDS)

    def round_began(self, job: GangJob) -> None:
        """Export what is final in a stored status."""
        gang = self._gangs.get(job.metadata.uid)
        if gang is None:
            now = clock.now()
            gang = self._gangs[job.metadata.uid] = _GangSpans(job, _exported_before(job, now))
            self._follow(gang, now)
        elif gang.job is not job:
            self._finish(gang, {trace_of(job, one) for one in job.status.incidents})
            gang.job = job
            self._follow(gang, clock.now())

    def gang_gone(self, uid: str) -> None:
        """A gang was deleted, or it cannot be read for now, and it is not known which.

        So an open incident gets no end, and its trace no root: it may go on, and an exported span cannot be taken back.
        The incidents of a gang that ended for good are final.
        """
        gang = self._gangs.pop(uid, None)
        self._unfinished.pop(uid, None)
        if gang is not None and gang.job.status.phase in ENDED:
            self._finish(gang, set())

    def term_ended(self) -> None:
        """A term has ended: the next leader goes on from what is stored."""
        self._gangs.clear()
        self._unfinished.clear()

    def counts(self) -> SpanCounts:
        """How many spans were exported and lost so far."""
        return self._exporter.counts()

    async def close(self) -> None:
        """Export the spans that wait, for a limited time."""
        await self._exporter.close()

    def _check_unfinished(self, now: float) -> None:
        for uid, found in tuple(self._unfinished.items()):
            gang = self._gangs[uid]
            if any(is_complete(gang.job, one, now) for one in found):
                self._follow(gang, now)

    def _finish(self, gang: _GangSpans, kept: set[str]) -> None:
        """Export the rest of all incidents whose traces are not ``kept``: nothing more will be known of them."""
        for incident in gang.unfinished:
            if trace_of(gang.job, incident) not in kept:
                for span in incident_spans(gang.job, incident):
                    self._send(gang, span)

    def _follow(self, gang: _GangSpans, now: float) -> None:
        """Export what has become final of unfinished incidents."""
        job, traces = gang.job, {trace_of(gang.job, one) for one in gang.job.status.incidents}
        gang.done &= traces
        for gone in gang.sent.keys() - traces:
            del gang.sent[gone]
        for incident in gang.unfinished:
            found = incident_spans(job, incident)
            if is_complete(job, incident, now) and found[0].end is not None:
                for span in found:
                    self._send(gang, span)
                gang.done.add(found[0].trace_id)
                gang.sent.pop(found[0].trace_id, None)
            else:
                for span in _final(job, incident, found, now):
                    self._send(gang, span)
        if gang.unfinished:
            self._unfinished[job.metadata.uid] = gang.unfinished
        else:
            self._unfinished.pop(job.metadata.uid, None)

    def _send(self, gang: _GangSpans, span: Span) -> None:
        sent = gang.sent.setdefault(span.trace_id, set())
        if span.end is not None and span.span_id not in sent:
            sent.add(span.span_id)
            self._exporter.export(span)


def tracer_from_environment() -> IncidentTracer:
    """A tracer with the standard OTEL_* settings. If one of them can't work, it is logged, and there are no traces."""
    try:
        found = collector(os.environ)
        if found is None:
            return IncidentTracer(Exporter())
        # Imported here, since it costs about 25 MB and a thread.
        from gangctl.telemetry.tracing.otlp import OtlpExporter  # noqa: PLC0415

        exporter = OtlpExporter(found)
    except Exception as error:  # noqa: BLE001 - the SDK reads more settings than are checked, and raises what it likes
        log.error(  # noqa: TRY400 - no traceback needed
            "traces are off: %s. Nothing else is affected. Correct the setting and restart the controller",
            error if isinstance(error, SettingError) else escaped(f"OpenTelemetry rejects its settings: {error!r}"),
        )
        return IncidentTracer(Exporter())
    log.info("traces of restarts are exported to %s", found.shown)
    return IncidentTracer(exporter)


def _final(job: GangJob, incident: Incident, found: tuple[Span, ...], now: float) -> list[Span]:
    root = found[0].span_id
    settled = incident.settled_time
    certain = settled is not None and now > settled + job.spec.recovery.evidence_window_seconds
    ended = {
        span.span_id
        for span in found
        if span.parent_id == root and not span.name.startswith(MEMBER) and span.end is not None
    }
    # A member's span names the cause, which stronger evidence may correct for a while.
    return [span for span in found if span.span_id in ended or (certain and span.parent_id in ended)]


def _exported_before(job: GangJob, now: float) -> set[str]:
    """The traces that an earlier leader exported."""
    before, complete = now - REPEATED_SECONDS, set()
    # An incident may have become complete later than at its own end: by the next incident, or by the attempt's end.
    ended = job.status.phase_time
    for incident in job.status.incidents:
        end = incident_spans(job, incident)[0].end
        if is_complete(job, incident, before) and end is not None and max(end, ended) < before:
            complete.add(trace_of(job, incident))
        ended = incident.time
    return complete
