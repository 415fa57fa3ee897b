"""What an Event of events.k8s.io/v1 says: built from the gang and what is to be told. Pure.

The rule: the name follows from what is said (type, reason, note, pod), so telling it twice, by whomever and however
often an answer was lost, makes one Event. Never does a note carry what could move a reader's terminal.
"""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any, Final

from gangctl.api.escaping import escaped
from gangctl.api.events import action
from gangctl.api.gangjob import API_VERSION, KIND, GangJob
from gangctl.api.model import rfc3339
from gangctl.api.names import ANNOTATION_TRACE_ID, pod_name
from gangctl.core.facts.gang import incarnation
from gangctl.core.facts.trace_context import trace_of
from gangctl.core.lifecycle.plan import Event

REPORTER: Final = "gangctl.io/gangctl"
NOTE_BYTES: Final = 1024
"""The API server takes no longer note."""


def event_object(job: GangJob, event: Event, pod_uid: str, now: float, left_out: int = 0) -> dict[str, Any]:
    """The Event as JSON values.

    ``pod_uid``: of the pod that :func:`related_pod` names, empty if there is none; ``now`` in seconds since the epoch;
    ``left_out``: how many of its reason were not told before it.
    """
    gang = job.metadata
    related = _related(job, event, pod_uid)
    trace = f" (trace {event.trace_id})" if event.trace_id else ""
    text = event.message.removesuffix(trace)
    more = f" ({left_out} more with this reason were left out before)" if left_out else ""
    said = [gang.uid, event.type.value, event.reason, text, event.trace_id, related]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    made: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{gang.name}.{digest[:16]}", "namespace": gang.namespace},
        "eventTime": rfc3339(now),
        "reportingController": REPORTER,
        "reportingInstance": platform.node()[:128] or "gangctl",
        "type": event.type.value,
        "reason": event.reason,
        "action": action(event.reason),
        "note": _note(text, more + trace),
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": gang.name,
            "namespace": gang.namespace,
            "uid": gang.uid,
        },
    }
    if event.trace_id:
        made["metadata"]["annotations"] = {ANNOTATION_TRACE_ID: event.trace_id}
    if related:
        made["related"] = related
    return made


def related_pod(job: GangJob, event: Event) -> str:
    """Name of the pod that the event is about, which may be gone by now; empty if it is about none.

    An incident is about the pod of its cause, also when the member has a new one by now.
    """
    traced = job.status.incidents if event.trace_id else ()
    incident = next((one for one in traced if trace_of(job, one) == event.trace_id), None)
    cause = None if incident is None else incident.cause
    if cause is not None and cause.member and event.member in {"", cause.member}:
        return pod_name(job.metadata.name, cause.member, cause.incarnation)
    if event.member:
        return pod_name(job.metadata.name, event.member, incarnation(job.status, event.member))
    return ""


def _related(job: GangJob, event: Event, pod_uid: str) -> dict[str, str]:
    name = related_pod(job, event)
    if not name:
        return {}
    reference = {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": job.metadata.namespace}
    return reference | ({"uid": pod_uid} if pod_uid else {})


def _note(text: str, end: str) -> str:
    """At most so many bytes, with an ellipsis where something is missing; the end is always there."""
    data, room = escaped(text).encode(), NOTE_BYTES - len(end.encode())
    kept = data.decode() if len(data) <= room else f"{data[: room - 3].decode(errors='ignore')}…"
    return kept + end
