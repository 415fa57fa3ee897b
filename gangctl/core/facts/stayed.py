"""The member that stayed: the only one whose worker went on when those of all others had ended by themselves.

    stayed(m) = every other member that runs a place, and two at least, ended by itself in one way; m did not, and
                its newest step is below theirs, or SIGTERM did not end it

The watchdog of a collective aborts the ranks that wait, and not the one that they wait for: of a hang that ends so, the
victims end first. It is known when m is Ready for the next attempt, so that no end of it is on its way. Of two members
it must not be told: one of them ended, and the other simply was not done yet.
"""

from __future__ import annotations

from typing import Final

from gangctl.core.facts.defaults import Strength
from gangctl.core.facts.evidence import Fault
from gangctl.core.facts.faults import failed_attempt
from gangctl.core.facts.gang import Gang

VICTIMS: Final = 2
"""So many at least, to be all others."""


def stayed(gang: Gang, found: tuple[Fault, ...]) -> str:
    """The member that stayed; empty if there is none, or if that isn't known yet. ``found``: all evidence."""
    ends = {one.member: one for one in found if one.strength is Strength.END}
    ways = {(one.reason, one.exit_code, one.signal) for one in ends.values()}
    rest, heard = gang.holding - ends.keys(), gang.heard_by_member
    if len(ends) < VICTIMS or len(ways) > 1 or len(rest) != 1:
        return ""
    (member,) = rest
    one = heard.get(member)
    if one is None or one.ready_for != gang.status.attempt or gang.is_fresh(member):
        return ""
    attempt = failed_attempt(gang)
    steps = [made.step for name in ends if (made := heard.get(name)) is not None and made.step_attempt == attempt]
    reached = [step for step in steps if step is not None]
    behind = one.step_attempt == attempt and one.step is not None and bool(reached) and one.step < min(reached)
    return member if behind or one.report.killed_ms is not None else ""
