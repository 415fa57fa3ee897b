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
from gangctl.words.decisions import as_stored
from gangctl.words.message import Message
from gangctl.words.waits import pods_refused, refused_while

WORDS: Final = 640
"""So many characters of the cluster's words are repeated: the rest of the sentence has to fit as well."""


def creates(gang: Gang, status: Status) -> bool:
    """Whether pods may be created: not while they are refused and none of the gang is there.

    Where some are there, they hold their devices, and what is refused may be a matter of quota: it is tried again.
    """
    return not is_refused(gang) or _has_pods(gang, status)


def is_refused(gang: Gang) -> bool:
    """Whether the cluster refuses the gang's pods, as far as is known."""
    words = gang.observed.refused
    if words is None or gang.status.phase in ENDED:
        return is_stored_as_refused(gang.status)
    return bool(words)


def is_stored_as_refused(status: Status) -> bool:
    """Return whether the status says that the cluster refuses the gang's pods."""
    old = stored(status)
    return old is not None and old.status == "False"


def counts_since(gang: Gang) -> float | None:
    """Since when deadlines count that need pods.

    None while pods are refused, and until it is said that they aren't any more.
    """
    accepted = stored(gang.status)
    if is_refused(gang) or is_stored_as_refused(gang.status):
        return None
    return 0.0 if accepted is None else accepted.last_transition_time


def refusal(gang: Gang, status: Status) -> Message | None:
    """Return what was seen, what happens next, and what to do; None if the cluster accepts the pods."""
    words, old = gang.observed.refused, stored(status)
    if words is None or status.phase in ENDED:
        return as_stored(old.message) if old is not None and old.status == "False" else None
    why = refused(gang)
    if why is None:
        return None
    match status.phase:
        case GangPhase.SUSPENDED | GangPhase.RUNNING as phase:
            return refused_while(why, str(phase))
        case _:
            return refused_while(why, "Partial" if _has_pods(gang, status) else "None")


def refused(gang: Gang) -> Message | None:
    """Return why the cluster refuses the pods, in its own words; None if it doesn't, or if that isn't known."""
    words = gang.observed.refused
    text = escaped("; ".join(words or ()))
    return pods_refused(text if len(text) <= WORDS else f"{text[:WORDS]}…") if words else None


def _has_pods(gang: Gang, status: Status) -> bool:
    raised, base = raised_incarnations(status), status.base_incarnation
    return any(
        pod.member in gang.members and pod.incarnation == raised.get(pod.member, base) for pod in gang.observed.pods
    )


def stored(status: Status) -> Condition | None:
    """The stored condition Accepted."""
    return next((one for one in status.conditions if one.type == ConditionType.ACCEPTED), None)
