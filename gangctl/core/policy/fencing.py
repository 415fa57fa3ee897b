"""Fencing: what supervisors are told to do without a controller, and what they may go by at most.

The rule: a directive tells what the status has, so that the status knows what was told::

    told     = (isolationTimeoutSeconds, stop grace), as policy and phase have it at the last write; each change has a
               new revision, and a report returns the newest revision that its supervisor goes by
    longest >= told, and >= all that a supervisor whose worker may run was ever told and may go by still

``longest`` grows with the write that tells more. It becomes ``told`` again when an attempt starts, because only Run
directives with these values start its workers, and when every pod that may run a worker has returned the revision. It
must never be lowered for any other reason: a pod that is cut off goes by what it has heard.
"""

from __future__ import annotations

from gangctl.api.changes import changed
from gangctl.api.fencing import Fencing
from gangctl.api.status import ENDED, GangPhase, Status
from gangctl.core.facts import barrier
from gangctl.core.facts.gang import Gang, stop_grace


def told(gang: Gang, after: Status) -> Status:
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
    running = (one for one in barrier.may_run(gang) if not barrier.is_lost(gang, one))
    return all(one.heard is not None and one.heard.report.fencing >= revision for one in running)
