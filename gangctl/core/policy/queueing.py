"""Queueing: a gang that names a queue has pods only while the queue admits it.

The rule: one Workload asks the queue for all pods of the gang, spares included. Until it is admitted, the gang is
suspended; when the queue evicts it, the gang is suspended again, uncharged, with the planned grace. Restarts and
replacements leave the Workload alone, so they keep the quota. Quota is given back only when no pod of the gang is left
that may use it.

What must not happen: a pod is created without admission; a gang that runs is stopped because the queue can't be read;
a gang waits for a queue that nothing has asked.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from gangctl.api.reasons import Reason
from gangctl.api.roles_hash import roles_hash
from gangctl.api.status import ENDED, GangPhase, Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.queue import Workload
from gangctl.core.facts.silence import on_lost_node
from gangctl.words.message import Message
from gangctl.words.waits import queue_awaited, queue_calls_back


class QueueVerb(StrEnum):
    """What is done to the gang's Workload."""

    JOIN = "Join"
    """Ask the queue for the gang's pods."""
    READY = "Ready"
    """Tell the queue that all pods run: it may take the quota back from a gang that never starts."""
    RELEASE = "Release"
    """Give the quota back that the queue asks for; the gang waits in the queue again."""
    LEAVE = "Leave"
    """Ask for nothing any more."""
    SUCCEED = "Succeed"
    """Tell the queue that the gang has succeeded."""
    FAIL = "Fail"
    """Tell the queue that the gang has failed."""


GIVES_BACK: Final = frozenset({QueueVerb.RELEASE, QueueVerb.LEAVE, QueueVerb.SUCCEED, QueueVerb.FAIL})
"""What frees quota: not while a pod is there, or may be in a moment."""


class TellQueue(NamedTuple):
    """Bring the gang's Workload to what the status says. Doing it twice does no harm."""

    verb: QueueVerb
    text: str = ""
    """The gang's message, for people who look at the queue."""


def is_admitted(gang: Gang) -> bool:
    """Whether the gang may have pods: it names no queue, or its queue has admitted the roles that it has now."""
    queue = gang.observed.queue
    return not queue.name or (queue.known and _admits(gang, queue.workload))


def is_called_back(gang: Gang) -> bool:
    """Whether the queue is known not to admit the gang."""
    return gang.observed.queue.known and not is_admitted(gang)


def _admits(gang: Gang, workload: Workload | None) -> bool:
    return (
        workload is not None
        and workload.admitted
        and not workload.ended
        and workload.roles_hash == roles_hash(gang.spec.roles)
    )


def waiting(gang: Gang) -> Message:
    """Return why a gang without pods waits."""
    queue = gang.observed.queue
    said = "" if queue.workload is None else queue.workload.said
    return queue_awaited(queue.name, said if queue.known else "", queue.known)


def called_back(gang: Gang) -> Message:
    """Return why a gang with pods has to stop."""
    queue = gang.observed.queue
    return queue_calls_back(queue.name, None if queue.workload is None else queue.workload.said)


def is_told_waiting(status: Status) -> bool:
    """Whether the stored message says that the gang waits for its queue."""
    return any(one.type == "Suspended" and one.reason == Reason.QUEUED for one in status.conditions)


def actions(gang: Gang, status: Status) -> tuple[TellQueue, ...]:
    """What the queue is told, once ``status`` is stored."""
    queue = gang.observed.queue
    if not queue.known or (not queue.name and queue.workload is None):
        return ()
    if status.phase in ENDED:
        return _at_the_end(gang, status)
    wanted = bool(queue.name) and not gang.spec.suspend and not status.given_back
    one = queue.workload
    if one is None:
        return (TellQueue(QueueVerb.JOIN),) if wanted else ()
    if queue.name and _uses_quota(gang):
        starts = status.phase is GangPhase.RUNNING and one.admitted and not one.ready
        return (TellQueue(QueueVerb.READY, status.message),) if starts else ()
    if not wanted or one.ended or _asks_for_something_else(gang, one):
        return (TellQueue(QueueVerb.LEAVE),)
    if one.evicted and one.reserved and status.phase is GangPhase.SUSPENDED:
        return (TellQueue(QueueVerb.RELEASE, status.message),)
    return ()


def _at_the_end(gang: Gang, status: Status) -> tuple[TellQueue, ...]:
    one = gang.observed.queue.workload
    if one is None or one.ended or _uses_quota(gang):
        return ()
    verb = QueueVerb.SUCCEED if status.phase is GangPhase.SUCCEEDED else QueueVerb.FAIL
    return (TellQueue(verb, status.message),)


def _asks_for_something_else(gang: Gang, one: Workload) -> bool:
    """Whether it must be asked anew. Queue and priority of one that has quota count from its next turn."""
    queue = gang.observed.queue
    differs = (one.queue, one.priority_class) != (queue.name, queue.priority_class)
    return one.roles_hash != roles_hash(gang.spec.roles) or (differs and not one.reserved)


def _uses_quota(gang: Gang) -> bool:
    """Whether a pod is there that has not ended; one on a lost node that is being deleted stays until the node is."""
    return any(not pod.terminated and not (pod.deleting and on_lost_node(gang, pod)) for pod in gang.observed.pods)
