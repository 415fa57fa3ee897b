"""The barrier: which pods may still run a worker, and when an attempt may start.

Invariant: at every moment, all workers that run in pods that are not lost are workers of one attempt.
Target: attempt N starts as soon as that is certain, and with a ready member in every place::

    P             the pods that the cluster shows, that status.awaited names, or whose supervisor is connected,
                  of any incarnation; status.awaited_all stands for more pods than a status can name
    older(p)      a worker of an attempt before N may have been started in p
    stopped(p)    the supervisor of p reports Ready(N) or Done(N)
    silent(p)     no supervisor of p is connected
    terminated(p) silent(p), and the cluster has seen that nothing of p runs or will run
    vanished(p)   the cluster does not show p, or shows it being deleted on a node that does not answer
    fenced(p)     silent(p), its last report heard (or p missed, if its UID is unknown) for longer ago than the longest
                  isolation and stop grace that it may go by (status.fencing), and a margin: its worker was stopped,
                  unless that report says that a process has outlived SIGKILL
    lost(p)       fenced(p), or silent(p) and vanished(p), the latter for lostPodGraceSeconds

Both waits run while this leader listens: in a new term they begin again, since its clock is another one, and a pod that
it never heard has 30 s to connect to it, whatever the grace. What a pod was
told counts, and not what the spec says today: a pod that is cut off has not heard of it.

    blocking    = {p in P : older(p) and not (stopped(p) or terminated(p) or lost(p))}
    missing     = {places without a ready member} (policy/recovery.py)
    complete   <=> blocking = {} and missing = {}

It counts pods, not members: the replacement of a pod proves nothing about the pod. A pod that vanished must never count
as terminated. A pod that was given up must never be forgotten before it is stopped, terminated or lost.

What a status keeps of pods that are given up though they may run a worker.

The rule: every such pod is waited for, one by one or, where they are too many to be named, as all up to an incarnation.
A pod that was given up must never be forgotten before it is stopped, terminated or lost.

Fencing: what supervisors are told to do without a controller, and what they may go by at most.

The rule: a directive tells what the status has, so that the status knows what was told::

    told     = (isolationTimeoutSeconds, stop grace), as policy and phase have it at the last write; each change has a
               new revision, and a report returns the newest revision that its supervisor goes by
    longest >= told, and >= all that a supervisor whose worker may run was ever told and may go by still

``longest`` grows with the write that tells more. It becomes ``told`` again when an attempt starts, because only Run
directives with these values start its workers, and when every pod that may run a worker has returned the revision. It
must never be lowered for any other reason: a pod that is cut off goes by what it has heard.

Ports: which rank 0 has none for its peers to reach it at.

The rule: the supervisor of rank 0 looks for free ports of ``spec.network`` before it is ready, and again as long as it
finds none. A process group of several ranks must not start at a port that another process has: it would fail, again and
again. A single rank needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gangctl.api.gangjob import Spec
from gangctl.api.model import changed
from gangctl.api.roles import number_places
from gangctl.api.status import ENDED, Awaited, AwaitedAll, Fencing, GangPhase, Status
from gangctl.core.facts.fitness import NODE_GRACE_SECONDS, next_loss, on_lost_node
from gangctl.core.facts.gang import Gang, once
from gangctl.core.facts.world import Heard, Pod
from gangsidecar.wire import Phase

# The barrier


ISOLATION_MARGIN_SECONDS: Final = 10.0
"""Added to isolation and stop grace: timers of supervisors are not exact, and a leader whose Lease was deleted may
answer reports until its renew deadline, while the next one listens already."""


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


@dataclass(frozen=True, slots=True)
class Blocking:
    """The pods that may still run a worker of an older attempt."""

    certain: list[str]
    """Members whose current pods run one beyond doubt."""
    doubtful: tuple[Suspect, ...]
    rest: AwaitedAll | None = None
    """All that it stands for, if they aren't lost."""

    def __len__(self) -> int:
        return len(self.certain) + len(self.doubtful) + (self.rest is not None)


def blocking_pods(gang: Gang) -> Blocking:
    """The pods that may still run a worker of an older attempt."""
    awaited = {entry.pod for entry in gang.status.awaited}
    certain = [member for member, pod in _certain(gang).items() if pod.uid not in awaited]
    rest, suspects = gang.status.awaited_all, _suspects(gang)
    if rest is not None and _is_rest_lost(gang, rest):
        lost, rest = rest, None
        suspects = (one for one in suspects if one.entry is not None or not _is_lost_with(gang, lost, one))
    return Blocking(certain, tuple([one for one in suspects if not is_lost(gang, one)]), rest)


def awaits(gang: Gang, member: str) -> GivenUp | None:
    """Return what is to be known of a member's current pod that is given up; None if it is known to run nothing."""
    pod = gang.pods.get(member)
    if pod is not None:
        may = member in _certain(gang) or _may_run(gang, _shown(gang, pod))
        return GivenUp(member, pod.incarnation, pod.uid, pod.node) if may else None
    if member not in ordered_to_run(gang):
        return None
    incarnation = gang.incarnation(member)
    reports = (heard.report for heard in gang.heard_of_pods.get(member, ()))
    vanished = {report.pod for report in reports if report.incarnation == incarnation}
    running = vanished - gang.stopped
    if vanished and not running:
        return None
    return GivenUp(member, incarnation, running.pop() if len(running) == 1 else "", vanished_time=gang.now)


def still_awaited(gang: Gang) -> tuple[Awaited, ...]:
    """Return ``status.awaited`` as it is now: without pods that do not block any more, with the time they vanished at.

    A lost pod that the cluster still shows is kept: its object stays there until its node is back, and would block the
    next attempt anew.
    """
    kept = [p for p in _awaited(gang) if _is_shown_vanished(gang, p) or (_may_run(gang, p) and not is_lost(gang, p))]
    return tuple(_timed(gang, p) for p in kept)


def still_awaited_all(gang: Gang) -> AwaitedAll | None:
    """Return ``status.awaited_all`` as it is now; kept while the cluster still shows a lost pod that it stands for."""
    rest = gang.status.awaited_all
    if rest is None:
        return None
    if _is_rest_lost(gang, rest):
        shown = (_shown(gang, pod) for pod in gang.observed.pods)
        return rest if any(_stands_for(gang, rest, one) and _is_shown_vanished(gang, one) for one in shown) else None
    since = _missed_since(gang, rest, missed=not _is_rest_present(gang, rest))
    return rest if since == rest.vanished_time else changed(rest, vanished_time=since)


def may_run(gang: Gang) -> Iterator[Suspect]:
    """Yield the pods in which a worker may run, now or later, by what was told so far; lost ones among them."""
    awaited = {entry.pod for entry in gang.status.awaited}
    yield from (_shown(gang, pod) for pod in _certain(gang).values() if pod.uid not in awaited)
    yield from _suspects(gang)


def is_lost(gang: Gang, p: Suspect) -> bool:
    """lost(p), where p is named; the others: _is_lost_with."""
    if not _is_silent(p):
        return False
    if _is_fenced(gang, p):
        return True
    return p.entry is not None and _is_vanished(gang, p) and _is_grace_over(gang, p.entry)


def next_release(gang: Gang) -> float | None:
    """Return when the next pod counts as lost if nothing but time is missing."""
    times = (next_loss(gang), *releases(gang))
    return min((time for time in times if time is not None and time > gang.now), default=None)


def releases(gang: Gang) -> list[float | None]:
    """Return when pods count as lost if nothing but time passes, or since when; None = that isn't counted."""
    rest = () if gang.status.awaited_all is None else (gang.status.awaited_all,)
    times = [_grace_ends(gang, entry) for entry in (*gang.status.awaited, *rest)]
    told = gang.status.fencing
    if told is not None and told.longest_isolation_seconds is not None:
        times += [_fenced_at(gang, one) for one in _suspects(gang) if _is_silent(one)]
    return times


# P: the pods that count


@once
def _certain(gang: Gang) -> Mapping[str, Pod]:
    """Member -> its pod, where a worker runs in it beyond doubt: told to run, sound, connected, and not stopped.

    In a large gang these are nearly all, so what can only be asked of the others is not asked of them.
    """
    told, stopped = ordered_to_run(gang), gang.stopped
    return {
        member: pod
        for member, pod in gang.pods.items()
        if member in told and pod.uid not in stopped and pod.is_sound and member in gang.speaking
    }


@once
def _doubtful(gang: Gang) -> tuple[Suspect, ...]:
    """The other pods in which a worker may run: those shown, and those of connected supervisors that are not shown."""
    known, heard_of = gang.stopped.union([pod.uid for pod in _certain(gang).values()]), gang.heard
    told, current = ordered_to_run(gang), gang.pods
    found = [
        Suspect(pod.member, pod.incarnation, pod.uid, pod, heard_of.get(pod.uid))
        for pod in gang.observed.pods
        if pod.uid not in known and (pod.member in told if current.get(pod.member) is pod else _is_older(gang, pod))
    ]
    unseen = [(uid, one) for uid, one in gang.absent.items() if uid not in known]
    found += [Suspect(one.report.member, one.report.incarnation, uid, None, one) for uid, one in unseen]
    return tuple([one for one in found if not _is_terminated(one)])


def _suspects(gang: Gang) -> Iterator[Suspect]:
    """Yield the elements of P in which a worker may run, without those of which that is certain."""
    awaited = {entry.pod for entry in gang.status.awaited}
    yield from (one for one in _doubtful(gang) if one.uid not in awaited)
    yield from (one for one in _awaited(gang) if _may_run(gang, one))


def _shown(gang: Gang, pod: Pod) -> Suspect:
    return Suspect(pod.member, pod.incarnation, pod.uid, pod, gang.heard.get(pod.uid))


def _awaited(gang: Gang) -> Iterator[Suspect]:
    """Yield the pods that ``status.awaited`` names."""
    awaited = {entry.pod for entry in gang.status.awaited}
    shown = {pod.uid: pod for pod in gang.observed.pods if pod.uid in awaited} if awaited else {}
    for entry in gang.status.awaited:
        pod = entry.pod
        yield Suspect(entry.member, entry.incarnation, pod, shown.get(pod), gang.heard.get(pod), entry)


# The terms of the formula


def _may_run(gang: Gang, p: Suspect) -> bool:
    """older(p) and not (stopped(p) or terminated(p)): the cheap terms first."""
    if p.uid in gang.stopped or _is_terminated(p):
        return False
    return p.entry is not None or p.shown is None or _is_older(gang, p.shown)


def _is_older(gang: Gang, pod: Pod) -> bool:
    """older(p), where the cluster shows it and no entry names it."""
    if gang.is_current(pod.member, pod.incarnation):
        return pod.member in ordered_to_run(gang)
    return pod.started_at is not None or pod.restarts > 0 or pod.uid in gang.heard


@once
def ordered_to_run(gang: Gang) -> frozenset[str]:
    """The members in whose current incarnation a worker may have been started. A spare is never told to run."""
    if gang.status.phase is GangPhase.PENDING:
        return frozenset()  # All are fresh.
    return gang.holding.difference(name for name in gang.replaced if gang.is_fresh(name))


def _is_terminated(p: Suspect) -> bool:
    return p.shown is not None and p.shown.terminated and _is_silent(p)


def _is_silent(p: Suspect) -> bool:
    return p.heard is None or not p.heard.connected


def _is_vanished(gang: Gang, p: Suspect) -> bool:
    return p.shown is None or (p.shown.deleting and on_lost_node(gang, p.shown))


def _is_shown_vanished(gang: Gang, p: Suspect) -> bool:
    """Whether the cluster still shows a pod that vanished: one on a lost node."""
    return p.shown is not None and not _is_terminated(p) and _is_vanished(gang, p)


def _is_fenced(gang: Gang, p: Suspect) -> bool:
    end = _fenced_at(gang, p)
    return end is not None and _is_silent(p) and gang.now >= end


def _fenced_at(gang: Gang, p: Suspect) -> float | None:
    """When the supervisor of a silent pod has stopped its worker; None = it need not, or has said that it can't."""
    told = gang.status.fencing
    if told is None or told.longest_isolation_seconds is None:
        return None
    if p.heard is not None and p.heard.report.phase is Phase.STUCK:
        return None
    missed = p.entry.vanished_time if p.entry is not None and not p.uid else None  # Its last report is forgotten.
    silent_since = max(gang.observed.listening_since, (missed or 0.0) if p.heard is None else p.heard.at)
    return silent_since + told.longest_isolation_seconds + told.longest_stop_grace_seconds + ISOLATION_MARGIN_SECONDS


def _is_grace_over(gang: Gang, entry: Awaited | AwaitedAll) -> bool:
    """Whether the pods of an entry have been missed for the whole grace."""
    end = _grace_ends(gang, entry)
    return end is not None and gang.now >= end


def _grace_ends(gang: Gang, entry: Awaited | AwaitedAll) -> float | None:
    """When the pods of an entry have been missed for the whole grace by this leader; None = they are not missed.

    A pod that this leader never heard has time to connect to it, whatever the grace: a deposed one may hear it yet.
    """
    if entry.vanished_time is None:
        return None
    grace = gang.spec.recovery.lost_pod_grace_seconds
    heard = isinstance(entry, Awaited) and entry.pod in gang.heard
    since = max(entry.vanished_time, gang.watching_since)
    return since + grace if heard else max(since + grace, gang.watching_since + NODE_GRACE_SECONDS)


def _timed(gang: Gang, p: Suspect) -> Awaited:
    """Return the entry with the time at which its pod vanished; a pod whose node is back is not missed any more."""
    assert p.entry is not None
    since = _missed_since(gang, p.entry, missed=_is_vanished(gang, p))
    return p.entry if since == p.entry.vanished_time else changed(p.entry, vanished_time=since)


def _missed_since(gang: Gang, entry: Awaited | AwaitedAll, *, missed: bool) -> float | None:
    if not missed:
        return None
    return gang.now if entry.vanished_time is None else entry.vanished_time


# The pods that status.awaited_all stands for


def _stands_for(gang: Gang, rest: AwaitedAll, p: Suspect) -> bool:
    if p.incarnation > rest.incarnation:
        return False
    suspended = gang.status.phase is GangPhase.SUSPENDED
    return suspended or p.member not in gang.members or p.incarnation < gang.incarnation(p.member)


def _is_rest_present(gang: Gang, rest: AwaitedAll) -> bool:
    """Whether a worker may run in one of them that has not vanished."""
    if any(_stands_for(gang, rest, _shown(gang, pod)) for pod in _certain(gang).values()):
        return True
    return any(
        _stands_for(gang, rest, one) and not _is_fenced(gang, one) and not (_is_silent(one) and _is_vanished(gang, one))
        for one in _doubtful(gang)
    )


def _is_lost_with(gang: Gang, rest: AwaitedAll, p: Suspect) -> bool:
    """Whether p is lost because all that the entry stands for is."""
    return _stands_for(gang, rest, p) and _is_silent(p) and _is_vanished(gang, p)


def _is_rest_lost(gang: Gang, rest: AwaitedAll) -> bool:
    return _is_grace_over(gang, rest) and not _is_rest_present(gang, rest)


# What a status keeps of pods that are given up though they may run a worker


MAX_AWAITED: Final = 100
"""Above this number, ``awaited_all`` stands for the pods: the size of a status is bounded."""


class GivenUp(NamedTuple):
    """A pod that is given up though it may run a worker: it becomes an entry of ``status.awaited``."""

    member: str
    incarnation: int
    pod: str
    """Its UID; empty if it was never seen."""
    node: str = ""
    vanished_time: float | None = None


def await_pods(status: Status, given_up: Iterable[GivenUp | None]) -> Status:
    """Return the status that also waits for these pods: one by one, or for all up to an incarnation if too many.

    An entry is known by all of its names, since the UID of a pod that was never seen is empty.
    """
    found = [one for one in given_up if one is not None]
    if len(found) > MAX_AWAITED:
        return awaiting_as_one(status, max([one.incarnation for one in found]))
    known = {(entry.member, entry.incarnation, entry.pod) for entry in status.awaited}
    more = {one[:3]: one for one in found if one[:3] not in known}
    if len(known) + len(more) > MAX_AWAITED:
        return awaiting_as_one(status, max((one.incarnation for one in more.values()), default=-1))
    entries = (
        Awaited(
            member=one.member,
            incarnation=one.incarnation,
            pod=one.pod,
            node=one.node,
            vanished_time=one.vanished_time,
        )
        for one in more.values()
    )
    return changed(status, awaited=(*status.awaited, *entries))


def awaiting_as_one(status: Status, newest: int = -1) -> Status:
    """Return the status that waits for all pods up to an incarnation, in place of those that it names."""
    newest = max([newest, *(entry.incarnation for entry in status.awaited)])
    if newest < 0:
        return status
    before = -1 if status.awaited_all is None else status.awaited_all.incarnation
    return changed(status, awaited=(), awaited_all=AwaitedAll(incarnation=max(before, newest)))


# Ports


def without_port(gang: Gang, assignment: Mapping[str, str | None]) -> list[str]:
    """The ready members with rank 0 of a process group that found no free port. ``assignment``: place -> member."""
    numbering = number_places(gang.roles)
    first = {places[0]: numbering.world_size(group) for group, places in numbering.groups.items() if places}
    members = [assignment[place] for place, size in first.items() if size > 1]
    return [one for one in members if one is not None and is_without_port(gang, one)]


def is_without_port(gang: Gang, member: str) -> bool:
    """Whether the member's supervisor is ready and found no free port."""
    heard = gang.heard_by_member.get(member)
    return heard is not None and heard.ready_for == gang.status.attempt and not heard.report.ports


def port_range(gang: Gang) -> str:
    """The ports among which it looks, as ``29400 to 29463``."""
    network = gang.spec.network
    last = network.base_port + network.port_count - 1
    return str(last) if network.port_count == 1 else f"{network.base_port} to {last}"


# Fencing


def is_planned(status: Status) -> bool:
    """Whether workers are stopped though no member has failed: they have the longer grace for a last checkpoint."""
    stopping = {GangPhase.PENDING, GangPhase.GATHERING, GangPhase.HELD}
    incidents = status.incidents
    return status.phase is GangPhase.SUSPENDED or (
        status.phase in stopping and bool(incidents) and incidents[0].planned
    )


def stop_grace(spec: Spec, status: Status) -> int:
    """Seconds from SIGTERM to SIGKILL for a worker that is stopped now."""
    recovery = spec.recovery
    return recovery.planned_stop_grace_period_seconds if is_planned(status) else recovery.stop_grace_period_seconds


def with_fencing(gang: Gang, after: Status) -> Status:
    """The status that is to be written, with what its directives tell."""
    if after.phase is GangPhase.NEW or gang.status.phase in ENDED:
        return after
    fencing = _next(gang, after)
    return after if fencing == after.fencing else changed(after, fencing=fencing)


def _next(gang: Gang, after: Status) -> Fencing:
    before = gang.status.fencing
    isolation, grace = gang.spec.recovery.isolation_timeout_seconds, stop_grace(gang.spec, after)
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
    running = (one for one in may_run(gang) if not is_lost(gang, one))
    return all(one.heard is not None and one.heard.report.fencing >= revision for one in running)
