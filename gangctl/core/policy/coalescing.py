"""Coalescing: disruptions that come soon after each other are one restart, if the user gives them the time.

The rule: an attempt that a disruption has begun starts no sooner than ``coalesceSeconds`` after it. A fault never
waits, and a restart by hand ends the wait.
"""

from __future__ import annotations

from gangctl.api.incident import Cause
from gangctl.core.facts.defaults import Strength
from gangctl.core.facts.evidence import strength
from gangctl.core.facts.gang import Gang
from gangctl.core.policy import granted


def coalesces_until(gang: Gang, cause: Cause) -> float | None:
    """When the attempt that gathers may start; None if it needn't wait."""
    until = gang.status.incidents[0].time + gang.spec.recovery.coalesce_seconds
    waits = strength(cause) is Strength.DISRUPTION and gang.now < until and not granted.is_over(gang)
    return until if waits else None
