"""The Event object of events.k8s.io/v1 for one event of a gang, or of a pod that is no gang's. Pure.

The rule: the object's name is a hash of its content (type, reason, note, pod), so recording the same event twice makes
one object, whichever process records it and however many answers are lost. A note must never contain anything that
changes the reader's terminal.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from gangctl.api.escaping import escaped
from gangctl.api.events import action
from gangctl.api.gangjob import API_VERSION, KIND, GangJob
from gangctl.api.model import rfc3339
from gangctl.api.names import ANNOTATION_TRACE_ID
from gangctl.cluster.port import PlainPod, UnreadableGang
from gangctl.core.lifecycle.plan import Event

REPORTING_CONTROLLER: Final = "gangctl.io/gangctl"
INSTANCE_CHARACTERS: Final = 128
"""The API server accepts no longer ``reportingInstance``."""
CLUSTER_NAMESPACE: Final = "default"
"""The API server takes Events about what is in no namespace here."""
NOTE_BYTES: Final = 1024
"""The API server accepts no longer note."""


def event_object(
    about: GangJob | UnreadableGang | PlainPod,
    event: Event,
    *,
    pod_uid: str,
    node_uid: str = "",
    now: float,
    instance: str,
    left_out: int = 0,
) -> dict[str, Any]:
    """The Event as JSON values.

    Args:
        about: The gang or pod that the event is about, if it names no node.
        event: What happened.
        pod_uid: UID of the pod that the event is about; empty if that pod is gone.
        node_uid: UID of the node that the event is about; empty if it is about none, or that node is gone.
        now: Time of the event, in seconds since the epoch.
        instance: Name of the process that reports it.
        left_out: Number of events with the same reason that were not sent before this one.
    """
    gang = about.metadata
    regarding = _node(event.node, node_uid) if event.node else _object(about)
    namespace = regarding.get("namespace", CLUSTER_NAMESPACE)
    related = _related(gang.namespace, event, pod_uid)
    trace = f" (trace {event.trace_id})" if event.trace_id else ""
    text = event.message.removesuffix(trace)
    more = f" ({left_out} more with this reason were left out before)" if left_out else ""
    content = [
        gang.uid,
        *([event.node] if event.node else []),
        event.type.value,
        event.reason,
        text,
        event.trace_id,
        related,
    ]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    made: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{regarding['name']}.{digest[:16]}", "namespace": namespace},
        "eventTime": rfc3339(now),
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": instance[:INSTANCE_CHARACTERS],
        "type": event.type.value,
        "reason": event.reason,
        "action": action(event.reason),
        "note": _note(text, more + trace),
        "regarding": regarding,
    }
    if event.trace_id:
        made["metadata"]["annotations"] = {ANNOTATION_TRACE_ID: event.trace_id}
    if related:
        made["related"] = related
    return made


def _object(about: GangJob | UnreadableGang | PlainPod) -> dict[str, str]:
    version, kind = ("v1", "Pod") if isinstance(about, PlainPod) else (API_VERSION, KIND)
    which = about.metadata
    return {"apiVersion": version, "kind": kind, "name": which.name, "namespace": which.namespace, "uid": which.uid}


def _node(name: str, uid: str) -> dict[str, str]:
    """``kubectl describe node`` finds Events by the UID, and those of the kubelet by the name in its place."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid or name}


def _related(namespace: str, event: Event, pod_uid: str) -> dict[str, str]:
    if not event.pod:
        return {}
    reference = {"apiVersion": "v1", "kind": "Pod", "name": event.pod, "namespace": namespace}
    return reference | ({"uid": pod_uid} if pod_uid else {})


def _note(text: str, end: str) -> str:
    """At most :data:`NOTE_BYTES`, with an ellipsis where text was cut; ``end`` is never cut."""
    data, limit = escaped(text).encode(), NOTE_BYTES - len(end.encode())
    kept = data.decode() if len(data) <= limit else f"{data[: limit - 3].decode(errors='ignore')}…"
    return kept + end
