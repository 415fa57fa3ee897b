"""Nodes: when what others say of a node counts against the gang's pods on it.

The rule: only news count. What a node showed before the pod came to it, or before the attempt ran, was known to those
who put the pod there, and a gang that has restarted since has lived with it::

    counts(signal, pod) = it came after the pod was scheduled, and while the attempt that runs or failed ran
    drained(node)       = it is cordoned, and a pod of the gang on it is being evicted through the eviction API

That a signal is absent says nothing. A cordon alone is no evidence: what runs there may stay.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.world import NodeAnswer, NodeSignal, Pod

SLACK_SECONDS: Final = 5.0
"""A signal and the fault that it explains come in any order: one that is so much older than the fault counts."""


def leaves(gang: Gang, pod: Pod) -> NodeSignal | None:
    """The strongest signal for which the pod leaves its node at once; None if there is none."""
    state = gang.observed.nodes.get(pod.node)
    if state is None:
        return None
    now = (one for one in state.signals if one.answer in {NodeAnswer.LEAVE, NodeAnswer.DRAIN})
    return next((one for one in now if one.since > max(_came(pod), _began(gang))), None)


def leaves_at_restart(gang: Gang, pod: Pod) -> NodeSignal | None:
    """The signal for which the pod leaves its node when the gang restarts anyway; None if there is none."""
    state = gang.observed.nodes.get(pod.node)
    found = () if state is None else state.signals
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
    states = gang.observed.nodes
    return [
        (member, state.signals[0])
        for member, pod in gang.pods.items()
        if (state := states.get(pod.node)) is not None and state.signals and leaves(gang, pod) is None
    ]


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
