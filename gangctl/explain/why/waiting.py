"""Finds why a gang does not run: it rests, or waits for pods, members or a restore point.

The rule: what the status says comes first, because it is what the controller acts on; pods and nodes say the rest. A
cause that keeps everything else from mattering (suspended, held, refused) stands alone. Each finding says the way on.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from gangctl.api.gangjob import GangJob
from gangctl.api.model import escaped
from gangctl.api.reasons import Reason
from gangctl.api.roles import number_places
from gangctl.api.status import ENDED, ConditionType, GangPhase
from gangctl.core.facts.fitness import reason_text, start_advice
from gangctl.core.facts.gang import Gang, waiting_roles
from gangctl.core.facts.progress import recorded_places
from gangctl.core.facts.world import Observed, Pod
from gangctl.core.policy.admission import gives_up_at, hold_timeout
from gangctl.core.policy.recovery import is_failure, row_described
from gangctl.core.policy.size import shrinks_at
from gangctl.core.record.conditions import spent_until, total, warning
from gangctl.explain.why.findings import Finding, FindingKind, many
from gangctl.explain.why.pending import find_unscheduled
from gangctl.explain.why.world import GangSurroundings
from gangctl.story.words import interrupted, took, way_on
from gangctl.words.text import counted, time_ahead
from gangctl.words.waits import group_awaited, roles_wait

_IMAGES: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_SILENT: Final = frozenset({Reason.MEMBERS_SILENT, Reason.NO_MEMBER_CONNECTS, Reason.BRAKED})
_AFTER: Final = (
    "the members that are missing then get new pods",
    "every pod is replaced then",
    "the gang ends then (recovery.onExhausted)",
)
"""The consequences of a barrier's deadlines, in order."""


def findings(job: GangJob, around: GangSurroundings, now: float) -> tuple[Finding, ...]:
    """Return what keeps the gang from running, the first cause first. If it runs, return what should be looked at."""
    if around.interrupted_at is not None and job.status.phase not in ENDED:
        seen, todo = interrupted(job, around.interrupted_at)
        return (Finding(kind=FindingKind.ENDED, seen=seen, do=todo, since=around.interrupted_at),)
    found = _of_phase(Gang(now, job, Observed(pods=around.pods)), around)
    if around.unstored:
        return (_not_stored(job, around.unstored), *found)
    if around.is_led or job.status.phase in ENDED:
        return found
    rests = job.status.phase in {GangPhase.SUSPENDED, GangPhase.HELD}  # Nothing is to be done but what a person asks.
    return (*found, _not_led(job)) if rests else (_not_led(job), *found)


def _of_phase(gang: Gang, around: GangSurroundings) -> tuple[Finding, ...]:
    job, status = gang.job, gang.status
    match status.phase:
        case phase if phase in ENDED:
            return (Finding(kind=FindingKind.ENDED, seen=status.message, since=status.completion_time),)
        case _ if job.metadata.deletion_timestamp is not None:
            return (_deleting(gang),)
        case GangPhase.NEW:
            return (_not_seen(job),) if around.is_led else ()
        case GangPhase.SUSPENDED:
            return (_suspended(gang),)
        case GangPhase.HELD:
            return (_held(gang),)
        case GangPhase.RUNNING:
            return (*_in_order(gang), *_degraded(gang), *_finished(gang))
        case _ if refused := _refused(job):
            return (refused,)
        case _:
            return tuple(_waits(gang, around))


def _in_order(gang: Gang) -> Iterator[Finding]:
    """Roles that wait for others (``core/facts/order.py``)."""
    waiting = sorted(waiting_roles(gang.spec, gang.status))
    if waiting:
        said = gang.status.said
        told = said is not None and said.name == roles_wait.__name__
        yield Finding(
            kind=FindingKind.ROLES_WAIT,
            seen=gang.status.message if told else f"the workers of {many(waiting)} wait for other roles to be ready",
            next="they start as soon as each required member of those roles runs and its pod is Ready",
            do=f"gangctl logs {gang.job.metadata.name} shows what those wait for; see roles[].dependsOn",
            since=gang.status.phase_time,
        )


def _finished(gang: Gang) -> Iterator[Finding]:
    """Members that have left while others of their process group go on."""
    done = recorded_places(gang.status, gang.status.attempt)
    for places in number_places(gang.roles).groups.values():
        left, stay = [one for one in places if one in done], [one for one in places if one not in done]
        if left and stay and gang.status.finished is not None:
            yield Finding(
                kind=FindingKind.FINISHED,
                seen=f"{many(left)} ended with 0, and {many(stay)} {'runs' if len(stay) == 1 else 'run'} on",
                next=f"attempt {gang.status.attempt} runs until all have ended, or spec.successPolicy is met",
                do="if that takes long, who runs on may wait for a rank that has left: see "
                f"gangctl logs {gang.job.metadata.name}; spec.progress.timeoutSeconds lets gangctl notice it",
                members=tuple(left),
                since=gang.status.finished.time,
            )


def _waits(gang: Gang, around: GangSurroundings) -> Iterator[Finding]:
    """The waits of the coming attempt: for pods first, then for what they do."""
    if around.pods_known:
        member_of = {pod.name: pod.member for pod in around.pods}
        is_awaited = any(member_of.get(pod.name, pod.name) in gang.holding for pod in around.waiting)
        end = _while_pending(gang) if is_awaited else "the gang does not wait for it: it has no rank"
        yield from find_unscheduled(around, member_of, end)
        yield from _missing(gang)
        yield from _not_starting(gang, around)
    yield from _degraded(gang)
    yield from _not_connected(gang, around)
    yield from _stopping(gang, around)
    yield from list(_back_off(gang)) or _barrier(gang, around)


def _while_pending(gang: Gang) -> str:
    """The future of pods without a node."""
    recovery, end = gang.spec.recovery, gives_up_at(gang)
    if smaller := _smaller_soon(gang):
        return smaller
    if end is not None:
        how = "held" if recovery.on_exhausted == "Hold" else "failed"
        return f"at {time_ahead(end, gang.now)} the gang is {how} (recovery.schedulingTimeoutSeconds)"
    if gang.status.phase is GangPhase.GATHERING:
        how = {"Hold": "held", "Suspend": "suspended", "Fail": "failed"}[recovery.on_replacement_timeout]
        return (
            f"the other pods wait and keep their devices; the gang is {how} when this takes longer than "
            f"{recovery.replacement_timeout_seconds} s (recovery.replacementTimeoutSeconds)"
        )
    if recovery.scheduling_timeout_seconds is not None:
        return "the gang waits, without charge"
    return "the gang waits, without limit and without charge (recovery.schedulingTimeoutSeconds is not set)"


def _smaller_soon(gang: Gang) -> str:
    """When the attempt starts without those that lack; empty if it doesn't."""
    at = shrinks_at(gang)
    if not gang.is_elastic or gang.now >= at:
        return ""
    return (
        f"at {time_ahead(at, gang.now)} the attempt starts with fewer members, if as many as minReplicas are ready "
        "(recovery.shrinkAfterSeconds)"
    )


def _missing(gang: Gang) -> Iterator[Finding]:
    missing = tuple(holder for holder in gang.holders.values() if holder not in gang.pods)
    if missing:
        yield Finding(
            kind=FindingKind.POD_MISSING,
            seen=f"{many(missing)} {'has' if len(missing) == 1 else 'have'} no pod yet",
            next="the controller creates it, or tries again up to a minute apart",
            do="kubectl get events and the controller's log show why it can't; see also the gang's message",
            members=missing,
            since=gang.status.phase_time,
        )


def _not_starting(gang: Gang, around: GangSurroundings) -> Iterator[Finding]:
    """Pods that have a node, and whose worker and sidecar don't both run."""
    groups = defaultdict[tuple[str, str, str], list[Pod]](list)
    for holder in gang.holders.values():
        pod = gang.pods.get(holder)
        if pod is None or pod.started_at is not None or pod.scheduled_at is None or pod.terminated:
            continue
        said = reason_text(pod) if pod.reason else around.warnings.get(pod.name, "")
        groups[pod.reason, said, start_advice(pod) if pod.reason else ""].append(pod)
    seconds = gang.spec.recovery.pod_start_timeout_seconds
    for (reason, said, todo), pods in groups.items():
        members, first = tuple(pod.member for pod in pods), pods[0]
        yield Finding(
            kind=FindingKind.IMAGE if reason in _IMAGES else FindingKind.NOT_STARTING,
            seen=f"{many(members)} can't start on {first.node or 'its node'}: {escaped(said)}"
            if said
            else f"the containers of {many(members)} are being created on {first.node or 'its node'}",
            next=f"the kubelet tries again; {seconds} s after it had its node the pod is replaced "
            "(recovery.podStartTimeoutSeconds)",
            do=todo or f"kubectl describe pod {first.name} -n {gang.job.metadata.namespace} shows its events",
            members=members,
            since=min(pod.scheduled_at or pod.created_at for pod in pods),
        )


def _not_connected(gang: Gang, around: GangSurroundings) -> Iterator[Finding]:
    """Members with a pod whose sidecar is not connected to the controller."""
    silent = tuple(
        holder
        for holder in gang.holders.values()
        if (one := around.members.get(holder)) is not None and one.pod and not one.connected and not one.terminated
    )
    if not silent:
        return
    started = [pod.started_at for member in silent if (pod := gang.pods.get(member)) and pod.started_at is not None]
    has = "its pod, and its sidecar is" if len(silent) == 1 else "their pods, and their sidecars are"
    yield Finding(
        kind=FindingKind.NOT_CONNECTED,
        seen=f"{many(silent)} {'has' if len(silent) == 1 else 'have'} {has} not connected to the controller",
        next=f"after {gang.spec.recovery.pod_start_timeout_seconds} s without a word the pod is replaced "
        "(recovery.podStartTimeoutSeconds)",
        do=f"gangctl logs {gang.job.metadata.name} {silent[0]} --sidecar says why",
        members=silent,
        since=min(started, default=None),
    )


def _stopping(gang: Gang, around: GangSurroundings) -> Iterator[Finding]:
    """Pods that may still run a worker of an earlier attempt."""
    then = "no worker starts before they have stopped, or count as lost"
    stopping = tuple(
        name for name in gang.holding if (one := around.members.get(name)) is not None and one.phase == "Stopping"
    )
    if stopping:
        seconds = gang.spec.recovery.stop_grace_period_seconds
        yield Finding(
            kind=FindingKind.STOPPING,
            seen=f"{many(sorted(stopping))} {'stops its worker' if len(stopping) == 1 else 'stop their workers'}",
            next=f"SIGKILL follows SIGTERM after {seconds} s (recovery.stopGracePeriodSeconds)",
            do="let workers end on SIGTERM",
            members=tuple(sorted(stopping)),
            since=gang.status.phase_time,
        )
    awaited = gang.status.awaited
    if awaited:
        members = tuple(dict.fromkeys(one.member for one in awaited))
        nodes = sorted({one.node for one in awaited if one.node})
        where = f" on {many(nodes)}" if nodes else ""
        gone = [one.vanished_time for one in awaited if one.vanished_time is not None]
        yield Finding(
            kind=FindingKind.STOPPING,
            seen=f"an earlier pod of {many(members)}{where} may still run a worker",
            next=f"{then}: lostPodGraceSeconds ({gang.spec.recovery.lost_pod_grace_seconds} s) after they are gone",
            do="if the node is down for good, delete it or taint it with node.kubernetes.io/out-of-service",
            members=members,
            since=min(gone, default=gang.status.phase_time),
        )


def _back_off(gang: Gang) -> Iterator[Finding]:
    incident = gang.status.incidents[0] if gang.status.incidents else None
    until = None if incident is None or incident.settled else incident.back_off_time
    if incident is not None and until is not None and until > gang.now:
        why, todo = "other disruptions may join the first (recovery.coalesceSeconds)", ""
        if is_failure(incident.cause):
            why, todo = row_described(gang, gang.status.restarts.without_step), "find out why the attempts end; "
        yield Finding(
            kind=FindingKind.BACK_OFF,
            seen=f"{why}, so attempt {gang.status.attempt} waits",
            next=f"it starts at {time_ahead(until, gang.now)}",
            do=f"{todo}gangctl restart {gang.job.metadata.name} starts it now",
            since=gang.status.phase_time,
        )


def _barrier(gang: Gang, around: GangSurroundings) -> Iterator[Finding]:
    """The attempt gathers, and as far as is known every pod runs: the controller's message says what it waits for."""
    status = gang.status
    pods = [gang.pods.get(holder) for holder in gang.holders.values()]
    if around.pods_known and any(pod is None or pod.started_at is None for pod in pods):
        return
    unready = tuple(
        holder
        for holder in gang.holders.values()
        if (one := around.members.get(holder)) is not None
        and one.connected
        and one.phase != "Stopping"
        and not (one.phase == "Ready" and one.attempt == status.attempt)
    )
    who = f": {many(unready)} {'is' if len(unready) == 1 else 'are'} not ready" if unready else ""
    seconds, times = gang.spec.recovery.barrier_timeout_seconds, min(status.barrier_timeouts, 2)
    then = _smaller_soon(gang) or f"after {seconds} s (recovery.barrierTimeoutSeconds) {_AFTER[times]}"
    do = f"gangctl logs {gang.job.metadata.name} --sidecar shows what a member waits for"
    if status.said is not None and status.said.name == group_awaited.__name__:  # Its own members are ready.
        then = do = ""
    yield Finding(
        kind=FindingKind.BARRIER,
        seen=f"attempt {status.attempt} waits, {status.ready or 'no'} members are ready{who}; {status.message}",
        next=then,
        do=do,
        members=unready,
        since=status.phase_time,
    )


def _degraded(gang: Gang) -> Iterator[Finding]:
    found = warning(gang.status)
    if found is not None:
        silent, smaller = found.reason in _SILENT, found.reason == Reason.SMALLER
        idle = (pod for name, pod in gang.pods.items() if name not in gang.holding)
        could = smaller and any(pod.started_at is not None and not pod.terminated for pod in idle)
        yield Finding(
            kind=FindingKind.NOT_CONNECTED if silent else FindingKind.DEGRADED,
            seen=f"{found.reason}: {found.message}{_cost_so_far(gang) if smaller else ''}",
            do=f"gangctl restart {gang.job.metadata.name} starts with all that are ready" if could else "",
            since=found.last_transition_time,
        )


def _cost_so_far(gang: Gang) -> str:
    spent = spent_until(gang.status, gang.now)
    missing = spent.missing_members
    return (
        f"; members that lacked have cost {took(missing)} of training, {missing / total(spent):.0%}" if missing else ""
    )


def _deleting(gang: Gang) -> Finding:
    pods = len(gang.observed.pods)
    return Finding(
        kind=FindingKind.DELETING,
        seen=f"the gang is being deleted; {counted(pods, 'pod')} {'is' if pods == 1 else 'are'} left",
        next="it is gone when its pods have ended, and what keeps them (finalizers) lets go",
        do="kubectl get gangjobs,pods -o yaml shows finalizers and the end of grace periods, if it takes long",
        since=gang.job.metadata.deletion_timestamp,
    )


def _not_seen(job: GangJob) -> Finding:
    return Finding(
        kind=FindingKind.NOT_SEEN,
        seen="no controller has seen the gang yet",
        next="nothing happens until one does",
        do="check that gangctl's controller runs, is the leader, and watches this namespace (watchNamespaces)",
        since=job.metadata.creation_timestamp,
    )


def _not_led(job: GangJob) -> Finding:
    trains = job.status.phase is GangPhase.RUNNING
    return Finding(
        kind=FindingKind.NOT_LED,
        seen="no controller answers for the gang: this is what was stored last",
        next=f"{'its workers train on, and a fault is not noticed' if trains else 'nothing changes'} until one runs",
        do=f"start its controller again: gangctl run FILE continues with gang {job.metadata.name}",
        since=job.status.observed_time or job.metadata.creation_timestamp,
    )


def _not_stored(job: GangJob, why: str) -> Finding:
    """Its controller can't store what it decides."""
    return Finding(
        kind=FindingKind.NOT_STORED,
        seen=f"the status can't be stored: {why}",
        next="nothing is restarted, stopped or started until it can, and this answer is older",
        do=f"end what prevents it; gangctl delete {job.metadata.name} works all the same",
        since=job.status.observed_time or job.status.phase_time or None,
    )


def _suspended(gang: Gang) -> Finding:
    job, status, kind = gang.job, gang.status, FindingKind.SUSPENDED
    left = sum(not pod.terminated for pod in gang.observed.pods)
    still = f"; {counted(left, 'old pod')} still {'ends' if left == 1 else 'end'}" if left else ""
    seen, condition = status.message, status.condition(ConditionType.SUSPENDED)
    if job.spec.suspend or status.given_back:
        seen = "spec.suspend is true" if job.spec.suspend else seen
        then = "the gang has no pods until that changes; attempt and restore point are kept"
    elif condition is not None and condition.reason == Reason.QUEUED:
        kind, then = FindingKind.QUEUED, "its pods are created when the queue admits it; nothing is charged"
    else:
        then = "the gang resumes by itself when its old pods are gone"
    return Finding(kind=kind, seen=f"{seen}{still}", next=then, do=way_on(job), since=status.phase_time)


def _held(gang: Gang) -> Finding:
    status, end = gang.status, hold_timeout(gang)
    condition = status.condition(ConditionType.READY)
    then = "nothing" if end is None else f"at {time_ahead(end, gang.now)} the gang fails (recovery.holdTimeoutSeconds)"
    then = f"the pods stay, without workers; {then}" + (" happens until a person goes on" if end is None else "")
    lacks_point = condition is not None and condition.reason == Reason.NO_RESTORE_POINT
    kind = FindingKind.RESTORE_POINT if lacks_point else FindingKind.HELD
    return Finding(kind=kind, seen=status.message, next=then, do=way_on(gang.job), since=status.phase_time)


def _refused(job: GangJob) -> Finding | None:
    """The cluster takes no pods of the gang; None if it does, as far as is known."""
    accepted = job.status.condition(ConditionType.ACCEPTED)
    if accepted is None or accepted.status != "False":
        return None
    return Finding(
        kind=FindingKind.REFUSED,
        seen=accepted.message,
        next="the controller tries again now and then; no deadline counts meanwhile",
        do="correct the template, the quota or the admission webhook that the message names",
        since=accepted.last_transition_time,
    )
