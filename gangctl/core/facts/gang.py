"""The gang at one moment: its job, its pods, its reports, and what follows from them.

One look at a gang: the job and the observed world, indexed by member and pod.

A member is one place in the gang. Its *place* is the part of the job that it runs by default; a spare has none until it
takes the place of a lost member. ``Gang`` answers questions of fact only; policies decide what follows from them.

Stored times: what a leader believes of the times that another one has stored.

    believed(t) = t                     if t <= now
                  begin of listening    else

A leader's own times are never to come, since its clock doesn't jump within a term. A time to come is that of a leader
whose clock was ahead, by any amount: what waits since then waits since this leader listens. A deadline must not wait
until the clocks of two leaders agree. A time that is too long ago can't be told from a true one; so what must not be
cut short by a clock that was behind counts from the begin of listening too (``policy/admission.py``, ``barrier.py``).

Not believed anew are the times of causes, which tell an order (``policy/cause.py``), and those that goodput accounts
for: it counts no second twice. A back-off is reckoned anew from the begin of its incident.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Final, TypeVar

from gangctl.api.gangjob import GangJob, Launch, Role, Spec
from gangctl.api.incident import Incident
from gangctl.api.model import changed
from gangctl.api.roles import Member, layout, with_sizes
from gangctl.api.status import (
    GangPhase,
    ProgressStatus,
    Replaced,
    Status,
    in_phase,  # noqa: TID251 - neither phase nor attempt changes here
)
from gangctl.core.facts.world import Heard, Observed, Pod
from gangsidecar.wire import Report

# One look at a gang


_T = TypeVar("_T")


@dataclass(frozen=True)
class Gang:
    """The job and its world at one moment. Times are seconds since the epoch."""

    now: float
    job: GangJob
    observed: Observed
    known: dict[Callable[[Gang], Any], Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What :func:`once` has computed from this look."""

    def with_status(self, status: Status) -> Gang:
        """The same look with another status. What only the world tells isn't looked for again."""
        other = Gang(self.now, changed(self.job, status=status), self.observed)
        same = (other.raised, status.base_incarnation) == (self.raised, self.status.base_incarnation)
        known, kept = vars(self), (*_OF_WORLD, *(_OF_PODS if same else ()))
        vars(other).update({name: known[name] for name in kept if name in known})
        return other

    @cached_property
    def spec(self) -> Spec:
        """What the user wants."""
        return self.job.spec

    @cached_property
    def status(self) -> Status:
        """The stored status."""
        return self.job.status

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """The roles with the size of the attempt that was started last."""
        return roles_of(self.spec, self.status)

    @cached_property
    def is_elastic(self) -> bool:
        """Whether its attempts may have fewer members than are wanted."""
        return any(role.min_replicas is not None for role in self.spec.roles)

    @property
    def is_smaller(self) -> bool:
        """Whether the attempt that was started last has fewer members than are wanted."""
        return self.roles is not self.spec.roles

    @cached_property
    def members(self) -> Mapping[str, Member]:
        """All members by name, in the order of roles and indexes; spares come last in their role."""
        return layout(self.roles).members

    @cached_property
    def places(self) -> Mapping[str, Member]:
        """The needed members by name: the places that must be filled, at the size of that attempt."""
        return layout(self.roles).places

    @cached_property
    def holders(self) -> dict[str, str]:
        """Place -> the member that runs it, as the status has it."""
        return holders(self.spec, self.status)

    @cached_property
    def holding(self) -> frozenset[str]:
        """The members that run a place, as the status has it."""
        return frozenset(self.holders.values())

    @cached_property
    def worlds(self) -> Mapping[str, frozenset[str]]:
        """Process group -> the members that run its places: those that wait for each other in a collective.

        Roles without ranks are one more, with an empty name: they may make a group of their own.
        """
        found = defaultdict[str, set[str]](set)
        for place, holder in self.holders.items():
            found[self.places[place].role.group].add(holder)
        return {group: frozenset(found[group]) for group in found}

    def world_of(self, member: str) -> frozenset[str]:
        """The members that run the places of its process group; those of a spare are of its role's."""
        one = self.members.get(member)
        return frozenset() if one is None else self.worlds.get(one.role.group, frozenset())

    @property
    def watching_since(self) -> float:
        """Since when this leader has watched the cluster without a break, whatever the brake."""
        return self.observed.listening_since if (at := self.observed.watching_since) is None else at

    @cached_property
    def pods(self) -> dict[str, Pod]:
        """Member -> the pod of its current incarnation, where there is one."""
        members, raised, base = self.members, self.raised, self.status.base_incarnation
        return {
            pod.member: pod
            for pod in self.observed.pods
            if pod.member in members and pod.incarnation == raised.get(pod.member, base)
        }

    @cached_property
    def heard(self) -> dict[str, Heard]:
        """Pod UID -> the newest report of its supervisor."""
        uid = self.job.metadata.uid
        return {heard.report.pod: heard for heard in self.observed.heard if heard.report.gang == uid}

    @cached_property
    def heard_by_member(self) -> dict[str, Heard]:
        """Member -> the newest report of the supervisor in its current pod."""
        heard = self.heard
        return {name: heard[pod.uid] for name, pod in self.pods.items() if pod.uid in heard}

    @cached_property
    def unheard(self) -> tuple[Pod, ...]:
        """The members' current pods whose supervisors are not connected."""
        return tuple([pod for name, pod in self.pods.items() if name not in self.speaking])

    @cached_property
    def never_heard(self) -> tuple[Pod, ...]:
        """Those of them that this leader has never heard."""
        return tuple([pod for pod in self.unheard if pod.uid not in self.heard])

    @cached_property
    def hearing_since(self) -> float | None:
        """Since when this leader has heard a pod of the gang, whichever; None while it hears none."""
        return min([heard.since for heard in self.heard.values() if heard.connected], default=None)

    @cached_property
    def heard_of_pods(self) -> dict[str, list[Heard]]:
        """Member -> the newest report of each of its pods, earlier incarnations among them, the oldest first."""
        found = defaultdict[str, list[Heard]](list)
        for heard in self.heard.values():
            found[heard.report.member].append(heard)
        for several in found.values():
            if len(several) > 1:
                several.sort(key=lambda one: one.report.incarnation)
        return dict(found)

    @cached_property
    def by_progress(self) -> dict[int, list[Heard]]:
        """Attempt -> the newest word of each pod, earlier ones too, that has reported progress of it."""
        found = defaultdict[int, list[Heard]](list)
        for heard in self.heard.values():
            found[heard.step_attempt].append(heard)
        found.pop(-1, None)
        return dict(found)

    @cached_property
    def highest_steps(self) -> dict[int, ProgressStatus]:
        """Attempt -> the highest step that was reported of it, and when it was made at the latest."""
        highest = {}
        for attempt, found in self.by_progress.items():
            made = max([(one.step, one.step_time) for one in found if one.step is not None], default=None)
            if made is not None:
                highest[attempt] = ProgressStatus(attempt=attempt, step=made[0], time=made[1])
        return highest

    @cached_property
    def absent(self) -> dict[str, Heard]:
        """Pod UID -> the newest report of a connected supervisor, where the cluster doesn't show the pod."""
        uids = self.heard.keys() - {pod.uid for pod in self.observed.pods}
        return {uid: self.heard[uid] for uid in sorted(uids) if self.heard[uid].connected}

    @cached_property
    def unseen(self) -> frozenset[tuple[str, int]]:
        """(member, incarnation) of these supervisors."""
        return frozenset([(one.report.member, one.report.incarnation) for one in self.absent.values()])

    @cached_property
    def speaking(self) -> frozenset[str]:
        """The members whose supervisor has spoken on a connection that is still there."""
        return frozenset([name for name, heard in self.heard_by_member.items() if heard.connected])

    @cached_property
    def stopped(self) -> frozenset[str]:
        """UIDs of the pods under whose supervisors no worker can be that was told to run so far."""
        attempt, coming = self.status.attempt, coming_attempt(self.status)
        # Ready for an attempt that already runs proves nothing: Run may be on its way.
        return frozenset([uid for uid, one in self.heard.items() if one.ready_for >= coming or one.done_in >= attempt])

    @cached_property
    def conspicuous(self) -> frozenset[str]:
        """The members that anything may be wrong with. The others have neither a fault nor a defect.

        They are passed over: their pods are sound, their nodes answer and show nothing, and their supervisors have
        nothing to tell, but, while Running, that they run the attempt. Or their pods were never there.
        """
        lost, nodes, heard = self.observed.lost_nodes, self.observed.nodes, self.heard_by_member
        running, attempt = self.status.phase is GangPhase.RUNNING, self.status.attempt
        health = [rule.on_device_health for rule in self.spec.pod_failure_policy.rules]
        doubted = any(one is not None and "Unknown" in one.health for one in health)
        inconspicuous = [
            name
            for name, pod in self.pods.items()
            if pod.is_sound
            and pod.started_at is not None
            and not (doubted and pod.is_doubtful)
            and (one := heard.get(name)) is not None
            and one.is_quiet
            and (not lost or pod.node not in lost)
            and (not nodes or pod.node not in nodes)
            and (not running or one.running == attempt)
        ]
        found = self.members.keys() - inconspicuous
        if not running:
            found -= self.unborn
        return frozenset(found.union(member for member, _ in self.unseen))

    @cached_property
    def unborn(self) -> frozenset[str]:
        """The members whose pods were never there, nor a worker in them."""
        return self.fresh.difference(self.pods)

    @cached_property
    def replaced(self) -> dict[str, Replaced]:
        """Member -> its entry in ``status.replaced``."""
        return {entry.member: entry for entry in self.status.replaced}

    @cached_property
    def without_quota(self) -> frozenset[str]:
        """The members that have no pod because the gang has no quota for them (``policy/quota.py``)."""
        return frozenset([entry.member for entry in self.status.replaced if entry.without_quota])

    @cached_property
    def raised(self) -> dict[str, int]:
        """Member -> its incarnation, where that isn't ``base_incarnation``."""
        return raised_incarnations(self.status)

    def incarnation(self, member: str) -> int:
        """How many times the member's pod has been replaced, as the status has it."""
        return self.raised.get(member, self.status.base_incarnation)

    def is_current(self, member: str, incarnation: int) -> bool:
        """Whether it is the incarnation of a member of the gang."""
        return member in self.members and incarnation == self.raised.get(member, self.status.base_incarnation)

    def was_there(self, member: str) -> bool:
        """Whether the member has a pod, or is one of those that the status knows.

        Roles that have changed may name members that never were.
        """
        if member in self.pods:
            return True
        one, before = self.members.get(member), {role.name: role.desired for role in self.status.roles}
        return one is not None and one.index < before.get(one.role.name, 0)

    def report(self, member: str) -> Report | None:
        """The newest report of the supervisor in the member's current pod."""
        heard = self.heard_by_member.get(member)
        return None if heard is None else heard.report

    def connected(self, member: str) -> bool:
        """Whether the supervisor in the member's current pod has spoken on a connection that is still there."""
        return member in self.speaking

    @cached_property
    def fresh(self) -> frozenset[str]:
        """The members whose current incarnation is younger than the attempt: no worker ever ran in it."""
        if self.status.phase is GangPhase.PENDING:
            return frozenset(self.members)
        return frozenset(name for name, entry in self.replaced.items() if is_fresh(self.status, entry))

    def is_fresh(self, member: str) -> bool:
        """Whether that is so of this member."""
        return self.status.phase is GangPhase.PENDING or member in self.fresh

    def never_ran(self, member: str) -> bool:
        """Whether no worker ran in its pod yet: it is fresh, or had no place so far (a spare)."""
        report = self.report(member)
        return self.is_fresh(member) or (member not in self.holding and report is not None and report.ran == 0)


_OF_WORLD: Final[tuple[str, ...]] = (
    "heard",
    "heard_of_pods",
    "hearing_since",
    "by_progress",
    "highest_steps",
    "absent",
    "unseen",
)
"""What is known of a look whatever the status is."""
_OF_PODS: Final = ("pods", "heard_by_member", "unheard", "never_heard", "speaking")
"""What is known as long as the members' incarnations are the same."""


def once(function: Callable[[Gang], _T]) -> Callable[[Gang], _T]:
    """Make ``function`` compute its answer once for each look, however many policies ask. It must not be changed."""

    @wraps(function)
    def known(gang: Gang) -> _T:
        if function not in gang.known:
            gang.known[function] = function(gang)
        answer: _T = gang.known[function]
        return answer

    return known


def raised_incarnations(status: Status) -> dict[str, int]:
    """Member -> its incarnation, where that isn't ``base_incarnation``."""
    return {entry.member: entry.incarnation for entry in status.replaced}


def incarnation(status: Status, member: str) -> int:
    """How many times the member's pod has been replaced."""
    return raised_incarnations(status).get(member, status.base_incarnation)


def coming_attempt(status: Status) -> int:
    """The first attempt that no worker can have been told to run. Known by numbers, since clocks may jump back."""
    return status.attempt + (status.phase is GangPhase.RUNNING or status.phase is GangPhase.SUSPENDED)


def is_fresh(status: Status, entry: Replaced | None) -> bool:
    """Whether no worker ever ran in the current incarnation of a member. ``entry``: its own in ``status.replaced``."""
    return status.phase is GangPhase.PENDING or (entry is not None and entry.attempt >= coming_attempt(status))


def roles_of(spec: Spec, status: Status) -> tuple[Role, ...]:
    """The roles as the status' attempt has them: a smaller one has fewer places, and more spares."""
    if status.size is None or not status.size.roles:
        return spec.roles
    return with_sizes(spec.roles, status.size.members)


def holders(spec: Spec, status: Status) -> dict[str, str]:
    """Place -> the member that runs it."""
    own = layout(roles_of(spec, status)).own
    return {**own, **{entry.place: entry.member for entry in status.ranks if entry.place in own}}


def started_roles(status: Status) -> tuple[str, ...]:
    """The roles that waited for others in this attempt, and do so no more."""
    found = status.started_roles
    return () if found is None or found.attempt != status.attempt else found.roles


def waiting_roles(spec: Spec, status: Status) -> frozenset[str]:
    """The roles whose workers must not start in this attempt yet (``order.py``)."""
    started = started_roles(status)
    return frozenset([role.name for role in spec.roles if role.depends_on and role.name not in started])


def may_start_since(status: Status) -> float:
    """Since when the last of the workers that may run in the running attempt may start."""
    found = status.started_roles
    return status.phase_time if found is None or not started_roles(status) else max(status.phase_time, found.time)


def asks_for_restart(spec: Spec, status: Status) -> bool:
    """Whether a user asks for a restart that has not been taken yet."""
    return spec.restart_token != status.observed_restart_token


def has_started(status: Status) -> bool:
    """Whether an attempt has started since the gang was submitted or, if it was suspended, resumed."""
    return status.started_attempt >= max(1, status.resumed_attempt)


def started_processes(role: Role) -> int:
    """The number of processes that the supervisor starts in one pod of the role."""
    return role.processes_per_pod if role.launch is Launch.PER_PROCESS else 1


# Stored times


_READ = 2
"""Incidents that decisions read, newest first."""


def clamp_times(gang: Gang) -> Gang:
    """Take what lies in the future for past: the same look without such times; the same object if there is none."""
    status = _believed(gang.status, gang.now, min(gang.now, gang.observed.listening_since))
    return gang if status == gang.status else gang.with_status(status)


def _believed(status: Status, now: float, since: float) -> Status:
    def past(time: float) -> float:
        return time if time <= now else since

    def known(time: float | None) -> float | None:
        return None if time is None else past(time)

    def of(one: Incident) -> Incident:
        if max(one.time, one.settled_time or 0.0) <= now:
            return one
        return changed(one, time=past(one.time), settled_time=known(one.settled_time), back_off_time=None)

    again, rest = status.recreated, status.awaited_all
    checks, roles, size = status.checks, status.started_roles, status.size
    return in_phase(
        status,
        status.phase,
        past(status.phase_time),
        status.attempt,
        start_time=known(status.start_time),
        completion_time=known(status.completion_time),
        deadline_time=known(status.deadline_time),
        restart_wait_time=known(status.restart_wait_time),
        started_roles=None if roles is None else changed(roles, time=past(roles.time)),
        observed_time=past(status.observed_time),
        conditions=tuple(
            [
                one if one.last_transition_time <= now else changed(one, last_transition_time=since)
                for one in status.conditions
            ]
        ),
        incidents=(*map(of, status.incidents[:_READ]), *status.incidents[_READ:]),
        ledger=tuple([one if one.time <= now else changed(one, time=since) for one in status.ledger]),
        replaced=tuple(
            [
                one
                if max(one.time, one.since or 0.0) <= now
                else changed(one, time=past(one.time), since=known(one.since))
                for one in status.replaced
            ]
        ),
        size=None
        if size is None
        else changed(
            size,
            time=past(size.time),
            stops=tuple(map(past, size.stops)),
            asked_time=past(size.asked_time),
            given_time=past(size.given_time),
        ),
        checks=None if checks is None else changed(checks, time=past(checks.time), turn_time=past(checks.turn_time)),
        recreated=None if again is None else changed(again, time=past(again.time), since=past(again.since)),
        awaited=tuple(
            [one if (one.vanished_time or 0.0) <= now else changed(one, vanished_time=since) for one in status.awaited]
        ),
        awaited_all=None if rest is None else changed(rest, vanished_time=known(rest.vanished_time)),
    )


# Traces of incidents, as W3C Trace Context has them. The rule: ids of an incident's trace and of its root span follow
# from the gang's UID and the attempt, so every process computes the same ones without storing them first.

LONGEST_MILLISECONDS: Final = 10**12
"""30 years: more is a mistake, and no date."""
AT_ONCE_SECONDS: Final = 60.0
"""An incident this soon after the one before is linked to it in any case."""


def trace_id(job: GangJob, attempt: int) -> str:
    """Return the trace ID of the incident that led to this attempt."""
    return hashlib.sha256(f"{job.metadata.uid}/{attempt}".encode()).hexdigest()[:32]


def trace_of(job: GangJob, incident: Incident) -> str:
    """The incident's trace; one that was stored without (or by hand) has one all the same."""
    return incident.trace_id if is_trace_id(incident.trace_id) else trace_id(job, incident.attempt)


def root_span_id(trace: str) -> str:
    """Id of a trace's root span: the first half of the trace id."""
    return trace[:16]


def trace_parent(job: GangJob, incident: Incident) -> str:
    """Return the ``traceparent`` header (W3C Trace Context, version 00, sampled) of an incident's root span."""
    trace = trace_of(job, incident)
    return f"00-{trace}-{root_span_id(trace)}-01"


def began(incident: Incident) -> float:
    """When the incident began, in seconds since the epoch: at its fault, as long before write 1 as was known then."""
    return incident.time - in_seconds(incident.milliseconds.detect or 0)


def settled_at(incident: Incident) -> float:
    """When the incident was settled; while it is open, when it was stored."""
    return incident.time if incident.settled_time is None else incident.settled_time


def follows_at_once(incident: Incident, time: float) -> bool:
    """Whether ``time`` is so soon after the incident that an incident then is linked to it in any case.

    A later one is linked only if no step was made in between, in a gang that had reported steps.
    """
    return time <= settled_at(incident) + AT_ONCE_SECONDS


def in_seconds(milliseconds: int) -> float:
    """Return a stored duration in seconds, cut to what a date can hold: a status may contain any number."""
    return min(max(0, milliseconds), LONGEST_MILLISECONDS) / 1000


def is_trace_id(text: str) -> bool:
    """Whether the text is a valid trace id."""
    return re.fullmatch("[0-9a-f]{32}", text) is not None and int(text[:16], 16) != 0
