"""Silence: when it is evidence that a member is not heard, and when it is not.

The rule: silence alone is no evidence. It counts against a supervisor that this leader has heard, and against one that
it has never heard only while it hears another pod of the gang: only then is it known that pods can reach it. A node
counts as lost only when this leader's own watch has shown it so for the whole grace, and its pod is silent as long::

    silent_since(p)  the last report of p's supervisor; where this leader has heard none, the begin of listening
    lost(p)          both p's node and p's supervisor have been silent for NODE_GRACE_SECONDS
    counts_since(p)  the begin of listening where p was heard, else since when another pod of the gang is connected

While the brake is on (``policy/brake.py``), silence alone doesn't count. A node that the cluster shows as lost does: it
does not depend on the controller's connection to sidecars.

Silence must never be a hang, nor end a worker that may be training. Whatever does not count is told to people
(``record/degraded.py``), for as long as it takes.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.status import ENDED, GangPhase
from gangctl.core.facts.finished import need_no_pod
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.world import Pod

SETTLING_SECONDS: Final = 60.0
"""A new leader listens this long before any deadline of the barrier counts."""
NODE_GRACE_SECONDS: Final = 30.0
"""A sidecar connects again within 5 s, a kubelet that was restarted posts its node's status within 10 s."""
SILENT_RESTARTS: Final = 3
"""So many container restarts without a word of a supervisor are StartFailed (a volume that executes nothing)."""
STEADY_SECONDS: Final = 60.0
"""A container that has run for this long does not end again and again."""


def silent_since(gang: Gang, pod: Pod) -> float | None:
    """Since when its supervisor has not been heard; None while it is connected."""
    heard = gang.heard.get(pod.uid)
    if heard is None:
        return _since_start(gang, pod)
    return None if heard.connected else heard.at


def _since_start(gang: Gang, pod: Pod) -> float:
    return max(pod.started_at or pod.created_at, gang.observed.listening_since)


def lost_at(gang: Gang, pod: Pod) -> float | None:
    """When the pod's node counts as lost if neither of them is heard again; None while that isn't counted."""
    node = gang.observed.lost_nodes.get(pod.node)
    heard = gang.heard.get(pod.uid)
    if node is None or (heard is not None and heard.connected):
        return None
    silent = heard.at if heard is not None else max(pod.started_at or pod.created_at, gang.watching_since)
    return max(node, silent) + NODE_GRACE_SECONDS


def on_lost_node(gang: Gang, pod: Pod) -> bool:
    """Whether the pod's node counts as lost."""
    at = lost_at(gang, pod)
    return at is not None and gang.now >= at


def next_loss(gang: Gang) -> float | None:
    """When the next node counts as lost if nothing but time passes."""
    if not gang.observed.lost_nodes:
        return None
    times = (lost_at(gang, pod) for pod in gang.observed.pods)
    return min((at for at in times if at is not None and at > gang.now), default=None)


def counts_since(gang: Gang, pod: Pod) -> float | None:
    """Since when it counts that the pod's supervisor is silent; None = it doesn't count."""
    return gang.observed.listening_since if pod.uid in gang.heard else never_heard_counts_since(gang)


@once
def never_heard_counts_since(gang: Gang) -> float | None:
    """The same of each pod that this leader has never heard."""
    began = gang.observed.listening_since
    return None if gang.hearing_since is None else max(began, gang.hearing_since)


def ends_again_and_again(gang: Gang, pod: Pod) -> bool:
    """Whether the cluster shows that its containers don't stay: a supervisor that is not heard then never will be."""
    return pod.restarts >= SILENT_RESTARTS and (pod.started_at is None or gang.now < pod.started_at + STEADY_SECONDS)


@once
def silent(gang: Gang) -> list[tuple[float, str]]:
    """Return (since when, member) of each member that should be connected and is not, the longest silent first.

    A member should be connected whose pod runs and goes on, unless it has finished.
    """
    if gang.status.phase in {GangPhase.NEW, GangPhase.SUSPENDED, *ENDED}:
        return []
    lost, done, heard = gang.observed.lost_nodes, need_no_pod(gang), gang.heard
    alive = [
        pod
        for pod in gang.unheard
        if pod.started_at is not None
        and not (pod.terminated or pod.deleting or pod.node in lost)
        and pod.member not in done
    ]
    never_heard = [pod for pod in alive if pod.uid not in heard and not ends_again_and_again(gang, pod)]
    found = [(_since_start(gang, pod), pod.member) for pod in never_heard]
    found += [(one.at, pod.member) for pod in alive if (one := heard.get(pod.uid)) is not None and one.done_in < 0]
    return sorted(found)
