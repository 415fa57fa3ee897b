"""Hangs: no rank reports progress for too long.

    hangs_at = max(newest progress of any rank, begin of the attempt, begin of listening) + timeout of its phase

A job that doesn't report progress must not count as hung unless a timeout is set.
"""

from __future__ import annotations

from gangctl.api.reasons import Reason
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.gang import Gang
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


def hangs_at(gang: Gang) -> float | None:
    """When the gang counts as hung if no rank reports before; None = never."""
    found = _reported(gang)
    newest = max(found, key=lambda one: one[0], default=None)
    phase = "Startup" if newest is None else newest[2].phase
    seconds = limit(gang, phase)
    if seconds is None:
        return None
    return max(0.0 if newest is None else newest[0], gang.status.phase_time, gang.observed.listening_since) + seconds


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


def _reported(gang: Gang) -> list[tuple[float, str, Progress]]:
    """(time, member, progress) of every holder that has reported in this attempt."""
    found = []
    for member in gang.holders.values():
        pod = gang.pods.get(member)
        heard = None if pod is None else gang.heard.get(pod.uid)
        progress = None if heard is None else heard.report.progress
        if heard is not None and progress is not None and progress.attempt == gang.status.attempt:
            found.append((heard.ago(progress.age_ms), member, progress))
    return found
