"""The barrier: when an attempt may start.

Invariant: at every moment, all workers that run in pods that are not lost are workers of one attempt.
Target: attempt N starts as soon as that is certain, and with a ready member in every place::

    P             the pods that the cluster shows, that status.awaited names, or whose supervisor is connected,
                  of any incarnation; status.awaited_all stands for more pods than a status can name
    older(p)      a worker of an attempt before N may have been started in p
    stopped(p)    the supervisor of p reports Ready(N) or Done(N)
    terminated(p) the cluster has seen that nothing of p runs or will run
    silent(p)     no supervisor of p is connected
    vanished(p)   the cluster does not show p, or shows it being deleted on a node that does not answer
    fenced(p)     silent(p) for isolationTimeoutSeconds and the time to stop: its supervisor has stopped its worker
    lost(p)       fenced(p), or silent(p) and vanished(p), the latter for lostPodGraceSeconds

    blocking    = {p in P : older(p) and not (stopped(p) or terminated(p) or lost(p))}
    missing     = {places without a ready member} (ranks.assign)
    complete   <=> blocking = {} and missing = {}

It counts pods, not members: the replacement of a pod proves nothing about the pod. A pod that vanished must never count
as terminated. A pod that was given up must never be forgotten before it is stopped, terminated or lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gangctl.api.changes import changed
from gangctl.api.status import Awaited, AwaitedAll, GangPhase, Status
from gangctl.core.facts.gang import Gang, is_stopped, stop_grace
from gangctl.core.facts.silence import next_loss, on_lost_node
from gangctl.core.facts.world import Heard, Pod

SETTLING_SECONDS: Final = 60.0
"""A new leader listens this long before any deadline of the barrier counts."""
MAX_AWAITED: Final = 100
"""Above this number, ``awaited_all`` stands for the pods: the size of a status is bounded."""
ISOLATION_MARGIN_SECONDS: Final = 10.0
"""Added to isolation and stop grace: pings and the supervisor's own timers are not exact."""


class Suspect(NamedTuple):
    """An element of P: a pod in which an older worker may run, and how it is known."""

    member: str
    incarnation: int
    uid: str
    shown: Pod | None
    """As the cluster shows it."""
    heard: Heard | None
    """The newest report of its supervisor."""
    entry: Awaited | None = None
    """Its entry in ``status.awaited``."""


def blocking(gang: Gang) -> tuple[str, ...]:
    """The pods that may still run a worker of an older attempt, as ``member.incarnation``, in order."""
    awaited = {entry.pod for entry in gang.status.awaited}
    rest = gang.status.awaited_all
    rest_is_lost = rest is not None and _is_rest_lost(gang, rest)
    unnamed = (one for one in _visible(gang) if one.uid not in awaited)
    if rest is not None and rest_is_lost:
        unnamed = (one for one in unnamed if not _is_lost_with(gang, rest, one))
    names = [f"{one.member}.{one.incarnation}" for one in (*unnamed, *_awaited(gang)) if _blocks(gang, one)]
    if rest is not None and not rest_is_lost:
        names.append(f"of incarnation {rest.incarnation} or before")
    return tuple(sorted(names))


def awaits(gang: Gang, member: str) -> Awaited | None:
    """Return the entry for a member's current pod that is given up; None if it is known to run nothing."""
    pod = gang.pods.get(member)
    if pod is not None:
        if not _may_run(gang, _shown(gang, pod)):
            return None
        # Without a check: these are names of Kubernetes, and 10,000 pods may be given up at once.
        return Awaited.model_construct(member=member, incarnation=pod.incarnation, pod=pod.uid, node=pod.node)
    if not _was_told_to_run(gang, member):
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


def still_awaited(gang: Gang) -> tuple[Awaited, ...]:
    """Return ``status.awaited`` as it is now: without pods that do not block any more, with the time they vanished at.

    A lost pod that the cluster still shows is kept: its object stays there until its node is back, and would block the
    next attempt anew.
    """
    return tuple(_timed(gang, one) for one in _awaited(gang) if _blocks(gang, one) or _is_shown_vanished(gang, one))


def still_awaited_all(gang: Gang) -> AwaitedAll | None:
    """Return ``status.awaited_all`` as it is now; kept while the cluster still shows a lost pod that it stands for."""
    rest = gang.status.awaited_all
    if rest is None:
        return None
    if _is_rest_lost(gang, rest):
        shown = (_shown(gang, pod) for pod in gang.observed.pods)
        return rest if any(_stands_for(gang, rest, one) and _is_shown_vanished(gang, one) for one in shown) else None
    present = _is_rest_present(gang, rest)
    if present is (rest.vanished_time is None):
        return rest
    return changed(rest, vanished_time=None if present else gang.now)


def bounded(status: Status, awaited: tuple[Awaited, ...]) -> Status:
    """Return the status that waits for these pods: one by one, or for all up to an incarnation if they are too many."""
    status = changed(status, awaited=awaited)
    return status if len(awaited) <= MAX_AWAITED else awaiting_as_one(status)


def awaiting_as_one(status: Status) -> Status:
    """Return the status that waits for all pods up to an incarnation, in place of those that it names."""
    if not status.awaited:
        return status
    before = -1 if status.awaited_all is None else status.awaited_all.incarnation
    newest = max(before, *(entry.incarnation for entry in status.awaited))
    return changed(status, awaited=(), awaited_all=AwaitedAll(incarnation=newest))


def next_release(gang: Gang) -> float | None:
    """Return when the next pod counts as lost if nothing but time is missing."""
    grace = gang.spec.recovery.lost_pod_grace_seconds
    rest = () if gang.status.awaited_all is None else (gang.status.awaited_all,)
    times = [entry.vanished_time + grace for entry in (*gang.status.awaited, *rest) if entry.vanished_time is not None]
    loss = next_loss(gang)
    return min((time for time in (*times, *([] if loss is None else [loss])) if time > gang.now), default=None)


# P: the pods that count


def _visible(gang: Gang) -> Iterator[Suspect]:
    """Yield the pods that the cluster shows, and those of connected supervisors that it does not show.

    Without those that have stopped: nearly all have when an attempt of a large gang starts.
    """
    shown = {pod.uid for pod in gang.observed.pods}
    for pod in gang.observed.pods:
        heard = gang.heard.get(pod.uid)
        if heard is None or not is_stopped(heard.report, gang.status):
            yield Suspect(pod.member, pod.incarnation, pod.uid, pod, heard)
    for uid, heard in gang.heard.items():
        if uid not in shown and heard.connected:
            yield Suspect(heard.report.member, heard.report.incarnation, uid, None, heard)


def _shown(gang: Gang, pod: Pod) -> Suspect:
    return Suspect(pod.member, pod.incarnation, pod.uid, pod, gang.heard.get(pod.uid))


def _awaited(gang: Gang) -> Iterator[Suspect]:
    """Yield the pods that ``status.awaited`` names."""
    shown = {pod.uid: pod for pod in gang.observed.pods}
    for entry in gang.status.awaited:
        yield Suspect(
            entry.member, entry.incarnation, entry.pod, shown.get(entry.pod), gang.heard.get(entry.pod), entry
        )


# The terms of the formula


def _blocks(gang: Gang, p: Suspect) -> bool:
    return _may_run(gang, p) and not _is_lost(gang, p)


def _may_run(gang: Gang, p: Suspect) -> bool:
    """older(p) and not (stopped(p) or terminated(p)): the cheap terms first."""
    return not _is_stopped(gang, p) and not _is_terminated(p) and _is_older(gang, p)


def _is_older(gang: Gang, p: Suspect) -> bool:
    if p.entry is not None or p.shown is None:
        return True
    if p.member in gang.members and p.incarnation == gang.incarnation(p.member):
        return _was_told_to_run(gang, p.member)
    return p.shown.started_at is not None or p.shown.restarts > 0 or p.heard is not None


def _was_told_to_run(gang: Gang, member: str) -> bool:
    """Whether a worker may have been started in the member's current incarnation. A spare is never told to run."""
    return member in gang.holding and not gang.is_fresh(member)


def _is_stopped(gang: Gang, p: Suspect) -> bool:
    return p.heard is not None and is_stopped(p.heard.report, gang.status)


def _is_terminated(p: Suspect) -> bool:
    return p.shown is not None and p.shown.terminated


def _is_silent(p: Suspect) -> bool:
    return p.heard is None or not p.heard.connected


def _is_vanished(gang: Gang, p: Suspect) -> bool:
    return p.shown is None or (p.shown.deleting and on_lost_node(gang, p.shown))


def _is_shown_vanished(gang: Gang, p: Suspect) -> bool:
    """Whether the cluster still shows a pod that vanished: one on a lost node."""
    return p.shown is not None and not _is_terminated(p) and _is_vanished(gang, p)


def _is_fenced(gang: Gang, p: Suspect) -> bool:
    isolation = gang.spec.recovery.isolation_timeout_seconds
    if isolation is None or not _is_silent(p):
        return False
    silent_since = max(gang.observed.listening_since, gang.status.phase_time, 0.0 if p.heard is None else p.heard.at)
    return gang.now >= silent_since + isolation + stop_grace(gang.spec, gang.status) + ISOLATION_MARGIN_SECONDS


def _is_lost(gang: Gang, p: Suspect) -> bool:
    """lost(p), where p is named; the others: _is_lost_with."""
    if _is_fenced(gang, p):
        return True
    return p.entry is not None and _is_silent(p) and _is_vanished(gang, p) and _is_grace_over(gang, p.entry)


def _is_grace_over(gang: Gang, entry: Awaited | AwaitedAll) -> bool:
    """Whether the pods of an entry have been missed for the whole grace."""
    grace = gang.spec.recovery.lost_pod_grace_seconds
    return entry.vanished_time is not None and gang.now >= entry.vanished_time + grace


def _timed(gang: Gang, p: Suspect) -> Awaited:
    """Return the entry with the time at which its pod vanished; a pod whose node is back is not missed any more."""
    assert p.entry is not None
    vanished = _is_vanished(gang, p)
    if vanished is (p.entry.vanished_time is not None):
        return p.entry
    return changed(p.entry, vanished_time=gang.now if vanished else None)


# The pods that status.awaited_all stands for


def _stands_for(gang: Gang, rest: AwaitedAll, p: Suspect) -> bool:
    if p.incarnation > rest.incarnation:
        return False
    suspended = gang.status.phase is GangPhase.SUSPENDED
    return suspended or p.member not in gang.members or p.incarnation < gang.incarnation(p.member)


def _is_rest_present(gang: Gang, rest: AwaitedAll) -> bool:
    """Whether a worker may run in one of them that has not vanished."""
    return any(
        _stands_for(gang, rest, one)
        and _may_run(gang, one)
        and not _is_fenced(gang, one)
        and not (_is_silent(one) and _is_vanished(gang, one))
        for one in _visible(gang)
    )


def _is_lost_with(gang: Gang, rest: AwaitedAll, p: Suspect) -> bool:
    """Whether p is lost because all that the entry stands for is."""
    return _stands_for(gang, rest, p) and _is_silent(p) and _is_vanished(gang, p)


def _is_rest_lost(gang: Gang, rest: AwaitedAll) -> bool:
    return _is_grace_over(gang, rest) and not _is_rest_present(gang, rest)
