"""Nodes: when what others say of a node counts against the gang's pods on it.

The rule: only news count. What a node showed before the pod came to it, or before the attempt ran, was known to those
who put the pod there, and a gang that has restarted since has lived with it::

    counts(signal, pod) = it came after the pod was scheduled, and while the attempt that runs or failed ran
    drained(node)       = it is cordoned, and a pod of the gang on it is being evicted through the eviction API

That devices are missing at the node counts only against a gang that has more of them there than are left.
That a signal is absent says nothing. A cordon alone is no evidence: what runs there may stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.node_state import NodeAnswer, NodeSignal, Shortage
from gangctl.core.facts.world import Pod

SLACK_SECONDS: Final = 5.0
"""A signal and the fault that it explains come in any order: one that is so much older than the fault counts."""


def leaves(gang: Gang, pod: Pod) -> NodeSignal | None:
    """The strongest signal for which the pod leaves its node at once; None if there is none."""
    now = (one for one in _against(gang, pod) if one.answer in {NodeAnswer.LEAVE, NodeAnswer.DRAIN})
    return next((one for one in now if one.since > max(_came(pod), _began(gang))), None)


def leaves_at_restart(gang: Gang, pod: Pod) -> NodeSignal | None:
    """The signal for which the pod leaves its node when the gang restarts anyway; None if there is none."""
    found = _against(gang, pod)
    return next((one for one in found if one.answer is not NodeAnswer.NOTE and one.since > _came(pod)), None)


@once
def drained(gang: Gang) -> frozenset[str]:
    """The nodes that are being emptied: the pods on them go one after the other, as their budgets allow."""
    cordoned = {name for name, state in gang.observed.nodes.items() if state.cordoned}
    if not cordoned:
        return frozenset()
    return frozenset(pod.node for pod in gang.observed.pods if pod.node in cordoned and _is_evicted(pod))


def noted(gang: Gang) -> list[tuple[str, NodeSignal]]:
    """(member, signal) of each member whose node shows something for which nothing is done now."""
    shown = ((member, pod, _against(gang, pod)) for member, pod in gang.pods.items())
    return [(member, found[0]) for member, pod, found in shown if found and leaves(gang, pod) is None]


def _against(gang: Gang, pod: Pod) -> Sequence[NodeSignal]:
    """What the pod's node shows that concerns the pod."""
    state = gang.observed.nodes.get(pod.node)
    signals = () if state is None else state.signals
    return [
        one for one in signals if one.shortage is None or 0 < one.shortage.allocatable < _held(gang, pod, one.shortage)
    ]


def _held(gang: Gang, pod: Pod, shortage: Shortage) -> int:
    """How many devices of the resource the gang's pods on the pod's node have; 0 if the pod has none."""
    there = [one for one in gang.pods.values() if one.node == pod.node]
    own = _devices(gang, pod, shortage.resource)
    return own and sum(_devices(gang, one, shortage.resource) for one in there)


def _devices(gang: Gang, pod: Pod, resource: str) -> int:
    member = gang.members.get(pod.member)
    resources = (member.role.worker.model_extra or {}).get("resources") if member is not None else None
    amount = str(((resources or {}).get("limits") or {}).get(resource, 0))
    return int(amount) if amount.isdecimal() else 0


def _is_evicted(pod: Pod) -> bool:
    return any(one[:2] == ("DisruptionTarget", "True") and one[2] == "EvictionByEvictionAPI" for one in pod.conditions)


def _came(pod: Pod) -> float:
    """When the pod was on its node for certain: clusters write whole seconds, without the rest."""
    return (pod.created_at if pod.scheduled_at is None else pod.scheduled_at) + 1


def _began(gang: Gang) -> float:
    """Since when signals count, whenever the pod came."""
    status = gang.status
    if status.phase is GangPhase.RUNNING:
        return status.phase_time
    if status.phase is GangPhase.GATHERING and status.incidents and not status.incidents[0].settled:
        return status.incidents[0].time - SLACK_SECONDS
    return 0.0
