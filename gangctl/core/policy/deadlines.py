"""Deadlines: for how long a gang waits, and for what.

The rule: each deadline is one moment, or None while it isn't counted. Time in which the gang is not at fault must not
count: without a leader that listens, without a place in the cluster, while the cluster refuses the pods, or while it
isn't known what its queue says.

- active:      start_time + activeDeadlineSeconds, while the gang has pods
- barrier:     max(all that was granted is over, the deadline before, the leader listens for 60 s, every awaited pod is
               started, the silence of every awaited pod counts) + barrierTimeoutSeconds
- replacement: max(the first replacement, all workers have stopped, the leader listens, pods are accepted, the queue is
               known, the silence of the pod counts) + replacementTimeoutSeconds
- hold:        begin of the phase + holdTimeoutSeconds

``granted.py`` has what was granted. When a pod must start and its worker must report is evidence of a fault:
``facts/faults.py`` has those deadlines.
"""

from __future__ import annotations

from collections.abc import Collection

from gangctl.api.status import ENDED, GangPhase
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.ranks import assign
from gangctl.core.facts.silence import SETTLING_SECONDS, counts_since, never_heard_counts_since
from gangctl.core.policy import admission, granted


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
    since = max(
        granted.over_at(gang),
        gang.status.deadline_time or 0.0,
        gang.observed.listening_since + SETTLING_SECONDS,
        silence,
        *started,
    )
    return since + gang.spec.recovery.barrier_timeout_seconds


def replacement_timeout(gang: Gang) -> float | None:
    """When a replacement has taken too long: only while others wait for it, or when it failed before."""
    accepted, queue = admission.counts_since(gang), gang.observed.queue
    if accepted is None or not queue.known or not (gang.replaced or gang.status.recreated):
        return None
    since, gathers = [], gang.status.phase is GangPhase.GATHERING
    late = [gang.holders[place] for place, member in assign(gang).items() if member is None]
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
    began = max(min(since), granted.stopped_by(gang), gang.observed.listening_since, accepted, queue.known_since)
    return began + gang.spec.recovery.replacement_timeout_seconds


def hold_timeout(gang: Gang) -> float | None:
    """When a held gang fails."""
    limit = gang.spec.recovery.hold_timeout_seconds
    return None if limit is None else gang.status.phase_time + limit
