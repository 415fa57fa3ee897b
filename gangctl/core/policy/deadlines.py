"""Deadlines of the barrier, of holds and replacements, and of supervisors without a controller.

Deadlines: for how long a gang waits, and for what.

The rule: each deadline is one moment, or None while it isn't counted. Time in which the gang is not at fault must not
count: without a leader that listens, without a place in the cluster, while the cluster refuses the pods, or while it
isn't known what its queue says.

- active:      start_time + activeDeadlineSeconds, while the gang has pods
- barrier:     max(all that was granted is over, the deadline before, the leader listens for 60 s, every awaited pod is
               started, the silence of every awaited pod counts) + barrierTimeoutSeconds
- replacement: max(the first replacement, all workers have stopped, the leader listens, pods are accepted, the queue is
               known, the silence of the pod counts) + replacementTimeoutSeconds
- hold:        begin of the phase + holdTimeoutSeconds
- check:       max(begin of its turn, the leader listens, every awaited member is connected) + timeoutSeconds + the time
               in which its processes end and the result arrives; the supervisor goes by timeoutSeconds alone

``recovery.py`` has what was granted. When a pod must start and its worker must report is evidence of a fault:
``facts/faults.py`` has those deadlines.

Fencing: what supervisors are told to do without a controller, and what they may go by at most.

The rule: a directive tells what the status has, so that the status knows what was told::

    told     = (isolationTimeoutSeconds, stop grace), as policy and phase have it at the last write; each change has a
               new revision, and a report returns the newest revision that its supervisor goes by
    longest >= told, and >= all that a supervisor whose worker may run was ever told and may go by still

``longest`` grows with the write that tells more. It becomes ``told`` again when an attempt starts, because only Run
directives with these values start its workers, and when every pod that may run a worker has returned the revision. It
must never be lowered for any other reason: a pod that is cut off goes by what it has heard.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gangctl.api.model import changed
from gangctl.api.status import ENDED, Fencing, GangPhase, Status
from gangctl.core.facts import barrier
from gangctl.core.facts.fitness import SETTLING_SECONDS, counts_since, never_heard_counts_since
from gangctl.core.facts.gang import Gang
from gangctl.core.policy import admission, recovery
from gangctl.core.policy.recovery import assign

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
    since = max(
        recovery.granted_until(gang),
        gang.status.deadline_time or 0.0,
        gang.observed.listening_since + SETTLING_SECONDS,
        silence,
        *started,
    )
    return since + gang.spec.recovery.barrier_timeout_seconds


def replacement_timeout(gang: Gang) -> float | None:
    """When a replacement has taken too long: only while others wait for it, or when it failed before."""
    accepted, queue = admission.deadlines_count_since(gang), gang.observed.queue
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
    return began + gang.spec.recovery.replacement_timeout_seconds


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


# Fencing


def with_fencing(gang: Gang, after: Status) -> Status:
    """The status that is to be written, with what its directives tell."""
    if after.phase is GangPhase.NEW or gang.status.phase in ENDED:
        return after
    fencing = _next(gang, after)
    return after if fencing == after.fencing else changed(after, fencing=fencing)


def _next(gang: Gang, after: Status) -> Fencing:
    before = gang.status.fencing
    isolation, grace = gang.spec.recovery.isolation_timeout_seconds, recovery.stop_grace(gang.spec, after)
    starts = after.phase is GangPhase.RUNNING and gang.status.phase is not GangPhase.RUNNING
    if before is None:
        knows_all = starts or gang.status.phase is GangPhase.NEW  # Else an older release has told we don't know what.
        return Fencing(
            revision=1,
            isolation_seconds=isolation,
            stop_grace_seconds=grace,
            longest_isolation_seconds=isolation if knows_all else None,
            longest_stop_grace_seconds=grace,
        )
    is_new = (before.isolation_seconds, before.stop_grace_seconds) != (isolation, grace)
    revision = before.revision + is_new
    longest_isolation = _longest(before.longest_isolation_seconds, isolation)
    longest_grace = max(before.longest_stop_grace_seconds, grace)
    if (longest_isolation, longest_grace) != (isolation, grace) and (starts or _all_go_by(gang, after, revision)):
        longest_isolation, longest_grace = isolation, grace
    return Fencing(
        revision=revision,
        isolation_seconds=isolation,
        stop_grace_seconds=grace,
        longest_isolation_seconds=longest_isolation,
        longest_stop_grace_seconds=longest_grace,
    )


def _longest(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _all_go_by(gang: Gang, after: Status, revision: int) -> bool:
    """Whether every pod that may run a worker has said that it goes by this revision; those given up now among them."""
    if after.awaited_all is not None:
        return False
    gang = gang.with_status(after)
    running = (one for one in barrier.may_run(gang) if not barrier.is_lost(gang, one))
    return all(one.heard is not None and one.heard.report.fencing >= revision for one in running)
