"""Scheduling: what users read while pods wait for a node, and for how long they may wait.

    gives_up_at = max(all workers have stopped, pods accepted, first pod created) + schedulingTimeoutSeconds

It counts while a pod is there and isn't scheduled. It must not count while the cluster refuses the pods.
"""

from __future__ import annotations

from gangctl.api.escaping import escaped
from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.starts import advice, reason_of
from gangctl.core.policy import admission, granted
from gangctl.words.waits import cannot_start


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
    return max(granted.stopped_by(gang), accepted, min(waiting)) + timeout


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
    return cannot_start(needed, escaped(reason_of(first)), escaped(advice(first)))
