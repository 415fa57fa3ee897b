"""How a gang ends while it gathers, or is held for a look.

The rule: success first, if the ends before any stop satisfy the policy; then what the settled cause comes to. Never
does an end that a person can still undo (Held) throw pods away, and never does an end create one.
"""

from __future__ import annotations

from gangctl.api.reasons import Reason
from gangctl.api.status import GangPhase, Status
from gangctl.core.facts.gang import Gang
from gangctl.core.facts.ranks import assign
from gangctl.core.lifecycle.drafting import moved, write
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.policy.cause import Settlement
from gangctl.core.policy.success import has_succeeded
from gangctl.core.record import incidents


def succeed(gang: Gang, status: Status) -> Plan:
    """The gang had succeeded when its barrier settled, whatever its teardown looked like."""
    status = incidents.finished(gang, status, "Succeeded")
    status = moved(gang, status, GangPhase.SUCCEEDED, completion_time=gang.now)
    return write(
        gang, status, Reason.SUCCEEDED, "every worker that counts had ended with 0 before anything was stopped"
    )


def end(gang: Gang, settlement: Settlement) -> Plan:
    """Write 2 of an incident that ends the job, or holds it."""
    if has_succeeded(gang):
        return succeed(gang, gang.status)
    status = incidents.settled(gang, gang.status, settlement, gang.status.restore_point, assign(gang))
    if settlement.outcome == "Held":
        return _hold(gang, status, settlement.reason, settlement.because)
    return _fail(gang, status, settlement.reason, settlement.because)


def give_up(gang: Gang, reason: Reason, because: str, how: str) -> Plan:
    """The end after a deadline. ``how``: Fail, or anything else for Held."""
    if how == "Fail":
        return _fail(gang, incidents.finished(gang, gang.status, "Failed"), reason, because)
    return _hold(gang, incidents.finished(gang, gang.status, "Held"), reason, because)


def _fail(gang: Gang, status: Status, reason: Reason, because: str) -> Plan:
    status = moved(gang, status, GangPhase.FAILED, completion_time=gang.now)
    return write(gang, status, reason, because, create=False)


def _hold(gang: Gang, status: Status, reason: Reason, because: str) -> Plan:
    status = moved(gang, status, GangPhase.HELD)
    return write(gang, status, reason, f"held: {because}; change restartToken to go on", create=False)
