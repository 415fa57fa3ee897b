"""The sentences of a gang's story: durations, cause, decision, cost, how processes started, what to do next."""

from collections.abc import Iterator
from typing import Final

from gangctl.api.events import todo
from gangctl.api.gangjob import GangJob, Windowed, controllers
from gangctl.api.incident import CheckResult, Incident, IncidentLevel
from gangctl.api.names import LOCAL_NODE
from gangctl.api.reasons import Reason
from gangctl.api.status import ConditionType, GangPhase, MemberSnapshot, Status
from gangctl.core.policy.cause import describe
from gangctl.core.policy.recovery import TRIES, failed_alike
from gangctl.core.record.conditions import hangs, warned_of
from gangctl.core.record.incidents import innermost
from gangctl.words.text import counted, moment

FAILED_ALIKE: Final = f"{TRIES} attempts failed alike before a step was reported"
_MINUTE: Final = 60
_HOUR: Final = 3600
_OUTCOMES: Final = {
    "Failed": "failed",
    "Held": "is held: its pods stay for inspection",
    "Succeeded": "succeeded",
    "Suspended": "was suspended",
}
_LEAST_SECONDS: Final = 0.0005
"""Less rounds to no millisecond."""
_LEVELS: Final = {
    IncidentLevel.PROCESS: "every worker restarts inside its pod",
    IncidentLevel.CONTAINER: "the container of the member restarts, and every worker",
    IncidentLevel.POD: "the pod is replaced, the other workers restart inside their pods",
    IncidentLevel.GANG: "every pod is replaced",
}


def took(seconds: float) -> str:
    """A duration to about three digits: ``8 ms``, ``2.31 s``, ``42.0 s``, ``15 min 03 s``."""
    milliseconds = max(0, round(seconds * 1000))
    if milliseconds < 1000:  # noqa: PLR2004 - a second
        return f"{milliseconds} ms"
    if milliseconds < 9_995:  # noqa: PLR2004 - what would be shown as 10.00
        return f"{milliseconds / 1000:.2f} s"
    if milliseconds < 59_950:  # noqa: PLR2004 - what would be shown as 60.0
        return f"{milliseconds / 1000:.1f} s"
    whole = round(milliseconds / 1000)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"


def lost_steps(steps: int, at_most: int | None) -> str:
    """Lost steps with their noun: ``1 step``, or ``0 to 9 steps`` where the framework reports only some steps."""
    return f"{steps} to {at_most} steps" if at_most not in {None, steps} else counted(steps, "step")


def cause(incident: Incident) -> str:
    """Return what was seen, without a full stop."""
    return describe(incident.cause).rstrip(".")


_CHECKED: Final = {
    "Passed": "passed ({members} checked)",
    "Failed": "failed in {failures} of {members}",
    "Undecided": "did not tell who is to blame ({failures} of {members} failed)",
    "CheckFaulty": "failed in {failures} of {members}, so the check itself counts as faulty",
}


def evidence(incident: Incident) -> Iterator[str]:
    """Yield what else was seen: where it was, who ended at the same moment, where a process hung."""
    found = incident.cause
    if found.node and found.node != LOCAL_NODE:
        yield f"node {found.node}"
    if found.device:
        yield f"device {found.device}"
    if found.alike:
        yield "every member ended like this at that moment, so no pod is suspected"
    elif others := [name for name in found.tied if name != found.member]:
        yield f"ended at the same moment: {', '.join(others)}"
    if incident.stacks is not None:
        where = innermost(incident.stacks)
        yield f"{incident.stacks.member} was in {where}" if where else f"stacks of {incident.stacks.member} were taken"
    yield from map(check_words, incident.checks)


def check_words(result: CheckResult) -> str:
    """Return what a check found, and how long it took."""
    found = _CHECKED[result.result].format(failures=result.failures, members=result.members)
    seen = [f"{one.member}: {one.detail}" for one in result.failed] + [result.note]
    return "; ".join(filter(None, [f"check {result.name} {found}, {took(result.milliseconds / 1000)}", *seen]))


def attempt_checks(status: Status) -> tuple[str, ...]:
    """Return what the checks of the status' attempt found, without those that an incident keeps."""
    known, kept = status.checks, [one for incident in status.incidents for one in incident.checks]
    if known is None or known.attempt != status.attempt:
        return ()
    return tuple([check_words(one) for one in known.results if one not in kept])


def decision(incident: Incident) -> str:
    """Return what was decided and by which rule, without a full stop."""
    level = f"level {level_words(incident.level, incident.outcome)}"
    if incident.planned:
        rule = "The stop was planned, with time for a last checkpoint"
    elif incident.cause.rule:
        rule = f"Rule {incident.cause.rule} of podFailurePolicy matched"
    else:
        rule = "No rule of podFailurePolicy matched"
    if not incident.settled:
        return f"{rule}; so far {level}. The decision follows when every member is ready"
    return f"{rule}: {level}, {'charged' if incident.charged else 'not charged'} to the budget"


def level_words(level: IncidentLevel, outcome: str) -> str:
    """The level, and what it replaces unless the gang has ended or rests instead."""
    return f"{level} ({_LEVELS[level]})" if outcome in {"Open", "Restarted"} else str(level)


def cost(incident: Incident) -> str:
    """The end of a sentence about the gang, as ``restarted from step 50; 5 steps were lost, 1.25 s of training``.

    Empty while the incident is not over.
    """
    if incident.outcome != "Restarted":
        return _OUTCOMES.get(incident.outcome, "")
    step = incident.restored_step
    point = "restarted from the beginning" if step is None else f"restarted from step {step}"
    lost, most, seconds = incident.lost_steps, incident.lost_steps_at_most, incident.lost_seconds
    if lost is None:
        return f"{point}; the number of lost steps is unknown"
    if most is not None and most != lost:
        return f"{point}; {lost_steps(lost, most)} were lost: not every step was reported"
    if lost == 0:
        return f"{point}; no step was lost"
    spent = f", {took(seconds)} of training" if seconds is not None and seconds >= _LEAST_SECONDS else ""
    return f"{point}; {lost_steps(lost, None)} {'was' if lost == 1 else 'were'} lost{spent}"


def start(incident: Incident) -> str:
    """How the processes were started where the role asks for a warm start, and why some weren't; else empty."""
    warm = incident.warm_start
    if warm is None:
        return ""
    count = warm.forked + warm.executed + warm.went_on
    if warm.went_on:
        text = f"Processes that went on with the new attempt: {warm.went_on} of {count}"
        text += f"; forked from a template: {warm.forked}" if warm.forked else ""
    elif warm.forked:
        text = f"Processes forked from a template: {warm.forked} of {count}"
    elif not count:
        return f"No process was forked: {warm.obstacle}."
    else:
        text = f"Of {count} processes, none went on or was forked"
    because = f": {warm.obstacle}" if warm.obstacle else ""
    return f"{text}; {warm.member} executed its command{because}." if warm.executed else f"{text}."


def state(one: MemberSnapshot) -> str:
    """Return what the member does, in a word or two."""
    if one.finished:
        return "Finished"
    if one.terminated:
        return "Ended"
    if not one.pod:
        return "No pod"
    if one.pod_status:
        return one.pod_status
    if not one.connected:
        return "Not connected" if one.phase else "Starting"
    return one.phase


def current_step(status: Status) -> int | None:
    """Return the highest step of this attempt; None if none was reported."""
    progress = status.progress
    return None if progress is None or progress.attempt != status.attempt else progress.step


STOPPED: Final = "Stopped"
"""The phase of a gang whose processes `gangctl run` has ended, in place of the one that is stored."""


def interrupted(job: GangJob, at: float) -> tuple[str, str]:
    """Return how `gangctl run` ended, which no controller was left to store, and what to do. ``at``: epoch seconds."""
    status, name = job.status, job.metadata.name
    step = current_step(status)
    reached = "" if step is None else f", at step {step} or later"
    point = "" if job.spec.checkpoint is None else ", from the newest checkpoint that all ranks have"
    who = f"{FAILED_ALIKE}, which" if failed_alike(job) else "Ctrl-C, or a signal,"
    end = f"ended the run and every process of the gang at {moment(at)}"
    return (
        f"{who} {end}: attempt {status.attempt} was {status.phase or 'New'}{reached}",
        f"gangctl rerun {name} runs it again{point}; gangctl logs {name} has its logs",
    )


def advice(job: GangJob) -> str:
    """Return what the user can do now; empty if there is nothing to do."""
    name, status = job.metadata.name, job.status
    incident = status.incidents[0] if status.incidents else None
    member = incident.cause.member if incident is not None else ""
    logs = f"gangctl logs {name} {member} shows why" if member else "the logs of the workers show why"
    match status.phase:
        case GangPhase.HELD | GangPhase.SUSPENDED:
            return way_on(job) or "it resumes automatically"
        case GangPhase.FAILED:
            return f"{logs}; then submit the manifest again"
        case _ if warned_of(status) in {Reason.MEMBERS_SILENT, Reason.NO_MEMBER_CONNECTS, Reason.BRAKED}:
            return "workers train on; find out why the controller does not hear them (condition Degraded)"
        case GangPhase.GATHERING if incident is not None and incident.back_off_time and status.restarts.without_step:
            return _repeats(job, logs)
        case _ if hangs(status):
            return (
                f"find out what the workers wait for, then gangctl restart {name}; progress.onHang: Restart "
                "does so by itself, and takes their stacks"
            )
        case GangPhase.RUNNING:
            text = todo(warned_of(status)).replace("`", "").rstrip(".")
            return text[:1].lower() + text[1:]
        case _:
            return ""


def way_on(job: GangJob) -> str:
    """Return what a person can do for a gang that is held or suspended; empty if it resumes by itself."""
    name, status = job.metadata.name, job.status
    reasons = {one.reason for one in status.conditions if one.type in {ConditionType.READY, ConditionType.SUSPENDED}}
    if status.phase is GangPhase.HELD:
        if Reason.NO_RESTORE_POINT in reasons:
            return (
                f"make the step available and run gangctl restart {name}, or choose: --from-step N or --from-beginning"
            )
        logs = f"gangctl logs {name} {status.incidents[0].cause.member if status.incidents else ''}".rstrip()
        return f"look at the pods ({logs}); then gangctl restart {name} goes on from the restore point"
    if job.spec.suspend:
        owner = next(iter(controllers(job.metadata.model_extra or {})), None)
        return f"set spec.suspend of {' '.join(owner)} to false" if owner else f"gangctl resume {name} goes on"
    if status.given_back:
        return f"gangctl restart {name} goes on"
    if Reason.QUEUED in reasons:
        return (
            f"kubectl describe workloads -n {job.metadata.namespace} shows quota and checks; free quota, raise it, or "
            "name another queue (label kueue.x-k8s.io/queue-name)"
        )
    return ""


def _repeats(job: GangJob, logs: str) -> str:
    """Advice for a gang that fails again and again before a step is known, and when that ends."""
    budget = job.spec.recovery.budget
    end = "the restarts have no limit"
    if isinstance(budget, Windowed):
        then = "then the gang is held" if job.spec.recovery.on_exhausted == "Hold" else "then the gang fails"
        used = job.status.restarts.in_window
        are = "is" if used == 1 else "are"
        end = f"{used} of {budget.max_restarts} restarts {are} used (recovery.budget), {then}"
    return (
        f"{job.status.restarts.without_step + 1} attempts in a row failed before a step is known: correct what fails "
        f"({logs}), or end it with gangctl stop {job.metadata.name}; {end}"
    )
