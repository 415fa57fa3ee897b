"""Second, plain implementations of three rules of the core: the oracles of ``test_oracles.py``.

They restate the rules in the simplest way that comes to mind, on the stored status and the observed world alone. They
must share no code with what they check: not the helpers of ``Gang`` either. Only the evidence is taken as it is found.
"""

from __future__ import annotations

from itertools import zip_longest

from gangctl.api.gangjob import Action, GangJob, Windowed
from gangctl.api.incident import Cause
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.core.facts.evidence import DEFAULTS, VAGUE_REASONS, Strength
from gangctl.core.facts.world import Heard, Observed, Pod
from gangsidecar.wire import Phase


class Facts:
    """The job and its world at one moment, with the few facts that the rules share."""

    def __init__(self, now: float, job: GangJob, observed: Observed) -> None:
        """Look up nothing yet."""
        self.now, self.job, self.observed = now, job, observed
        self.status, self.recovery = job.status, job.spec.recovery
        ended = self.status.phase in {GangPhase.RUNNING, GangPhase.SUSPENDED}
        self.coming = self.status.attempt + 1 if ended else self.status.attempt
        """The first attempt of which no worker can run yet."""
        self.heard = {one.report.pod: one for one in observed.heard if one.report.gang == job.metadata.uid}
        self.shown = {pod.uid: pod for pod in observed.pods}
        self.replaced = {entry.member: entry for entry in self.status.replaced}

    def members(self, *, spares: bool) -> list[tuple[str, str]]:
        """(role, member) in order, with the spares or without."""
        return [
            (role.name, f"{role.name}-{at}")
            for role in self.job.spec.roles
            for at in range(role.replicas + (role.spares if spares else 0))
        ]

    def incarnation(self, member: str) -> int:
        """The number of the member's current pod."""
        return self.replaced[member].incarnation if member in self.replaced else self.status.base_incarnation

    def holder(self, place: str) -> str:
        """The member that the status puts in this place."""
        return {entry.place: entry.member for entry in self.status.ranks}.get(place, place)

    def is_fresh(self, member: str) -> bool:
        """Whether no worker was ever told to run in the member's current pod."""
        young = member in self.replaced and self.replaced[member].attempt >= self.coming
        return young or self.status.phase is GangPhase.PENDING

    def has_run(self, member: str) -> bool:
        """Whether a worker may have been started in the member's current pod."""
        return not self.is_fresh(member) and any(
            self.holder(place) == member for _, place in self.members(spares=False)
        )

    def is_connected(self, uid: str) -> bool:
        """Whether the pod's supervisor has a connection."""
        return uid in self.heard and self.heard[uid].connected

    def is_away(self, pod: Pod) -> bool:
        """Whether neither the pod's node nor its supervisor answers."""
        if pod.node not in self.observed.lost_nodes or self.is_connected(pod.uid):
            return False
        began = max(pod.started_at or pod.created_at, self.observed.listening_since)
        silent = self.heard[pod.uid].at if pod.uid in self.heard else began
        counted = silent, self.observed.relayed_since, self.observed.lost_nodes[pod.node]
        return all(self.now - since >= 30 for since in counted)


# The barrier


def blocking(facts: Facts) -> list[str]:
    """Name the pods in which a worker of an older attempt may still run."""
    status, rest = facts.status, facts.status.awaited_all
    named = {entry.pod for entry in status.awaited}
    blocks = []
    for pod in facts.observed.pods:
        ended = pod.terminated and not facts.is_connected(pod.uid)
        excused = _is_proven_stopped(facts, pod.uid) or ended or _has_fenced_itself(facts, pod.uid)
        gone_with_the_rest = _is_of_rest(facts, pod.member, pod.incarnation) and _has_vanished(facts, pod.uid)
        if pod.uid in named or excused or (_is_rest_over(facts) and gone_with_the_rest):
            continue
        if _may_have_run(facts, pod):
            blocks.append(f"{pod.member}.{pod.incarnation}")
    for entry in status.awaited:
        silent = not facts.is_connected(entry.pod)
        lost = _is_grace_over(facts, entry.vanished_time) and _has_vanished(facts, entry.pod) and silent
        terminated = entry.pod in facts.shown and facts.shown[entry.pod].terminated and silent
        fenced = _has_fenced_itself(facts, entry.pod, 0.0 if entry.pod else entry.vanished_time or 0.0)
        if not (_is_proven_stopped(facts, entry.pod) or terminated or lost or fenced):
            blocks.append(f"{entry.member}.{entry.incarnation}")
    speakers = [one.report for one in _unknown_speakers(facts) if one.report.pod not in named]
    blocks += [f"{report.member}.{report.incarnation}" for report in speakers]
    if rest is not None and not _is_rest_over(facts):
        blocks.append(f"of incarnation {rest.incarnation} or before")
    return sorted(blocks)


def _unknown_speakers(facts: Facts) -> list[Heard]:
    """Supervisors that are connected and not stopped, in pods that the cluster does not show."""
    return [
        one
        for uid, one in facts.heard.items()
        if one.connected and uid not in facts.shown and not _is_proven_stopped(facts, uid)
    ]


def _is_proven_stopped(facts: Facts, uid: str) -> bool:
    if uid not in facts.heard:
        return False
    report = facts.heard[uid].report
    ready = report.phase is Phase.READY and report.attempt >= facts.coming
    return ready or (report.phase is Phase.DONE and report.attempt >= facts.status.attempt)


def _is_grace_over(facts: Facts, since: float | None) -> bool:
    grace = facts.recovery.lost_pod_grace_seconds
    return since is not None and facts.now - grace >= since and facts.now - grace >= facts.observed.listening_since


def _has_vanished(facts: Facts, uid: str) -> bool:
    return uid not in facts.shown or (facts.shown[uid].deleting and facts.is_away(facts.shown[uid]))


def _has_fenced_itself(facts: Facts, uid: str, missed: float = 0.0) -> bool:
    told = facts.status.fencing
    if told is None or told.longest_isolation_seconds is None or facts.is_connected(uid):
        return False
    if uid in facts.heard and facts.heard[uid].report.phase is Phase.STUCK:
        return False
    since = [facts.observed.listening_since, facts.heard[uid].at if uid in facts.heard else missed]
    wait = told.longest_isolation_seconds + told.longest_stop_grace_seconds + 10
    return all(facts.now >= moment + wait for moment in since)


def _may_have_run(facts: Facts, pod: Pod) -> bool:
    known = any(name == pod.member for _, name in facts.members(spares=True))
    if known and pod.incarnation == facts.incarnation(pod.member):
        return facts.has_run(pod.member)
    return pod.started_at is not None or pod.restarts > 0 or pod.uid in facts.heard


def _is_of_rest(facts: Facts, member: str, incarnation: int) -> bool:
    """Whether ``awaited_all`` stands for this pod."""
    rest = facts.status.awaited_all
    if rest is None or incarnation > rest.incarnation:
        return False
    known = any(name == member for _, name in facts.members(spares=True))
    return facts.status.phase is GangPhase.SUSPENDED or not known or incarnation < facts.incarnation(member)


def _is_rest_over(facts: Facts) -> bool:
    """Whether everything that ``awaited_all`` stands for has been gone for the whole grace."""
    rest = facts.status.awaited_all
    if rest is None or rest.vanished_time is None:
        return False
    here = [
        pod
        for pod in facts.observed.pods
        if _is_of_rest(facts, pod.member, pod.incarnation)
        and _may_have_run(facts, pod)
        and not (pod.terminated and not facts.is_connected(pod.uid))
        and not _is_proven_stopped(facts, pod.uid)
        and not _has_vanished(facts, pod.uid)
        and not _has_fenced_itself(facts, pod.uid)
    ]
    speaks = [one for one in _unknown_speakers(facts) if _is_of_rest(facts, one.report.member, one.report.incarnation)]
    return not here and not speaks and _is_grace_over(facts, rest.vanished_time)


# Ranks


def assign(facts: Facts) -> dict[str, str | None]:
    """Give every place its ready holder; fill the places of lost pods with idle ready members of the role, in order."""
    places = facts.members(spares=False)
    holders = {place: facts.holder(place) for _, place in places}
    current = {pod.member for pod in facts.observed.pods if pod.incarnation == facts.incarnation(pod.member)}
    given = {place: holder if _is_ready(facts, holder) else None for place, holder in holders.items()}
    for role in facts.job.spec.roles:
        free = [
            place
            for name, place in places
            if name == role.name
            and given[place] is None
            and not (
                _is_member(facts, holders[place]) and holders[place] in current and not facts.is_fresh(holders[place])
            )
        ]
        idle = [
            name
            for of_role, name in facts.members(spares=True)
            if of_role == role.name and name not in holders.values() and _is_ready(facts, name)
        ]
        idle = [
            *(one for one in idle if not _is_avoided(facts, one)),
            *(one for one in idle if _is_avoided(facts, one)),
        ]
        given |= {place: name for place, name in zip_longest(free, idle[: len(free)]) if place is not None}
    return given


def _is_avoided(facts: Facts, member: str) -> bool:
    current = [pod for pod in facts.observed.pods if pod.incarnation == facts.incarnation(pod.member)]
    return any(pod.member == member and pod.node in facts.observed.unfavoured_nodes for pod in current)


def _is_member(facts: Facts, name: str) -> bool:
    return name in {member for _, member in facts.members(spares=True)}


def _is_ready(facts: Facts, member: str) -> bool:
    """Whether the member's current pod can be told to run the stored attempt."""
    pods = [pod for pod in facts.observed.pods if (pod.member, pod.incarnation) == (member, facts.incarnation(member))]
    if not pods or not _is_member(facts, member):
        return False
    pod = pods[0]
    if pod.deleting or pod.terminated or any(device.health == "Unhealthy" for device in pod.devices):
        return False
    if not facts.is_connected(pod.uid) or _must_leave(facts, pod):
        return False
    shown = {one.uid for one in facts.observed.pods}
    for uid, other in facts.heard.items():  # A pod of the same name that is gone, and still speaks.
        name = (other.report.member, other.report.incarnation)
        if uid not in shown and facts.is_connected(uid) and name == (member, pod.incarnation):
            return False
    report = facts.heard[pod.uid].report
    return (report.phase, report.attempt, report.terminating) == (Phase.READY, facts.status.attempt, False)


def _must_leave(facts: Facts, pod: Pod) -> bool:
    """Whether the pod's node has come to show what it is left for, or is being drained."""
    if pod.node not in facts.observed.nodes:
        return False
    signals, cordoned = facts.observed.nodes[pod.node]
    evicted = ("DisruptionTarget", "True", "EvictionByEvictionAPI")
    if cordoned and any(evicted in one.conditions for one in facts.observed.pods if one.node == pod.node):
        return True
    phase, incidents = facts.status.phase, facts.status.incidents
    came = 1 + (pod.created_at if pod.scheduled_at is None else pod.scheduled_at)  # It is written in whole seconds.
    opened = phase is GangPhase.GATHERING and incidents and not incidents[0].settled
    began = facts.status.phase_time if phase is GangPhase.RUNNING else incidents[0].time - 5 if opened else came
    for answer, _, since, shortage, only in signals:
        if shortage is not None:  # It concerns pods with devices, and those of the drawn jobs have none.
            continue
        if only and only != pod.uid:
            continue
        if answer in {"Leave", "Drain"} and since > came and since > began:
            return True
        if answer != "Note" and phase is GangPhase.GATHERING and since > came:
            return True
    return False


# The cause


_LATER = {*VAGUE_REASONS, Reason.NODE_DRAINED}


def strongest(facts: Facts, stored: Cause, found: list[Cause]) -> Cause:
    """Return what the open incident is put down to: what is stored, or the best of what is found now.

    The best is the strongest; among equals one with a clear reason, then the earliest.
    """
    if not found:
        return stored
    best = min(found, key=lambda one: (-_strength(one), one.reason in _LATER, one.time))
    asked_for = stored.reason == Reason.RESTART_REQUESTED
    if _strength(best) != _strength(stored):
        return best if _strength(best) > _strength(stored) and not asked_for else stored
    of_one_pod = (best.member, best.incarnation) == (stored.member, stored.incarnation)
    if of_one_pod and _strength(stored) in {Strength.CONTAINER, Strength.DISRUPTION}:
        clearer = stored.reason in VAGUE_REASONS and best.reason not in VAGUE_REASONS
        if clearer or (stored.rule is None and best.rule is not None):
            return best
    is_same = of_one_pod and (best.reason, best.rank) == (stored.reason, stored.rank)
    is_same = is_same and (best.exit_code, best.signal) == (stored.exit_code, stored.signal)
    is_earlier = best.time < stored.time <= facts.now
    return best if is_earlier and not is_same and not asked_for else stored


def _strength(cause: Cause) -> Strength:
    if cause.reason == "OOMKilled" and cause.signal is None and cause.exit_code is None:
        return Strength.CONTAINER
    if cause.reason not in {str(reason) for reason in Reason}:
        return Strength.END
    return {str(reason): row.strength for reason, row in DEFAULTS.items()}.get(cause.reason, Strength.REQUEST)


def outcome(facts: Facts, cause: Cause, *, again_and_again: bool) -> tuple[str, bool]:
    """Return what an incident with this cause comes to if no two members are tied, and whether it is charged."""
    action = cause.action
    if action is None:  # An older version did not store it.
        free = {
            "Evicted",
            "Preempted",
            "Disrupted",
            "NodeLost",
            "NodeUnhealthy",
            "NodeDrained",
            "DeviceTainted",
            "DeviceDegraded",
            "PodDeleted",
            "RestartRequested",
            "Growing",
            "QuotaReclaimed",
        }
        action = Action.IGNORE if cause.reason in free else Action.COUNT
    if action is Action.FAIL_JOB:
        return "Failed", False
    if action is Action.IGNORE:
        return "Restarted", False
    if again_and_again or used_up(facts):
        return ("Held" if facts.recovery.on_exhausted == "Hold" else "Failed"), False
    return "Restarted", True


def used_up(facts: Facts) -> bool:
    """Return whether a budget has no room for one more restart: the gang's, or that of all gangs of its group."""
    own = [one.time for one in facts.status.ledger if one.charged]
    others = [time for replica in facts.observed.group for time in replica.charged]
    group = facts.job.spec.replica_group
    budgets = [(facts.recovery.budget, own), (group and group.budget, own + others)]
    return any(
        isinstance(budget, Windowed)
        and len([time for time in times if facts.now - time < budget.window_seconds]) >= budget.max_restarts
        for budget, times in budgets
    )
