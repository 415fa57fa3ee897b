"""Transitions: one function for each row of the lifecycle's table.

The rule: these functions are the only writers of ``phase``, ``phase_time`` and ``attempt``. Where an attempt begins to
gather, and where it starts, the barrier's deadlines are counted anew. A transition must not be used from a phase that
its row doesn't name.
"""

from __future__ import annotations

from typing import Any

from gangctl.api.model import changed
from gangctl.api.roles import roles_hash
from gangctl.api.status import GangPhase, HeldRank, Master, RecordedStep, RejectedStep, RestorePoint, Status, in_phase
from gangctl.core.facts.gang import Gang
from gangctl.core.lifecycle import table
from gangctl.core.lifecycle.table import Advance, Transition
from gangctl.core.policy import checkpoints, requests
from gangctl.core.policy.size import started_anew


def submit(gang: Gang, status: Status) -> Status:
    """Return the status of a new gang: pods are created for its first attempt."""
    return _moved(table.SUBMIT, gang, _seen(gang, status))


def submit_suspended(gang: Gang, status: Status) -> Status:
    """Return the status of a new gang that has no pods yet."""
    return _moved(table.SUBMIT_SUSPENDED, gang, _seen(gang, status))


def start(
    gang: Gang,
    status: Status,
    *,
    ranks: tuple[HeldRank, ...],
    masters: tuple[Master, ...],
    hosts: tuple[str, ...],
    restore_point: RestorePoint | None,
    rejected_steps: tuple[RejectedStep, ...],
    recorded_steps: tuple[RecordedStep, ...],
) -> Status:
    """Return the status of an attempt that starts: what is fixed here holds for the whole attempt."""
    step = None if restore_point is None else restore_point.step
    return _moved(
        table.START,
        gang,
        status,
        ranks=ranks,
        masters=masters,
        hosts=hosts,
        restore_point=restore_point,
        rejected_steps=rejected_steps,
        corrupt_since=None,
        recorded_steps=recorded_steps,
        completed_step=None,
        lineage=checkpoints.extended_lineage(status.lineage, status.attempt, step),
        restart_from=None,
        started_attempt=status.attempt,
        attempt_generation=gang.job.metadata.generation,
        start_time=status.start_time or gang.now,
    )


def restart(gang: Gang, status: Status) -> Status:
    """Return the status in which every worker stops for the next attempt."""
    return _moved(table.RESTART, gang, status)


def restart_with_new_pods(gang: Gang, status: Status) -> Status:
    """Return the status of the next attempt, for which every pod is replaced."""
    return _moved(table.RESTART_WITH_NEW_PODS, gang, status)


def recreate(gang: Gang, status: Status) -> Status:
    """Return the status of the same attempt, for which every pod is replaced."""
    return _moved(table.RECREATE, gang, status)


def succeed(gang: Gang, status: Status) -> Status:
    """Return the status of a gang that has ended as its success policy says."""
    return _moved(table.SUCCEED, gang, status, completion_time=gang.now)


def fail(gang: Gang, status: Status) -> Status:
    """Return the status of a gang whose incident, or whose wait, ends the job."""
    return _moved(table.FAIL, gang, status, completion_time=gang.now)


def hold(gang: Gang, status: Status) -> Status:
    """Return the status of a gang whose workers stay stopped and whose pods stay."""
    return _moved(table.HOLD, gang, status)


def fail_at_deadline(gang: Gang, status: Status) -> Status:
    """Return the status of a gang that was active for too long."""
    return _moved(table.FAIL_AT_DEADLINE, gang, status, completion_time=gang.now)


def suspend(gang: Gang, status: Status) -> Status:
    """Return the status of a gang whose pods go because its spec says so."""
    return _moved(table.SUSPEND, gang, status, start_time=None)


def give_back(gang: Gang, status: Status) -> Status:
    """Return the status of a gang whose pods go because one of them could not be replaced."""
    return _moved(table.GIVE_BACK, gang, status, start_time=None, given_back=True)


def resume(gang: Gang, status: Status, base_incarnation: int) -> Status:
    """Return the status of a gang that gets new pods, all of ``base_incarnation``, for the next attempt."""
    return _moved(
        table.RESUME,
        gang,
        _seen(gang, status),
        resumed_attempt=status.attempt + 1,
        finished=None,
        base_incarnation=base_incarnation,
        replaced=(),
        recreated=None,
        ranks=(),
        masters=(),
        hosts=(),
        size=started_anew(status),
    )


def restart_held(gang: Gang, status: Status) -> Status:
    """Return the status of a held gang whose next attempt was asked for."""
    return _moved(table.RESTART_HELD, gang, requests.take_request(gang.spec, status))


def fail_held(gang: Gang, status: Status) -> Status:
    """Return the status of a gang that was held for too long."""
    return _moved(table.FAIL_HELD, gang, status, completion_time=gang.now)


def _seen(gang: Gang, status: Status) -> Status:
    """The status that goes by the roles and the restart token of the spec as it is now."""
    return changed(requests.take_request(gang.spec, status), roles_hash=roles_hash(gang.spec.roles))


def _moved(row: Transition, gang: Gang, status: Status, **changes: Any) -> Status:
    assert status.phase in row.sources, f"{row.name} does not lead out of {status.phase}"
    attempt = status.attempt + (row.attempt is Advance.NEXT)
    if row.attempt is Advance.NEXT or row.target is GangPhase.RUNNING:
        status = changed(status, barrier_timeouts=0, deadline_time=None)
    if status.restart_wait_time is not None:
        status = changed(status, restart_wait_time=None)
    return in_phase(status, row.target, gang.now, attempt, **changes)
