"""Fitness: whether a member's pod can go on, and whether the member is ready for the attempt.

    unfit(m) = the pod is gone, or m has a twin, or a device is unhealthy, or the node is lost or to be left, or the pod
               is being deleted or has ended, or its supervisor did not connect in time, was told to end, is stuck or
               done
    ready(m) = m is connected, and its pod said Ready(attempt), and not unfit(m)

What makes a pod unfit is a fault where it happens to a member that runs (``faults.py``), and leads to a new pod
wherever it happens (``policy/replacement.py``). A pod that is only disrupted soon must not count as unfit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.core.facts import nodes, silence
from gangctl.core.facts.defaults import DEFAULTS
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.node_state import NodeAnswer
from gangctl.core.facts.starts import reason_of, rejection
from gangctl.core.facts.world import Pod
from gangctl.words import faults
from gangsidecar.wire import Phase, Report

NODE_EVIDENCE: Final = frozenset(reason for reason, row in DEFAULTS.items() if row.against_node)
"""Evidence against the node itself."""


@dataclass(frozen=True, slots=True)
class Defect:
    """Why a member needs a new pod."""

    reason: str
    message: str
    against_node: bool = False
    """Whether it is evidence against the pod's node, which the new pod must avoid then."""


@once
def starting(gang: Gang) -> frozenset[str]:
    """The members that are not heard yet, and of which nothing else is to be said: they have time left for it."""
    lost, now, times = gang.observed.lost_nodes, gang.now, must_report(gang)
    return frozenset(
        [
            pod.member
            for pod in gang.never_heard
            if pod.is_sound and pod.node not in lost and now < times.get(pod.member, math.inf)
        ]
    )


@once
def ready(gang: Gang) -> frozenset[str]:
    """The members whose current pods reported Ready for the status' attempt and can run it."""
    attempt, conspicuous = gang.status.attempt, gang.conspicuous
    return frozenset(
        [
            member
            for member, heard in gang.heard_by_member.items()
            if heard.ready_for == attempt
            and heard.connected
            and (member not in conspicuous or defect(gang, member) is None)
        ]
    )


def defect(gang: Gang, member: str) -> Defect | None:
    """Why the member's current pod can't go on; None if it can, or if it isn't created yet."""
    pod, report = gang.pods.get(member), gang.report(member)
    if pod is None and not gang.is_fresh(member):
        return Defect(Reason.POD_DELETED, faults.pod_gone())
    if gang.unseen and has_twin(gang, member):
        return Defect(Reason.POD_DELETED, faults.pod_has_twin())
    if pod is None:
        return None
    found = _of_pod(gang, pod)
    if found is None and gang.status.phase is not GangPhase.RUNNING:
        found = _of_silence(gang, pod)
    if found is None and report is not None:
        found = next(of_report(report), None)
    return found


def unusable(gang: Gang, pod: Pod) -> Defect | None:
    """Why nothing runs in the pod any more, or nothing will soon; None if it goes on."""
    if silence.on_lost_node(gang, pod):
        return _defect(Reason.NODE_LOST, faults.node_silent(pod.node))
    if pod.deleting and not pod.is_evicted:
        return _defect(Reason.POD_DELETED, faults.pod_deleted())
    if pod.terminated:
        ended = faults.pod_ended(reason_of(pod) if pod.reason else "")
        return _defect(Reason.POD_FAILED, rejection(pod) or ended)
    return None


def of_report(report: Report) -> Iterator[Defect]:
    """What the pod's supervisor itself says."""
    if report.terminating:
        yield _defect(Reason.DISRUPTED, faults.pod_told_to_end())
    if report.phase is Phase.STUCK:
        yield _defect(Reason.STUCK, faults.process_stuck())
    if report.phase is Phase.DONE:
        yield _defect(Reason.POD_FAILED, faults.supervisor_ending())


def must_report_by(gang: Gang, member: str) -> float | None:
    """When a member whose supervisor hasn't reported counts as failed to start; None = that isn't counted now.

    It is one that was never heard, or one whose containers have ended since: they may not start again. Time without a
    leader doesn't count: a new one has heard of no member yet. Nor does the silence of a pod that runs while this
    leader hears no pod of the gang: a new pod would be as silent.
    """
    return must_report(gang).get(member)


@once
def must_report(gang: Gang) -> Mapping[str, float]:
    """The same for each member for which it is counted now."""
    times = {
        pod.member: _must_report_by(gang, pod)
        for pod in gang.unheard
        if pod.started_at is None or pod.uid not in gang.heard
    }
    return {name: time for name, time in times.items() if time is not None}


def _must_report_by(gang: Gang, pod: Pod) -> float | None:
    listening, heard = gang.observed.listening_since, gang.heard.get(pod.uid)
    if heard is None and silence.ends_again_and_again(gang, pod):
        return max(pod.created_at, listening + silence.SETTLING_SECONDS)
    since = listening if pod.started_at is None else silence.counts_since(gang, pod)
    if pod.scheduled_at is None or since is None:
        return None
    timeout = gang.spec.recovery.pod_start_timeout_seconds
    if heard is None:
        return max(pod.scheduled_at, since) + timeout
    # Each try of a container that can't start is another end of it, so the time is not counted from there.
    return max(gang.status.phase_time + timeout, since + timeout, (pod.ended_at or 0.0) + silence.SETTLING_SECONDS)


def has_twin(gang: Gang, member: str) -> bool:
    """Whether a supervisor speaks for the member's current incarnation from a pod that isn't there any more.

    The pods of one incarnation are told apart by directives, and not by what is kept of an incarnation.
    """
    return (member, gang.incarnation(member)) in gang.unseen


def of_node(gang: Gang, pod: Pod) -> Defect | None:
    """What the pod's node shows for which the pod leaves it at once; None if it may stay."""
    signal = nodes.leaves(gang, pod)
    if signal is not None:
        reason = Reason.NODE_DRAINED if signal.answer is NodeAnswer.DRAIN else Reason.NODE_UNHEALTHY
        return Defect(reason, faults.node_shows(pod.node, signal.what), against_node=True)
    if pod.node in nodes.drained(gang):
        return Defect(Reason.NODE_DRAINED, faults.node_drained(pod.node))
    return None


def _of_node_at_restart(gang: Gang, pod: Pod) -> Defect | None:
    """The same where the gang restarts anyway. The node may be the only one that there is, so it isn't ruled out."""
    signal = nodes.leaves_at_restart(gang, pod) if gang.status.phase is GangPhase.GATHERING else None
    return None if signal is None else Defect(Reason.NODE_UNHEALTHY, faults.node_shows(pod.node, signal.what))


def _of_pod(gang: Gang, pod: Pod) -> Defect | None:
    if pod.is_sound and pod.node not in gang.observed.lost_nodes and pod.node not in gang.observed.nodes:
        return None
    sick = next((device for device in pod.devices if device.health == "Unhealthy"), None)
    if sick is not None:
        return _defect(Reason.DEVICE_LOST, sick.described())
    return unusable(gang, pod) or of_node(gang, pod) or _of_node_at_restart(gang, pod)


def _of_silence(gang: Gang, pod: Pod) -> Defect | None:
    late = must_report_by(gang, pod.member)
    if late is None or gang.now < late:
        return None
    if pod.uid not in gang.heard and silence.ends_again_and_again(gang, pod):
        why = reason_of(pod) if pod.detail else ""
        return _defect(Reason.START_FAILED, faults.silent_over_restarts(pod.restarts, why))
    timeout = gang.spec.recovery.pod_start_timeout_seconds
    if pod.uid in gang.heard:
        return _defect(Reason.START_FAILED, faults.containers_do_not_start_again(reason_of(pod)))
    why = reason_of(pod) if pod.reason else ""
    return _defect(Reason.START_FAILED, faults.did_not_connect(timeout, why))


def _defect(reason: Reason, message: str) -> Defect:
    return Defect(reason, message, reason in NODE_EVIDENCE)
