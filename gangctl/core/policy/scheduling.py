"""Scheduling: what users read while pods wait for a node, and for how long they may wait.

    gives_up_at = max(begin of Pending, pods accepted, first pod created) + schedulingTimeoutSeconds

It counts while a pod is there and isn't scheduled. It must not count while the cluster refuses the pods.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.escaping import escaped
from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.starts import advice, told
from gangctl.core.policy import admission

SAID_AGAIN_SECONDS: Final = 30.0
"""What keeps pods from starting changes often in a large gang: it is written at most this often."""
_SAID: Final = "can't start: "


def gives_up_at(gang: Gang) -> float | None:
    """When a gang that isn't scheduled has waited for too long; None = that isn't counted now."""
    timeout, accepted = gang.spec.recovery.scheduling_timeout_seconds, admission.counts_since(gang)
    if timeout is None or accepted is None or gang.status.phase is not GangPhase.PENDING:
        return None
    waiting = [
        pod.created_at
        for member, pod in gang.pods.items()
        if pod.scheduled_at is None and not pod.terminated and member in gang.holding
    ]
    if not waiting:
        return None
    return max(gang.status.phase_time, accepted, min(waiting)) + timeout


@once
def trouble(gang: Gang) -> str:
    """What keeps the first of the needed pods from starting, in Kubernetes' words; empty if nothing does."""
    kept = {
        member: pod
        for member, pod in gang.pods.items()
        if pod.reason and pod.started_at is None and not pod.terminated and not pod.deleting
    }
    needed = [holder for holder in gang.holders.values() if holder in kept] if kept else []
    if not needed:
        return ""
    first = kept[needed[0]]
    said = f"{needed[0]} {'and others ' if len(needed) > 1 else ''}{_SAID}{told(first)}"
    return escaped(f"{said}; {todo}" if (todo := advice(first)) else said)


def is_to_be_said(gang: Gang, text: str) -> bool:
    """Whether the stored message doesn't say yet what keeps pods from starting."""
    said = _SAID in gang.status.message
    if not said or (text and text in gang.status.message):
        return bool(text) and not said
    return gang.now >= said_again_at(gang)


def said_again_at(gang: Gang) -> float:
    """When the stored message may be replaced by what keeps other pods from starting."""
    return gang.status.observed_time + SAID_AGAIN_SECONDS
