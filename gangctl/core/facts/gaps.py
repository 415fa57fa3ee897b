"""Gaps: how long it took a pod from one report of progress to the next, as far as this controller has heard both.

    gap     = time of the newer progress - time of the older one
    counted <=> both are of the same attempt and session and came on one connection, steps are known, the newer one
                has another step or phase, and the older one is of phase Step: the other phases have their own timeouts

Several steps that one message folds make one gap, which is as long as all of them: it errs to the safe side. What a
controller has not heard must not count: neither a time without a connection nor one without a controller.
"""

from __future__ import annotations

from gangctl.core.facts.world import Gaps, Heard, ago
from gangsidecar.wire import Report


def gaps(before: Heard | None, report: Report, at: float) -> Gaps:
    """What is known of a pod's gaps once this report has arrived; another attempt begins anew."""
    new = report.progress
    if new is None or before is None or before.step_attempt != new.attempt:
        return Gaps(-1 if new is None else new.attempt)
    old, seen = before.report.progress, before.gaps
    if old is None or old.uncounted or new.uncounted or old.phase != "Step":
        return seen
    goes_on = before.connected and before.report.session == report.session
    if not goes_on or (old.step, old.phase) == (new.step, new.phase):
        return seen
    gap = ago(at, new.age_ms) - before.step_time
    return Gaps(new.attempt, seen.seen + 1, max(seen.longest, gap))
