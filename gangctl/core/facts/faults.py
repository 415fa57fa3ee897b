"""Faults: all evidence against an attempt, from reports to devices, and the member that stayed when all others ended.

The rule: every fault names one member and one moment; the cause is the strongest fault, and among equals the earliest.
None of these is a fault: a worker that was told to stop, a worker of an older attempt, a spare's pod, what happens to a
member that already waits for the next attempt, what happens to one that has finished, and silence (``fitness.py``): a
worker whose supervisor is not heard may be training.

Ends: how the processes of a member's worker ended, from its supervisor's report, or else from its last words.

The rule: a report counts before last words, since it is exact, and has what was found in the log. Last words tell of a
supervisor that is gone, with its connection or the controller that heard it. Their time is that of the container's end,
cut to whole seconds, and a supervisor that was killed wrote them earlier. So it is unknown what came before such an
end: it is tied with every other (``evidence.py``), and must not end a job as the earliest, when they are gone either.

Containers that ended by themselves: what the cluster shows of it, and to which attempt it belongs.

The rule: the end of a worker's container, with its supervisor, is evidence of the attempt that it fell into, whether
the cluster or the new session reports it first. Its reason (OOMKilled) is shown a moment after the new session reports.
The time that a kubelet gives must not open an attempt where the leader has heard the pod: the new session does that, or
that there is none. An end that an earlier attempt failed for must not count again.

Corruption: whom a framework accuses of wrong results, and since which step nothing that was saved is trusted.

The rule: a rank may accuse another of its process group. Where more than half of the members are accused, and two at
least, the software is to blame or the check, and no pod. Which steps aren't trusted must not depend on who is accused.

The member that stayed: the only one of a process group whose worker went on when all others' had ended by themselves.

    stayed(m) = every other member that runs a place of the cause's process group, and two at least, ended by itself in
                one way; m did not, and its newest step is below theirs, or SIGTERM did not end it

The watchdog of a collective aborts the ranks that wait, and not the one that they wait for: of a hang that ends so, the
victims end first. It is known when m is Ready for the next attempt, so that no end of it is on its way. Of two members
it must not be told: one of them ended, and the other simply was not done yet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from gangctl.api.gangjob import NeverSucceeds
from gangctl.api.reasons import Reason
from gangctl.api.roles import number_places
from gangctl.api.status import GangPhase
from gangctl.core.facts import fitness
from gangctl.core.facts.evidence import DISRUPTION_REASONS, REPLACED_REASONS, VAGUE_REASONS, Fault, Strength
from gangctl.core.facts.fitness import NOT_EXECUTABLE, reason_text
from gangctl.core.facts.gang import Gang, may_start_since, once
from gangctl.core.facts.order import members_that_wait
from gangctl.core.facts.printed import mask_secrets
from gangctl.core.facts.progress import finished_places
from gangctl.core.facts.world import Device, Heard, Pod
from gangctl.words import faults as words
from gangctl.words.message import Message
from gangsidecar.wire import End, Level, LogMatch, Phase, Report

# Faults


_ENDINGS: Final = {"Evicted": Reason.STORAGE_EXCEEDED, "OOMKilled": Reason.OOM_KILLED}
"""Why a pod has ended, in Kubernetes' words -> ours, where rules ask for it.

A kubelet gives the condition DisruptionTarget to a pod that it evicts because the node runs short, and not to one that
exceeds its own limits of local storage. Source: Kubernetes, pkg/kubelet/eviction, localStorageEviction.
"""
_FOLLOWING: Final = VAGUE_REASONS | {Reason.NODE_DRAINED}
"""What may follow from a fault of the same strength: a node is being drained since another pod there is evicted."""
_FOUND_LATE: Final = frozenset({Reason.DEVICE_LOST, Reason.NODE_UNHEALTHY, Reason.CORRUPTION})
START_SECONDS: Final = 60.0
"""A worker that doesn't report that it was started within this time of the attempt's start is a fault."""


@once
def faults(gang: Gang) -> tuple[Fault, ...]:
    """All evidence against the newest attempt that had workers, strongest first, earliest first among equals.

    While Running that is the status' attempt, while Gathering the one before.
    """
    done, fresh = finished_places(gang), gang.status.phase is GangPhase.PENDING  # Then every fault is late.
    found = [
        fault
        for place, holder in (() if fresh else gang.holders.items())
        if holder in gang.conspicuous
        for fault in (_of_finished if place in done else _of_member)(gang, holder)
        if not _is_late(gang, fault)
    ]
    found += _of_replaced(gang)
    return tuple(
        sorted(found, key=lambda fault: (-fault.strength, fault.reason in _FOLLOWING, fault.time, fault.member))
    )


def _is_late(gang: Gang, fault: Fault) -> bool:
    """Whether it happened to a member that was waiting already: it is replaced, and the attempt did not fail for it.

    What explains the end of the member at fault (its pod, its node, its device) is never late.
    """
    if gang.status.phase is GangPhase.RUNNING:
        return False
    if gang.is_fresh(fault.member):
        return True  # Its pod is younger than the attempt that failed.
    if fault.strength <= Strength.END or fault.reason in _FOUND_LATE:
        return False  # Neither a device nor a node falls ill by waiting, nor does a framework accuse who waits.
    if fault.level is Level.CONTAINER:
        return False  # Only ends before the incident are found.
    report = gang.report(fault.member)
    waiting = report is not None and report.attempt == gang.status.attempt and report.phase is Phase.READY
    incidents = gang.status.incidents
    return waiting and not (incidents and incidents[0].cause.member == fault.member)


def _of_replaced(gang: Gang) -> list[Fault]:
    """What shows later in the replaced pod that the open incident is put down to.

    That it is deleted is no news: the controller does that.
    """
    incidents = gang.status.incidents
    if gang.status.phase is GangPhase.RUNNING or not incidents or incidents[0].settled:
        return []
    cause = incidents[0].cause
    if cause.incarnation >= gang.incarnation(cause.member):
        return []
    own = [one for one in gang.observed.pods if one.member == cause.member]
    old = [one for one in own if one.incarnation == cause.incarnation]
    return [fault for pod in old for fault in _of_pod(gang, pod) if fault.reason not in REPLACED_REASONS]


def failed_attempt(gang: Gang) -> int:
    """The attempt that evidence is looked for."""
    return gang.status.attempt if gang.status.phase is GangPhase.RUNNING else gang.status.attempt - 1


def is_unseen_by_most(gang: Gang) -> bool:
    """Whether most members of the failed attempt could not see its restore point: then no pod is to blame."""
    return len(unseen_by(gang)) * 2 > len(gang.places)


def is_missing_for_most(gang: Gang) -> bool:
    """Whether most of them saw the folder that should hold it, with others in it: then the step is to blame.

    Where the folder is empty, absent or doesn't answer, the storage is away, and nothing is known of the step.
    """
    return sum(not one.missing_folder for one in unseen_by(gang)) * 2 > len(gang.places)


@once
def unseen_by(gang: Gang) -> list[Report]:
    """The reports of those who could not see the restore point of the failed attempt."""
    attempt = failed_attempt(gang)
    reports = (gang.report(holder) for holder in gang.holding & gang.conspicuous)
    return [one for one in reports if one is not None and _misses(one, attempt)]


def _misses(report: Report, attempt: int) -> bool:
    return report.missing_step is not None and report.missing_attempt == attempt


def _of_finished(gang: Gang, member: str) -> Iterator[Fault]:
    """Of a member that has finished, only what it asked for before counts."""
    pod = gang.pods.get(member)
    heard = None if pod is None else gang.heard.get(pod.uid)
    if pod is not None and heard is not None:
        yield from _of_request(gang, pod, heard)
        yield from _of_corruption(gang, pod, heard)


def _of_member(gang: Gang, member: str) -> Iterator[Fault]:
    pod = gang.pods.get(member)
    running = gang.status.phase is GangPhase.RUNNING
    if pod is None:
        if running:
            yield Fault(
                Reason.POD_DELETED,
                member,
                gang.now,
                gang.incarnation(member),
                message=words.pod_gone(),
            )
        return
    suspect = not pod.is_sound or pod.is_doubtful
    if suspect or pod.node in gang.observed.lost_nodes or pod.node in gang.observed.nodes:
        yield from _of_pod(gang, pod)
    if not running:
        yield from ends_of_container(gang, pod)
    yield from faults_of_ends(gang, pod, failed_attempt(gang))
    heard = gang.heard.get(pod.uid)
    if heard is not None:
        yield from _of_report(gang, pod, heard)
    if running:
        yield from _of_inaction(gang, pod, heard)


def _of_pod(gang: Gang, pod: Pod) -> Iterator[Fault]:
    def fault(reason: Reason, message: str, **more: str) -> Fault:
        return Fault(
            reason,
            pod.member,
            gang.now,
            pod.incarnation,
            node=pod.node or None,
            conditions=pod.conditions,
            message=message,
            **more,  # type: ignore[arg-type]
        )

    disruption = next(
        (why for kind, state, why in pod.conditions if kind == "DisruptionTarget" and state == "True"), ""
    )
    for device in pod.devices:
        if device.health == "Unhealthy" or (device.health == "Unknown" and _doubt_matters(gang, device)):
            yield fault(
                Reason.DEVICE_LOST,
                device.described(),
                device=device.name,
                resource=device.resource,
                health=device.health,
            )
    defect = fitness.unusable(gang, pod)
    if disruption and not (defect is not None and defect.against_node):
        reason = DISRUPTION_REASONS.get(disruption, Reason.DISRUPTED)
        reason = Reason.EVICTED if pod.is_evicted else reason
        taint = _tainted(pod) if reason is Reason.DEVICE_TAINTED else None
        why = reason_text(pod) if pod.is_evicted and taint is None else ""
        yield fault(reason, words.pod_disrupted(disruption, taint, why))
    elif defect is not None and defect.reason == Reason.POD_FAILED:
        if pod.reason not in _ENDINGS and says_why(gang, pod, failed_attempt(gang)):
            return
        yield replace(fault(_ENDINGS.get(pod.reason, Reason.POD_FAILED), defect.message), level=Level.POD)
    elif defect is not None:
        yield fault(Reason(defect.reason), defect.message)
    elif (left := fitness.of_node(gang, pod)) is not None:
        yield fault(Reason(left.reason), left.message)


def _tainted(pod: Pod) -> str:
    """The device for whose taint the pod is deleted; empty if it may be one of several."""
    claimed = [device.name for device in pod.devices if device.is_claimed]
    return claimed[0] if len(claimed) == 1 else ""


def _doubt_matters(gang: Gang, device: Device) -> bool:
    """Whether a rule asks for devices whose health is unknown."""
    asked = [rule.on_device_health for rule in gang.spec.pod_failure_policy.rules if rule.on_device_health is not None]
    return any(
        "Unknown" in health.health and (not health.resource_names or device.resource in health.resource_names)
        for health in asked
    )


def _of_report(gang: Gang, pod: Pod, heard: Heard) -> Iterator[Fault]:
    report, attempt = heard.report, failed_attempt(gang)
    for defect in fitness.of_report(report):
        if report.phase is not Phase.DONE or defect.reason == Reason.DISRUPTED:
            conditions = pod.conditions if defect.reason == Reason.DISRUPTED else ()
            yield Fault(
                Reason(defect.reason),
                pod.member,
                heard.at,
                pod.incarnation,
                node=pod.node,
                conditions=conditions,
                message=defect.message,
            )
    yield from _of_request(gang, pod, heard)
    yield from _of_corruption(gang, pod, heard)
    if _misses(report, attempt):
        yield Fault(
            Reason.RESTORE_POINT_MISSING,
            pod.member,
            heard.at,
            pod.incarnation,
            message=words.step_not_seen(report.missing_step, no_folder=report.missing_folder),
        )


def _of_request(gang: Gang, pod: Pod, heard: Heard) -> Iterator[Fault]:
    request = heard.report.request
    if request is not None and request.attempt == failed_attempt(gang):
        yield Fault(
            Reason.REQUESTED,
            pod.member,
            heard.ago(request.age_ms),
            pod.incarnation,
            rank=request.rank,
            node=pod.node if request.exclude_node else None,
            level=max(request.level, Level.POD, key=list(Level).index) if request.exclude_node else request.level,
            message=words.framework_asked(),
            words=request.reason,
        )


def _of_inaction(gang: Gang, pod: Pod, heard: Heard | None) -> Iterator[Fault]:
    """What a member doesn't do: run the attempt that it is in.

    One that this leader has never heard was told to run by another. Only the cluster can show that its worker is gone.
    """
    status, deadline = gang.status, start_deadline(gang, pod, heard)
    late = deadline is not None and gang.now >= deadline
    if heard is None or is_dead(gang, pod, heard):
        if late:
            why = reason_text(pod) if pod.reason else ""
            yield _start_failed(gang, pod, words.container_ended_in_silence(why))
        return
    report = heard.report
    if not has_joined(report, status.attempt):
        new = words.supervisor_restarted()
        end = container_end(pod, gang.now)
        yield end if container_has_ended(gang, pod) else replace(end, reason=Reason.CONTAINER_RESTARTED, message=new)
    elif has_stopped_itself(report, status.attempt):
        yield Fault(
            Reason.DISRUPTED,
            pod.member,
            gang.now,
            pod.incarnation,
            message=words.stopped_inside(),
        )
    elif report.phase is Phase.READY and late and pod.member not in members_that_wait(gang):
        yield _start_failed(gang, pod, words.start_not_reported(START_SECONDS))


def _start_failed(gang: Gang, pod: Pod, message: str) -> Fault:
    return Fault(Reason.START_FAILED, pod.member, gang.now, pod.incarnation, node=pod.node, message=message)


def start_deadline(gang: Gang, pod: Pod, heard: Heard | None) -> float | None:
    """When a supervisor must have reported that its worker was started: it is Ready, or its container was restarted.

    None where this leader has never heard it, its container can be started, and its watch has not shown an end of it
    since it listens: an older end may be of an older attempt, since the status was written by the clock of another.
    """
    began = max(may_start_since(gang.status), gang.observed.listening_since)
    if heard is None and pod.start_failure is None and (pod.ended_at is None or pod.ended_at <= began):
        return None
    since = pod.ended_at or 0.0 if heard is None or is_dead(gang, pod, heard) else heard.since
    return max(began, pod.started_at or 0.0, since) + START_SECONDS


def has_joined(report: Report, attempt: int) -> bool:
    """Whether this session reported Ready for the attempt or runs it."""
    return report.attempt >= attempt and report.phase is not Phase.IDLE


def has_stopped_itself(report: Report, attempt: int) -> bool:
    """Whether the attempt's worker was stopped though the controller did not ask for it (isolation, orphaned)."""
    stopped = any(end.attempt == attempt and end.stopped for end in report.ends)
    return report.attempt == attempt and not report.terminating and (stopped or report.phase is Phase.DONE)


# Corruption


def _of_corruption(gang: Gang, pod: Pod, heard: Heard) -> Iterator[Fault]:
    found = heard.report.corruption
    if found is not None and found.attempt == failed_attempt(gang):
        member = accused_by(gang, heard.report)
        accused = gang.pods.get(member)
        yield Fault(
            Reason.CORRUPTION,
            member,
            heard.ago(found.age_ms),
            gang.incarnation(member),
            rank=found.rank,
            node=None if accused is None else accused.node or None,
            message=words.corruption_found(found.since_step, "" if member == pod.member else pod.member),
            words=found.reason,
        )


def accused_by(gang: Gang, report: Report) -> str:
    """The member that the framework in this report accuses; the reporter itself, if no other has the rank."""
    found = report.corruption
    return report.member if found is None else _peers(gang).get(report.member, {}).get(found.rank, report.member)


@once
def _peers(gang: Gang) -> Mapping[str, Mapping[int, str]]:
    """Member -> each rank of its process group and the member that runs it."""
    numbering, found = number_places(gang.roles), dict[str, Mapping[int, str]]()
    for places in numbering.groups.values():
        ranks = {rank: gang.holders[place] for place in places for rank in numbering.ranks[place]}
        found |= {gang.holders[place]: ranks for place in places}
    return found


@once
def is_corruption_of_most(gang: Gang) -> bool:
    """Whether so many members of the failed attempt are accused that none of them is to blame."""
    attempt = failed_attempt(gang)
    reports = (gang.report(holder) for holder in gang.holding & gang.conspicuous)
    accused = {
        accused_by(gang, one)
        for one in reports
        if one is not None and one.corruption is not None and one.corruption.attempt == attempt
    }
    return len(accused) > 1 and len(accused) * 2 > len(gang.places)


def corrupt_since(gang: Gang) -> int | None:
    """The first step that isn't trusted any more, as the status has it and the workers that ran last report it."""
    ran, known = gang.status.started_attempt, gang.status.corrupt_since
    found = [one.report.corruption for one in gang.heard.values() if one.report.corruption is not None]
    steps = [one.since_step for one in found if one.attempt == ran]
    return min([*steps, *(() if known is None else (known,))], default=None)


# Ends


def faults_of_ends(gang: Gang, pod: Pod, attempt: int) -> Iterator[Fault]:
    """The processes of the attempt that ended by themselves, and not because all their work was done."""
    heard = gang.heard.get(pod.uid)
    reported = () if heard is None else heard.ends
    for end, time in reported:
        if heard is not None and _is_fault(gang, end, attempt):
            lines = tuple(one for one in heard.report.log_matches if one.attempt == attempt)
            yield _fault(pod, end, time, lines)
    known = {(end.attempt, end.local_rank) for end, _ in reported}
    if pod.last_words is not None:
        for end in pod.last_words.ends:
            if (end.attempt, end.local_rank) not in known and _is_fault(gang, end, attempt):
                yield _fault(pod, end, pod.last_words.at - end.age_ms / 1000, exact=False)


def says_why(gang: Gang, pod: Pod, attempt: int) -> bool:
    """Whether its last words explain that the pod has ended: its worker had, and its supervisor was left alone."""
    return pod.last_words is not None and any(_is_fault(gang, end, attempt) for end in pod.last_words.ends)


def _is_fault(gang: Gang, end: End, attempt: int) -> bool:
    never = isinstance(gang.spec.success_policy, NeverSucceeds)
    return end.attempt == attempt and not end.stopped and (end.exit_code != 0 or never)


def _fault(pod: Pod, end: End, time: float, lines: tuple[LogMatch, ...] = (), *, exact: bool = True) -> Fault:
    reason, seen = _seen(end)
    return Fault(
        reason,
        pod.member,
        time,
        pod.incarnation,
        rank=end.rank,
        exit_code=end.exit_code,
        signal=end.signal,
        node=pod.node or None,
        conditions=pod.conditions,
        level=Level.POD if pod.terminated and not exact else Level.PROCESS,
        message=seen,
        words=_words(end),
        exact=exact,
        lines=lines,
    )


def _seen(end: End) -> tuple[Reason, Message]:
    if end.oom:
        return Reason.OOM_KILLED, words.killed_for_memory()
    if end.signal is not None:
        return Reason.SIGNAL, words.ended_by_signal(end.signal)
    if end.hidden:
        return Reason.EXIT_CODE_HIDDEN, words.exit_code_hidden(end.exit_code)
    not_executed = end.exit_code in NOT_EXECUTABLE
    reason = Reason.START_FAILED if not_executed and end.message else Reason.EXIT_CODE
    return reason, words.exited(end.exit_code, of_shell=not_executed and not end.message)


def _words(end: End) -> str:
    """What its supervisor or the worker itself says of it, in one line without what looks like a secret."""
    lines = (mask_secrets(line.strip()) for line in end.message.splitlines())
    return " ".join(filter(None, lines))


# Containers that ended by themselves


WHOLE_SECOND: Final = 1.0
"""The kubelet's times are cut to whole seconds: what has happened may be as much later."""


def attempt_began(gang: Gang) -> float:
    """When the attempt that evidence is looked for was started, as far as the status remembers."""
    status = gang.status
    if status.phase is GangPhase.RUNNING:
        return status.phase_time
    before = status.incidents[1:2]
    settled = 0.0 if not before else before[0].settled_time or 0.0
    return max(status.start_time or 0.0, settled)


def container_has_ended(gang: Gang, pod: Pod) -> bool:
    """Whether the cluster shows that the pod's container has ended in the attempt that evidence is looked for."""
    return pod.ended_at is not None and attempt_began(gang) < pod.ended_at + WHOLE_SECOND


def is_dead(gang: Gang, pod: Pod, heard: Heard) -> bool:
    """Whether the container has ended in this attempt, or can't be started: nothing in it will speak, nor trains."""
    ended = pod.start_failure is not None or container_has_ended(gang, pod)
    return ended and pod.started_at is None and not heard.connected


def ends_of_container(gang: Gang, pod: Pod) -> Iterator[Fault]:
    """The end of the worker's container in the failed attempt, before any worker was stopped, while Gathering."""
    incidents = gang.status.incidents
    if pod.ended_at is None or pod.terminated or not incidents or incidents[0].settled:
        return
    if container_has_ended(gang, pod) and pod.ended_at <= incidents[0].time and not _outlived_it(gang, pod):
        yield container_end(pod, pod.ended_at)


def _outlived_it(gang: Gang, pod: Pod) -> bool:
    """Whether the supervisor of now started the worker of the failed attempt: the container ended before that.

    Times can't tell: the clock of the leader that started the attempt may have been behind, and an attempt may begin
    within a second of the end that the one before failed for. What is not connected, and has not heard of the new
    attempt, may have ended with the container.
    """
    heard, attempt = gang.heard.get(pod.uid), gang.status.attempt
    is_there = heard is not None and (heard.connected or heard.report.attempt == attempt)
    return is_there and heard is not None and heard.report.ran >= attempt - 1


def container_end(pod: Pod, time: float) -> Fault:
    """The fault. Its reason may come later than its new session."""
    oom = pod.ended_reason == "OOMKilled"
    message = words.container_killed_for_memory() if oom else words.container_ended()
    if pod.start_failure is not None and pod.reason and not oom:
        message = words.container_cannot_start_again(reason_text(pod))
    return Fault(
        Reason.OOM_KILLED if oom else Reason.CONTAINER_RESTARTED,
        pod.member,
        time,
        pod.incarnation,
        node=pod.node or None,
        level=Level.CONTAINER,
        message=message,
    )


# The member that stayed


VICTIMS: Final = 2
"""So many at least, to be all others."""


def member_that_stayed(gang: Gang, ended: str, found: tuple[Fault, ...]) -> str:
    """The member that stayed when this one ended; empty if there is none, or if that isn't known yet.

    ``found``: all evidence.
    """
    world, heard = gang.world_of(ended), gang.heard_by_member
    ends = {one.member: one for one in found if one.strength is Strength.END and one.member in world}
    ways = {(one.reason, one.exit_code, one.signal) for one in ends.values()}
    rest = world - ends.keys()
    if len(ends) < VICTIMS or len(ways) > 1 or len(rest) != 1:
        return ""
    (member,) = rest
    one = heard.get(member)
    if one is None or one.ready_for != gang.status.attempt or gang.is_fresh(member):
        return ""
    attempt = failed_attempt(gang)
    steps = [made.step for name in ends if (made := heard.get(name)) is not None and made.step_attempt == attempt]
    reached = [step for step in steps if step is not None]
    behind = one.step_attempt == attempt and one.step is not None and bool(reached) and one.step < min(reached)
    return member if behind or one.report.killed_ms is not None else ""
