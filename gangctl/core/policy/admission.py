"""Admission: whether the cluster accepts the pods that the templates make.

The rule: while it refuses them, a gang without pods creates none, and no deadline counts; users read the cluster's own
words. A gang that has pods must not lose any because of it: it goes on, and missing pods are tried again.
"""

from __future__ import annotations

from typing import Final

from gangctl.api.conditions import ConditionType
from gangctl.api.escaping import escaped
from gangctl.api.status import ENDED, Condition, GangPhase, Status
from gangctl.core.facts.gang import Gang, raised_incarnations

REFUSED: Final = "the cluster refuses"
WORDS: Final = 640
"""So many characters of the cluster's words are repeated: the rest of the sentence has to fit as well."""
_HOW: Final = "to change the roles, set spec.suspend to true, apply them, and set it back to false"


def creates(gang: Gang, status: Status) -> bool:
    """Whether pods may be created: not while they are refused and none of the gang is there.

    Where some are there, they hold their devices, and what is refused may be a matter of quota: it is tried again.
    """
    return not is_refused(gang) or _has_pods(gang, status)


def is_refused(gang: Gang) -> bool:
    """Whether the cluster refuses the gang's pods, as far as is known."""
    return bool(refusal(gang, gang.status))


def counts_since(gang: Gang) -> float | None:
    """Since when deadlines count that need pods.

    None while pods are refused, and until it is said that they aren't any more.
    """
    accepted = stored(gang.status)
    if is_refused(gang) or (accepted is not None and accepted.status == "False"):
        return None
    return 0.0 if accepted is None else accepted.last_transition_time


def refusal(gang: Gang, status: Status) -> str:
    """The message to the user: what was seen, what happens next, what to do. Empty = the cluster accepts the pods."""
    words, old = gang.observed.refused, stored(status)
    if words is None or status.phase in ENDED:
        return old.message if old is not None and old.status == "False" else ""
    said = refused(gang)
    if not said:
        return ""
    match status.phase:
        case GangPhase.SUSPENDED:
            return f"{said}. Nothing would be created if it were resumed; the roles can be changed now"
        case GangPhase.RUNNING:
            return f"{said}. What runs goes on, but a pod that has to be replaced would not come back; {_HOW}"
        case _ if _has_pods(gang, status):
            return f"{said}. The pods that are there wait, and the missing ones are tried again; {_HOW}"
        case _:
            return f"{said}. Nothing is created until that changes; {_HOW}"


def refused(gang: Gang) -> str:
    """Why the cluster refuses the pods, in its own words; empty = it doesn't, or that isn't known."""
    words = gang.observed.refused
    text = escaped("; ".join(words or ()))
    return f"{REFUSED} the gang's pods: {text if len(text) <= WORDS else f'{text[:WORDS]}…'}" if words else ""


def _has_pods(gang: Gang, status: Status) -> bool:
    raised, base = raised_incarnations(status), status.base_incarnation
    return any(
        pod.member in gang.members and pod.incarnation == raised.get(pod.member, base) for pod in gang.observed.pods
    )


def stored(status: Status) -> Condition | None:
    """The stored condition Accepted."""
    return next((one for one in status.conditions if one.type == ConditionType.ACCEPTED), None)
