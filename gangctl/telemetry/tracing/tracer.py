"""Sends the spans of incidents, each as soon as nothing of it will change; what spans there are, core says.

The rule: a span is sent once, by whoever leads when it is final: a phase when its end is stored, a member when no
stronger evidence can come, the root when the incident is complete. A new leader sends what it finds of an incident that
isn't complete, or hasn't been for long, since the old one may have ended before it could: the same spans with the same
ids. Never is a span sent with another content, and never does a gang's round wait or fail because of a span.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gangctl.api.escaping import escaped
from gangctl.api.gangjob import GangJob
from gangctl.api.status import GangPhase, Incident
from gangctl.cluster import clock
from gangctl.core.facts.trace_context import trace_of
from gangctl.telemetry.spans import Span, incident_spans, is_complete
from gangctl.telemetry.tracing.exporter import Exporter, NoExporter, SpanCounts
from gangctl.telemetry.tracing.settings import SettingError, read

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Time alone completes an incident, too: open ones are looked at so often."""
REPEATED_SECONDS: Final = 120.0
"""What was complete for longer when a term began was sent by a leader before: it takes less for the end of a restart to
be stored, for a batch to be sent and for a leader to be replaced."""


@dataclass(slots=True)
class _Gang:
    """What was sent of a gang's incidents."""

    job: GangJob
    done: set[str]
    """Traces of which nothing is sent any more."""
    sent: dict[str, set[str]] = field(default_factory=dict)
    """Trace -> spans that were sent, of the others."""

    @property
    def unfinished(self) -> list[Incident]:
        """Oldest first."""
        return [one for one in reversed(self.job.status.incidents) if trace_of(self.job, one) not in self.done]


class IncidentTracer:
    """A :class:`~gangctl.telemetry.port.Telemetry` over all terms of one process."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._gangs: dict[str, _Gang] = {}
        """Of this term, by UID."""
        self._unfinished: dict[str, list[Incident]] = {}
        """The same, those with incidents that aren't complete."""

    async def run(self) -> None:
        """Look at what only time completes, until cancelled."""
        while True:
            try:
                self._look_again(clock.now())
            except Exception:
                log.exception("traces were not looked at, which is a bug")
            await asyncio.sleep(LOOK_SECONDS)

    def round_began(self, job: GangJob) -> None:
        """Send what is new in a stored status."""
        gang = self._gangs.get(job.metadata.uid)
        if gang is None:
            now = clock.now()
            gang = self._gangs[job.metadata.uid] = _Gang(job, _long_complete(job, now))
            self._follow(gang, now)
        elif gang.job is not job:
            self._finish(gang, {trace_of(job, one) for one in job.status.incidents})
            gang.job = job
            self._follow(gang, clock.now())

    def gang_gone(self, uid: str) -> None:
        """A gang was deleted, or can't be read for now.

        Which of them isn't known. So what is open gets no end, and its trace no root: it may go on, and a span that was
        sent can't be taken back. Of a gang that has ended for good, nothing can change.
        """
        gang = self._gangs.pop(uid, None)
        self._unfinished.pop(uid, None)
        if gang is not None and gang.job.status.phase in {GangPhase.SUCCEEDED, GangPhase.FAILED}:
            self._finish(gang, set())

    def term_ended(self) -> None:
        """A term has ended: whoever leads next goes on from what is stored."""
        self._gangs.clear()
        self._unfinished.clear()

    def counts(self) -> SpanCounts:
        """What became of all spans so far."""
        return self._exporter.counts()

    async def close(self) -> None:
        """Send what waits, and wait a moment for it."""
        await self._exporter.close()

    def decided(self, seconds: float) -> None:
        """Rounds are not traced."""

    def status_written(self, before: GangJob, after: GangJob, seconds: float) -> None:
        """The next look sees it."""

    def action_finished(self, action: str, seconds: float, *, done: bool) -> None:
        """Rounds are not traced."""

    def _look_again(self, now: float) -> None:
        for uid, found in tuple(self._unfinished.items()):
            gang = self._gangs[uid]
            if any(is_complete(gang.job, one, now) for one in found):
                self._follow(gang, now)

    def _finish(self, gang: _Gang, kept: set[str]) -> None:
        """Send the rest of incidents that aren't kept any more: what is known of them is all that ever will be."""
        for incident in gang.unfinished:
            if trace_of(gang.job, incident) not in kept:
                for span in incident_spans(gang.job, incident):
                    self._send(gang, span)

    def _follow(self, gang: _Gang, now: float) -> None:
        """Send what has become final of incidents that were not complete before."""
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

    def _send(self, gang: _Gang, span: Span) -> None:
        sent = gang.sent.setdefault(span.trace_id, set())
        if span.end is not None and span.span_id not in sent:
            sent.add(span.span_id)
            self._exporter.export(span)


def tracer_from(environment: Mapping[str, str] = os.environ) -> IncidentTracer:
    """As the standard OTEL_* settings say; what is wrong with them is said in the log, and means no traces."""
    try:
        settings = read(environment)
        if settings is None:
            return IncidentTracer(NoExporter())
        # Its memory (about 25 MB) and its thread are for those who want traces.
        from gangctl.telemetry.tracing.otlp import OtlpExporter  # noqa: PLC0415

        exporter = OtlpExporter(settings)
    except Exception as error:  # noqa: BLE001 - the SDK reads more settings than are checked, and raises what it likes
        log.error(  # noqa: TRY400 - the sentence says it all
            "there are no traces: %s. Nothing else is affected; set it right and start the controller again",
            error if isinstance(error, SettingError) else escaped(f"OpenTelemetry refuses its settings: {error!r}"),
        )
        return IncidentTracer(NoExporter())
    log.info("traces of restarts are sent to %s", settings.shown)
    return IncidentTracer(exporter)


def _final(job: GangJob, incident: Incident, found: tuple[Span, ...], now: float) -> list[Span]:
    """Spans of an incident that isn't complete, of which nothing will change."""
    root = found[0].span_id
    settled = incident.settled_time
    certain = settled is not None and now > settled + job.spec.recovery.evidence_window_seconds
    ended = {span.span_id for span in found if span.parent_id == root and not _is_member(span) and span.end is not None}
    # A member's span tells what it is put down to, which stronger evidence may correct for a while.
    return [span for span in found if span.span_id in ended or (certain and span.parent_id in ended)]


def _is_member(span: Span) -> bool:
    return span.name.startswith("member.")


def _long_complete(job: GangJob, now: float) -> set[str]:
    """Traces of incidents that a leader before has sent."""
    before, complete = now - REPEATED_SECONDS, set()
    # Its own end doesn't complete an incident if it was waited for more: the next incident, or the end of the attempt.
    ended = job.status.phase_time
    for incident in job.status.incidents:
        end = incident_spans(job, incident)[0].end
        if is_complete(job, incident, before) and end is not None and max(end, ended) < before:
            complete.add(trace_of(job, incident))
        ended = incident.time
    return complete
