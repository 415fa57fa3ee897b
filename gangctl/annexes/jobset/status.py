"""The status of a JobSet, from those of its gangs and their pods. Pure.

The rule: conditions have JobSet's types, reasons and first words, are set when its own controller would set them, and
each change is an Event, as there. What gangctl knows beyond that follows in the message. A JobSet that has finished
keeps its conditions, whatever becomes of its gangs. A replicated job whose workers wait for others has no active Job,
though its pods are there: JobSet would not have created it yet. Nor is one suspended that depends on others and has
never started. What a gang can't run is the condition ``Accepted``,
which JobSet doesn't have: it is False with the reasons, and there are no pods.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gangctl.annexes.jobset import names
from gangctl.annexes.jobset.translation import Stage, pods_of_job, starts_in_order
from gangctl.api.gangjob import GangJob
from gangctl.api.model import rfc3339
from gangctl.api.names import parse_member_name
from gangctl.api.reasons import Reason
from gangctl.api.status import ConditionType, GangPhase, Status
from gangctl.core.facts.gang import waiting_roles
from gangctl.core.facts.progress import attempt_with_workers, recorded_places
from gangctl.core.facts.world import Pod

ACCEPTED: Final = "Accepted"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
RESTARTING: Final = "RestartingJobSet"
SUSPENDED: Final = "Suspended"
STARTING: Final = "StartupPolicyInProgress"
STARTED: Final = "StartupPolicyCompleted"
"""Types of conditions."""
_FAILED_BY: Final = {
    Reason.FAILED_BY_RULE: ("FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action"),
    Reason.BUDGET_EXHAUSTED: ("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts"),
}
_FAILED_JOBS: Final = ("FailedJobs", "jobset failed due to one or more job failures")
_COMING: Final = frozenset({GangPhase.PENDING, GangPhase.GATHERING, GangPhase.RUNNING})
"""Phases in which an attempt runs or will."""
_NOT_IN_REASONS: Final = re.compile("[^A-Za-z0-9_]+")
_LONGEST: Final = 32_768
"""Characters of a condition's message."""


@dataclass(frozen=True)
class Running:
    """A stage, its gang as it is stored, and the gang's pods."""

    stage: Stage
    job: GangJob | None
    """None before it is created, after it was deleted, and if this release can't read it."""
    pods: Sequence[Pod] = ()
    is_over: bool = False
    """Whether the stage after it has begun, whatever became of this one's gang."""

    @property
    def phase(self) -> GangPhase:
        if self.job is None:
            return GangPhase.SUCCEEDED if self.is_over else GangPhase.NEW
        return self.job.status.phase


class Said(NamedTuple):
    """An Event of the JobSet."""

    reason: str
    message: str
    is_warning: bool


class Outcome(NamedTuple):
    """The JobSet's status to store, and what to say when it is stored."""

    status: Mapping[str, Any]
    events: tuple[Said, ...]


def current(
    jobset: Mapping[str, Any], stages: Sequence[Running], now: float, refusal: str = "", *, has_gang: bool = False
) -> Outcome:
    """The status of a JobSet.

    Args:
        jobset: The stored object.
        stages: What is known of its gangs; none if it can't be translated.
        now: In seconds since the epoch.
        refusal: Why what it asks for can't be run; empty if it can.
        has_gang: Whether it has a gang all the same, which an earlier release made.

    A JobSet that can never be run has failed: nothing of its spec can be changed.
    """
    conditions = _Conditions(jobset, now)
    spec, failure = jobset["spec"], jobset["spec"].get("failurePolicy")
    jobs = list(_replicated_jobs(jobset, stages))
    restarts = [one.job.status.restarts for one in stages if one.job is not None]
    counted = sum(one.counted for one in restarts)
    fields: dict[str, Any] = {
        "restarts": counted + sum(one.uncounted for one in restarts),
        "restartsCountTowardsMax": counted,
        "replicatedJobsStatus": jobs,
    }
    if is_finished(jobset):
        is_known = all(one.job is not None for one in stages) and bool(stages)
        return conditions.outcome({"replicatedJobsStatus": jobs} if is_known else {})
    refused = ((one.stage, _refusal(one.job.status)) for one in stages if one.job is not None)
    rejection = next((stage.in_terms_of_jobset(text) for stage, text in refused if text), "")
    if refusal:
        text = f"gangctl can't run this JobSet: {refusal}. Change it, or create it without managedBy"
        conditions.set(ACCEPTED, is_true=False, reason="Unsupported", message=text, is_new=True, is_warning=True)
        if has_gang:
            return conditions.outcome({})
        if not stages:
            conditions.set(FAILED, is_true=True, reason="Unsupported", message=text, is_warning=True)
            return conditions.outcome(fields | {"terminalState": FAILED})
    elif rejection:
        conditions.set(ACCEPTED, is_true=False, reason="Refused", message=rejection, is_new=True, is_warning=True)
    else:
        conditions.set(ACCEPTED, is_true=True, reason="Accepted", message="the cluster accepts the pods")
    failed = next((one.job for one in stages if one.job is not None and one.phase is GangPhase.FAILED), None)
    if failed is not None:
        reason, words = _failure(failed.status, failure)
        first = _first_failed(jobset, stages, failed)
        conditions.set(
            FAILED, is_true=True, reason=reason, message=f"{words}{first}: {failed.status.message}", is_warning=True
        )
        conditions.set(RESTARTING, is_true=False, reason="JobSetFailed", message="jobset failed")
        return conditions.outcome(fields | {"terminalState": FAILED})
    if stages and all(one.phase is GangPhase.SUCCEEDED for one in stages):
        words = "jobset completed successfully"
        conditions.set(COMPLETED, is_true=True, reason="AllJobsCompleted", message=words)
        conditions.set(RESTARTING, is_true=False, reason="JobSetCompleted", message=words)
        return conditions.outcome(fields | {"terminalState": COMPLETED})
    if spec.get("suspend"):
        conditions.set(SUSPENDED, is_true=True, reason="SuspendedJobs", message="jobset is suspended")
        conditions.set(RESTARTING, is_true=False, reason="JobSetSuspended", message="jobset is suspended")
        return conditions.outcome(fields)
    conditions.set(SUSPENDED, is_true=False, reason="ResumeJobs", message="jobset is resumed")
    begun = [one.job.status for one in stages if one.job is not None and _has_restarted(one.job.status)]
    restarting = next((one for one in begun if _restarts(one)), None)
    is_new = fields["restarts"] > (jobset.get("status") or {}).get("restarts", 0)
    if begun and (restarting is not None or is_new):  # One may be over before it is seen.
        last = restarting or begun[-1]
        rule = _NOT_IN_REASONS.sub("_", last.incidents[0].cause.rule or "").rstrip("_")
        reason = f"FailurePolicy_{rule}" if rule else "DefaultFailurePolicy"
        conditions.set(RESTARTING, is_true=True, reason=reason, message=last.message, is_warning=True)
    ready = restarting is None and bool(stages)
    ready = ready and all(one["ready"] + one["succeeded"] == _replicas(spec, one["name"]) for one in jobs)
    if starts_in_order(jobset):
        conditions.set(
            STARTING, is_true=not ready, reason=f"InOrder{STARTING}", message="in order startup policy is in progress"
        )
        conditions.set(
            STARTED, is_true=ready, reason=f"InOrder{STARTED}", message="in order startup policy has completed"
        )
    if ready:
        conditions.set(RESTARTING, is_true=False, reason="JobsReady", message="all jobs are ready")
    return conditions.outcome(fields)


def hindered(jobset: Mapping[str, Any], now: float, why: str) -> Outcome:
    """The status of a JobSet that can't be run now, though nothing is wrong with it."""
    conditions = _Conditions(jobset, now)
    if not is_finished(jobset):
        conditions.set(ACCEPTED, is_true=False, reason=Reason.ACTION_FAILS, message=why, is_new=True, is_warning=True)
    return conditions.outcome({})


def is_finished(jobset: Mapping[str, Any]) -> bool:
    """Return whether the JobSet has succeeded or failed."""
    return finished_at(jobset) is not None


def finished_at(jobset: Mapping[str, Any]) -> str | None:
    """When the JobSet finished, as the API server writes times; None if it hasn't."""
    conditions = (jobset.get("status") or {}).get("conditions") or ()
    ends = (one for one in conditions if one["type"] in {COMPLETED, FAILED} and one["status"] == "True")
    return next((str(one["lastTransitionTime"]) for one in ends), None)


class _Conditions:
    """The conditions of a JobSet, as they change, and the Events of the changes."""

    def __init__(self, jobset: Mapping[str, Any], now: float) -> None:
        self._status = dict(jobset.get("status") or {})
        self._found = {one["type"]: one for one in self._status.get("conditions") or ()}
        self._now = rfc3339(float(int(now)))
        self._events: list[Said] = []

    def set(
        self, kind: str, *, is_true: bool, reason: str, message: str, is_new: bool = False, is_warning: bool = False
    ) -> None:
        """Set a condition. One that is False is added only if it ``is_new``.

        While a JobSet restarts, it keeps its first message: that of the gang changes with each member that is awaited.
        """
        old = self._found.get(kind)
        if old is None and not (is_true and kind != ACCEPTED) and not is_new:
            return
        new = {"type": kind, "status": "True" if is_true else "False", "reason": reason, "message": message[:_LONGEST]}
        if old is not None and all(old.get(key) == value for key, value in new.items()):
            return
        same = old is not None and old["status"] == new["status"]
        if same and kind == RESTARTING:
            return
        self._found[kind] = new | {"lastTransitionTime": old["lastTransitionTime"] if old and same else self._now}
        self._events.append(Said(reason, message, is_warning))

    def outcome(self, fields: Mapping[str, Any]) -> Outcome:
        status = {"restarts": 0, **self._status, **fields}
        if self._found:
            status["conditions"] = list(self._found.values())
        return Outcome(status, tuple(self._events))


def _replicas(spec: Mapping[str, Any], name: str) -> int:
    return next(int(one.get("replicas", 1)) for one in spec["replicatedJobs"] if one["name"] == name)


def _replicated_jobs(jobset: Mapping[str, Any], stages: Sequence[Running]) -> Iterator[dict[str, Any]]:
    """How many Jobs of each replicated job are ready, and so on, by the names that JobSet sorts: the last first."""
    running = {name: (one, role) for one in stages for name, role in one.stage.roles.items()}
    for job in sorted(jobset["spec"].get("replicatedJobs") or (), key=lambda one: str(one["name"]), reverse=True):
        counts = dict.fromkeys(("active", "failed", "ready", "succeeded", "suspended"), 0)
        found = running.get(job["name"])
        if found is not None:
            counts |= _counts(job, *found, is_suspended=bool(jobset["spec"].get("suspend")))
        elif stages and not pods_of_job(job):
            counts["succeeded"] = int(job.get("replicas", 1))
        yield {"name": job["name"], **counts}


def _counts(job: Mapping[str, Any], running: Running, role: str, *, is_suspended: bool) -> dict[str, int]:
    """Count the Jobs of a role. One that has finished keeps its pods until its gang ends, and may run again.

    A queue takes back the quota of Jobs that have succeeded, so none has before.
    """
    size, replicas = pods_of_job(job), int(job.get("replicas", 1))
    done, ready, live = Counter[int](), Counter[int](), Counter[int]()
    waits, is_over = False, running.phase in {GangPhase.SUCCEEDED, GangPhase.FAILED}
    if running.job is not None:
        status = running.job.status
        waits = status.phase in _COMING and role in waiting_roles(running.job.spec, status) and not is_suspended
        finished = recorded_places(status, attempt_with_workers(status))
        for member in finished:
            name, index = parse_member_name(member)
            done[index // size] += name == role
        for pod in running.pods:
            name, index = parse_member_name(pod.member)
            if waits or name != role or pod.deleting or pod.terminated:
                continue
            live[index // size] += 1
            is_ready = any((kind, state) == ("Ready", "True") for kind, state, _ in pod.conditions)
            ready[index // size] += is_ready and pod.member not in finished
    is_created = not job.get("dependsOn") or (running.job is not None and running.job.status.started_attempt > 0)
    whole = running.phase is GangPhase.SUCCEEDED and not running.stage.document["spec"].get("successPolicy")
    succeeded = {one for one, number in done.items() if number >= size and is_over}
    failed = {_failed_job(running.job, role, size)} - {None} if running.phase is GangPhase.FAILED else set()
    rest = [one for one in live if not whole and one not in succeeded | failed]
    ended = replicas if whole else len(succeeded)
    return {
        "active": len(rest),
        "failed": len(failed - succeeded),
        "ready": sum(done[one] + ready[one] >= size for one in rest),
        "succeeded": ended,
        "suspended": replicas - ended - len(failed - succeeded) if is_suspended and is_created else 0,
    }


def _failed_job(job: GangJob | None, role: str, size: int) -> int | None:
    """The Job of the member at fault, if it is of this role."""
    member = job.status.incidents[0].cause.member if job is not None and job.status.incidents else ""
    if not member:
        return None
    name, index = parse_member_name(member)
    return index // size if name == role else None


def _first_failed(jobset: Mapping[str, Any], stages: Sequence[Running], failed: GangJob) -> str:
    for one in stages:
        for job in jobset["spec"]["replicatedJobs"]:
            role = one.stage.roles.get(job["name"]) if one.job is failed else None
            at = None if role is None else _failed_job(failed, role, pods_of_job(job))
            if at is not None:
                return f" (first failed job: {names.job_name(jobset['metadata']['name'], job['name'], at)})"
    return ""


def _failure(status: Status, policy: Mapping[str, Any] | None) -> tuple[str, str]:
    failed = status.condition(ConditionType.FAILED)
    if policy is None or failed is None:
        return _FAILED_JOBS
    return next((words for kind, words in _FAILED_BY.items() if kind == failed.reason), _FAILED_JOBS)


def _refusal(status: Status) -> str:
    found = status.condition(ConditionType.ACCEPTED)
    return "" if found is None or found.status != "False" else found.message


def _has_restarted(status: Status) -> bool:
    """Return whether the attempt has begun with an incident, and not with a start or a resume."""
    return bool(status.incidents) and status.incidents[0].attempt == status.attempt


def _restarts(status: Status) -> bool:
    """Return whether the gang is between a fault and the start of its next attempt."""
    restarting = status.condition(ConditionType.RESTARTING)
    return restarting is not None and restarting.status == "True"
