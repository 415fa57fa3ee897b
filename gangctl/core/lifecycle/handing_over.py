"""Hand-over: what was seen on a node is told to those who repair it, by an Event on the node.

The rule: a fault (``record/node_faults.py``) is told in the plan that settles its incident, a slow rank when the gang's
status begins to tell of it. An Event changes nothing: the gang has left the node, or goes on there, and other pods may
come. It is in a namespace of others, so it must not have what a worker printed or
wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gangctl.api.changes import changed
from gangctl.api.incident import Cause
from gangctl.api.model import sentence
from gangctl.api.names import pod_name
from gangctl.api.reasons import Reason
from gangctl.api.status import Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.slowness import Slow
from gangctl.core.facts.trace_context import trace_of
from gangctl.core.lifecycle.plan import Event, EventType
from gangctl.core.policy.cause import describe
from gangctl.core.record.node_faults import node_faults

_CORDONED: Final = "gangctl does not cordon the node, and others may get what the gang has left"


def handed_over(gang: Gang, status: Status) -> Iterator[Event]:
    """The Events of faults that ``status`` settles."""
    for node, incident in node_faults(gang.status, status):
        cause, job = incident.cause, gang.job
        pod = pod_name(job.metadata.name, cause.member, cause.incarnation)
        text = f"{_gang(gang)}, {describe(_without_words(cause))}; {_CORDONED}"
        kind = EventType.WARNING
        yield Event(kind, Reason.NODE_AT_FAULT, sentence(text), cause.member, pod, trace_of(job, incident), node)


def slow(gang: Gang, found: list[Slow]) -> Iterator[Event]:
    """The Events of slow ranks."""
    for one in found:
        pod = gang.pods[one.member]
        text = (
            f"{_gang(gang)}, {one.member} (rank {one.rank}): it takes {100 * one.excess:.0f} % longer for its own part "
            "of a step than the other ranks of its role; check the clocks, temperature and links of its devices"
        )
        yield Event(EventType.WARNING, Reason.NODE_AT_FAULT, sentence(text), one.member, pod.name, node=pod.node)


def _without_words(cause: Cause) -> Cause:
    """The cause without what its worker or framework said: those who read a node's Events need not read that."""
    has_words = cause.exit_code is not None or cause.signal is not None or cause.reason == Reason.REQUESTED
    return changed(cause, printed="", message=cause.message.partition(": ")[0] if has_words else cause.message)


def _gang(gang: Gang) -> str:
    return f"GangJob {gang.job.metadata.namespace}/{gang.job.metadata.name}"
