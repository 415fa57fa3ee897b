"""Containers that ended by themselves: what the cluster shows of it, and to which attempt it belongs.

The rule: the end of a worker's container, with its supervisor, is evidence of the attempt that it fell into, whether
the cluster or the new session reports it first. Its reason (OOMKilled) is shown a moment after the new session reports.
The time that a kubelet gives must not open an attempt where the leader has heard the pod: the new session does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.world import Pod
from gangsidecar.wire import Level, Phase

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


def ends_of_container(gang: Gang, pod: Pod) -> Iterator[Fault]:
    """The end of the worker's container in the failed attempt, before any worker was stopped, while Gathering."""
    incidents = gang.status.incidents
    if pod.ended_at is None or pod.terminated or not incidents or incidents[0].settled:
        return
    if has_ended(gang, pod) and pod.ended_at <= incidents[0].time and not _ran_to_its_stop(gang, pod):
        yield container_end(pod, pod.ended_at)


def _ran_to_its_stop(gang: Gang, pod: Pod) -> bool:
    """Whether the supervisor of now had a worker of the failed attempt to stop: its container ended before it.

    The clock of the leader that started the attempt may have been behind, so that the end seems to have come later.
    """
    heard = gang.heard.get(pod.uid)
    if heard is None:
        return False
    is_busy = heard.connected and heard.report.phase in {Phase.RUNNING, Phase.STOPPING}
    has_parked = heard.report.stop_ms is not None  # Its processes have no end.
    return (
        is_busy
        or has_parked
        or any(end.stopped and end.attempt == gang.status.attempt - 1 for end in heard.report.ends)
    )


def container_end(pod: Pod, time: float) -> Fault:
    """The fault. Its reason may come later than its new session."""
    oom = pod.ended_reason == "OOMKilled"
    return Fault(
        Reason.OOM_KILLED if oom else Reason.CONTAINER_RESTARTED,
        pod.member,
        time,
        pod.incarnation,
        node=pod.node or None,
        level=Level.CONTAINER,
        message="its container was killed because memory ran out" if oom else "its container ended and was restarted",
    )
