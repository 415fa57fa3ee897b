"""Admission and deadlines: whether cluster, queue and scheduler take the gang's pods, and how long anything waits.

Admission: whether the cluster accepts the pods that the templates make.

The rule: while it refuses them, a gang without pods creates none, and no deadline counts; users read the cluster's own
words. A gang that has pods must not lose any because of it: it goes on, and missing pods are tried again.

Queueing: a gang that names a queue has pods only while the queue admits it.

The rule: one Workload asks the queue for all pods of the gang, spares included. Until it is admitted, the gang is
suspended; when the queue evicts it, the gang is suspended again, uncharged, with the planned grace. Restarts and
replacements leave the Workload alone, so they keep the quota. Quota is given back only when no pod of the gang is left
that may use it. A Workload of other roles than those of the gang's pods is given back at once.

What must not happen: a pod is created without admission; a gang that runs is stopped because the queue can't be read;
a gang waits for a queue that nothing has asked; quota is given back that a pod of earlier roles uses.

Scheduling: what users read while pods wait for a node.

Deadlines: for how long a gang waits, and for what.

The rule: each deadline is one moment, or None while it isn't counted. Time in which the gang is not at fault must not
count: without a leader that listens, without a place in the cluster, while the cluster refuses the pods, or while it
isn't known what its queue says.

- active:      start_time + activeDeadlineSeconds, while the gang has pods
- barrier:     max(all that was granted is over, the deadline before, the leader listens for 60 s, every awaited pod is
               started, the silence of every awaited pod counts) + barrierTimeoutSeconds
- scheduling:  max(all workers have stopped, pods accepted, first pod created) + schedulingTimeoutSeconds, while a pod
               is there and isn't scheduled
- replacement: max(the first replacement, all workers have stopped, the leader listens, pods are accepted, the queue is
               known, the silence of the pod counts) + replacementTimeoutSeconds
- hold:        begin of the phase + holdTimeoutSeconds
- check:       max(begin of its turn, the leader listens, every awaited member is connected) + timeoutSeconds + the time
               in which its processes end and the result arrives; the supervisor goes by timeoutSeconds alone

``recovery.py`` has what was granted, ``facts/faults.py`` when a pod must start and its worker must report.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple

from gangctl.api.model import escaped
from gangctl.api.reasons import Reason
from gangctl.api.roles import roles_hash
from gangctl.api.status import ENDED, ConditionType, GangPhase, Status
from gangctl.core.facts.fitness import (
    SETTLING_SECONDS,
    counts_since,
    never_heard_counts_since,
    on_lost_node,
    ready,
    reason_text,
    start_advice,
)
from gangctl.core.facts.gang import Gang, once, raised_incarnations
from gangctl.core.facts.world import Pod, Workload
from gangctl.core.policy import recovery, size
from gangctl.core.policy.recovery import assign
from gangctl.words.message import Message
from gangctl.words.waits import cannot_start, pods_refused, queue_awaited, queue_calls_back, refused_while

# Admission


MAX_WORDS: Final = 640
"""So many characters of the cluster's words are repeated: the rest of the sentence has to fit as well."""


def creates(gang: Gang, status: Status) -> bool:
    """Whether pods may be created: not while they are refused and none of the gang is there.

    Where some are there, they hold their devices, and what is refused may be a matter of quota: it is tried again.
    """
    return not is_refused(gang) or _has_pods(gang, status)


def is_refused(gang: Gang) -> bool:
    """Whether the cluster refuses the gang's pods, as far as is known."""
    words = gang.observed.refused
    if words is None or gang.status.phase in ENDED:
        return is_stored_as_refused(gang.status)
    return bool(words)


def is_stored_as_refused(status: Status) -> bool:
    """Return whether the status says that the cluster refuses the gang's pods."""
    old = status.condition(ConditionType.ACCEPTED)
    return old is not None and old.status == "False"


def deadlines_count_since(gang: Gang) -> float | None:
    """The time since which deadlines count that need pods.

    None while pods are refused, and until it is said that they aren't any more.
    """
    accepted = gang.status.condition(ConditionType.ACCEPTED)
    if is_refused(gang) or is_stored_as_refused(gang.status):
        return None
    return 0.0 if accepted is None else accepted.last_transition_time


def refusal(gang: Gang, status: Status) -> Message | None:
    """Return what was seen, what happens next, and what to do; None if the cluster accepts the pods."""
    words, old = gang.observed.refused, status.condition(ConditionType.ACCEPTED)
    if words is None or status.phase in ENDED:
        return Message.stored(old.message, status.refusal) if old is not None and old.status == "False" else None
    why = pods_refusal(gang)
    if why is None:
        return None
    match status.phase:
        case GangPhase.SUSPENDED | GangPhase.RUNNING as phase:
            return refused_while(why, str(phase))
        case _:
            return refused_while(why, "Partial" if _has_pods(gang, status) else "None")


def pods_refusal(gang: Gang) -> Message | None:
    """Return why the cluster refuses the pods, in its own words; None if it doesn't, or if that isn't known."""
    words = gang.observed.refused
    text = escaped("; ".join(words or ()))
    return pods_refused(text if len(text) <= MAX_WORDS else f"{text[:MAX_WORDS]}…") if words else None


def _has_pods(gang: Gang, status: Status) -> bool:
    raised, base = raised_incarnations(status), status.base_incarnation
    return any(
        pod.member in gang.members and pod.incarnation == raised.get(pod.member, base) for pod in gang.observed.pods
    )


# Queueing


class QueueVerb(StrEnum):
    """What is done to the gang's Workload."""

    JOIN = "Join"
    """Ask the queue for the gang's pods."""
    GROW = "Grow"
    """Ask for more, by another Workload (``quota.py``)."""
    GIVE = "Give"
    """Give the quota of some pods back."""
    READY = "Ready"
    """Tell the queue that all pods run: it may take the quota back from a gang that never starts."""
    RELEASE = "Release"
    """Give the quota back that the queue asks for; the gang waits in the queue again."""
    LEAVE = "Leave"
    """Ask for nothing any more; or not for more."""
    SUCCEED = "Succeed"
    """Tell the queue that the gang has succeeded."""
    FAIL = "Fail"
    """Tell the queue that the gang has failed."""


GIVES_BACK: Final = frozenset({QueueVerb.GIVE, QueueVerb.RELEASE, QueueVerb.LEAVE, QueueVerb.SUCCEED, QueueVerb.FAIL})
"""What frees quota: not while a pod is there, or may be in a moment."""


class PodsAsked(NamedTuple):
    """Pods of a role in a Workload: how many it asks for, or keeps."""

    role: str
    pods: int
    least: int = 0
    """So many are enough."""


class TellQueue(NamedTuple):
    """Bring a Workload of the gang to what the status says. Doing it twice does no harm."""

    verb: QueueVerb
    text: str = ""
    """The gang's message, for people who look at the queue."""
    workload: str = ""
    """Name of the Workload; empty = the one that asks for the gang."""
    pods: tuple[PodsAsked, ...] = ()
    """With Grow and Give."""


def is_admitted(gang: Gang) -> bool:
    """Whether the gang may have pods: it names no queue, or its queue has admitted the roles that it has now."""
    queue = gang.observed.queue
    return not queue.name or (queue.known and _admits(gang, queue.workload))


def is_called_back(gang: Gang) -> bool:
    """Whether the queue is known not to admit the gang."""
    return gang.observed.queue.known and not is_admitted(gang)


def _admits(gang: Gang, workload: Workload | None) -> bool:
    return workload is not None and workload.gives and workload.roles_hash == roles_hash(gang.spec.roles)


def queue_wait(gang: Gang) -> Message:
    """Return why a gang without pods waits."""
    queue = gang.observed.queue
    said = "" if queue.workload is None else queue.workload.said
    return queue_awaited(queue.name, said if queue.known else "", queue.known)


def is_to_be_suspended(gang: Gang) -> bool:
    """Whether the user asks for it, the queue takes its quota back, or the roles aren't those of the pods."""
    return suspends(gang) or is_called_back(gang)


def suspends(gang: Gang) -> bool:
    """Whether the user asks for it, or has changed the roles."""
    return gang.spec.suspend or roles_hash(gang.spec.roles) != gang.status.roles_hash


def called_back(gang: Gang) -> Message:
    """Return why a gang with pods has to stop."""
    queue = gang.observed.queue
    return queue_calls_back(queue.name, None if queue.workload is None else queue.workload.said)


def is_told_waiting(status: Status) -> bool:
    """Whether the stored message says that the gang waits for its queue."""
    return any(one.type == "Suspended" and one.reason == Reason.QUEUED for one in status.conditions)


def queue_actions(gang: Gang, status: Status) -> tuple[TellQueue, ...]:
    """What the queue is told, once ``status`` is stored."""
    queue = gang.observed.queue
    if not queue.known or (not queue.name and queue.workload is None):
        return ()
    one = queue.workload
    if one is not None and (left := _left_over(gang, one)):
        return (TellQueue(QueueVerb.LEAVE, workload=left),)
    if status.phase in ENDED:
        return _at_the_end(gang, status)
    wanted = bool(queue.name) and not gang.spec.suspend and not status.given_back
    if one is None:
        return (TellQueue(QueueVerb.JOIN),) if wanted else ()
    if queue.name and uses_quota(gang):
        starts = status.phase is GangPhase.RUNNING and one.admitted and not one.ready
        return (TellQueue(QueueVerb.READY, status.message),) if starts else ()
    if not wanted or one.ended or _asks_for_something_else(gang, one):
        return (TellQueue(QueueVerb.LEAVE),)
    if one.evicted and one.reserved and status.phase is GangPhase.SUSPENDED:
        return (TellQueue(QueueVerb.RELEASE, status.message),)
    return ()


def _at_the_end(gang: Gang, status: Status) -> tuple[TellQueue, ...]:
    one = gang.observed.queue.workload
    if one is None or one.ended or uses_quota(gang):
        return ()
    verb = QueueVerb.SUCCEED if status.phase is GangPhase.SUCCEEDED else QueueVerb.FAIL
    return (TellQueue(verb, status.message),)


def _left_over(gang: Gang, one: Workload) -> str:
    """The name of a Workload that asks for other roles than the gang's; empty if there is none, or its pods may run.

    A leader that was deposed can bring one, with a request that arrived late: nothing else would give its quota back.
    """
    left = next((more.name for more in gang.observed.queue.more if more.roles_hash != one.roles_hash), "")
    return left if one.roles_hash == gang.status.roles_hash or not uses_quota(gang) else ""


def _asks_for_something_else(gang: Gang, one: Workload) -> bool:
    """Whether it must be asked anew. Queue and priority of one that has quota count from its next turn."""
    queue = gang.observed.queue
    differs = (one.queue, one.priority_class) != (queue.name, queue.priority_class)
    return one.roles_hash != roles_hash(gang.spec.roles) or (differs and not one.reserved)


def uses_quota(gang: Gang) -> bool:
    """Whether a pod of the gang takes any of its quota."""
    return any(takes_quota(gang, pod) for pod in gang.observed.pods)


def takes_quota(gang: Gang, pod: Pod) -> bool:
    """Whether the pod has not ended; one on a lost node that is being deleted stays until the node is back."""
    return not pod.terminated and not (pod.deleting and on_lost_node(gang, pod))


# Scheduling


def gives_up_at(gang: Gang) -> float | None:
    """When a gang that isn't scheduled has waited for too long; None = that isn't counted now."""
    timeout, accepted = gang.spec.recovery.scheduling_timeout_seconds, deadlines_count_since(gang)
    if timeout is None or accepted is None or gang.status.phase is not GangPhase.PENDING:
        return None
    waiting = [
        pod.created_at
        for member, pod in gang.pods.items()
        if pod.scheduled_at is None and not pod.terminated and member in gang.holding
    ]
    if not waiting:
        return None
    return max(recovery.stopped_by(gang), accepted, min(waiting), _starts_smaller_at(gang)) + timeout


@once
def trouble(gang: Gang) -> str:
    """Return what keeps the first of the needed pods from starting, in Kubernetes' words; empty if nothing does."""
    kept = {
        member: pod
        for member, pod in gang.pods.items()
        if pod.reason and pod.started_at is None and not pod.terminated and not pod.deleting
    }
    needed = [holder for holder in gang.holders.values() if holder in kept] if kept else []
    if not needed:
        return ""
    first = kept[needed[0]]
    return cannot_start(needed, escaped(reason_text(first)), escaped(start_advice(first)))


# Deadlines


def active_deadline(gang: Gang) -> float | None:
    """When the gang has been active for too long."""
    limit, start = gang.spec.active_deadline_seconds, gang.status.start_time
    if limit is None or start is None or gang.status.phase in {GangPhase.NEW, GangPhase.SUSPENDED, *ENDED}:
        return None
    return start + limit


def barrier_deadline(gang: Gang, members: Collection[str]) -> float | None:
    """When the barrier's next deadline passes. ``members``: those that are waited for."""
    waited = frozenset(members)
    started = [
        pod.started_at or 0.0  # The cluster may show late that what speaks has started.
        for name, pod in gang.pods.items()
        if name in waited and (pod.started_at is not None or name in gang.speaking)
    ]
    silence = never_heard_counts_since(gang) if any(pod.member in waited for pod in gang.never_heard) else 0.0
    if len(started) < len(waited) or silence is None:
        return None
    last = [one.at for name in waited if (one := gang.heard_by_member.get(name)) is not None and not one.connected]
    since = max(
        recovery.granted_until(gang),
        gang.status.deadline_time or 0.0,
        gang.observed.listening_since + SETTLING_SECONDS,
        silence,
        *last,  # One that was ready for long while its group was awaited may lose its connection for a moment.
        *started,
    )
    return since + gang.spec.recovery.barrier_timeout_seconds


def replacement_timeout(gang: Gang) -> float | None:
    """When a replacement has taken too long: only while others wait for it, or when it failed before."""
    accepted, queue = deadlines_count_since(gang), gang.observed.queue
    if accepted is None or not queue.known or not (gang.replaced or gang.status.recreated):
        return None
    since, gathers = [], gang.status.phase is GangPhase.GATHERING
    late = recovery.awaited_members(gang, assign(gang))
    for holder in late if gang.status.recreated is not None else [name for name in late if name in gang.replaced]:
        entry = gang.replaced.get(holder, gang.status.recreated)
        waits = entry is not None and (gathers or entry.failures > 0) and holder in gang.fresh
        if entry is None or not waits:
            continue
        pod = gang.pods.get(holder)
        runs_silent = pod is not None and pod.started_at is not None and holder not in gang.speaking
        counts = counts_since(gang, pod) if pod is not None and runs_silent else 0.0
        if counts is not None:
            since.append(max(entry.since or entry.time, counts))
    if not since:
        return None
    began = max(min(since), recovery.stopped_by(gang), gang.observed.listening_since, accepted, queue.known_since)
    return max(began, _starts_smaller_at(gang)) + gang.spec.recovery.replacement_timeout_seconds


def _starts_smaller_at(gang: Gang) -> float:
    """When an elastic gang starts without those that are missing; 0 if it can't."""
    return size.shrinks_at(gang) if gang.is_elastic and size.could_start(gang, ready(gang)) else 0.0


CHECK_MARGIN_SECONDS: Final = 15.0
"""What outlives SIGKILL makes a supervisor Stuck before that."""


def check_deadline(gang: Gang, members: Collection[str], turn_time: float, timeout_seconds: int) -> float:
    """When the results of these members aren't waited for any longer."""
    connected = [heard.since for name in members if (heard := gang.heard_by_member.get(name)) is not None]
    return max(turn_time, gang.observed.listening_since, *connected) + timeout_seconds + CHECK_MARGIN_SECONDS


def hold_timeout(gang: Gang) -> float | None:
    """When a held gang fails."""
    limit = gang.spec.recovery.hold_timeout_seconds
    return None if limit is None else gang.status.phase_time + limit
