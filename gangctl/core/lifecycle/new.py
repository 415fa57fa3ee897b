"""New: a gang that the controller sees for the first time.

The rule: its pods are created at once, unless it was submitted suspended, or names a queue that has not admitted it.
"""

from __future__ import annotations

from gangctl.api.reasons import Reason
from gangctl.core.facts.gang import Gang
from gangctl.core.lifecycle import transitions
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.lifecycle.plan_builder import write
from gangctl.core.policy import queueing
from gangctl.words import decisions


def new(gang: Gang) -> Plan:
    """Decide for a gang without a status."""
    if gang.spec.suspend:
        status = transitions.submit_suspended(gang, gang.status)
        return write(gang, status, Reason.SUSPENDED, decisions.submitted_suspended())
    if not queueing.is_admitted(gang):
        status = transitions.submit_suspended(gang, gang.status)
        return write(gang, status, Reason.QUEUED, queueing.waiting(gang))
    status = transitions.submit(gang, gang.status)
    return write(gang, status, Reason.SUBMITTED, decisions.submitted(status.attempt, len(gang.members)))
