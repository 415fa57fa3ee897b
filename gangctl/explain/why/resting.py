"""Gangs that rest: suspended, queued, held, refused by the cluster, without a controller, or being deleted.

The rule: the status says it all, because it is what the controller acts on. Each says the way on.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.conditions import ConditionType
from gangctl.api.gangjob import GangJob
from gangctl.api.reasons import Reason
from gangctl.api.status import Condition
from gangctl.core.facts.gang import Gang
from gangctl.core.policy.deadlines import hold_timeout
from gangctl.core.policy.recovery import TRIES, failed_alike
from gangctl.explain.why.findings import Finding, Kind
from gangctl.words.text import clock_time, counted

FAILED_ALIKE: Final = f"{TRIES} attempts failed alike before a step was reported"


def deleting(gang: Gang) -> Finding:
    """The gang is being deleted."""
    pods = len(gang.observed.pods)
    return Finding(
        kind=Kind.DELETING,
        seen=f"the gang is being deleted; {counted(pods, 'pod')} {'is' if pods == 1 else 'are'} left",
        next="it is gone when its pods have ended, and what keeps them (finalizers) lets go",
        do="kubectl get gangjob, pods -o yaml shows finalizers and the end of grace periods, if it takes long",
        since=gang.job.metadata.deletion_timestamp,
    )


def not_seen(job: GangJob) -> Finding:
    """No controller has seen the gang."""
    return Finding(
        kind=Kind.NOT_SEEN,
        seen="no controller has seen the gang yet",
        next="nothing happens until one does",
        do="check that gangctl's controller runs, is the leader, and watches this namespace (watchNamespaces)",
        since=job.metadata.creation_timestamp,
    )


def interrupted(job: GangJob, at: float) -> Finding:
    """`gangctl run` was ended, or ended by itself. No controller was left to change the status."""
    status, name = job.status, job.metadata.name
    progress = status.progress
    step = f", at step {progress.step} or later" if progress and progress.attempt == status.attempt else ""
    point = "" if job.spec.checkpoint is None else ", from the newest checkpoint that all ranks have"
    who = f"{FAILED_ALIKE}, which" if failed_alike(job) else "Ctrl-C, or a signal,"
    end = f"ended the run and every process of the gang at {clock_time(at)}"
    return Finding(
        kind=Kind.ENDED,
        seen=f"{who} {end}: attempt {status.attempt} was {status.phase or 'New'}{step}",
        do=f"gangctl rerun {name} runs it again{point}; gangctl logs {name} has its logs",
        since=at,
    )


def not_led(job: GangJob) -> Finding:
    """No controller answers for the gang."""
    return Finding(
        kind=Kind.NOT_LED,
        seen="no controller answers for the gang: what is told here was stored last",
        next="its workers train on, and a fault is not noticed",
        do=f"start its controller again: gangctl run FILE continues with gang {job.metadata.name}",
        since=job.status.observed_time or job.metadata.creation_timestamp,
    )


def not_stored(job: GangJob, why: str) -> Finding:
    """Its controller can't store what it decides."""
    return Finding(
        kind=Kind.NOT_STORED,
        seen=f"the status can't be stored: {why}",
        next="nothing is restarted, stopped or started until it can, and what is told here is older",
        do=f"end what prevents it; gangctl delete {job.metadata.name} works all the same",
        since=job.status.observed_time or job.status.phase_time or None,
    )


def suspended(gang: Gang) -> Finding:
    """The gang is suspended: by whom, and the way on."""
    job, status, name = gang.job, gang.status, gang.job.metadata.name
    left = counted(len(gang.observed.pods), "old pod") if gang.observed.pods else ""
    still = f"; {left} still {'ends' if left.startswith('1 ') else 'end'}" if left else ""
    condition = _condition(job, ConditionType.SUSPENDED)
    if job.spec.suspend:
        seen, do, kind = f"spec.suspend is true{still}", f"gangctl resume {name} goes on", Kind.SUSPENDED
        then = "the gang has no pods until that changes; attempt and restore point are kept"
    elif status.given_back:
        seen, do, kind = f"{status.message}{still}", f"gangctl restart {name} goes on", Kind.SUSPENDED
        then = "the gang has no pods until then; attempt and restore point are kept"
    elif condition is not None and condition.reason == Reason.QUEUED:
        seen, kind = f"{status.message}{still}", Kind.QUEUED
        then = "its pods are created when the queue admits it; nothing is charged"
        do = (
            f"kubectl describe workloads -n {job.metadata.namespace} shows quota and checks; free quota, raise it, or "
            "name another queue (label kueue.x-k8s.io/queue-name)"
        )
    else:
        seen, kind, do = f"{status.message}{still}", Kind.SUSPENDED, ""
        then = "the gang resumes by itself when its old pods are gone"
    return Finding(kind=kind, seen=seen, next=then, do=do, since=status.phase_time)


def held(gang: Gang) -> Finding:
    """The gang is held: why, and the way out."""
    status, name = gang.status, gang.job.metadata.name
    condition = _condition(gang.job, ConditionType.READY)
    end = hold_timeout(gang)
    then = "nothing" if end is None else f"at {clock_time(end)} the gang fails (recovery.holdTimeoutSeconds)"
    then = f"the pods stay, without workers; {then}" + (" happens until a person goes on" if end is None else "")
    if condition is not None and condition.reason == Reason.NO_RESTORE_POINT:
        do = f"make the step available and run gangctl restart {name}, or choose: --from-step N or --from-beginning"
        return Finding(kind=Kind.RESTORE_POINT, seen=status.message, next=then, do=do, since=status.phase_time)
    member = status.incidents[0].cause.member if status.incidents else ""
    look = f"gangctl logs {name} {member}" if member else f"gangctl logs {name}"
    do = f"look at the pods ({look}); then gangctl restart {name} goes on from the restore point"
    return Finding(kind=Kind.HELD, seen=status.message, next=then, do=do, since=status.phase_time)


def refused(job: GangJob) -> Finding | None:
    """The cluster takes no pods of the gang; None if it does, as far as is known."""
    accepted = _condition(job, ConditionType.ACCEPTED)
    if accepted is None or accepted.status != "False":
        return None
    return Finding(
        kind=Kind.REFUSED,
        seen=accepted.message,
        next="the controller tries again now and then; no deadline counts meanwhile",
        do="correct the template, the quota or the admission webhook that the message names",
        since=accepted.last_transition_time,
    )


def _condition(job: GangJob, kind: ConditionType) -> Condition | None:
    return next((one for one in job.status.conditions if one.type == kind), None)
