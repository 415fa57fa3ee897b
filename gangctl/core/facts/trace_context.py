"""Trace ids of incidents, as W3C Trace Context has them.

The rule: an incident's trace id and the id of its root span are functions of the gang's UID and the attempt, so every
process computes the same ones without storing them first.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Incident

LONGEST_MILLISECONDS: Final = 10**12
"""30 years: more is a mistake, and no date."""
AT_ONCE_SECONDS: Final = 60.0
"""An incident this soon after the one before is linked to it in any case."""


def trace_id(job: GangJob, attempt: int) -> str:
    """Return the trace ID of the incident that led to this attempt."""
    return hashlib.sha256(f"{job.metadata.uid}/{attempt}".encode()).hexdigest()[:32]


def trace_of(job: GangJob, incident: Incident) -> str:
    """The incident's trace; one that was stored without (or by hand) has one all the same."""
    return incident.trace_id if is_trace_id(incident.trace_id) else trace_id(job, incident.attempt)


def root_span_id(trace: str) -> str:
    """Id of a trace's root span: the first half of the trace id."""
    return trace[:16]


def trace_parent(job: GangJob, incident: Incident) -> str:
    """Return the ``traceparent`` header (W3C Trace Context, version 00, sampled) of an incident's root span."""
    trace = trace_of(job, incident)
    return f"00-{trace}-{root_span_id(trace)}-01"


def began(incident: Incident) -> float:
    """When the incident began, in seconds since the epoch: at its fault, as long before write 1 as was known then."""
    return incident.time - in_seconds(incident.milliseconds.detect or 0)


def settled_at(incident: Incident) -> float:
    """When the incident was settled; while it is open, when it was stored."""
    return incident.time if incident.settled_time is None else incident.settled_time


def follows_at_once(incident: Incident, time: float) -> bool:
    """Whether ``time`` is so soon after the incident that an incident then is linked to it in any case.

    A later one is linked only if no step was made in between, in a gang that had reported steps.
    """
    return time <= settled_at(incident) + AT_ONCE_SECONDS


def in_seconds(milliseconds: int) -> float:
    """Return a stored duration in seconds, cut to what a date can hold: a status may contain any number."""
    return min(max(0, milliseconds), LONGEST_MILLISECONDS) / 1000


def is_trace_id(text: str) -> bool:
    """Whether the text is a valid trace id."""
    return re.fullmatch("[0-9a-f]{32}", text) is not None and int(text[:16], 16) != 0
