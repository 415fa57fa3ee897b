"""The barrier: when an attempt may start, and for how long it is waited for.

The rule: a worker of attempt N starts only when every *pod* that may run an older worker said Ready(N) or Done, was
seen terminated, or is lost, and every place has a ready member. It counts pods, not members: a pod that vanished
without having been seen terminated is lost, not gone. Never is a deadline counted while a needed pod isn't started, or
while no leader has been listening for a while: a gang that waits for its place in the cluster is not at fault.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gangctl.api.changes import changed
from gangctl.api.status import Awaited, AwaitedAll, GangPhase, Status
from gangctl.core.facts.gang import Gang, is_stopped, stop_grace
from gangctl.core.facts.world import Pod

SETTLING_SECONDS: Final = 60.0
"""A new leader listens this long before any deadline of the barrier counts."""
MAX_AWAITED: Final = 100
"""More pods than these are waited for as one: a status has a largest size."""
ISOLATION_MARGIN_SECONDS: Final = 10.0
"""Added to isolation and stop grace: pings and the supervisor's own timers are not exact."""


def blocking(gang: Gang) -> tuple[str, ...]:
    """Pods that may still run a worker of an older attempt, as ``member.incarnation``, in order.

    Empty = every pod is accounted for.
    """
    present = {pod.uid: pod for pod in gang.observed.pods}
    awaited = {entry.pod: entry for entry in gang.status.awaited}
    everyone = gang.status.awaited_all
    over = everyone is not None and _are_over(gang, everyone)
    names = [
        f"{pod.member}.{pod.incarnation}"
        for pod in gang.observed.pods
        if pod.uid not in awaited
        and _may_run(gang, pod)
        and not _is_silent_long(gang, pod.uid)
        and not (
            over
            and everyone is not None
            and _is_meant(gang, everyone, pod.member, pod.incarnation)
            and _has_vanished(gang, pod)
        )
    ]
    if everyone is not None and not over:
        names.append(f"of incarnation {everyone.incarnation} or before")
    names += [
        f"{entry.member}.{entry.incarnation}"
        for entry in gang.status.awaited
        if not _is_over(gang, entry, present.get(entry.pod))
    ]
    # A supervisor that speaks though its pod is unknown to the cluster is there all the same.
    names += [
        f"{heard.report.member}.{heard.report.incarnation}"
        for uid, heard in gang.heard.items()
        if uid not in present and uid not in awaited and heard.connected and not is_stopped(heard.report, gang.status)
    ]
    return tuple(sorted(names))


def still_awaited(gang: Gang) -> tuple[Awaited, ...]:
    """``status.awaited`` as it should be now: who is over is dropped, who has vanished gets the time of it.

    A lost pod that the cluster still shows is kept, or it would be waited for anew in the next attempt: its object
    stays there until its node is back.
    """
    present = {pod.uid: pod for pod in gang.observed.pods}
    return tuple(
        _missed(gang, entry, pod)
        for entry in gang.status.awaited
        for pod in (present.get(entry.pod),)
        if not _is_over(gang, entry, pod) or (pod is not None and not pod.terminated and _has_vanished(gang, pod))
    )


def bounded(status: Status, awaited: tuple[Awaited, ...]) -> Status:
    """The status that waits for these pods: one by one, or for all up to an incarnation where they are too many."""
    if len(awaited) <= MAX_AWAITED:
        return changed(status, awaited=awaited)
    before = -1 if status.awaited_all is None else status.awaited_all.incarnation
    newest = max(before, *(entry.incarnation for entry in awaited))
    return changed(status, awaited=(), awaited_all=AwaitedAll(incarnation=newest))


def still_awaited_all(gang: Gang) -> AwaitedAll | None:
    """``status.awaited_all`` as it should be now; kept while the cluster still shows a lost pod that it stands for."""
    awaited = gang.status.awaited_all
    if awaited is None:
        return None
    if _are_over(gang, awaited):
        lost = (pod for pod in gang.observed.pods if _is_meant(gang, awaited, pod.member, pod.incarnation))
        return awaited if any(not pod.terminated and _has_vanished(gang, pod) for pod in lost) else None
    seen = _is_any_seen(gang, awaited)
    if seen is (awaited.vanished_time is None):
        return awaited
    return changed(awaited, vanished_time=None if seen else gang.now)


def awaits(gang: Gang, member: str) -> Awaited | None:
    """The entry for a member's current pod when the pod is given up: None if it is known to run nothing."""
    pod = gang.pods.get(member)
    if pod is not None:
        if not _may_run(gang, pod):
            return None
        return Awaited(member=member, incarnation=pod.incarnation, pod=pod.uid, node=pod.node)
    if not _has_run(gang, member):
        return None
    incarnation = gang.incarnation(member)
    vanished = next((report for report in gang.reports.get(member, ()) if report.incarnation == incarnation), None)
    if vanished is not None and is_stopped(vanished, gang.status):
        return None
    return Awaited(
        member=member,
        incarnation=incarnation,
        pod="" if vanished is None else vanished.pod,
        vanished_time=gang.now,
    )


def deadline(gang: Gang, members: Collection[str]) -> float | None:
    """When the barrier's next deadline passes; None while it isn't counted. ``members``: those that are waited for."""
    started: list[float] = []
    for member in members:
        pod = gang.pods.get(member)
        if pod is None or pod.started_at is None:
            return None
        started.append(pod.started_at)
    status = gang.status
    since = max(
        status.phase_time,
        status.deadline_time or 0.0,
        gang.observed.listening_since + SETTLING_SECONDS,
        *started,
    )
    return since + gang.spec.recovery.barrier_timeout_seconds


def next_release(gang: Gang) -> float | None:
    """When the next pod that is waited for counts as lost, if only time is missing."""
    grace = gang.spec.recovery.lost_pod_grace_seconds
    everyone = () if gang.status.awaited_all is None else (gang.status.awaited_all,)
    times = [
        entry.vanished_time + grace for entry in (*gang.status.awaited, *everyone) if entry.vanished_time is not None
    ]
    return min((time for time in times if time > gang.now), default=None)


def _is_meant(gang: Gang, awaited: AwaitedAll, member: str, incarnation: int) -> bool:
    """Whether the entry stands for this pod."""
    if incarnation > awaited.incarnation:
        return False
    suspended = gang.status.phase is GangPhase.SUSPENDED
    return suspended or member not in gang.members or incarnation < gang.incarnation(member)


def _is_any_seen(gang: Gang, awaited: AwaitedAll) -> bool:
    """Whether a worker may run in a pod that the entry stands for and that is seen or heard."""
    pods = {pod.uid: pod for pod in gang.observed.pods}
    return any(
        _is_meant(gang, awaited, pod.member, pod.incarnation)
        and _may_run(gang, pod)
        and not _has_vanished(gang, pod)
        and not _is_silent_long(gang, pod.uid)
        for pod in pods.values()
    ) or any(
        uid not in pods
        and heard.connected
        and _is_meant(gang, awaited, heard.report.member, heard.report.incarnation)
        and not is_stopped(heard.report, gang.status)
        for uid, heard in gang.heard.items()
    )


def _are_over(gang: Gang, awaited: AwaitedAll) -> bool:
    grace = gang.spec.recovery.lost_pod_grace_seconds
    missed = awaited.vanished_time is not None and gang.now >= awaited.vanished_time + grace
    return missed and not _is_any_seen(gang, awaited)


def _may_run(gang: Gang, pod: Pod) -> bool:
    """Whether a worker of an older attempt may be in this pod."""
    if pod.terminated:
        return False
    heard = gang.heard.get(pod.uid)
    if heard is not None and is_stopped(heard.report, gang.status):
        return False
    if pod.member in gang.members and pod.incarnation == gang.incarnation(pod.member):
        return _has_run(gang, pod.member)
    return pod.started_at is not None or pod.restarts > 0 or heard is not None


def _has_run(gang: Gang, member: str) -> bool:
    """Whether a worker may have been started in the member's current incarnation. A spare is never told to run."""
    return member in gang.holders.values() and not gang.is_fresh(member)


def _is_over(gang: Gang, entry: Awaited, pod: Pod | None) -> bool:
    heard = gang.heard.get(entry.pod)
    if heard is not None and is_stopped(heard.report, gang.status):
        return True
    if pod is not None and pod.terminated:
        return True
    if _is_silent_long(gang, entry.pod):
        return True
    grace = gang.spec.recovery.lost_pod_grace_seconds
    if heard is not None and heard.connected:
        return False
    missed = entry.vanished_time is not None and _has_vanished(gang, pod)
    return missed and gang.now >= (entry.vanished_time or 0.0) + grace


def _missed(gang: Gang, entry: Awaited, pod: Pod | None) -> Awaited:
    """The entry with the time since when its pod is missed; a pod whose node is back is not missed any more."""
    vanished = _has_vanished(gang, pod)
    if vanished is (entry.vanished_time is not None):
        return entry
    return changed(entry, vanished_time=gang.now if vanished else None)


def _has_vanished(gang: Gang, pod: Pod | None) -> bool:
    if pod is None:
        return True
    return pod.deleting and gang.on_lost_node(pod)


def _is_silent_long(gang: Gang, uid: str) -> bool:
    """Strict fencing: it was silent for so long that its supervisor has stopped its worker by itself."""
    isolation = gang.spec.recovery.isolation_timeout_seconds
    if isolation is None:
        return False
    heard = gang.heard.get(uid)
    if heard is not None and heard.connected:
        return False
    silent_since = max(gang.observed.listening_since, gang.status.phase_time, 0.0 if heard is None else heard.at)
    return gang.now >= silent_since + isolation + stop_grace(gang.spec, gang.status) + ISOLATION_MARGIN_SECONDS
