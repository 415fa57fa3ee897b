"""The success policy: when a gang has succeeded.

The rule: exit 0 counts only if it came before any stop (a directive, a SIGTERM to the supervisor, fencing). If such
ends satisfy the policy when the barrier settles, the gang has succeeded, whatever its teardown looked like.
"""

from __future__ import annotations

from gangctl.api.gangjob import NeverSucceeds, Roles
from gangctl.core.facts.faults import failed_attempt
from gangctl.core.facts.gang import Gang, processes_of


def has_succeeded(gang: Gang) -> bool:
    """Whether the ends of the newest attempt that had workers satisfy the policy."""
    policy = gang.spec.success_policy
    if isinstance(policy, NeverSucceeds) or failed_attempt(gang) < 1:
        return False
    counting = [
        place
        for place, member in gang.places.items()
        if not isinstance(policy, Roles) or member.role.name in policy.roles
    ]
    return bool(counting) and all(has_finished(gang, place) for place in counting)


def has_finished(gang: Gang, place: str) -> bool:
    """Whether every process of the place ended with 0 before any stop. What became of the pod then doesn't matter."""
    attempt = failed_attempt(gang)
    good = {
        end.local_rank
        for report in gang.reports.get(gang.holders[place], ())
        for end in report.ends
        if end.attempt == attempt and end.exit_code == 0 and not end.stopped
    }
    return len(good) == processes_of(gang.places[place].role)
