"""The success policy: when a gang has succeeded.

The rule: it has succeeded once every member that the policy counts has finished (``facts/finished.py``), in whatever
phase that shows, whatever its teardown looked like and whatever became of its pods. The roles must be those that ran.
"""

from __future__ import annotations

from gangctl.api.gangjob import Roles
from gangctl.api.roles_hash import roles_hash
from gangctl.core.facts.finished import finished
from gangctl.core.facts.gang import Gang


def has_succeeded(gang: Gang) -> bool:
    """Whether every member that the policy counts has finished in the newest attempt that had workers."""
    policy = gang.spec.success_policy
    if not finished(gang):
        return False
    counting = [
        place
        for place, member in gang.places.items()
        if not isinstance(policy, Roles) or member.role.name in policy.roles
    ]
    done = bool(counting) and finished(gang).issuperset(counting)
    return done and roles_hash(gang.spec.roles) == gang.status.roles_hash
