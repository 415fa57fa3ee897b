"""Hand-over: what was seen on a node is told to those who repair it, by an Event on the node.

The rule: a fault (``record/node_faults.py``) is told in the plan that settles its incident, a slow rank when the gang's
status begins to tell of it. An Event changes nothing: the gang has left the node, or goes on there, and other pods may
come. It is in a namespace of others, so it must not have what a worker printed or
wrote.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangctl.api.changes import changed
from gangctl.api.names import pod_name
from gangctl.api.reasons import Reason
from gangctl.api.status import Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.slowness import Slow
from gangctl.core.facts.trace_context import trace_of
from gangctl.core.lifecycle.plan import Event, EventType
from gangctl.core.policy.cause import describe
from gangctl.core.record.node_faults import node_faults
from gangctl.words import decisions


def handed_over(gang: Gang, status: Status) -> Iterator[Event]:
    """The Events of faults that ``status`` settles."""
    for node, incident in node_faults(gang.status, status):
        cause, job = incident.cause, gang.job
        pod = pod_name(job.metadata.name, cause.member, cause.incarnation)
        seen = describe(changed(cause, printed="", words=""))  # Those who read a node's Events need not read these.
        message = decisions.node_at_fault(job.metadata.namespace, job.metadata.name, seen)
        kind = EventType.WARNING
        yield Event(kind, Reason.NODE_AT_FAULT, message, cause.member, pod, trace_of(job, incident), node)


def slow(gang: Gang, found: list[Slow]) -> Iterator[Event]:
    """The Events of slow ranks."""
    namespace, name = gang.job.metadata.namespace, gang.job.metadata.name
    for rank in found:
        pod = gang.pods[rank.member]
        message = decisions.rank_slow_on_node(namespace, name, rank.member, rank.rank, rank.excess)
        yield Event(EventType.WARNING, Reason.NODE_AT_FAULT, message, rank.member, pod.name, node=pod.node)
