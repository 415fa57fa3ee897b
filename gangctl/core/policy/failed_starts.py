"""Failed starts: when a gang ends because what its template names can't be started, however often it is tried.

A start that can't work is known by the container runtime's words (``facts/starts.py``), by the supervisor, which could
not execute the command (StartFailed with exit code 126 or 127), or by a shell, which ends with the same codes::

    tries(pod)         = restarts(pod) + 1, and all of the pods of this member that failed at once before
    cannot_start(gang) = Pending, and the start of a needed pod can't work, and
                         tries(pod) >= TRIES or no container was made, and no pod of its role speaks
    again(gang)        = TRIES restarts or more since the last step, each of them for such a start

A script that is wrong fails alike in its own words. A person who watches has seen enough after three, so `gangctl run`
ends; a gang of a cluster goes by its budget, as does one whose manifest says how it is to end::

    failed_alike(job)  = its first TRIES attempts ended within SOON_SECONDS, no step was reported, and they ended by one
                         code or signal after one line, which no rule speaks of

It must not end a gang for what one node or one pod has: another pod of the role that speaks proves that the template
works. Nor for what a rule of the user's policy says of it, nor for what may come back: a row of restarts that began
with another fault goes by the budget.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.gangjob import GangJob, Recovery
from gangctl.api.incident import Cause
from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.starts import NEVER_MADE, NOT_EXECUTABLE, cannot_work, correction, reason_of
from gangctl.core.facts.world import Pod
from gangctl.core.policy.restart_backoff import in_a_row
from gangctl.words.message import Message
from gangctl.words.waits import can_never_start

TRIES: Final = 3
"""The first may meet a file system that is still being mounted; more of the same teach nothing."""
SOON_SECONDS: Final = 300.0
"""Within so many seconds from the gang's first start: three imports of a framework on a slow machine."""


def cannot_start(gang: Gang) -> Message | None:
    """Return why the start of a pod can't work; None if that isn't so, or isn't known yet."""
    if gang.status.phase is not GangPhase.PENDING:
        return None
    failing = [
        holder
        for holder in gang.holders.values()
        if (pod := gang.pods.get(holder)) is not None and cannot_work(pod.start_failure) and _is_tried(gang, pod)
    ]
    working = {gang.members[name].role.name for name in gang.speaking} if failing else set()
    failing = [name for name in failing if gang.members[name].role.name not in working]
    if not failing:
        return None
    first = gang.pods[failing[0]]
    return can_never_start(failing, reason_of(first), correction(first.start_failure))


def how_it_ends(gang: Gang) -> str:
    """Fail or Hold: a gang whose template has worked before is held, since only the image can have changed."""
    status = gang.status
    has_worked = status.started_attempt >= max(1, status.resumed_attempt)
    return "Hold" if has_worked else gang.spec.recovery.on_exhausted


def _is_tried(gang: Gang, pod: Pod) -> bool:
    failure, entry = pod.start_failure, gang.replaced.get(pod.member)
    if failure is not None and failure.exit_code is None and failure.reason in NEVER_MADE:
        return True
    return pod.restarts + 1 + (0 if entry is None else entry.failures + 1) >= TRIES


def again(gang: Gang, cause: Cause) -> bool:
    """Whether the open incident is the last of a row in which only starts failed that can't work."""
    tries = in_a_row(gang, cause)
    row = [cause, *(one.cause for one in gang.status.incidents[1:tries])]
    return len(row) == tries >= TRIES and all(_is_like(one, cause) for one in row)


def failed_alike(job: GangJob) -> bool:
    """Whether no attempt so far made a step, and the last ones failed in the same words."""
    status, asked, default = job.status, job.spec.recovery, Recovery()
    row = [one.cause for one in status.incidents if one.cause.printed][:TRIES]  # The newest isn't read at once.
    if len(row) < TRIES or (asked.budget, asked.on_exhausted) != (default.budget, default.on_exhausted):
        return False
    last = status.incidents[0]
    without_step = status.restarts.without_step + (not last.settled) == last.attempt - 1
    soon = last.time - (status.start_time or 0.0) < SOON_SECONDS
    words = {(one.reason, one.exit_code, one.signal, one.rule, one.printed) for one in row}
    return soon and without_step and len(words) == 1 and row[0].rule is None


def _is_like(one: Cause, cause: Cause) -> bool:
    by_rule = one.rule is not None
    is_start = one.reason in {Reason.START_FAILED, Reason.EXIT_CODE} and one.exit_code in NOT_EXECUTABLE
    return is_start and not by_rule and (one.reason, one.exit_code) == (cause.reason, cause.exit_code)
