"""Ranks: which member runs which part of the job in this attempt.

The rule: its own member runs a place until that member's pod can't go on. Then a ready spare of the same role takes the
place and keeps it, and the member's new pod becomes the spare. A rank must not be given twice: a member holds at most
one place, and a place has at most one holder. As many places as a status can name are taken over; others wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gangctl.api.status import HeldRank
from gangctl.core.facts.fitness import is_ready
from gangctl.core.facts.gang import Gang, once

MAX_TAKEN: Final = 200
"""Places that spares hold: more of them would be too many for a status."""


@once
def assign(gang: Gang) -> Mapping[str, str | None]:
    """Place -> the ready member that runs it in this attempt; None where none can yet.

    A holder that is only slow is waited for; one whose pod is new or missing gives its place to a ready spare.
    """
    given: dict[str, str | None] = {}
    free: dict[str, Iterator[str]] = {}
    room = MAX_TAKEN - sum(place != holder for place, holder in gang.holders.items())
    for place, holder in gang.holders.items():
        if is_ready(gang, holder):
            given[place] = holder
        elif holder in gang.pods and not gang.is_fresh(holder):
            given[place] = None
        else:
            role = gang.places[place].role.name
            may_take = room > 0 or place != holder
            given[place] = next(free.setdefault(role, _ready_spares(gang, role)), None) if may_take else None
            room -= given[place] is not None and place == holder
    return given


def _ready_spares(gang: Gang, role: str) -> Iterator[str]:
    """The ready members of the role that hold no place, in order."""
    for name, member in gang.members.items():
        if member.role.name == role and name not in gang.holding and is_ready(gang, name):
            yield name


def stored(assignment: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """The complete assignment, places with the members that hold them."""
    return tuple((place, member) for place, member in assignment.items() if member is not None)


def held_ranks(assignment: Mapping[str, str | None]) -> tuple[HeldRank, ...]:
    """What the status stores of an assignment: only the places that aren't held by their own member."""
    return tuple(HeldRank(place=place, member=member) for place, member in stored(assignment) if member != place)
