"""Hangs: no rank reports progress for too long.

    hangs_at = max(newest progress of any rank, begin of the attempt, begin of listening, known) + timeout of its phase
    known    = since when a member that has reported a step in this attempt is connected; where none of them is,
               since when every member is: the one that reports may be the silent one

A silent member may be training, so its silence must not count. Nor must what it says first: steps that its framework
made while the sidecar was away are not known to it. A job that doesn't report progress must not count as hung unless a
timeout is set.
"""

from __future__ import annotations

from gangctl.api.reasons import Reason
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.gang import Gang, once
from gangsidecar.wire import Progress


def limit(gang: Gang, phase: str) -> int | None:
    """How long a gang may be silent in this phase of its training, in seconds; None: without limit."""
    progress = gang.spec.progress
    if progress.timeout_seconds is None:
        return None
    return {
        "Startup": progress.startup_timeout_seconds,
        "Checkpoint": progress.checkpoint_timeout_seconds,
        "Evaluation": progress.evaluation_timeout_seconds,
    }.get(phase, progress.timeout_seconds)


@once
def hangs_at(gang: Gang) -> float | None:
    """When the gang counts as hung if no rank reports before; None = never."""
    if gang.spec.progress.timeout_seconds is None:
        return None
    found = _reported(gang)
    newest = max(found, key=lambda one: one[0], default=None)
    phase = "Startup" if newest is None else newest[2].phase
    seconds, known = limit(gang, phase), _known_since(gang, found)
    if seconds is None or known is None:
        return None
    progressed = 0.0 if newest is None else newest[0]
    return max(progressed, gang.status.phase_time, gang.observed.listening_since, known) + seconds


def hang(gang: Gang) -> Fault | None:
    """The fault of a gang that hangs: the member that is furthest behind is named."""
    at = hangs_at(gang)
    if at is None or gang.now < at:
        return None
    found = _reported(gang)
    last = min(found, key=lambda one: (one[2].step, one[0]), default=None)
    member = next(iter(gang.holders.values())) if last is None else last[1]
    step = "no step was reported" if last is None else f"its last step was {last[2].step}"
    return Fault(Reason.HANG, member, at, gang.incarnation(member), message=f"no rank makes progress; {step}")


def _known_since(gang: Gang, found: list[tuple[float, str, Progress]]) -> float | None:
    """Since when those that are connected can tell whether there is a newer step; None while they can't."""
    reporting = [since for _, member, _ in found if (since := _connected_since(gang, member)) is not None]
    if reporting:
        return min(reporting)
    everyone = [since for member in gang.holders.values() if (since := _connected_since(gang, member)) is not None]
    return max(everyone) if len(everyone) == len(gang.holders) else None


def _connected_since(gang: Gang, member: str) -> float | None:
    heard = gang.heard_of(member)
    return heard.since if heard is not None and heard.connected else None


@once
def _reported(gang: Gang) -> list[tuple[float, str, Progress]]:
    """(time, member, progress) of every holder that has reported in this attempt."""
    heard, attempt = gang.heard_by_member, gang.status.attempt
    return [
        (one.ago(progress.age_ms), member, progress)
        for member in gang.holders.values()
        if (one := heard.get(member)) is not None
        and (progress := one.report.progress) is not None
        and progress.attempt == attempt
    ]
