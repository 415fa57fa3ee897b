"""Containers that ended by themselves: what the cluster shows of it, and to which attempt it belongs.

The rule: the end of a worker's container, with its supervisor, is evidence of the attempt that it fell into, whether
the cluster or the new session reports it first. Its reason (OOMKilled) is shown a moment after the new session reports.
The time that a kubelet gives must not open an attempt where the leader has heard the pod: the new session does that, or
that there is none. An end that an earlier attempt failed for must not count again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.starts import reason_of
from gangctl.core.facts.world import Heard, Pod
from gangctl.words import faults
from gangsidecar.wire import Level

WHOLE_SECOND: Final = 1.0
"""The kubelet's times are cut to whole seconds: what has happened may be as much later."""


def attempt_began(gang: Gang) -> float:
    """When the attempt that evidence is looked for was started, as far as the status remembers."""
    status = gang.status
    if status.phase is GangPhase.RUNNING:
        return status.phase_time
    before = status.incidents[1:2]
    settled = 0.0 if not before else before[0].settled_time or 0.0
    return max(status.start_time or 0.0, settled)


def has_ended(gang: Gang, pod: Pod) -> bool:
    """Whether the cluster shows that the pod's container has ended in the attempt that evidence is looked for."""
    return pod.ended_at is not None and attempt_began(gang) < pod.ended_at + WHOLE_SECOND


def is_dead(gang: Gang, pod: Pod, heard: Heard) -> bool:
    """Whether the container has ended in this attempt, or can't be started: nothing in it will speak, nor trains."""
    ended = pod.start_failure is not None or has_ended(gang, pod)
    return ended and pod.started_at is None and not heard.connected


def ends_of_container(gang: Gang, pod: Pod) -> Iterator[Fault]:
    """The end of the worker's container in the failed attempt, before any worker was stopped, while Gathering."""
    incidents = gang.status.incidents
    if pod.ended_at is None or pod.terminated or not incidents or incidents[0].settled:
        return
    if has_ended(gang, pod) and pod.ended_at <= incidents[0].time and not _outlived_it(gang, pod):
        yield container_end(pod, pod.ended_at)


def _outlived_it(gang: Gang, pod: Pod) -> bool:
    """Whether the supervisor of now started the worker of the failed attempt: the container ended before that.

    Times can't tell: the clock of the leader that started the attempt may have been behind, and an attempt may begin
    within a second of the end that the one before failed for. What is not connected, and has not heard of the new
    attempt, may have ended with the container.
    """
    heard, attempt = gang.heard.get(pod.uid), gang.status.attempt
    is_there = heard is not None and (heard.connected or heard.report.attempt == attempt)
    return is_there and heard is not None and heard.report.ran >= attempt - 1


def container_end(pod: Pod, time: float) -> Fault:
    """The fault. Its reason may come later than its new session."""
    oom = pod.ended_reason == "OOMKilled"
    message = faults.container_killed_for_memory() if oom else faults.container_ended()
    if pod.start_failure is not None and pod.reason and not oom:
        message = faults.container_cannot_start_again(reason_of(pod))
    return Fault(
        Reason.OOM_KILLED if oom else Reason.CONTAINER_RESTARTED,
        pod.member,
        time,
        pod.incarnation,
        node=pod.node or None,
        level=Level.CONTAINER,
        message=message,
    )
