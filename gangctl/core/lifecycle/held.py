"""Held: workers are stopped, and pods stay for a look.

The rule: a new ``restartToken`` is the way out, also to another restore point (``restartFrom``); ``holdTimeoutSeconds``
is the other. A gang that is held must not lose or get a pod: a person can still undo the hold.
"""

from __future__ import annotations

from gangctl.api.changes import changed
from gangctl.api.incident import IncidentLevel
from gangctl.api.reasons import Reason
from gangctl.api.status import Status
from gangctl.core.facts.gang import Gang
from gangctl.core.lifecycle import transitions
from gangctl.core.lifecycle.plan import Plan
from gangctl.core.lifecycle.plan_builder import wait, write
from gangctl.core.policy import pods, requests
from gangctl.core.policy.cause import requested
from gangctl.core.policy.deadlines import hold_timeout
from gangctl.core.record import incidents
from gangctl.words import decisions
from gangctl.words.message import Message


def hold(gang: Gang, status: Status, reason: Reason, because: Message, out: str = "") -> Plan:
    """Return the plan that holds a gang. ``status``: its incident is settled or finished. ``out``: what leads on."""
    return write(gang, transitions.hold(gang, status), reason, decisions.held(because, out), create=False)


def held(gang: Gang) -> Plan:
    """Decide for a gang that is held."""
    status = gang.status
    if requests.is_new(gang.spec, status):
        opened = incidents.opened(gang, requested(gang), IncidentLevel.PROCESS, planned=True)
        status = transitions.restart_held(gang, changed(status, incidents=opened))
        where = requests.described(gang.spec, gang.status, status)
        because = decisions.token_accepted(decisions.attempt_gathers(status.attempt, where))
        return write(gang, status, Reason.RESTARTING, because)
    end = hold_timeout(gang)
    if end is not None and gang.now >= end:
        because = decisions.hold_timeout_passed(gang.spec.recovery.hold_timeout_seconds or 0)
        return write(gang, transitions.fail_held(gang, status), Reason.HOLD_TIMEOUT, because)
    return wait(gang, decisions.as_stored(status.message), [end], pods.actions(gang, status, create=False))
